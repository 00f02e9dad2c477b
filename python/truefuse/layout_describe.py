"""From a map of offsets back to the language of layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from truefuse.layouts import BoundLayout, layout


@dataclass(frozen=True)
class _Open:
    """A segment that is still to be written: its axes with their strides, outermost first."""

    name: str
    base: int
    axes: tuple[tuple[str, int, int], ...]  # (axis or part, extent, stride); extents over 1
    declared: tuple[str, ...]  # All axes, in the declared order.
    ones: tuple[str, ...]  # Those of size 1, which may stand anywhere.

    def without_outermost(self) -> _Open:
        return replace(self, axes=self.axes[1:])

    def is_dense(self, size: int) -> bool:
        for _, extent, stride in self.axes:
            if extent * stride != size:
                return False
            size = stride
        return size == 1

    def text(self) -> str:
        names = [name for name, _, _ in self.axes]
        for one in self.ones:
            later = self.declared[self.declared.index(one) + 1 :]
            at = next((i for i, name in enumerate(names) if _axis(name) in later), len(names))
            names.insert(at, one)
        return f"{self.name}={' '.join(names) or '1'}"

    @property
    def span(self) -> int:
        return 1 + sum((extent - 1) * stride for _, extent, stride in self.axes)


def _axis(part: str) -> str:
    """K of K/4 and of K%4."""
    return part.split("/")[0].split("%")[0]


def _parts(name: str, steps: list[int]) -> list[tuple[str, int, int]] | None:
    """An axis, or the parts that it is split into, from how far each index lies behind index 0."""
    divisors, strides = [1], [steps[1]]
    for i in range(2, len(steps)):
        if steps[i] != steps[i % divisors[-1]] + i // divisors[-1] * strides[-1]:
            divisors.append(i)
            strides.append(steps[i])
    ends = [*divisors[1:], len(steps)]
    if any(end % divisor for divisor, end in zip(divisors, ends, strict=True)):
        return None
    parts = []
    for divisor, end, stride in zip(divisors, ends, strides, strict=True):
        inside = f"/{divisor}" if divisor > 1 else ""
        outside = f"%{end // divisor}" if end < len(steps) else ""
        parts.append((name + inside + outside, end // divisor, stride))
    return parts


def describe(elements: Tensor, declared: BoundLayout) -> str | None:
    """The layout in which each offset holds the element that has offset `elements[offset]` in
    `declared`; None if there is none, or none that this finds."""
    place = {element: offset for offset, element in enumerate(elements.tolist()) if element >= 0}
    if len(place) != int((elements >= 0).sum()):
        return None  # An element is read twice.
    segments = []
    for segment in declared.segments:
        if segment["padding"]:
            continue
        origin = declared.offset(segment["name"], *(0 for _ in segment["axes"]))
        if origin not in place:
            return None
        axes = []
        for axis in segment["axes"]:
            if axis["size"] == 1:
                continue
            steps = [
                place.get(origin + sum(n // p["divisor"] % p["extent"] * p["stride"] for p in axis["parts"]), 0)
                - place[origin]
                for n in range(axis["size"])
            ]  # fmt: skip
            parts = _parts(axis["name"], steps)
            if parts is None:
                return None
            axes += parts
        if any(stride <= 0 for _, _, stride in axes):
            return None
        axes.sort(key=lambda axis: -axis[2])
        names = tuple(axis["name"] for axis in segment["axes"])
        ones = tuple(axis["name"] for axis in segment["axes"] if axis["size"] == 1)
        segments.append(_Open(segment["name"], place[origin], tuple(axes), names, ones))
    text = _write(segments, 0, len(elements))
    if text is None:
        return None
    # What was read off a few elements is held against all of them.
    bound = layout(text).bind(**declared.sizes)
    if bound.size != len(elements) or not torch.equal(
        declared.index_map(bound), elements.clamp(min=-1)
    ):
        return None
    return text


def _write(segments: list[_Open], begin: int, size: int) -> str | None:
    if len(segments) == 1 and segments[0].is_dense(size):
        return segments[0].text()
    outer = {segment.axes[0] if segment.axes else None for segment in segments}
    first = next(iter(outer))
    if len(outer) == 1 and first is not None and first[1] * first[2] == size:
        text = _write([segment.without_outermost() for segment in segments], begin, first[2])
        return None if text is None else f"{first[0]} ({text})"
    groups: list[list[_Open]] = []
    end = begin
    for segment in sorted(segments, key=lambda s: s.base):
        if groups and segment.base < end:
            groups[-1].append(segment)
        else:
            groups.append([segment])
        end = max(end, segment.base + segment.span)
    texts = []
    at = begin
    for i, group in enumerate(groups):
        after = groups[i + 1][0].base if i + 1 < len(groups) else begin + size
        low, wide = _extent(group, at, after)
        if (low, wide) == (begin, size):
            return None  # Neither nested nor side by side.
        text = _write(group, low, wide)
        if text is None:
            return None
        texts += [f"_={low - at}"] * (low > at) + [text]
        at = low + wide
    texts += [f"_={begin + size - at}"] * (begin + size > at)
    return " | ".join(texts)


def _extent(group: list[_Open], begin: int, end: int) -> tuple[int, int]:
    """Where a group begins, and how wide it is, with the gaps of its outermost axis if they have room
    between `begin` and `end`."""
    low = group[0].base
    span = max(s.base + s.span for s in group) - low
    outer = {s.axes[0] if s.axes else None for s in group}
    first = next(iter(outer))
    if len(outer) == 1 and first is not None:
        wide = first[1] * first[2]
        start = min(low, end - wide)
        if span <= wide and start >= begin:
            return start, wide
    return low, span
