"""How add_rms_norm is checked, and the functions that its description names."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size


def _normed(total: Tensor, weight: Tensor, eps: float, weight_form: str) -> Tensor:
    factor = torch.rsqrt(total.square().mean(-1, keepdim=True) + eps)
    return total * factor * (1 + weight if weight_form == "1 + w" else weight)


def reference(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, weight_form: str, sum_rounding: str
) -> Tensor:
    """In float64, where nothing is rounded to a half type."""
    residual += x
    return _normed(residual, weight, eps, weight_form)


def eager(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, weight_form: str, sum_rounding: str
) -> Tensor:
    """In float32, rounded where the operator rounds."""
    total = residual.float() + x.float()
    residual.copy_(total)
    if sum_rounding == "before":
        total = residual.float()
    return _normed(total, weight.float(), eps, weight_form).to(x.dtype)


def rounded_reference(dtype: torch.dtype) -> Callable[..., Tensor]:
    """In float64, with the sum rounded to `dtype` where the operator rounds it."""

    def rounded(
        x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, weight_form: str, sum_rounding: str
    ) -> Tensor:
        total = residual + x
        residual.copy_(total.to(dtype))
        if sum_rounding == "before":
            total = residual.clone()
        return _normed(total, weight, eps, weight_form)

    return rounded


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    values = torch.randn((2, *size), generator=generator, dtype=torch.float64)
    weight = torch.rand(size[-1], generator=generator, dtype=torch.float64) - 0.3
    tensors = {"x": values[0], "residual": 2 * values[1], "weight": weight}
    return {name: tensor.to(dtype).to(device) for name, tensor in tensors.items()}


def other_weight(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return inputs, {**mode, "weight_form": "w" if mode["weight_form"] == "1 + w" else "1 + w"}


def without_residual(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {**inputs, "residual": torch.zeros_like(inputs["residual"])}, mode


case = Case(
    name="add_rms_norm",
    candidate=lambda *tensors, **mode: torch.ops.my_ops.add_rms_norm(*tensors, **mode),
    baselines={"eager": eager},
    reference=reference,
    yardstick=eager,
    rounded_reference=rounded_reference,
    make_inputs=make_inputs,
    mutates=("residual",),
    modes=tuple(
        {"eps": 1e-6, "weight_form": form, "sum_rounding": rounding}
        for form in ("w", "1 + w")
        for rounding in ("before", "after")
    ),
    dtypes=(torch.float32, torch.bfloat16, torch.float16),
    faults={"the other weight": other_weight, "no residual": without_residual},
    timing_dtype=torch.bfloat16,
)
