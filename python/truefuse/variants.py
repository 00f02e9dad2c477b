"""Calls that a contract allows, beyond the plain ones: sizes, ranks, layouts and addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Inputs
from truefuse.context import Context
from truefuse.negatives import shifted

EMPTY = ((0, 8), (3, 0), (2, 0, 8))
RANKS = ((8,), (3, 8), (2, 3, 8), (2, 1, 3, 8), (2, 1, 3, 1, 8))


@dataclass(frozen=True)
class Variant:
    label: str
    inputs: Inputs
    # Leading dimensions that collapse to no single row stride may be refused, by name.
    may_refuse: bool = False

    @property
    def is_empty(self) -> bool:
        return any(tensor.numel() == 0 for tensor in self.inputs.values())


def variants(context: Context, contract: dict[str, Any], dtype: torch.dtype) -> Iterator[Variant]:
    tensors = [a for a in contract["arguments"] if a["kind"] == "tensor"]
    packed = any(argument["pack"] for argument in tensors)
    kind = context.case.kinds[0]

    def inputs(*size: int) -> Inputs:
        return context.inputs(size, dtype, kind, "variants")

    for size in EMPTY:
        if packed or len(size) == 2:
            yield Variant(f"empty {list(size)}", inputs(*size))
    for size in RANKS:
        if packed or len(size) == 2:
            yield Variant(f"rank {len(size)}", inputs(*size))
    yield Variant("hidden 1", inputs(5, 1))
    plain = inputs(5, 24)
    deep = inputs(3, 4, 16) if packed else plain
    for argument in tensors:
        name, layout = argument["name"], argument["layout"]
        if name not in plain:
            continue

        def relaid(label: str, value: Tensor, base: Inputs, may_refuse: bool = False) -> Variant:
            return Variant(f"{name} {label}", {**base, name: value}, may_refuse)  # noqa: B023

        value = plain[name]
        if argument.get("alignment", 1) <= value.element_size():
            yield relaid("unaligned", shifted(value), plain)
        if layout in ("rows-strided", "strided") and value.dim() >= 2:
            yield relaid("sliced", _inside(value, (0, 3)), plain)
            yield relaid("every second row", torch.stack((value, value), dim=1)[:, 0], plain)
            yield relaid("one row for all", value[:1].expand_as(value), plain)
        if layout in ("rows-strided", "strided") and deep[name].dim() >= 3:
            inner = deep[name]
            yield relaid("without first of the middle", _inside(inner, (1, 0)), deep, True)
            swapped = inner.transpose(0, 1).contiguous().transpose(0, 1)
            yield relaid("leading dimensions swapped", swapped, deep, True)
        if layout == "strided":
            yield relaid("strided", torch.stack((value, value), dim=-1)[..., 0], plain)
            yield relaid(
                "expanded", value.flatten()[:1].expand(value.numel()).view_as(value), plain
            )


def _inside(tensor: Tensor, extra: tuple[int, int]) -> Tensor:
    """The same elements inside a larger tensor: `extra` more before last but one, after last."""
    shape = list(tensor.shape)
    shape[-2] += extra[0]
    shape[-1] += extra[1]
    larger = tensor.new_full(shape, 77.0)
    view = larger[..., extra[0] :, : tensor.shape[-1]]
    view.copy_(tensor)
    return view
