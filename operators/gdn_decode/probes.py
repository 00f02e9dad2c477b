"""What `truefuse probe gdn_decode` asks: which layouts the operator reads, at the size of a model.

The states are by their size out of reach of one question for each element: they are asked about in a
small layer.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import beside
from truefuse.layouts import BoundLayout, layout
from truefuse.probe import Probe
from truefuse.probe_producer import Producer

TAPS = 4
FEW_ROWS = 4
MODEL = {"H": 16, "G": 3, "K": 128, "V": 128}
SMALL = {"H": 2, "G": 3, "K": 8, "V": 8}
MODELS = ("qwen3-next", "qwen3.5")
maths = beside(__file__, "reference")


class Layer:
    """One layer's weights and states, other in every head, the states not zero and not symmetric; and
    rows of one sequence, to which one argument's rows are added."""

    def __init__(
        self, sizes: dict[str, int], norm: bool = True, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        self.sizes, self.norm, self.dtype = sizes, norm, dtype
        H, G, K, V = (sizes[name] for name in "HGKV")
        self.H, self.HV, self.K, self.V = H, H * G, K, V
        channels = 2 * H * K + H * G * V
        random = torch.Generator().manual_seed(1)

        def normal(*shape: int, by: float = 1.0) -> Tensor:
            return by * torch.randn(shape, generator=random, dtype=torch.float64)

        self.rows = {
            "q": normal(H, K), "k": normal(H, K), "v": normal(H, G, V), "z": normal(H, G, V),
            "b": normal(H, G), "a": normal(H, G),
        }  # fmt: skip
        self.rows = {name: t.to(dtype) for name, t in self.rows.items()}
        self.window = normal(channels, TAPS - 1).to(dtype)
        self.state = normal(self.HV, K, V, by=0.3).float()
        self.weights = maths.Weights(
            conv=normal(channels, TAPS, by=0.5).to(dtype), A_log=normal(self.HV, by=0.5).float(),
            dt_bias=normal(self.HV).to(dtype), norm=(1 + normal(V, by=0.1)).to(dtype) if norm else None,
        )  # fmt: skip

    def bound(self, name_or_text: str) -> BoundLayout:
        return layout(name_or_text).bind(**self.sizes)

    def packed(self, name_or_text: str) -> Tensor:
        """The layer's own row in a layout."""
        bound = self.bound(name_or_text)
        names = [s["name"] for s in bound.segments if not s["padding"]]
        apart = layout(" | ".join(f"{n}={'H K' if n in 'qk' else 'H G' if n in 'ba' else 'H G V'}"
                                  for n in names)).bind(**self.sizes)  # fmt: skip
        return apart.convert(torch.cat([self.rows[n].flatten() for n in names]), bound)

    def kernel(
        self, qkvz_layout: str, ba_layout: str, qkvz: Tensor | None = None, ba: Tensor | None = None,
        state: Tensor | None = None, state_layout: str = "[HV,V,K]",
    ) -> dict[str, Tensor]:  # fmt: skip
        """The operator on rows [n, columns], or states [n, HV, K, V] in the order of `state_layout`."""
        given = next(t for t in (qkvz, ba, state) if t is not None)
        count, device = len(given), given.device
        every = lambda t: t.to(device).expand(count, *t.shape).contiguous()  # noqa: E731
        if state is None:
            state = self.state if state_layout == "[HV,K,V]" else self.state.transpose(1, 2)
            state = every(state.contiguous())
        conv_state = every(self.window)
        w = self.weights
        weights = [
            None if t is None else t.to(device) for t in (w.conv, None, w.A_log, w.dt_bias, w.norm)
        ]
        norm = {"norm_eps": w.norm_eps, "gate_activation": w.gate} if self.norm else {}
        out = torch.ops.truefuse.gdn_decode(
            every(self.packed(qkvz_layout)) if qkvz is None else qkvz,
            every(self.packed(ba_layout)) if ba is None else ba,
            conv_state, state, *weights, qkvz_layout=qkvz_layout, ba_layout=ba_layout,
            state_layout=state_layout, num_k_heads=self.H, num_v_heads=self.HV, head_k_dim=self.K,
            head_v_dim=self.V, rounding="fp32", **norm,
        )  # fmt: skip
        return {"out": out, "inputs": conv_state[..., -1]}

    def reference(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The mathematics, with some of q, k, v, z, b, a and the state [n, HV, K, V] replaced. A few rows at a
        time: each has a state of its own, and memory for many takes longer to get than to fill."""
        count = len(next(iter(tensors.values())))
        if count > FEW_ROWS:
            parts = zip(*(t.split(FEW_ROWS) for t in tensors.values()), strict=True)
            found = [self.reference(dict(zip(tensors, part, strict=True))) for part in parts]
            return {name: torch.cat([one[name] for one in found]) for name in found[0]}
        every = lambda t: t.double().expand(count, *t.shape)  # noqa: E731
        rows = {
            name: (tensors[name] if name in tensors else every(t))[:, None]
            for name, t in self.rows.items()
        }
        rows |= {name: rows[name].flatten(2, 3) for name in "vzba"}
        state = tensors.get("state", every(self.state))
        found = maths.decode(every(self.window), state, maths.Rows(**rows), self.weights)
        return {"out": found.out[:, 0], "inputs": found.inputs[..., -1]}


def rows_probe(
    layer: Layer, declared: str, read: str | None = None, argument: str = "qkvz", **more: Any
) -> Probe:
    """Of rows that hold q, k, v and z (`argument` "qkvz") or b and a ("ba"). A kernel that reads rows in
    `read` instead is one that was given the wrong text."""
    texts = {f"{name}_layout": f"{MODELS[0]}/{name}" for name in ("qkvz", "ba")}
    texts[f"{argument}_layout"] = read or declared
    return Probe(
        f"{argument} ({declared})", layer.bound(declared),
        kernel=lambda rows: layer.kernel(**texts, **{argument: rows}),
        reference=layer.reference, dtype=layer.dtype, batch=16, **more,
    )  # fmt: skip


def state_probe(layer: Layer, declared: str, state_layout: str, **more: Any) -> Probe:
    bound = layer.bound(declared)
    keys_last = declared.replace(" ", "").endswith("VK")

    def kernel(rows: Tensor) -> dict[str, Tensor]:
        shape = (layer.V, layer.K) if state_layout == "[HV,V,K]" else (layer.K, layer.V)
        state = rows.reshape(len(rows), layer.HV, *shape).contiguous()
        return layer.kernel(
            f"{MODELS[0]}/qkvz", f"{MODELS[0]}/ba", state=state, state_layout=state_layout
        )

    def reference(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        state = tensors["state"].flatten(1, 2)
        return layer.reference({"state": state.transpose(-1, -2) if keys_last else state})

    return Probe(f"state {state_layout}", bound, kernel, reference, **more)


def merged(model: str, argument: str, device_layer: Layer) -> Producer:
    """What is between a model's checkpoint and the operator: Qwen3-Next's one weight, Qwen3.5's two,
    merged as serving engines do."""
    if model == MODELS[0]:
        parts = {f"in_proj_{argument}": f"{model}/{argument}"}
    elif argument == "qkvz":
        parts = {"in_proj_qkv": f"{model}/qkv", "in_proj_z": "z=H G V"}
    else:
        parts = {"in_proj_b": "b=H G", "in_proj_a": "a=H G"}
    return Producer(
        f"{argument} ({model}/{argument})", device_layer.bound(f"{model}/{argument}"),
        {name: device_layer.bound(text) for name, text in parts.items()},
        project=lambda weights, x: F.linear(x, torch.cat([weights[name] for name in parts])),
    )  # fmt: skip


_model = Layer(MODEL)
# What a gate, or one element of a state, changes is little: not to be told apart in bfloat16.
_exact, _small = Layer(MODEL, dtype=torch.float32), Layer(SMALL, norm=False, dtype=torch.float32)

probes = [
    *(rows_probe(_model, f"{model}/qkvz") for model in MODELS),
    *(rows_probe(_exact, f"{model}/ba", argument="ba") for model in MODELS),
    state_probe(_small, "state=H G V K", "[HV,V,K]"),
    state_probe(_small, "state=H G K V", "[HV,K,V]"),
]
producers = [merged(model, argument, _model) for model in MODELS for argument in ("qkvz", "ba")]
