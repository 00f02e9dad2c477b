"""How swish is checked, and the functions that its description names."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size


def reference(x: Tensor) -> Tensor:
    """In float64; at -inf, where inf * 0 says nothing, the limit."""
    return torch.where(x == -math.inf, -0.0, x * torch.sigmoid(x))


def reference_gradients(grad: Tensor, x: Tensor) -> Tensor:
    slope = torch.sigmoid(x) * (1 + x * torch.sigmoid(-x))
    return grad * torch.where(x.isinf(), (x > 0).to(x.dtype), slope)


def gradient_scale(grad: Tensor, x: Tensor) -> Tensor:
    """The size of the two summands, which cancel where swish is smallest, at -1.28."""
    return grad.abs() * torch.sigmoid(x) * (1 + (x * torch.sigmoid(-x)).abs())


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    x = 3 * torch.randn(size, generator=generator, dtype=torch.float64)
    return {"x": x.to(dtype).to(device)}


def off_by_one(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": inputs["x"].roll(1, -1)}, mode


def other_sign(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": -inputs["x"]}, mode


case = Case(
    name="swish",
    candidate=lambda *tensors, **named: torch.ops.my_ops.swish(*tensors, **named),
    baselines={"eager": F.silu},
    reference=reference,
    reference_gradients=reference_gradients,
    gradient_scale=gradient_scale,
    make_inputs=make_inputs,
    dtypes=(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    gradients=("x",),
    faults={"off by one": off_by_one, "the sign of x": other_sign},
)
