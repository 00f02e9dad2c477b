"""The layouts that are said for a layer's rows, asked of transformers' own layer and of the operator in it.

No comparison of two computations with the same opinion: the probe changes one element of a projection's
output at a time, and float64 by definition says which logical element that was.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

from misread import other_layout
from torch import Tensor, nn
from transformers import DynamicCache

from truefuse import probe
from truefuse.integrations.transformers import gdn, tiny, use
from truefuse.layouts import layout

_path = Path(__file__).resolve().parents[3] / "operators/gdn_decode/reference.py"
_spec = importlib.util.spec_from_file_location("gdn_reference_for_layers", _path)
assert _spec is not None and _spec.loader is not None
reference = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = reference
_spec.loader.exec_module(reference)

MODELS = [name for name in tiny.MODELS if "gdn_decode" in tiny.MODELS[name].operators]
H, G, K, V = 2, 3, 16, 8
CHANNELS = 2 * H * K + H * G * V
INTERLEAVED = (gdn.INTERLEAVED["qkvz_layout"], gdn.INTERLEAVED["ba_layout"])
# Two projections each, which are asked together.
FLAT = (
    f"{gdn.FLAT['qkvz_layout']} | {gdn.FLAT['z_layout']}",
    f"{gdn.FLAT['ba_layout']} | {gdn.FLAT['a_layout']}",
)


class Given(nn.Module):
    """A projection that gives what it was given, whatever comes in."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.rows = torch.full((1, columns), 0.25)

    def forward(self, x: Tensor) -> Tensor:
        return self.rows.expand(len(x), -1).reshape(*x.shape[:-1], -1)


class Step:
    """One decode step of a model's first layer, its projections taken out: rows in, output and states
    out. Nothing else differs between the sequences of a batch."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(3)
        self.model = tiny.MODELS[name].build().eval().requires_grad_(False)
        self.layer = self.model.model.layers[0].linear_attn
        nn.init.uniform_(self.layer.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.layer.A_log, -3, -1)  # slow decay: none is lost in a single step
        self.conv, self.state = torch.randn(CHANNELS, 4), torch.randn(H * G, K, V)
        flat = hasattr(self.layer, "in_proj_qkv")
        self.declared = FLAT if flat else INTERLEAVED
        names = (("qkv", "z"), ("b", "a")) if flat else (("qkvz",), ("ba",))
        self.projections = [[self._given(f"in_proj_{n}") for n in pair] for pair in names]
        self.layer.out_proj = nn.Identity()

    def _given(self, name: str) -> Given:
        given = Given(getattr(self.layer, name).out_features)
        setattr(self.layer, name, given)
        return given

    def run(self, which: int, rows: Tensor) -> dict[str, Tensor]:
        """`which` projections give these rows."""
        given = self.projections[which]
        parts = rows.split([projection.rows.shape[1] for projection in given], 1)
        cache = DynamicCache(config=self.model.config)
        cache.update_conv_state(self.conv.repeat(len(rows), 1, 1), 0)
        cache.update_recurrent_state(self.state.repeat(len(rows), 1, 1, 1), 0)
        before = [projection.rows for projection in given]
        for projection, part in zip(given, parts, strict=True):
            projection.rows = part
        out = self.layer(torch.zeros(len(rows), 1, 64), cache)
        for projection, part in zip(given, before, strict=True):
            projection.rows = part
        found = cache.layers[0]
        return {"out": out[:, 0], "conv": found.conv_states[0], "state": found.recurrent_states[0]}

    def defined(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same step by definition; what is not asked about is 0.25."""
        count = len(next(iter(tensors.values())))
        sizes = {"q": (H, K), "k": (H, K), "v": (H * G, V), "z": (H * G, V), "b": (H * G,)}
        sizes["a"] = sizes["b"]
        rows = {
            name: tensors[name].reshape(count, 1, *size)
            if name in tensors
            else torch.full((count, 1, *size), 0.25, dtype=torch.float64)
            for name, size in sizes.items()
        }
        layer = self.layer
        weights = reference.Weights(
            layer.conv1d.weight.squeeze(1),
            layer.A_log,
            layer.dt_bias,
            norm=layer.norm.weight,
            norm_eps=layer.norm.variance_epsilon,
        )
        window = self.conv.repeat(count, 1, 1)
        state = self.state.repeat(count, 1, 1, 1)
        want = reference.decode(window[..., 1:], state, reference.Rows(**rows), weights)
        return {"out": want.out.flatten(1), "conv": want.inputs, "state": want.states[:, -1]}

    def asked(self, which: int, declared: str) -> probe.Finding:
        bound = layout(declared).bind(H=H, G=G, K=K, V=V)
        question = probe.Probe(
            ("qkvz", "ba")[which],
            bound,
            kernel=lambda rows: self.run(which, rows),
            reference=self.defined,
            batch=bound.size + 1,
        )
        return probe.run(question)


@pytest.mark.parametrize("which", [0, 1], ids=["rows", "gates"])
@pytest.mark.parametrize("name", MODELS)
def test_the_layer_and_the_operator_in_it_read_what_is_said(name, which):
    step = Step(name)
    found = step.asked(which, step.declared[which])
    assert found.agrees is True, found.lines()
    with use(step.model, ["gdn_decode"]) as swap:
        found = step.asked(which, step.declared[which])
    assert found.agrees is True and swap.hits(), found.lines()


@pytest.mark.parametrize("name", MODELS)
def test_the_probe_finds_the_other_models_layout(name):
    """In the operator that was told it, and where it is said of transformers' own layer."""
    step = Step(name)
    with use(step.model, ["gdn_decode"], {"gdn_decode": other_layout}):
        found = step.asked(0, step.declared[0])
    assert found.agrees is False and "declared" in (found.first_disagreement() or "")
    other = INTERLEAVED if step.declared is FLAT else FLAT
    assert step.asked(0, other[0]).agrees is False
    assert step.asked(1, other[1]).agrees is False
