"""Many sets of inputs, so that no cache, and no memory of earlier results, serves a timed call.

The sets together are at least twice as large as the last cache. Their contents differ; now and then they
move on from set to set through an alias, so that addresses and version counters say nothing of contents.
"""

from __future__ import annotations

import math
import os
from typing import Any

import torch
from torch import Tensor

from truefuse import bandwidth
from truefuse.case import Inputs, Size
from truefuse.context import Context, Results, copies, tensors

DISTINCT = 4  # contents made anew; further sets repeat them, at other addresses
MOST_SETS = 256
MEMORY_SHARE = 0.25  # of what is free


class Sets:
    def __init__(self, context: Context, size: Size, least: int = 1) -> None:
        case = context.case
        self._context = context
        self._mutates = case.mutates
        first = self._make(size, 0)
        self._mode = case.timed_mode
        result = context.candidate(first, self._mode)
        self.bytes_moved = moved(first, result, case.mutates)
        held = _bytes(first) + _bytes(result)
        wanted = max(2, least, math.ceil(2 * bandwidth.last_cache_bytes(context.device) / held))
        count = max(2, min(wanted, MOST_SETS, int(MEMORY_SHARE * _free(context.device) / held)))
        self.cold = count >= wanted
        self.inputs: list[Inputs] = [first]
        self.expected: list[Results] = [_kept(result)]
        for number in range(1, count):
            if number < DISTINCT:
                self.inputs.append(self._make(size, number))
                result = context.candidate(self.inputs[number], self._mode)
                self.expected.append(_kept(result))
            else:
                self.inputs.append(copies(self.inputs[number % DISTINCT]))
                self.expected.append(self.expected[number % DISTINCT])
        self._pristine = [{n: one[n].clone() for n in case.mutates} for one in self.inputs]

    def __len__(self) -> int:
        return len(self.inputs)

    def _make(self, size: Size, number: int) -> Inputs:
        case = self._context.case
        return self._context.inputs(size, case.timed_dtype, case.kinds[0], "timing", number)

    def distinct(self) -> range:
        return range(min(DISTINCT, len(self)))

    def restore(self, number: int) -> None:
        """Puts back what calls have changed in a set."""
        for name, tensor in self._pristine[number].items():
            self.inputs[number][name].copy_(tensor)

    def move_on(self) -> None:
        """Each set gets the contents of the one before it; so do the results that are expected."""
        for number in range(len(self)):
            self.restore(number)
        last = {k: t.clone() for k, t in tensors(self.inputs[-1]).items()}
        for number in reversed(range(1, len(self))):
            for name, tensor in tensors(self.inputs[number]).items():
                tensor.data.copy_(self.inputs[number - 1][name])
        for name, tensor in tensors(self.inputs[0]).items():
            tensor.data.copy_(last[name])
        for held in (self.expected, self._pristine):
            held.insert(0, held.pop())


def moved(inputs: Inputs, results: Results, mutates: tuple[str, ...]) -> int:
    """Bytes that a call has to read and write at least: every input once, every result once."""
    read = sum(_extent(tensor) for tensor in tensors(inputs).values())
    return read + sum(_extent(tensor) for tensor in results.values())


def _extent(tensor: Tensor) -> int:
    """An expanded dimension is one element in memory."""
    count = math.prod(n for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s)
    return count * tensor.element_size()


def _bytes(held: dict[str, Any]) -> int:
    return sum(t.numel() * t.element_size() for t in held.values() if isinstance(t, Tensor))


def _kept(results: Results) -> Results:
    return {name: tensor.clone() for name, tensor in results.items()}


def _free(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
