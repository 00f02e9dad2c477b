"""No result is remembered: the same memory with other contents gives another answer.

The contents are changed through an alias, so that the tensor, its address, its shape and its version
counter all stay as they were: whatever a cache of results is keyed on but the contents. They are also
changed in part, the first and last elements staying, for a cache that looks at samples; in a large input
single elements are changed and exchanged, for one that looks at many samples or at sums; and equal contents
come at fresh addresses. A memory of results by their contents shows in what it takes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from truefuse import memory
from truefuse.case import Inputs, Mode
from truefuse.context import (
    Context,
    Results,
    as_tuple,
    contents_of,
    copies,
    describe,
    outputs_by_name,
    tensors,
)
from truefuse.gates.edges import coarse_error
from truefuse.gates.outputs import case_call, same_results
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "remembered"
MANY, FEW = 512, 8  # results held at once, of small and of large inputs
PICKED = 64  # elements among which those that are changed are the ones that differ most


def run(context: Context) -> Result:
    good = context.good
    return judge(
        NAME,
        context,
        examine,
        {
            "results kept by address": _keeps(good, by_address),
            "results kept by tensor and version": _keeps(good, by_version),
            "results kept by a sample of the contents": _keeps(good, by_sample),
            "results kept by many samples of the contents": _keeps(good, by_many_samples),
            "results kept by their contents": _keeps(good, by_contents),
            "one output buffer for all calls": _one_buffer(good),
            "memory of results whose tensor is gone": _used_again(good),
        },
        "stale-result",
        "the result of the contents at the time of the call, in memory of its own",
        lambda: Result(
            NAME,
            Status.PASS,
            "nothing-remembered",
            "new contents at the old address, old at a new one: the contents decide",
        ),
    )


def examine(context: Context) -> Complaint | None:
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            found = _examine_one(context, dtype, mode)
            if found:
                return found
    return (
        _examine_large(context)
        or _keeps_memory(context, context.case.dtypes[0], context.case.modes[0])
        or _still_looked_at(context)
    )


def _examine_one(context: Context, dtype: torch.dtype, mode: Mode) -> Complaint | None:
    case = context.case
    inputs = context.inputs(context.case.small_size, dtype, case.kinds[0], NAME, "old")
    fresh = context.inputs(context.case.small_size, dtype, case.kinds[0], NAME, "new")
    where = describe(inputs, mode)
    earlier: Any = None
    kept: dict[str, Tensor] = {}
    for contents in (copies(inputs), fresh, _inner_part(inputs, fresh)):
        for name, tensor in tensors(inputs).items():
            tensor.data.copy_(contents[name])  # .data: an alias with a version counter of its own
        outputs = case_call(context, case.candidate, inputs, mode)
        later = context.named(outputs, inputs)
        own = [inputs[name] for name in case.mutates]  # may be given back
        if earlier is not None and _share_memory(outputs, earlier, own):
            return Complaint("a later call returns the memory of an earlier result", where)
        if coarse_error(context, contents, mode, later):
            return Complaint("the result does not follow the contents", where)
        if earlier is not None and not same_results(_apart(earlier, own), kept):
            return Complaint("a later call changed an earlier result", where)
        earlier = outputs
        kept = {name: tensor.clone() for name, tensor in _apart(outputs, own).items()}
    moved = copies(fresh)
    if coarse_error(context, moved, mode, context.candidate(moved, mode)):
        return Complaint("the result depends on the address", where)
    return None


def _examine_large(context: Context) -> Complaint | None:
    case = context.case
    mode = case.modes[0]
    inputs = context.inputs(case.numeric_size, case.dtypes[0], case.kinds[0], NAME, "large")
    where = describe(inputs, mode)
    complaint = one_of_many(
        context, inputs, mode, lambda contents, got: coarse_error(context, contents, mode, got)
    )
    return Complaint(complaint, where) if complaint else None


def one_of_many(
    context: Context, inputs: Inputs, mode: Mode, wrong: Callable[[Inputs, Results], str]
) -> str:
    """What is wrong once the largest input differs in one element, then in another, then in the order of
    two, at the address where it was; `wrong` judges the results of a call by the contents."""
    largest = max(contents_of(inputs).values(), key=Tensor.numel)
    if largest.numel() < 2:
        return ""
    generator = context.generator(NAME, "elements")
    for change in (None, _one_changed, _one_changed, _two_exchanged):
        if change is not None:
            change(largest.data, generator)
        contents = copies(inputs)
        results = context.named(case_call(context, context.case.candidate, inputs, mode), inputs)
        if wrong(contents, results):
            return "the result does not follow single elements of a large input"
    return ""


def _far_apart(tensor: Tensor, generator: torch.Generator) -> tuple[Any, Any]:
    """Where the least and the largest of a few elements are."""
    numbers = torch.randint(tensor.numel(), (PICKED,), generator=generator).to(tensor.device)
    places = torch.unravel_index(numbers, tensor.shape)
    values = tensor[places].float()
    least, most = int(values.argmin()), int(values.argmax())
    return tuple(i[least] for i in places), tuple(i[most] for i in places)


def _one_changed(tensor: Tensor, generator: torch.Generator) -> None:
    least, most = _far_apart(tensor, generator)
    tensor[least] = tensor[most].clone()


def _two_exchanged(tensor: Tensor, generator: torch.Generator) -> None:
    least, most = _far_apart(tensor, generator)
    tensor[least], tensor[most] = tensor[most].clone(), tensor[least].clone()


def _keeps_memory(context: Context, dtype: torch.dtype, mode: Mode) -> Complaint | None:
    """Results that are kept under their contents are right, and take memory with every new input."""
    case = context.case
    held: list[int] = []
    for call in range(3):  # the first may set up what every call needs
        inputs = context.inputs(case.small_size, dtype, case.kinds[0], NAME, "memory", call)
        given = tuple(inputs.values())
        found = memory.kept(context, lambda given=given: _dropped(case.candidate(*given, **mode)))
        held.append(found or 0)
    if min(held[1:]) > 0:
        where = describe(inputs, mode)
        return Complaint(
            "keeps memory of every call", where, got=f"{held[-1]} bytes after the last"
        )
    return None


def _still_looked_at(context: Context) -> Complaint | None:
    """A result's tensor may be gone while its memory is in use, through `detach()` or as a view in inference
    mode. Of many results in a row none comes in memory of another."""
    case = context.case
    mode = case.modes[0]
    for size, count in ((case.small_size, MANY), (case.numeric_size, FEW)):
        inputs = context.inputs(size, case.dtypes[0], case.kinds[0], NAME, "held")
        held: list[tuple[Tensor, ...]] = []
        known: set[int] = set()
        for call in range(count):
            own = context.fresh(inputs)
            outputs = case_call(context, case.candidate, own, mode)
            held.append(tuple(one.detach() for one in as_tuple(outputs)))
            del outputs
            found = {t.untyped_storage().data_ptr() for t in held[-1] if t.numel()}
            if found & known:
                where = f"call {call + 1}: {describe(inputs, mode)}"
                return Complaint("a later call returns memory that is still looked at", where)
            known |= found
    return None


def _apart(outputs: Any, own: Sequence[Tensor]) -> Results:
    """The outputs but for those that are mutated inputs, which the next call may change."""
    found = outputs_by_name(outputs)
    return {name: one for name, one in found.items() if not any(one is given for given in own)}


def _dropped(outputs: Any) -> None:
    """A profiler must see the result go."""


def _inner_part(inputs: Inputs, fresh: Inputs) -> Inputs:
    """The contents that are there now but for the inner part, which is that of others rolled on."""
    mixed = copies(fresh)
    for name, tensor in contents_of(mixed).items():
        if tensor.numel() > 8:
            inner = tensor.reshape(-1)
            inner[4:-4] = inner[4:-4].roll(1)
            mixed[name] = inner.view(tensor.shape)
    return mixed


def _share_memory(outputs: Any, earlier: Any, besides: Sequence[Tensor]) -> bool:
    def stored(given: Iterable[Tensor]) -> set[int]:
        return {tensor.untyped_storage().data_ptr() for tensor in given if tensor.numel()}

    return bool(stored(as_tuple(outputs)) & stored(as_tuple(earlier)) - stored(besides))


def by_address(given: tuple[Any, ...]) -> object:
    return [(tensor.data_ptr(), tensor.shape) for tensor in _all(given)]


def by_version(given: tuple[Any, ...]) -> object:
    """Of the first argument: one that a call changes has another version each time."""
    return [(id(tensor), tensor._version) for tensor in _all(given)[:1]]


def by_sample(given: tuple[Any, ...]) -> object:
    return [[float(t.reshape(-1)[i]) for i in (0, -1)] for t in _all(given) if t.numel()]


def by_many_samples(given: tuple[Any, ...]) -> object:
    return [t.reshape(-1)[:: max(1, t.numel() // 32)].tolist() for t in _all(given)]


def by_contents(given: tuple[Any, ...]) -> object:
    return [(tensor.shape, tensor.flatten().tolist()) for tensor in _all(given)]


def _all(given: tuple[Any, ...]) -> list[Tensor]:
    return [tensor for tensor in given if isinstance(tensor, Tensor)]


def _keeps(good: Callable[..., Any], key_of: Callable[[tuple[Any, ...]], object]) -> Any:
    kept: dict[str, Any] = {}

    def candidate(*given: Any, **mode: Any) -> Any:
        key = repr((key_of(given), _all(given)[0].dtype, mode))
        if key not in kept:
            kept[key] = good(*given, **mode)
        outputs = kept[key]
        fresh = tuple(tensor.clone() for tensor in as_tuple(outputs))
        return fresh[0] if isinstance(outputs, Tensor) else fresh

    return candidate


def _used_again(good: Callable[..., Any]) -> Any:
    """The memory of a result as soon as its tensor is gone, whoever looks at the memory."""
    free: list[Tensor] = []

    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        first, *others = as_tuple(outputs)
        fits = bool(free) and (free[0].shape, free[0].dtype) == (first.shape, first.dtype)
        kept = free.pop().copy_(first) if fits else first.detach()
        free.clear()
        result = kept.detach()
        weakref.finalize(result, free.append, kept)
        return result if isinstance(outputs, Tensor) else (result, *others)

    return candidate


def _one_buffer(good: Callable[..., Any]) -> Any:
    buffers: dict[object, Tensor] = {}

    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        first, *others = as_tuple(outputs)
        buffer = buffers.setdefault((first.shape, first.dtype), first).copy_(first)
        return buffer if isinstance(outputs, Tensor) else (buffer, *others)

    return candidate
