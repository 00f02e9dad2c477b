"""Feed-forward layers: bias_gelu (GPT-2 and BERT classes) and swiglu (Llama and Qwen classes)."""

from __future__ import annotations

from collections.abc import Callable
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
    listened_to,
    needs_gradient,
    not_plain,
    refuse,
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


def _bias_gelu(
    place: Place, projection: str, activation: str
) -> Callable[[Any, Tensor], Tensor | None]:
    """(layer, x) -> gelu(projection(x)), the projection's bias left to the operator; None where the original has
    to run."""

    def complaint(layer: nn.Module) -> str | None:
        act = getattr(layer, activation)
        return not_plain(getattr(layer, projection), nn.Linear, Conv1D) or (
            listened_to(act) if isinstance(act, nn.Module) else None
        )

    refuse(complaint(place.module))
    if getattr(place.module, projection).bias is None:
        raise Unsupported("its projection has no bias")
    approximate = _approximation(getattr(place.module, activation))

    def activated(layer: nn.Module, x: Tensor) -> Tensor | None:
        if needs_gradient(x, layer) or complaint(layer):
            return None
        place.hit()
        project = getattr(layer, projection)
        return place.call(_without_bias(project, x), project.bias, approximate=approximate)

    return activated


def _gpt2(place: Place) -> Forward:
    activated = _bias_gelu(place, "c_fc", "act")

    def forward(mlp: Any, hidden_states: Tensor) -> Tensor:
        hidden = activated(mlp, hidden_states)
        if hidden is None:
            return place.original(mlp, hidden_states)
        return mlp.dropout(mlp.c_proj(hidden))

    return forward


def _bert(place: Place) -> Forward:
    activated = _bias_gelu(place, "dense", "intermediate_act_fn")

    def forward(intermediate: Any, hidden_states: Tensor) -> Tensor:
        hidden = activated(intermediate, hidden_states)
        return place.original(intermediate, hidden_states) if hidden is None else hidden

    return forward


def _gated(place: Place) -> Forward:
    """down(silu(gate(x)) * up(x)); the operator is called as swiglu(gate, up)."""
    activation = place.module.act_fn
    if not isinstance(activation, (nn.SiLU, activations.SiLUActivation)):
        raise Unsupported(f"its activation is {type(activation).__name__}, not SiLU")
    refuse(listened_to(activation))

    def forward(mlp: Any, x: Tensor) -> Tensor:
        if needs_gradient(x, mlp) or listened_to(mlp.act_fn):
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
