"""Calls that a contract forbids, each breaking exactly one rule, generated from the contract.

The contract is the JSON form of the contract language: for every argument its kind, dtypes, symbols
and layout. For each violation this module also says what its error text must contain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Inputs, Mode

_OTHERS = (torch.int32, torch.int16, torch.int8, torch.float32, torch.complex64, torch.bool)
Words = tuple[str, ...]  # alternatives, any of which will do


@dataclass(frozen=True)
class Negative:
    """A call that has to be refused. The argument that is `omitted` is not passed at all."""

    rule: str
    argument: str
    inputs: dict[str, Any]
    mode: Mode
    found: Words  # what the argument has
    wanted: Words  # what the contract wants
    others: Words = field(default=())  # arguments that may be named instead
    omitted: str = ""

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """As in every call: inputs in their order, the mode by name. What stands behind an input that is
        omitted comes by name too."""
        given = {**self.inputs, **self.mode}
        names = list(self.inputs)
        cut = names.index(self.omitted) if self.omitted in names else len(names)
        named = {name: given[name] for name in given if name not in (*names[:cut], self.omitted)}
        return [given[name] for name in names[:cut]], named

    def complaint(self, error: BaseException | None, operator: str) -> str:
        """What is wrong with the refusal, or nothing."""
        if error is None:
            return "accepted"
        text = str(error)
        if self.omitted and isinstance(error, TypeError):
            # Python's own words; or pybind11's, which knows arguments without names.
            if contains(text, self.argument) or "incompatible function arguments" in text:
                return ""
        if not isinstance(error, RuntimeError):
            return f"raises {type(error).__name__}, not RuntimeError: {text}"
        for what, words in (
            ("the operator", (operator.split("::")[-1],)),
            ("the argument", (self.argument, *self.others)),
            (f"what {self.argument} is", self.found),
            ("what is wanted", self.wanted),
        ):
            if words and not any(contains(text, word) for word in words):
                return f"the text does not name {what} ({' or '.join(words)}): {text}"
        return ""

    def ideal(self, operator: str) -> RuntimeError:
        """The sentence reduced to what it has to contain; used to prove the check."""
        pieces = [operator.split("::")[-1], self.argument]
        pieces += [words[0] for words in (self.found, self.wanted) if words]
        return RuntimeError(" ; ".join(pieces))


def contains(text: str, word: str) -> bool:
    """As a word of its own: "7" is not in "17", "x" not in "expected"."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def negatives(
    contract: dict[str, Any],
    inputs: Inputs,
    mode: Mode,
    device: torch.device,
    defaults: Collection[str] = (),
) -> list[Negative]:
    """Every rule of `contract` broken once, starting from the valid call `inputs`, `mode`. Arguments that
    have `defaults` need not be given."""
    found: list[Negative] = []
    bound: dict[str, int] = {}
    for argument in contract["arguments"]:
        name = argument["name"]
        if argument["kind"] == "tensor":
            if isinstance(inputs.get(name), Tensor):
                found += _tensor(argument, inputs, mode, device, bound)
        elif mode.get(name, inputs.get(name)) is not None:
            found += _scalar(argument, inputs, mode)
        if not argument["optional"] and name not in defaults:
            found += _missing(name, inputs, mode)
    return found


def _tensor(
    argument: dict[str, Any],
    inputs: Inputs,
    mode: Mode,
    device: torch.device,
    bound: dict[str, int],
) -> Iterator[Negative]:
    name, tensor = argument["name"], inputs[argument["name"]]
    others = tuple(other for other in inputs if other != name)

    def broken(rule: str, value: Tensor, has: Words, wants: Words, also: Words = ()) -> Negative:
        return Negative(f"{name} {rule}", name, {**inputs, name: value}, mode, has, wants, also)

    # dtype
    like = argument["like"]
    if like:
        other = torch.float64 if tensor.dtype != torch.float64 else torch.float32
        wants = _dtype_words(inputs[like].dtype)
    else:
        other = next((d for d in _OTHERS if not _allowed(d, argument)), None)
        wants = tuple(argument["dtypes"] + argument["torch_dtypes"])
    if other is not None:  # else every dtype is allowed
        yield broken("dtype", tensor.to(other), _dtype_words(other), wants)

    # device
    if others:
        elsewhere = torch.device("cpu" if device.type != "cpu" else _other_device())
        yield broken("device", tensor.to(elsewhere), (elsewhere.type,), (device.type,), also=others)

    # rank
    shape_words = tuple(dim["text"] for dim in argument["dims"])
    if argument["pack"] is None:
        deeper = tensor.unsqueeze(0)
        yield broken("rank", deeper, _shape_words(deeper), (*shape_words, *_shape_words(tensor)))
    shallow = tensor.flatten()[0] if argument["dims"] else None
    if shallow is not None:
        yield broken("scalar", shallow, ("[]", "0", "0-d", "scalar"), shape_words)

    # sizes that another argument or a number fixes
    for position, dim in enumerate(argument["dims"]):
        axis = position - len(argument["dims"])
        symbols = dim["symbols"]
        size = tensor.shape[axis]
        if not symbols or (len(symbols) == 1 and dim["factor"] == 1 and symbols[0] in bound):
            for rule, wrong in (("short", size - 1), ("long", size + 1), ("of one", 1)):
                if 0 < wrong != size:
                    value = _resized(tensor, axis, wrong)
                    yield broken(rule, value, (str(wrong),), (str(size),))
        for symbol in symbols:
            bound.setdefault(symbol, size)

    # strides
    layout = argument["layout"]
    if layout != "strided":
        # Strides of dimensions of one element never matter.
        strided = torch.stack((tensor, tensor), dim=-1)[..., 0]
        wants = ("contiguous", "stride 1", "strides")
        if tensor.dim() and tensor.shape[-1] > 1:
            yield broken("strided", strided, (str(strided.stride(-1)), "not contiguous"), wants)
        if tensor.dim() >= 2 and min(tensor.shape[-2:]) > 1:
            flipped = tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
            has = (str(flipped.stride(-1)), str(list(flipped.stride())), "not contiguous")
            yield broken("transposed", flipped, has, wants)

    # alignment and writing
    alignment = argument.get("alignment", 1)
    if alignment > tensor.element_size():
        yield broken("unaligned", shifted(tensor), (), (str(alignment),))
    if argument.get("mutated") and tensor.numel() > 1:
        expanded = tensor.flatten()[:1].expand(tensor.numel()).view(tensor.shape)
        yield broken("overlapping", expanded, (), ())


def _scalar(argument: dict[str, Any], inputs: Inputs, mode: Mode) -> Iterator[Negative]:
    name, kind = argument["name"], argument["kind"]

    def broken(rule: str, value: Any, wants: Words) -> Negative:
        return Negative(
            f"{name} {rule}", name, dict(inputs), {**mode, name: value}, (str(value),), wants
        )

    if kind == "string":
        values = tuple(argument["values"])
        yield broken("unknown", "fast", values)
        if values[0].upper() not in values:
            yield broken("in capitals", values[0].upper(), values)
    limits = argument if kind == "int" else argument.get("range")
    if kind in ("int", "float") and limits:
        for rule, limit, step in (("low", limits["low"], -1), ("high", limits["high"], 1)):
            if limit is not None:
                yield broken(f"too {rule}", limit + step, (f"{limit:g}", str(limit)))
    if kind == "float" and limits:
        yield broken("NaN", math.nan, ())


def _missing(name: str, inputs: Inputs, mode: Mode) -> Iterator[Negative]:
    if name in inputs or name in mode:
        yield Negative(f"{name} missing", name, inputs, mode, ("missing",), (), omitted=name)


def shifted(tensor: Tensor) -> Tensor:
    """The same elements, one element further into their storage than an allocation begins."""
    buffer = tensor.new_empty(tensor.numel() + 1)
    view = buffer[1:].view(tensor.shape)
    view.copy_(tensor)
    return view


def _allowed(dtype: torch.dtype, argument: dict[str, Any]) -> bool:
    return str(dtype).removeprefix("torch.") in argument["torch_dtypes"]


def _dtype_words(dtype: torch.dtype) -> Words:
    name = str(dtype).removeprefix("torch.")
    short = name.replace("bfloat", "bf").replace("float", "f").replace("int", "i")
    return name, short


def _shape_words(tensor: Tensor) -> Words:
    rank = tensor.dim()
    return str(list(tensor.shape)), f"{rank}-d", f"{rank}-D", f"{rank} dimensions", f"rank {rank}"


def _resized(tensor: Tensor, axis: int, size: int) -> Tensor:
    shape = list(tensor.shape)
    shape[axis] = size
    return tensor.new_zeros(shape)


def _other_device() -> str:
    return "cuda" if torch.cuda.is_available() else "meta"
