"""How rotary_embedding is checked, and the functions that its description names."""

from __future__ import annotations

import torch
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size


def _split(x: Tensor, pairs: str) -> tuple[Tensor, Tensor]:
    return (x[..., ::2], x[..., 1::2]) if pairs == "adjacent" else x.chunk(2, dim=-1)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, pairs: str) -> Tensor:
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)  # the same for every head
    a, b = _split(x, pairs)
    turned = (a * cos - b * sin, b * cos + a * sin)
    if pairs == "adjacent":
        return torch.stack(turned, dim=-1).flatten(-2)
    return torch.cat(turned, dim=-1)


def reference(x: Tensor, cos: Tensor, sin: Tensor, *, pairs: str) -> Tensor:
    return _rotated(x, cos, sin, pairs)


def eager(x: Tensor, cos: Tensor, sin: Tensor, *, pairs: str) -> Tensor:
    return _rotated(x.float(), cos, sin, pairs).to(x.dtype)


def gradients(grad: Tensor, x: Tensor, cos: Tensor, sin: Tensor, *, pairs: str) -> Tensor:
    """A rotation back."""
    return _rotated(grad.float(), cos, -sin, pairs)


def scale(x: Tensor, cos: Tensor, sin: Tensor, *, pairs: str) -> Tensor:
    """The sums of two products may cancel."""
    return _rotated(x.abs(), cos.abs(), sin.abs(), pairs).abs() + x.abs()


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    """A size is [tokens.., heads, half]."""
    *tokens, heads, half = size
    x = torch.randn((*tokens, heads, 2 * half), generator=generator, dtype=torch.float64)
    angle = 6 * torch.rand((*tokens, half), generator=generator, dtype=torch.float64)
    return {
        "x": x.to(dtype).to(device),
        "cos": angle.cos().float().to(device),
        "sin": angle.sin().float().to(device),
    }


def other_pairs(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return inputs, {"pairs": "half" if mode["pairs"] == "adjacent" else "adjacent"}


def backwards(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {**inputs, "sin": -inputs["sin"]}, mode


case = Case(
    name="rotary_embedding",
    candidate=lambda *tensors, **mode: torch.ops.my_ops.rotary_embedding(*tensors, **mode),
    baselines={"eager": eager},
    reference=reference,
    scale=scale,
    make_inputs=make_inputs,
    modes=({"pairs": "half"}, {"pairs": "adjacent"}),
    dtypes=(torch.float32, torch.bfloat16, torch.float16),
    faults={"the other pairs": other_pairs, "the other way round": backwards},
    small_size=(3, 2, 4),
    medium_size=(17, 3, 33),
    special_sizes=((1, 1, 1), (1, 1, 7), (2, 3, 8)),
    empty_sizes=((0, 2, 4), (3, 0, 4)),
    rank_sizes=((2, 4), (3, 2, 4), (2, 3, 2, 4)),
    edge_sizes=((1, 1, 1), (2, 3, 5), (4, 4, 4), (3, 2, 64), (5, 7, 31)),
    numeric_size=(32, 8, 64),
    timing_sizes=((2048, 32, 64), (16, 32, 64)),
    timing_dtype=torch.bfloat16,
)
