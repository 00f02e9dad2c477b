"""Captured in a graph and replayed on new inputs, a call gives their result.

That capturing succeeds proves nothing: a launch on another stream, or a result that was computed before,
is simply absent from the graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from truefuse.case import Inputs, Mode
from truefuse.context import Context, as_tuple, copies, describe, main_dtype, tensors
from truefuse.gates.edges import coarse_error
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "capture"
REPLAYS = 3


def run(context: Context) -> Result:
    if context.device.type != "cuda":
        return Result(NAME, Status.SKIP, "no-graphs", "a CPU has no graphs")
    good = context.good
    return judge(
        NAME,
        context,
        examine,
        # One that cannot be captured at all is not planted: it may leave the allocator in a capture.
        {"a result computed before": _remembers(good)},
        "wrong-in-graph",
        f"the results of new inputs in each of {REPLAYS} replays",
        lambda: Result(
            NAME,
            Status.PASS,
            "captured",
            f"captured once, right in {REPLAYS} replays on new inputs, outputs poisoned before each",
        ),
    )


def examine(context: Context) -> Complaint | None:
    case = context.case
    for dtype in case.dtypes:
        for mode in case.modes:
            for size in (case.small_size, case.medium_size):
                inputs = context.inputs(size, dtype, case.kinds[0], NAME)
                found = _examine_one(context, size, inputs, mode)
                if found:
                    return found
    return None


def _examine_one(context: Context, size: Any, inputs: Inputs, mode: Mode) -> Complaint | None:
    case = context.case
    dtype = main_dtype(inputs)
    where = describe(inputs, mode)
    given = copies(inputs)
    side = torch.cuda.Stream(context.device)
    side.wait_stream(torch.cuda.current_stream(context.device))
    with torch.cuda.stream(side):
        for _ in range(2):
            case.candidate(*context.fresh(given).values(), **mode)
    context.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with warnings.catch_warnings(record=True) as said, torch.cuda.graph(graph):
            warnings.simplefilter("always")
            outputs = case.candidate(*given.values(), **mode)
    except Exception as error:
        context.synchronize()
        text = str(error).splitlines()[0]
        return Complaint("cannot be captured", where, got=f"{type(error).__name__}: {text}")
    if any("empty" in str(warning.message).lower() for warning in said):
        return Complaint("leaves the graph empty", where)
    for replay in range(REPLAYS):
        fresh = context.inputs(size, dtype, case.kinds[0], NAME, "replay", replay)
        for name, tensor in tensors(given).items():
            tensor.copy_(fresh[name])
        for out in as_tuple(outputs):
            if out.is_floating_point():
                out.fill_(torch.nan)
        graph.replay()
        context.synchronize()
        complaint = coarse_error(context, fresh, mode, context.named(outputs, given))
        if complaint:
            return Complaint(f"wrong in replay {replay + 1}", where, got=complaint)
    return None


def _remembers(good: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[str, Any] = {}

    def candidate(*given: Any, **mode: Any) -> Any:
        key = repr(([(t.shape, t.dtype) for t in given if isinstance(t, torch.Tensor)], mode))
        if key not in kept:
            kept[key] = good(*given, **mode)
        return kept[key]

    return candidate
