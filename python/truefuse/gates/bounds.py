"""No access outside of a tensor: every input lies between guards.

Guards must stay as they were, and what they hold must not show in the results. Where the candidate takes
memory for its results through PyTorch's dispatcher, as Python and Triton code does, that lies between
guards too; what an operator in C++ allocates inside does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from truefuse.case import Inputs, Mode
from truefuse.compare import another
from truefuse.context import CandidateRaised, Context, as_tuple, describe
from truefuse.gates.edges import coarse_error
from truefuse.gates.outputs import same_results
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "bounds"
GUARD_BYTES = 64 << 10  # on each side: a tile of most kernels
ALIGNMENT = 256  # of an allocation of PyTorch's on a GPU; kernels may count on it
PATTERNS = (0xFF, 0x00)  # NaN in every floating type, and zero


@dataclass
class Guarded:
    """A tensor inside a larger buffer of bytes."""

    buffer: Tensor
    begin: int
    end: int
    pattern: int
    view: Tensor

    def broken(self) -> str:
        """Whole words first: few elements are compared on one thread, and fast."""
        words, low, high = self.buffer.view(torch.int64), self.begin // 8, -(-self.end // 8)
        whole = (words[:low] == _word(self.pattern)).all() & (
            words[high:] == _word(self.pattern)
        ).all()
        edges = torch.cat((self.buffer[8 * low : self.begin], self.buffer[self.end : 8 * high]))
        if bool(whole & (edges == self.pattern).all()):
            return ""
        for name, part in (
            ("before", self.buffer[: self.begin]),
            ("after", self.buffer[self.end :]),
        ):
            wrong = (part != self.pattern).nonzero()
            if wrong.numel():
                first = int(wrong[0 if name == "after" else -1])
                distance = first if name == "after" else self.begin - first
                return f"{wrong.numel()} bytes {name} it, at a distance of {distance}"
        return ""


def _word(pattern: int) -> int:
    return int.from_bytes(bytes([pattern]) * 8, "little", signed=True)


def guard(like: Tensor, pattern: int, offset: int = 0, guard_bytes: int = GUARD_BYTES) -> Guarded:
    """Memory for a tensor of this shape, dtype and these strides; `offset` elements beyond alignment."""
    size = like.element_size()
    reach = 1 + sum(
        (n - 1) * stride for n, stride in zip(like.shape, like.stride(), strict=True)
    ) if like.numel() else 0  # fmt: skip
    begin = guard_bytes + offset * size
    total = -(-(begin + reach * size + guard_bytes + ALIGNMENT) // 8)
    words = torch.full((total,), _word(pattern), dtype=torch.int64, device=like.device)
    buffer = words.view(torch.uint8)
    begin += -buffer.data_ptr() % ALIGNMENT
    end = begin + reach * size
    flat = buffer[begin:end].view(like.dtype)
    view = flat.as_strided(like.shape, like.stride(), flat.storage_offset())
    return Guarded(buffer, begin, end, pattern, view)


@dataclass(eq=False)
class GuardedAllocations(TorchDispatchMode):
    """Fresh memory that is asked for through the dispatcher comes between guards."""

    pattern: int
    made: list[Guarded] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **(kwargs or {}))
        if function in _ALLOCATES and outputs.device.type != "meta" and outputs.numel():
            self.made.append(guard(outputs, self.pattern))
            return self.made[-1].view
        return outputs


_ATEN = torch.ops.aten
_ALLOCATES = {
    _ATEN.empty.memory_format,
    _ATEN.empty_strided.default,
    _ATEN.empty_like.default,
    _ATEN.new_empty.default,
    _ATEN.new_empty_strided.default,
}


def run(context: Context) -> Result:
    good = context.good
    covered: list[bool] = []
    return judge(
        NAME,
        context,
        lambda one: examine(one, covered),
        {
            "an element written before an input": _beyond(good, -1, write=True),
            "an element written after an input": _beyond(good, 1, write=True),
            "an element read after an input": _beyond(good, 1, write=False),
            "an element written after an output": _beyond_output(good),
        },
        "out-of-bounds",
        "guards untouched, and unseen in the results",
        lambda: Result(
            NAME,
            Status.PASS,
            "within-bounds",
            f"guards of {GUARD_BYTES >> 10} KiB on both sides of every input untouched and unseen"
            + (" · of every output too" if covered and covered[-1] else ""),
        ),
    )


def examine(context: Context, covered: list[bool]) -> Complaint | None:
    case = context.case
    shifts = (0, 1) if _may_be_unaligned(context) else (0,)
    for dtype in case.dtypes:
        for mode in case.modes:
            for number, size in enumerate((case.small_size, *case.edge_sizes)):
                inputs = context.inputs(size, dtype, case.kinds[0], NAME)
                shift = shifts[number % len(shifts)]
                found = _examine_one(context, inputs, mode, shift, covered)
                if found:
                    return found
    return None


def _may_be_unaligned(context: Context) -> bool:
    arguments = (context.contract or {}).get("arguments", [])
    return all(argument.get("alignment", 1) <= 1 for argument in arguments)


def _examine_one(
    context: Context, inputs: Inputs, mode: Mode, offset: int, covered: list[bool]
) -> Complaint | None:
    where = describe(inputs, mode)
    runs = []
    for pattern in PATTERNS:
        guards = {
            name: guard(value, pattern, offset)
            for name, value in inputs.items()
            if isinstance(value, Tensor) and 0 not in value.stride()
        }
        for name, one in guards.items():
            one.view.copy_(inputs[name])
        given = inputs | {name: one.view for name, one in guards.items()}
        allocations = GuardedAllocations(pattern)
        try:
            with allocations:
                outputs = context.case.candidate(*given.values(), **mode)
            context.synchronize()
        except Exception as error:
            raise CandidateRaised(f"{type(error).__name__}: {error} [{where}]") from error
        for name, one in guards.items():
            if one.broken():
                return Complaint(f"writes outside of '{name}'", where, got=one.broken())
        for one in allocations.made:
            if one.broken():
                return Complaint("writes outside of memory it has taken", where, got=one.broken())
        held = {one.view.untyped_storage().data_ptr() for one in allocations.made}
        stored = [t.untyped_storage().data_ptr() for t in as_tuple(outputs) if t.numel()]
        covered.append(bool(stored) and all(address in held for address in stored))
        runs.append(context.named(outputs, given))
    complaint = coarse_error(context, inputs, mode, runs[0])
    if complaint:
        return Complaint("wrong between guards of NaN", where, got=complaint)
    if not same_results(*runs):
        return Complaint("the result shows what lies outside of the inputs", where)
    return None


def _beyond(good: Callable[..., Any], side: int, write: bool) -> Callable[..., Any]:
    """Touches the element just before or after the first input."""

    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        first = given[0]
        reach = sum((n - 1) * s for n, s in zip(first.shape, first.stride(), strict=True))
        position = first.storage_offset() + (-1 if side < 0 else reach + 1)
        outside = torch.as_strided(first, (1,), (1,), position)
        if write:
            outside.fill_(1.5)
            return outputs
        result, *others = as_tuple(outputs)
        result = result.clone()
        begin = result.view(-1)[:1]
        begin.copy_(torch.where(outside != 0, another(begin), begin))
        return result if isinstance(outputs, Tensor) else (result, *others)

    return candidate


def _beyond_output(good: Callable[..., Any]) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        first, *others = as_tuple(outputs)
        result = torch.empty_like(first)
        result.copy_(first)
        room = result.untyped_storage().nbytes() // result.element_size()
        position = result.storage_offset() + result.numel()
        if position < room:  # between guards there is room; elsewhere this would be a real fault
            torch.as_strided(result, (1,), (1,), position).fill_(1.5)
        return result if isinstance(outputs, Tensor) else (result, *others)

    return candidate
