"""How my_operator is checked, and the functions that its description names."""

from __future__ import annotations

import torch
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size


def reference(x: Tensor) -> Tensor:
    """The mathematics: gets and gives float64. Never the kernel's own formula."""
    return x.abs().sum(-1)


def eager(x: Tensor) -> Tensor:
    """The same in PyTorch: the yardstick of accuracy and of speed."""
    return x.float().abs().sum(-1)


def gradients(grad: Tensor, x: Tensor) -> Tensor:
    """Of x, for autograd: in PyTorch's operations."""
    return grad.unsqueeze(-1) * x.sign()


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    return {"x": x.to(dtype).to(device)}


def one_less(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    x = inputs["x"].clone()
    x[..., -1:] = 0
    return {"x": x}, mode


case = Case(
    name="my_operator",
    candidate=lambda *tensors, **named: torch.ops.my_ops.my_operator(*tensors, **named),
    baselines={"eager": eager},
    reference=reference,
    make_inputs=make_inputs,
    dtypes=(torch.float32, torch.bfloat16, torch.float16),
    gradients=("x",),
    faults={
        "the last column left out": one_less
    },  # plausible mistakes, which the gate has to catch
)
