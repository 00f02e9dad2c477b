"""Calls that a contract allows, beyond the plain ones: sizes, ranks, layouts, addresses, and tensors whose
memory is not their contents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Case, Inputs, Size
from truefuse.context import Context
from truefuse.negatives import shifted


@dataclass(frozen=True)
class Variant:
    label: str
    inputs: Inputs
    # Leading dimensions that collapse to no single row stride may be refused, by name.
    may_refuse: bool = False
    advice: str = ""  # to whoever gets it wrong


def variants(context: Context, contract: dict[str, Any], dtype: torch.dtype) -> Iterator[Variant]:
    arguments = [a for a in contract["arguments"] if a["kind"] == "tensor"]
    case = context.case
    packed = any(argument["pack"] for argument in arguments)
    kind = case.kinds[0]

    def inputs(*size: int) -> Inputs:
        return context.inputs(size, dtype, kind, "variants")

    for kind_of_size, sizes in (("empty", case.empty_sizes), ("rank", case.rank_sizes)):
        for size in sizes:
            if packed or len(size) == len(case.small_size):
                text = list(size) if kind_of_size == "empty" or 1 in size else len(size)
                yield Variant(f"{kind_of_size} {text}", inputs(*size))
    plain = inputs(*case.small_size)
    deep = inputs(3, 4, 16) if packed and len(case.small_size) == 2 else plain
    long = _long(case)
    for argument in arguments:
        name, layout = argument["name"], argument["layout"]
        if long and isinstance(plain.get(name), Tensor):
            yield from _long_rows(argument, inputs(*long))
        if not isinstance(plain.get(name), Tensor) or not plain[name].numel():
            continue

        def relaid(
            label: str, value: Tensor, base: Inputs, may_refuse: bool = False, advice: str = ""
        ) -> Variant:
            return Variant(f"{name} {label}", {**base, name: value}, may_refuse, advice)  # noqa: B023

        value = plain[name]
        if argument.get("alignment", 1) <= value.element_size():
            yield relaid("unaligned", shifted(value), plain)
        if value.is_floating_point() and name not in case.mutates:
            # What `x.conj().imag` is: whoever reads its memory reads the other sign.
            advice = f": call {name}.resolve_neg() before its memory is read, or refuse it by name"
            yield relaid("negated lazily", torch._neg_view(-value), plain, True, advice)
        if layout in ("rows-strided", "strided") and value.dim() >= 2:
            yield relaid("sliced", _inside(value, (0, 3)), plain)
            yield relaid("every second row", torch.stack((value, value), dim=1)[:, 0], plain)
            if name not in case.mutates:
                yield relaid("one row for all", value[:1].expand_as(value), plain)
        if layout in ("rows-strided", "strided") and deep[name].dim() >= 3:
            inner = deep[name]
            yield relaid("without first of the middle", _inside(inner, (1, 0)), deep, True)
            swapped = inner.transpose(0, 1).contiguous().transpose(0, 1)
            yield relaid("leading dimensions swapped", swapped, deep, True)
        if layout == "strided":
            yield relaid("strided", torch.stack((value, value), dim=-1)[..., 0], plain)
            if name not in case.mutates and value.is_floating_point():
                one = value.flatten()[:1].expand(value.numel()).view_as(value)
                yield relaid("expanded", one, plain)


def _long(case: Case) -> Size | None:
    """A few rows of the longest that are timed: what is chosen by the length of a row is chosen here too."""
    longest = max((size[-1] for size in case.timing_sizes if len(size) == 2), default=0)
    is_plane = len(case.small_size) == 2
    return (3, longest) if is_plane and longest > case.small_size[1] else None


def _long_rows(argument: dict[str, Any], base: Inputs) -> Iterator[Variant]:
    """In addresses that no vector divides."""
    name, value = argument["name"], base[argument["name"]]
    length = f"of {base[name].numel()} elements"
    if argument.get("alignment", 1) <= value.element_size():
        yield Variant(f"{name} {length} unaligned", {**base, name: shifted(value)})
    if argument["layout"] in ("rows-strided", "strided") and value.dim() >= 2:
        yield Variant(f"{name} {length} sliced", {**base, name: _inside(value, (0, 3))})


def _inside(tensor: Tensor, extra: tuple[int, int]) -> Tensor:
    """The same elements inside a larger tensor: `extra` more before last but one, after last."""
    shape = list(tensor.shape)
    shape[-2] += extra[0]
    shape[-1] += extra[1]
    larger = tensor.new_full(shape, 77.0)
    view = larger[..., extra[0] :, : tensor.shape[-1]]
    view.copy_(tensor)
    return view
