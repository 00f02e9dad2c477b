"""Feed-forward layers: bias_gelu (GPT-2 and BERT classes) and swiglu (Llama and Qwen classes)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import activations
from transformers.pytorch_utils import Conv1D

from truefuse.integrations.transformers.replacement import (
    Forward,
    Place,
    Replacement,
    Unsupported,
    needs_gradient,
    plain,
)

# Which GELU an activation is. FastGELU and quick_gelu are other functions and stay what they are.
_TANH = {"NewGELUActivation", "GELUTanh", "PytorchGELUTanh"}
_EXACT = {"GELUActivation"}


def _approximation(activation: object) -> str:
    kind = type(activation).__name__
    if isinstance(activation, nn.GELU):
        return activation.approximate
    if kind in _TANH:
        return "tanh"
    if kind in _EXACT:
        return "none"
    raise Unsupported(f"its activation is {kind}, which is neither the tanh nor the exact GELU")


def _without_bias(projection: nn.Module, x: Tensor) -> Tensor:
    if isinstance(projection, Conv1D):
        return x @ projection.weight
    return F.linear(x, projection.weight)


def _bias_gelu(place: Place, projection: str, activation: str) -> Forward:
    """(layer, x) -> gelu(projection(x)), the projection's bias left to the operator."""
    found = getattr(place.module, projection)
    plain(found, nn.Linear, Conv1D)
    if found.bias is None:
        raise Unsupported("its projection has no bias")
    approximate = _approximation(getattr(place.module, activation))

    def activated(layer: nn.Module, x: Tensor) -> Tensor:
        place.hit()
        project = getattr(layer, projection)
        return place.call(_without_bias(project, x), project.bias, approximate=approximate)

    return activated


def _gpt2(place: Place) -> Forward:
    activated = _bias_gelu(place, "c_fc", "act")

    def forward(mlp: Any, hidden_states: Tensor) -> Tensor:
        if needs_gradient(hidden_states, mlp):
            return place.original(mlp, hidden_states)
        return mlp.dropout(mlp.c_proj(activated(mlp, hidden_states)))

    return forward


def _bert(place: Place) -> Forward:
    activated = _bias_gelu(place, "dense", "intermediate_act_fn")

    def forward(intermediate: Any, hidden_states: Tensor) -> Tensor:
        if needs_gradient(hidden_states, intermediate):
            return place.original(intermediate, hidden_states)
        return activated(intermediate, hidden_states)

    return forward


def _gated(place: Place) -> Forward:
    """down(silu(gate(x)) * up(x)); the operator is called as swiglu(gate, up)."""
    activation = place.module.act_fn
    if not isinstance(activation, (nn.SiLU, activations.SiLUActivation)):
        raise Unsupported(f"its activation is {type(activation).__name__}, not SiLU")

    def forward(mlp: Any, x: Tensor) -> Tensor:
        if needs_gradient(x, mlp):
            return place.original(mlp, x)
        place.hit()
        return mlp.down_proj(place.call(mlp.gate_proj(x), mlp.up_proj(x)))

    return forward


REPLACEMENTS = (
    Replacement("bias_gelu", ("GPT2MLP",), _gpt2),
    Replacement(
        "bias_gelu", ("BertIntermediate", "RobertaIntermediate", "ElectraIntermediate"), _bert
    ),
    Replacement(
        "swiglu",
        ("LlamaMLP", "Qwen2MLP", "Qwen3MLP", "Qwen3NextMLP", "Qwen3_5MLP", "Qwen3_5MoeMLP"),
        _gated,
    ),
)
