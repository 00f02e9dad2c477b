"""How swiglu is checked: swish(gate) up on two tensors."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size, load, normal

_swish = load("swish")


def candidate(*tensors: Tensor, **mode: object) -> Tensor:
    return torch.ops.truefuse.swiglu(*tensors, **mode)


def eager(gate: Tensor, up: Tensor, *, gate_rounding: str) -> Tensor:
    if gate_rounding == "storage":
        return F.silu(gate) * up
    wide = torch.promote_types(gate.dtype, torch.float32)
    return (F.silu(gate.to(wide)) * up.to(wide)).to(gate.dtype)


def reference(gate: Tensor, up: Tensor, *, gate_rounding: str) -> Tensor:
    """In float64, where nothing is rounded to a half type."""
    return _swish.reference(gate) * up


def exact(inputs: Inputs, mode: Mode) -> list[Any]:
    """As swish's."""
    activated = _swish.exact({"x": inputs["gate"]}, {})
    return [a * b for a, b in zip(activated, inputs["up"].flatten().tolist(), strict=True)]


def reference_gradients(
    grad: Tensor, gate: Tensor, up: Tensor, *, gate_rounding: str
) -> tuple[Tensor, Tensor]:
    return *_swish.reference_gradients(grad * up, gate), grad * _swish.reference(gate)


def gradient_scale(
    grad: Tensor, gate: Tensor, up: Tensor, *, gate_rounding: str
) -> tuple[Tensor, Tensor]:
    return *_swish.gradient_scale(grad * up, gate), (grad * _swish.reference(gate)).abs()


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    """kind: "normal", or "one", where up is 1 and gates are swish's sweep: nothing but the activation
    is left."""
    if kind == "one":
        gate = _swish.make_inputs(size, dtype, device, generator, "sweep")["x"]
        return {"gate": gate, "up": torch.ones_like(gate)}
    values = normal((2, *size), dtype, generator)
    return {"gate": (3 * values[0]).to(dtype).to(device), "up": values[1].to(dtype).to(device)}


def exchanged(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"gate": inputs["up"], "up": inputs["gate"]}, mode


def off_by_one(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"gate": inputs["gate"].roll(1, -1), "up": inputs["up"]}, mode


case = Case(
    name="swiglu",
    operator="truefuse::swiglu",
    candidate=candidate,
    baselines={"eager": eager},
    reference=reference,
    exact=exact,
    make_inputs=make_inputs,
    modes=({"gate_rounding": "none"}, {"gate_rounding": "storage"}),
    dtypes=(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    kinds=("normal", "one"),
    gradients=("gate", "up"),
    reference_gradients=reference_gradients,
    gradient_scale=gradient_scale,
    strict_kinds=("one",),
    faults={"gate and up exchanged": exchanged, "gate off by one": off_by_one},
)
