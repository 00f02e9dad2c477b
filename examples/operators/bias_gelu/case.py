"""How bias_gelu is checked, and the functions that its description names."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size


def eager(x: Tensor, bias: Tensor, *, approximate: str) -> Tensor:
    return F.gelu(x + bias, approximate=approximate)


def gradients(grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str) -> tuple[Tensor, Tensor]:
    grad_x = torch.ops.aten.gelu_backward(grad, x + bias, approximate=approximate)
    return grad_x, grad_x.sum(tuple(range(x.dim() - 1))) if x.dim() > 1 else grad_x


def reference(x: Tensor, bias: Tensor, *, approximate: str) -> Tensor:
    """In float64 and without cancellation: 1 + erf and 1 + tanh lose every digit below -6."""
    v = x + bias
    cut = v.clamp(-100, 100)  # beyond, the factor is 0 or 1, and its derivative would be inf * 0
    if approximate == "tanh":
        factor = torch.sigmoid(2 * math.sqrt(2 / math.pi) * (cut + 0.044715 * cut**3))
    else:
        factor = 0.5 * torch.special.erfc(-cut * math.sqrt(0.5))
    return torch.where(v == -math.inf, -0.0, v * factor)


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    x = 3 * torch.randn(size, generator=generator, dtype=torch.float64)
    bias = torch.randn(size[-1], generator=generator, dtype=torch.float64)
    return {"x": x.to(dtype).to(device), "bias": bias.to(dtype).to(device)}


def other_approximation(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return inputs, {"approximate": "none" if mode["approximate"] == "tanh" else "tanh"}


def bias_off_by_one(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": inputs["x"], "bias": inputs["bias"].roll(1)}, mode


case = Case(
    name="bias_gelu",
    candidate=lambda *tensors, **mode: torch.ops.my_ops.bias_gelu(*tensors, **mode),
    baselines={"eager": eager},
    reference=reference,
    make_inputs=make_inputs,
    modes=({"approximate": "tanh"}, {"approximate": "none"}),
    dtypes=(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    faults={"the other approximation": other_approximation, "bias off by one": bias_off_by_one},
)
