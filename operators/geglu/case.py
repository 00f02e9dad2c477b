"""How geglu is checked: gelu(gate) up on two tensors."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import Inputs, Mode, load

_swiglu = load("swiglu")
_bias_gelu = load("bias_gelu")


def candidate(*tensors: Tensor, **mode: object) -> Tensor:
    return torch.ops.truefuse.geglu(*tensors, **mode)


def eager(gate: Tensor, up: Tensor, *, approximate: str, gate_rounding: str) -> Tensor:
    if gate_rounding == "storage":
        return F.gelu(gate, approximate=approximate) * up
    wide = torch.promote_types(gate.dtype, torch.float32)
    return (F.gelu(gate.to(wide), approximate=approximate) * up.to(wide)).to(gate.dtype)


def reference(gate: Tensor, up: Tensor, *, approximate: str, gate_rounding: str) -> Tensor:
    """In float64, where nothing is rounded to a half type."""
    return _bias_gelu.reference(gate, _no_bias(gate), approximate=approximate) * up


def _no_bias(gate: Tensor) -> Tensor:
    return torch.zeros((), dtype=gate.dtype, device=gate.device)


def exact(inputs: Inputs, mode: Mode) -> list[Any]:
    """As bias_gelu's."""
    gate = inputs["gate"]
    activated = _bias_gelu.exact({"x": gate, "bias": _no_bias(gate)}, mode)
    return [a * b for a, b in zip(activated, inputs["up"].flatten().tolist(), strict=True)]


def reference_gradients(
    grad: Tensor, gate: Tensor, up: Tensor, *, approximate: str, gate_rounding: str
) -> tuple[Tensor, Tensor]:
    given, form = (gate, _no_bias(gate)), {"approximate": approximate}
    of_gate, _ = _bias_gelu.reference_gradients(grad * up, *given, **form)
    return of_gate, grad * _bias_gelu.reference(*given, **form)


def gradient_scale(
    grad: Tensor, gate: Tensor, up: Tensor, *, approximate: str, gate_rounding: str
) -> tuple[Tensor, Tensor]:
    given, form = (gate, _no_bias(gate)), {"approximate": approximate}
    of_gate, _ = _bias_gelu.gradient_scale(grad * up, *given, **form)
    return of_gate, (grad * _bias_gelu.reference(*given, **form)).abs()


def other_approximation(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return inputs, {**mode, "approximate": "none" if mode["approximate"] == "tanh" else "tanh"}


case = dataclasses.replace(
    _swiglu,
    name="geglu",
    operator="truefuse::geglu",
    candidate=candidate,
    baselines={"eager": eager},
    reference=reference,
    exact=exact,
    reference_gradients=reference_gradients,
    gradient_scale=gradient_scale,
    modes=tuple(
        {"approximate": form, "gate_rounding": rounding}
        for form in ("tanh", "none")
        for rounding in ("none", "storage")
    ),
    faults={**_swiglu.faults, "the other approximation": other_approximation},
)
