"""Every element is written: memory that was never written shows what it held before.

Three runs: fresh memory filled by PyTorch with NaN (or the largest integer), then memory of the
allocator that held one pattern, then another. The first must be right, the others equal bit for bit. Of more rows
than a grid has blocks in one dimension too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Inputs, Mode, Size
from truefuse.context import Context, Results, as_tuple, describe
from truefuse.gates.edges import coarse_error
from truefuse.gates.outputs import same_results
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "unwritten"
PATTERNS = (0x5A, 0xC3)
SPARE_BLOCKS = 4
MANY_ROWS = (1 << 16) + 1


def run(context: Context) -> Result:
    good = context.good
    return judge(
        NAME,
        context,
        examine,
        {
            "an element left as it was": _partly(good, slice(-1, None)),
            "nothing written": _partly(good, slice(0, None)),
        },
        "unwritten-output",
        "the same result whatever fresh memory held before",
        lambda: Result(
            NAME,
            Status.PASS,
            "all-written",
            "the same bits whatever fresh memory held: NaN, and two patterns in freed memory",
        ),
    )


def examine(context: Context) -> Complaint | None:
    case = context.case
    for dtype in case.dtypes:
        for mode in case.modes:
            for size in (case.small_size, *case.edge_sizes):
                inputs = context.inputs(size, dtype, case.kinds[0], NAME)
                found = _examine_one(context, inputs, mode)
                if found:
                    return found
    for size in many_rows(context):
        inputs = context.inputs(size, case.dtypes[0], case.kinds[0], NAME)
        found = _examine_one(context, inputs, case.modes[0])
        if found:
            return found
    return None


def many_rows(context: Context) -> tuple[Size, ...]:
    """Where a contract allows any number of rows: more than there are blocks in the second dimension of a grid."""
    case, contract = context.case, context.contract
    packed = contract is not None and any(argument["pack"] for argument in contract["arguments"])
    if not packed or len(case.small_size) != 2:
        return ()
    return ((MANY_ROWS, max((size[-1] for size in case.rank_sizes), default=case.small_size[-1])),)


def _examine_one(context: Context, inputs: Inputs, mode: Mode) -> Complaint | None:
    where = describe(inputs, mode)
    with filled_with_nan():
        results = context.candidate(inputs, mode)
    complaint = coarse_error(context, inputs, mode, results)
    if complaint:
        return Complaint("wrong where fresh memory holds NaN", where, got=complaint)
    runs = []
    for pattern in PATTERNS:
        poison(results, pattern)
        runs.append({k: v.clone() for k, v in context.candidate(inputs, mode).items()})
    if not same_results(*runs):
        return Complaint("the result shows what freed memory held before", where)
    return None


@contextmanager
def filled_with_nan() -> Iterator[None]:
    """Whatever PyTorch allocates without filling it holds NaN, or the largest integer."""
    # Not use_deterministic_algorithms: that imports the whole compiler.
    mode = torch.get_deterministic_debug_mode()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = fill
        torch.set_deterministic_debug_mode(mode)


def poison(like: Results, pattern: int) -> None:
    """Leaves freed blocks of these sizes in the allocator, filled with one byte."""
    blocks = []
    for tensor in like.values():
        for _ in range(SPARE_BLOCKS):
            block = torch.empty_like(tensor, memory_format=torch.contiguous_format)
            if block.numel():
                block.view(-1).view(torch.uint8).fill_(pattern)
            blocks.append(block)


def _partly(good: Callable[..., Any], left_out: slice) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        first, *others = as_tuple(outputs)
        result = torch.empty_like(first)
        keep = torch.ones(first.numel(), dtype=torch.bool, device=first.device)
        keep[left_out] = False
        flat = result.view(-1)
        flat[keep] = first.reshape(-1)[keep]
        return result if isinstance(outputs, Tensor) else (result, *others)

    return candidate
