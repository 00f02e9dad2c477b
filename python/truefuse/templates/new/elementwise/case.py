"""How my_operator is checked, and the functions that its description names."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size


def reference(x: Tensor) -> Tensor:
    """The mathematics: gets and gives float64. Never the kernel's own formula."""
    return torch.where(x > 0, x, x / 8)


def eager(x: Tensor) -> Tensor:
    """The same in PyTorch: the yardstick of accuracy and of speed."""
    return F.leaky_relu(x, 0.125)


def gradients(grad: Tensor, x: Tensor) -> Tensor:
    """Of x, for autograd: in PyTorch's operations."""
    return grad * torch.where(x > 0, 1.0, 0.125)


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    return {"x": x.to(dtype).to(device)}


def off_by_one(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": inputs["x"].roll(1, -1)}, mode


case = Case(
    name="my_operator",
    candidate=lambda *tensors, **named: torch.ops.my_ops.my_operator(*tensors, **named),
    baselines={"eager": eager},
    reference=reference,
    make_inputs=make_inputs,
    dtypes=(torch.float32, torch.bfloat16, torch.float16),
    gradients=("x",),
    faults={"off by one": off_by_one},  # plausible mistakes, which the gate has to catch
)
