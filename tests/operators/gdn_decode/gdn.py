"""What the tests of gdn_decode share: random problems in both row layouts, and the reference."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import truefuse  # noqa: F401  registers the operator

INTERLEAVED = {"qkvz_layout": "H (q=K | k=K | v=G V | z=G V)", "ba_layout": "H (b=G | a=G)"}
FLAT = {"qkvz_layout": "q=H K | k=H K | v=H G V | z=H G V", "ba_layout": "b=H G | a=H G"}
LAYOUTS = {"interleaved": INTERLEAVED, "flat": FLAT}

_path = Path(__file__).resolve().parents[3] / "operators/gdn_decode/reference.py"
_spec = importlib.util.spec_from_file_location("gdn_reference", _path)
assert _spec is not None and _spec.loader is not None
reference = importlib.util.module_from_spec(_spec)
sys.modules["gdn_reference"] = reference
_spec.loader.exec_module(reference)


@dataclass
class Problem:
    """Logical tensors of one call, from which rows in either layout are made."""

    H: int = 2
    G: int = 3
    K: int = 16
    V: int = 8
    W: int = 4
    batch: int = 2
    tokens: int = 1
    dtype: torch.dtype = torch.bfloat16
    state_dtype: torch.dtype = torch.float32
    norm: bool = True
    gate: str = "silu"
    slow: bool = False  # decay near 1 and small updates
    seed: int = 0
    device: str = "cpu"
    rows: Any = field(init=False)
    weights: Any = field(init=False)
    window: Tensor = field(init=False)  # [B, C, W - 1]
    state: Tensor = field(init=False)  # [B, HV, K, V]

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(self.seed)
        C = self.channels
        self.rows = self.new_rows()
        rates = self.normal(self.HV).abs() * (1e-3 if self.slow else 1) + 1e-4
        self.weights = reference.Weights(
            conv=(0.5 * self.normal(C, self.W)).to(self.dtype),
            A_log=rates.log().float(),
            dt_bias=self.normal(self.HV).to(self.dtype),
            norm=(1 + 0.1 * self.normal(self.V)).to(self.dtype) if self.norm else None,
            gate=self.gate,
        )
        self.window = self.normal(self.batch, C, self.W - 1).to(self.dtype)
        self.state = (0.3 * self.normal(self.batch, self.HV, self.K, self.V)).to(self.state_dtype)

    @property
    def HV(self) -> int:
        return self.H * self.G

    @property
    def channels(self) -> int:
        return 2 * self.H * self.K + self.HV * self.V

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random, dtype=torch.float64)

    def new_rows(self) -> Any:
        lead = (self.batch, self.tokens)
        shift = -4 if self.slow else 0
        tensors = [
            self.normal(*lead, self.H, self.K), self.normal(*lead, self.H, self.K),
            self.normal(*lead, self.HV, self.V), self.normal(*lead, self.HV, self.V),
            self.normal(*lead, self.HV) + shift, self.normal(*lead, self.HV),
        ]  # fmt: skip
        return reference.Rows(*(t.to(self.dtype) for t in tensors))

    def packed(self, layout: str, rows: Any = None) -> tuple[Tensor, Tensor]:
        """qkvz and ba, by reshaping and joining as the models' own code does it backwards."""
        r = self.rows if rows is None else rows
        if layout == "flat":
            parts = [r.q, r.k, r.v, r.z]
            return torch.cat([p.flatten(2) for p in parts], 2), torch.cat([r.b, r.a], 2)
        by_head = lambda t: t.flatten(2).unflatten(2, (self.H, t.shape[2:].numel() // self.H))  # noqa: E731
        qkvz = torch.cat([by_head(t) for t in (r.q, r.k, r.v, r.z)], 3).flatten(2)
        return qkvz, torch.cat([by_head(r.b), by_head(r.a)], 3).flatten(2)

    def sizes(self) -> dict[str, int]:
        return {
            "num_k_heads": self.H, "num_v_heads": self.HV, "head_k_dim": self.K, "head_v_dim": self.V,
        }  # fmt: skip

    def keywords(self, layout: str, **changes: Any) -> dict[str, Any]:
        words = {**LAYOUTS[layout], **self.sizes(), "state_layout": "[HV,V,K]", "rounding": "fp32"}
        if self.norm:
            words |= {"norm_eps": self.weights.norm_eps, "gate_activation": self.gate}
        return {**words, **changes}

    def call(
        self, layout: str = "interleaved", conv_state: Tensor | None = None,
        state: Tensor | None = None, qkvz: Tensor | None = None, ba: Tensor | None = None, **changes: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Output and both states; without states, on copies of the problem's own, sequence b in
        slot b."""
        rows = self.packed(layout)
        words = self.keywords(layout, **changes)
        if state is None:
            state = self.state
            if words["state_layout"] == "[HV,V,K]":
                state = state.transpose(-1, -2)
            state = state.contiguous().clone()
        conv_state = self.window.clone() if conv_state is None else conv_state
        w = self.weights
        out = torch.ops.truefuse.gdn_decode(
            rows[0] if qkvz is None else qkvz, rows[1] if ba is None else ba, conv_state, state, w.conv,
            w.conv_bias, w.A_log, w.dt_bias, w.norm, **words,
        )  # fmt: skip
        return out, conv_state, state

    def expected(self, rounding: str = "fp32") -> Any:
        rounded = self.dtype if rounding == "transformers" else None
        return reference.decode(self.window, self.state, self.rows, self.weights, rounded)


def only_decaying(**sizes: Any) -> Problem:
    """Its state takes nothing up, and loses a thousandth or so."""
    problem = Problem(dtype=torch.float32, slow=True, **sizes)
    problem.rows.b.fill_(-100)
    return problem


def worst_ulp(got: Tensor, want: Tensor) -> float:
    """Of float32 beside float64."""
    unit = torch.finfo(torch.float32).eps * torch.exp2(torch.frexp(want).exponent.double() - 1)
    return float(((got.double() - want).abs() / unit).max())


def distance(got: Tensor, want: Tensor) -> float:
    """Relative L2; 0 where both are zero."""
    return float((got.double() - want.double()).norm() / want.double().norm().clamp(min=1e-30))


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)
