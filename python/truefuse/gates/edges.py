"""Edge sizes: one, vector and tile boundaries, primes, as many rows as columns, where a mistaken axis no
longer shows in the shapes, a size that is timed, and rows one longer than each length that is timed; every element
near mathematics, in every dtype and mode, and on other numbers of threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from truefuse import compare
from truefuse.case import Case, Inputs, Mode, Size
from truefuse.compare import Reference
from truefuse.context import (
    Context,
    Results,
    as_tuple,
    copies,
    describe,
    has_half,
    is_floating,
    main_dtype,
    widened,
)
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "edges"
# A wrong index gives errors of the size of the values; how many ulp are right is the business of
# the numerics gate.
COARSE_ULPS = 8.0
OTHER_THREADS = (1, 3, 5)


def run(context: Context) -> Result:
    case = context.case
    tried = sizes_of(case)
    sizes = " ".join(str(list(size)) for size in tried)
    count = len(tried) * len(case.dtypes) * len(case.modes)
    return judge(
        NAME,
        context,
        examine,
        {
            "a last element left out": _spoilt(context.good, -1),
            "a first element left out": _spoilt(context.good, 0),
            **_swapped(context),
            **_by_threads(context),
        },
        "wrong-at-size",
        f"within {COARSE_ULPS:g} ulp of the largest value in the call",
        lambda: Result(NAME, Status.PASS, "right-at-sizes", f"{sizes}: {count} calls right"),
    )


def sizes_of(case: Case) -> tuple[Size, ...]:
    """The case's own, a square where sizes are [rows, hidden] and none is one, and the smallest of those
    that are timed: the figures are of one dtype and mode, the verdict is of all."""
    own = tuple(case.edge_sizes)
    real = tuple(sorted(case.timing_sizes, key=math.prod)[:1])
    if not _is_plane(case):
        return *own, *real
    has_square = any(size[0] == size[1] > 1 for size in own)
    square = () if has_square else ((case.small_size[1],) * 2,)
    return *own, *square, *real, *longer_rows(case)


def longer_rows(case: Case) -> tuple[Size, ...]:
    """Few rows, one element longer than those that are timed: what is chosen by the length of a row is chosen
    here too, and leaves a remainder. For a case that has odd lengths at all."""
    if not _is_plane(case) or not any(s[1] % 2 and s[1] > 1 for s in case.edge_sizes):
        return ()
    lengths = sorted({size[-1] + 1 for size in case.timing_sizes if len(size) == 2})
    return tuple((3, length) for length in lengths)


def _is_plane(case: Case) -> bool:
    return {len(size) for size in (*case.edge_sizes, case.small_size)} == {2}


def examine(context: Context) -> Complaint | None:
    case = context.case
    for size in sizes_of(case):
        given = [context.inputs(size, dtype, case.kinds[0], NAME) for dtype in case.dtypes]
        calls = [(inputs, mode) for inputs in given for mode in case.modes]
        complaint = _wrong(context, calls, [context.candidate(*call) for call in calls])
        if complaint:
            return complaint
    return _on_other_threads(context) if context.device.type == "cpu" else None


def _on_other_threads(context: Context) -> Complaint | None:
    """Work is shared among as many threads as there happen to be: of an odd number each has another part, and
    all of them a remainder."""
    case = context.case
    sizes = (case.medium_size, min(case.timing_sizes, key=math.prod))
    given = [context.inputs(size, case.dtypes[0], case.kinds[0], NAME) for size in sizes]
    calls = [(inputs, case.modes[0]) for inputs in given]
    usual = torch.get_num_threads()
    for threads in OTHER_THREADS:
        torch.set_num_threads(threads)
        try:
            found = [context.candidate(*call) for call in calls]
        finally:
            torch.set_num_threads(usual)
        complaint = _wrong(context, calls, found, f" on {threads} threads")
        if complaint:
            return complaint
    return None


def _wrong(
    context: Context, calls: list[tuple[Inputs, Mode]], found: list[Results], how: str = ""
) -> Complaint | None:
    with compare.one_thread():
        for (inputs, mode), results in zip(calls, found, strict=True):
            complaint = coarse_error(context, inputs, mode, results)
            if complaint:
                where = describe(inputs, mode)
                return Complaint(f"wrong result{how}: {where}", where, got=complaint)
    return None


def coarse_error(context: Context, inputs: Inputs, mode: Mode, results: Results) -> str:
    """The first element far from mathematics, or nothing. For indexing, not for accuracy: an error
    counts in ulps of the largest value that the call meets."""
    references = context.reference(inputs, mode)
    if list(results) != list(references):
        return f"gives {', '.join(results) or 'nothing'}, wanted {', '.join(references)}"
    involved = [tensor.double().cpu() for tensor in inputs.values() if is_floating(tensor)]
    largest = max((_largest(tensor) for tensor in involved), default=0.0)
    for name, reference in references.items():
        complaint = far(results[name], reference, largest)
        if complaint:
            # The yardstick costs a call, so it is asked only where something seems wrong.
            theirs = context.yardstick(inputs, mode)[name]
            if not excused(context, inputs, results[name], theirs, reference, largest):
                return complaint if len(references) == 1 else f"{name}: {complaint}"
    return ""


def far(result: Tensor, reference: Reference, largest: float = 0.0) -> str:
    """The first element farther from mathematics than COARSE_ULPS of the largest value."""
    if result.shape != reference.high.shape:
        return f"shape {list(result.shape)}, wanted {list(reference.high.shape)}"
    if not result.numel():
        return ""
    found = compare.errors(result, reference)
    wrong = ~(found.absolute <= _allowed(reference, largest))
    if not wrong.any():
        return ""
    position = int(wrong.flatten().to(torch.int8).argmax())
    index = compare.index_of(position, result.shape)
    got, want = float(result.flatten()[position]), float(reference.high.flatten()[position])
    digits = 6 if f"{got:.6g}" != f"{want:.6g}" else 17
    return f"{got:.{digits}g} where mathematics has {want:.{digits}g}, at index {index}"


def excused(
    context: Context,
    inputs: Inputs,
    result: Tensor,
    yardstick: Tensor,
    reference: Reference,
    largest: float = 0.0,
) -> bool:
    """Whether the yardstick is as far from mathematics, as after long sums and several roundings.
    Within limits: a yardstick that is simply something else excuses nobody. Where a case declares
    rounding points for half types, results of a wider type are as near as these."""
    if result.shape != reference.high.shape:
        return False
    theirs = compare.errors(yardstick, reference).absolute.max()
    ours = compare.errors(result, reference).absolute
    declared = context.case.yardstick is not None and has_half(inputs)
    dtype = main_dtype(inputs) if declared else reference.dtype
    limit = COARSE_ULPS**2 * _unit(reference, largest, dtype)
    return bool(theirs <= limit) and bool((ours <= 2 * theirs).all())


def _allowed(reference: Reference, largest: float) -> Tensor | float:
    if not reference.dtype.is_floating_point:
        return reference.slack
    return COARSE_ULPS * _unit(reference, largest, reference.dtype)


def _unit(reference: Reference, largest: float, dtype: torch.dtype) -> Tensor:
    size = max(largest, _largest(reference.size))
    return compare.ulp(torch.tensor(size, dtype=torch.float64), dtype)


def _largest(tensor: Tensor) -> float:
    if not tensor.numel():
        return 0.0
    largest = max(-float(tensor.min()), float(tensor.max()))
    return largest if math.isfinite(largest) else float(tensor.abs().nan_to_num(0, 0, 0).max())


def _swapped(context: Context) -> dict[str, Callable[..., Any]]:
    """Rows taken for columns, where as many of both allow it: in the first result, or, of one that is no such
    plane, in the inputs. Nothing where that makes no difference, as in the sum of all elements."""
    case = context.case
    squares = [size for size in sizes_of(case) if len(size) == 2 and size[0] == size[1] > 1]
    if not _is_plane(case) or not squares:
        return {}
    inputs = widened(context.inputs(squares[0], case.dtypes[0], case.kinds[0], NAME))
    right = _first(case.reference, inputs, case.modes[0])
    for swapped in (_transposed, _of_transposed):
        wrong = _first(swapped(case.reference), inputs, case.modes[0])
        if right is not None and not torch.allclose(right, wrong, equal_nan=True):
            return {"rows taken for columns": swapped(context.good)}
    return {}


def _by_threads(context: Context) -> dict[str, Callable[..., Any]]:
    """A remainder as if the number of threads were a power of two."""
    if context.device.type != "cpu":
        return {}
    spoilt = _spoilt(context.good, -1)

    def candidate(*tensors: Tensor, **mode: Any) -> Any:
        threads = torch.get_num_threads()
        function = spoilt if threads & (threads - 1) else context.good
        return function(*tensors, **mode)

    return {"a remainder lost on three threads": candidate}


def _first(function: Callable[..., Any], inputs: Inputs, mode: Mode) -> Tensor | None:
    return next(iter(as_tuple(function(*copies(inputs).values(), **mode))), None)


def _square(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and value.shape[0] == value.shape[1] > 1


def _transposed(function: Callable[..., Any]) -> Callable[..., Any]:
    def candidate(*tensors: Tensor, **mode: Any) -> Any:
        outputs = function(*tensors, **mode)
        if isinstance(outputs, Tensor):
            return outputs.T.contiguous() if _square(outputs) else outputs
        first, *others = as_tuple(outputs) or (None,)
        return first.T.contiguous() if _square(first) else first, *others

    return candidate


def _of_transposed(function: Callable[..., Any]) -> Callable[..., Any]:
    def candidate(*tensors: Tensor, **mode: Any) -> Any:
        return function(*(t.T.contiguous() if _square(t) else t for t in tensors), **mode)

    return candidate


def _spoilt(good: Callable[..., Any], position: int) -> Callable[..., Any]:
    def candidate(*tensors: Tensor, **mode: Any) -> Any:
        outputs = good(*tensors, **mode)
        first = as_tuple(outputs)[0]
        if first.numel() and tensors[0].numel() > 1:
            flat = first.view(-1)
            flat[position] = (
                1000.0 if first.is_floating_point() else compare.another(flat[position])
            )
        return outputs

    return candidate
