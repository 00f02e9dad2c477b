"""How row_sum is checked, and the functions that its description names."""

from __future__ import annotations

import torch
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size


def reference(x: Tensor) -> Tensor:
    return x.sum(-1)


eager = reference


def gradients(grad: Tensor, x: Tensor) -> Tensor:
    return grad.unsqueeze(-1).expand_as(x)


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    return {"x": x.to(dtype).to(device)}


def without_the_last(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    x = inputs["x"].clone()
    x[..., -1:] = 0
    return {"x": x}, mode


def next_row(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": inputs["x"].roll(1, 0)}, mode


case = Case(
    name="row_sum",
    candidate=lambda *tensors, **named: torch.ops.my_ops.row_sum(*tensors, **named),
    baselines={"eager": eager},
    reference=reference,
    reference_gradients=lambda grad, x: gradients(grad, x),
    make_inputs=make_inputs,
    dtypes=(torch.float32, torch.bfloat16, torch.float16),
    gradients=("x",),
    faults={"without the last element": without_the_last, "the next row": next_row},
)
