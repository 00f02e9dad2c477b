"""Two calls at once, on two threads (and on a GPU on two streams), do not disturb each other: as they come, and
with a rest behind every operation of PyTorch's, in which the other thread gets further; at a size that is
timed too, for what is shared by large calls alone."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from truefuse.case import Inputs, Size
from truefuse.context import (
    CandidateRaised,
    Context,
    Results,
    as_tuple,
    contents_of,
    describe,
)
from truefuse.gates.outputs import same_results
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "concurrent"
CALLS = 20
FEW_CALLS, REST = 3, 0.0005
PAUSE = 0.002


def run(context: Context) -> Result:
    what = "streams" if context.device.type == "cuda" else "threads"
    return judge(
        NAME,
        context,
        examine,
        {"one workspace for all calls": _shares(context)},
        "calls-disturb-each-other",
        "the results of each call alone",
        lambda: Result(
            NAME,
            Status.PASS,
            "independent",
            f"{CALLS} calls on each of two {what} at once, as alone",
        ),
    )


def examine(context: Context) -> Complaint | None:
    case = context.case
    largest = max(case.timing_sizes, key=math.prod)
    return (
        _at_once(context, case.medium_size, CALLS, lambda side: nullcontext())
        or _at_once(context, case.medium_size, FEW_CALLS, _Rests)
        or _at_once(context, largest, FEW_CALLS, _Rests)
    )


class _Rests(TorchDispatchMode):
    """Of the thread that is in it. Those of the sides differ, so that they meet at other places every time."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self._rest = REST * (1 + side / 2)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        time.sleep(self._rest)
        return made


def _at_once(
    context: Context, size: Size, count: int, way: Callable[[int], AbstractContextManager[Any]]
) -> Complaint | None:
    case = context.case
    mode = case.modes[0]
    sides = [
        context.inputs(size, case.dtypes[0], case.kinds[0], NAME, side)
        for side in ("first", "second")
    ]
    alone = []
    for side, inputs in enumerate(sides):
        with way(side):
            alone.append(context.candidate(inputs, mode))
    is_gpu = context.device.type == "cuda"
    streams = [torch.cuda.Stream(context.device) if is_gpu else None for _ in sides]
    found: list[list[Results]] = [[], []]
    raised: list[Exception] = []
    start = threading.Barrier(2)

    def work(side: int) -> None:
        try:
            with torch.no_grad(), torch.cuda.stream(streams[side]):
                start.wait()
                found[side] = _calls(context, sides[side], count, lambda: way(side))
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(side,)) for side in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context.synchronize()
    if raised:
        error = raised[0]
        raise CandidateRaised(f"{type(error).__name__}: {error} [two calls at once]") from error
    for side, results in enumerate(found):
        for number, result in enumerate(results):
            if not same_results(result, alone[side]):
                where = f"call {number + 1}, {describe(sides[side], mode)}"
                return Complaint("another call at the same time changes the result", where)
    return None


def _calls(
    context: Context, inputs: Inputs, count: int, way: Callable[[], AbstractContextManager[Any]]
) -> list[Results]:
    """On the current stream, which has done its work then."""
    case = context.case
    mode = case.modes[0]
    results = []
    for _ in range(count):
        own = context.fresh(inputs)
        with way():
            outputs = case.candidate(*own.values(), **mode)
        results.append(context.named(outputs, own))
    if context.device.type == "cuda":
        torch.cuda.current_stream(context.device).synchronize()
    return results


def _shares(context: Context) -> Callable[..., Any]:
    """Puts the first input into a buffer that all calls share, and rests before it reads it."""
    good = context.good
    buffers: dict[Any, Any] = {}
    pause = _Pause(context)

    def candidate(*given: Any, **mode: Any) -> Any:
        first = next(iter(contents_of(dict(enumerate(given)))))
        value = given[first]
        buffer = buffers.setdefault((value.shape, value.dtype), value.clone())
        buffer.copy_(value)
        pause()
        outputs = good(*given[:first], buffer.clone(), *given[first + 1 :], **mode)
        return outputs if isinstance(outputs, torch.Tensor) else as_tuple(outputs)

    return candidate


class _Pause:
    """Of the thread; on a GPU of the stream."""

    def __init__(self, context: Context) -> None:
        self.delay = None
        self.device = context.device
        if context.device.type == "cuda":
            from truefuse.delay import Delay

            self.delay = Delay(context.device)

    def __call__(self) -> None:
        if self.delay is None:
            time.sleep(PAUSE)
        else:
            self.delay.on(torch.cuda.current_stream(self.device), 1e3 * PAUSE)
