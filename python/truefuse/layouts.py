"""Layouts: who each element of a memory block is. A thin face of the library's; see docs/layouts.md."""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from truefuse import _native

_TEXT, _INT, _INTS = ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p


def _function(name: str, *arguments: Any) -> Any:
    function = _native._declare(name, *arguments)

    def call(*values: Any) -> Any:
        return _native._answer(function(*(_bytes(v) if isinstance(v, str) else v for v in values)))

    return call


def _bytes(text: str) -> bytes:
    """What a text of C cannot hold, a NUL or half a character, becomes a '?', which no layout has."""
    return text.replace("\0", "?").encode(errors="replace")


_named = _function("truefuse_layouts")
_parse = _function("truefuse_layout_parse", _TEXT)
_bind = _function("truefuse_layout_bind", _TEXT, _TEXT)
_offset = _function("truefuse_layout_offset", _TEXT, _TEXT, _TEXT, _INTS, _INT)
_element = _function("truefuse_layout_element", _TEXT, _TEXT, _INT)
_compare = _function("truefuse_layout_compare", _TEXT, _TEXT, _TEXT, _TEXT, _INT)
_convert = _function("truefuse_layout_convert", _TEXT, _TEXT, _TEXT, _TEXT)
_index_map = _function("truefuse_layout_index_map", _TEXT, _TEXT, _TEXT, _TEXT, _INTS, _INT)
_share = _function("truefuse_layout_share", _TEXT, _TEXT, _TEXT, _INT, _INT, _INT)
_share_map = _function("truefuse_layout_share_map", _TEXT, _TEXT, _TEXT, _INT, _INT, _INTS, _INT)
_emit = _function("truefuse_layout_emit", _TEXT, _TEXT, _TEXT)


def _int64(value: int) -> int:
    """ctypes would cut a longer number off silently."""
    if not -(2**63) <= value < 2**63:
        raise RuntimeError(f"layout: {value} does not fit in 64 bits")
    return value


def _whole(name: str, size: Any) -> int:
    try:
        return operator.index(size)
    except TypeError:
        raise RuntimeError(
            f"layout: the size {name} is {size!r}; it must be a whole number"
        ) from None


def named() -> list[dict[str, str]]:
    """The layouts that ship: name, text, provenance."""
    return _named()


def layout(text: str) -> Layout:
    """A layout, written out (``"H (q=K | k=K)"``) or by name (``"qwen3-next/qkvz"``).

    Raises RuntimeError that points at the character that is wrong.
    """
    found = _parse(text)
    return Layout(found["text"], tuple(found["names"]))


@dataclass(frozen=True)
class Layout:
    text: str
    names: tuple[str, ...]  #: The sizes to give.

    def bind(self, **sizes: int) -> BoundLayout:
        """With sizes for its names; names that it does not mention are allowed."""
        text = " ".join(f"{name}={_whole(name, size)}" for name, size in sizes.items())
        found = _bind(self.text, text)
        return BoundLayout(self.text, found["sizes"], found["size"], found["segments"])


@dataclass(frozen=True)
class Element:
    segment: str  #: "_" for padding.
    index: tuple[int, ...]  #: One per axis, in the order of the text.


@dataclass(frozen=True)
class Conversion:
    """What it takes to bring a tensor into another order."""

    kind: str  #: "nothing", "view", "copy" (once, by the expression), "gather" (by the index map).
    expression: str  #: In PyTorch, of ``x``; empty if there is none.
    expression_moves: int  #: Elements that the expression reads and writes, per row.
    gather_moves: int  #: The same for a gather, which also reads one int64 index per element.
    dropped: tuple[str, ...]  #: Segments that the other layout has not.

    def cheapest(self, itemsize: int, rows: int = 1) -> tuple[str, int]:
        """ "nothing", "view", "expression" or "gather", and the bytes that it reads and writes, the
        index of a gather counted once."""
        if self.kind in ("nothing", "view"):
            return self.kind, 0
        gather = self.gather_moves * itemsize * rows + self.gather_moves // 2 * 8
        expression = self.expression_moves * itemsize * rows
        if self.expression and expression <= gather:
            return "expression", expression
        return "gather", gather


@dataclass(frozen=True)
class Share:
    """A rank's share under tensor parallelism."""

    size: int
    first: int  #: The rank's first index of the shared axis.
    replicated: tuple[str, ...]  #: Segments that every rank holds whole.
    stretches: tuple[tuple[int, int, int], ...]  #: (offset in the whole, in the share, length)
    more: bool  #: There are more stretches than were asked for.
    _where: tuple[str, str, str, int, int] = field(repr=False)

    @cached_property
    def index(self) -> torch.Tensor:
        """int64 [size]: ``share = whole[..., index]``, -1 for padding."""
        index = torch.empty(self.size, dtype=torch.int64)
        _share_map(*self._where, index.data_ptr(), self.size)
        return index


@dataclass(frozen=True)
class BoundLayout:
    text: str
    sizes: dict[str, int]
    size: int  #: Elements, padding included.
    #: name, padding, base, elements, affine, axes: [{name, size, parts: [{divisor, extent, stride}]}]
    segments: list[dict[str, Any]] = field(repr=False)

    @property
    def _sizes(self) -> str:
        return " ".join(f"{name}={size}" for name, size in self.sizes.items())

    def offset(self, segment: str, *index: int) -> int:
        """Of one element, in elements."""
        values = (ctypes.c_int64 * len(index))(*map(_int64, index))
        return _offset(self.text, self._sizes, segment, values, len(index))["offset"]

    def element_at(self, offset: int) -> Element:
        found = _element(self.text, self._sizes, _int64(offset))
        return Element(found["segment"], tuple(found["index"]))

    def compare(self, other: BoundLayout, runs: int = 1000) -> dict[str, Any]:
        """This layout as the producer wrote it, ``other`` as the reader takes it: a_size, b_size,
        elements, same, first, sentence, only_a, only_b, and at most ``runs`` runs."""
        return _compare(self.text, self._sizes, other.text, other._sizes, runs)

    def conversion(self, other: BoundLayout) -> Conversion:
        found = _convert(self.text, self._sizes, other.text, other._sizes)
        return Conversion(**{**found, "dropped": tuple(found["dropped"])})

    def index_map(self, other: BoundLayout) -> torch.Tensor:
        """int64 [other.size]: ``converted[i] = x[map[i]]``, -1 where ``other`` has padding."""
        _convert(
            self.text, self._sizes, other.text, other._sizes
        )  # Refuses before memory is taken.
        index = torch.empty(other.size, dtype=torch.int64)
        _index_map(self.text, self._sizes, other.text, other._sizes, index.data_ptr(), other.size)
        return index

    def convert(self, tensor: torch.Tensor, other: BoundLayout) -> torch.Tensor:
        """A tensor [..., size] in the order of ``other``; a view or the tensor itself where that
        does. What padding holds then is unspecified, otherwise zero."""
        if tensor.shape[-1:] != (self.size,):
            raise RuntimeError(
                f"layout: the tensor is {list(tensor.shape)}; its last dimension must be the "
                f"layout's size, {self.size}"
            )
        conversion = self.conversion(other)
        rows = tensor.numel() // self.size
        if conversion.cheapest(tensor.element_size(), rows)[0] != "gather":
            # The expression is the library's own, made of numbers and these two names.
            return eval(conversion.expression, {"x": tensor, "torch": torch})
        index = self.index_map(other)
        has_padding = bool((index < 0).any())  # Asked of the host's copy.
        index = index.to(tensor.device)
        gathered = tensor.index_select(-1, index.clamp(min=0))
        return gathered.masked_fill_(index < 0, 0) if has_padding else gathered

    def share(self, axis: str, rank: int, world: int, stretches: int = 1000) -> Share:
        """What ``rank`` of ``world`` holds if ``axis`` is shared."""
        where = (self.text, self._sizes, axis, _int64(rank), _int64(world))
        found = _share(*where, stretches)
        return Share(
            found["size"],
            found["first"],
            tuple(found["replicated"]),
            tuple((s["global"], s["local"], s["length"]) for s in found["stretches"]),
            found["more"],
            where,
        )

    def emit(self, language: str) -> str:
        """One function per segment that gives an element's offset, in "triton", "hip", "python"."""
        return _emit(self.text, self._sizes, language)["code"]
