"""How my_operator is checked, and the functions that its description names."""

from __future__ import annotations

import torch
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size


def reference(x: Tensor) -> Tensor:
    """The mathematics: gets and gives float64. Never the kernel's own formula."""
    return x - x.mean(-1, keepdim=True)


def eager(x: Tensor) -> Tensor:
    """The same in PyTorch: the yardstick of accuracy and of speed."""
    return x - x.mean(-1, keepdim=True)


def gradients(grad: Tensor, x: Tensor) -> Tensor:
    """Of x, for autograd: in PyTorch's operations."""
    return grad - grad.mean(-1, keepdim=True)


def scale(x: Tensor) -> Tensor:
    """Differences cancel: errors count in units of what is subtracted."""
    return x.abs() + x.abs().mean(-1, keepdim=True)


def gradient_scale(grad: Tensor, x: Tensor) -> Tensor:
    """As `scale`, of the gradient of x."""
    return scale(grad)


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    x = torch.randn(size, generator=generator, dtype=torch.float64) + 0.5
    return {"x": x.to(dtype).to(device)}


def without_mean(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": inputs["x"] + torch.linspace(0, 1, inputs["x"].shape[-1]).to(inputs["x"])}, mode


case = Case(
    name="my_operator",
    candidate=lambda *tensors, **named: torch.ops.my_ops.my_operator(*tensors, **named),
    baselines={"eager": eager},
    reference=reference,
    scale=scale,
    gradient_scale=gradient_scale,
    make_inputs=make_inputs,
    dtypes=(torch.float32, torch.bfloat16, torch.float16),
    gradients=("x",),
    faults={"a slope left in": without_mean},  # plausible mistakes, which the gate has to catch
)
