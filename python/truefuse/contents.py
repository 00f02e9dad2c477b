"""Contents that data has and random numbers have not: padding, one sign, order. Whoever looks at the data before
the work, for what can be left out or given back, is seen here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from truefuse.case import Inputs
from truefuse.context import is_floating


def _half_zero(tensor: Tensor, first: bool) -> Tensor:
    changed, half = tensor.clone(), tensor.shape[-1] // 2
    (changed[..., :half] if first else changed[..., half:]).zero_()
    return changed


def _one_far_larger(tensor: Tensor, place: int) -> Tensor:
    """As activations of large models have it: one of a row is a thousand times the rest."""
    changed = tensor.clone()
    changed[..., place] = 1000 * tensor.abs().amax().clamp(min=1e-3)
    return changed


PATTERNS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros where rows begin": lambda tensor: _half_zero(tensor, True),
    "zeros where rows end": lambda tensor: _half_zero(tensor, False),
    "zeros": torch.zeros_like,
    "of one sign": torch.abs,
    "of the other sign": lambda tensor: -tensor.abs(),
    "all alike": lambda tensor: tensor.flatten()[:1].expand(tensor.numel()).view_as(tensor).clone(),
    "one far larger where rows begin": lambda tensor: _one_far_larger(tensor, 0),
    "one far larger where rows end": lambda tensor: _one_far_larger(tensor, -1),
    "in order": lambda tensor: tensor.sort(-1).values,
}


def others(inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    """(what is other, inputs): each floating input of more than one element in turn, the rest as they are."""
    for name, value in inputs.items():
        if is_floating(value) and value.dim() and value.numel() > 1:
            for label, change in PATTERNS.items():
                yield f"{name} {label}", {**inputs, name: change(value)}
