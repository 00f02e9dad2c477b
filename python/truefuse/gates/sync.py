"""A call returns at once: it waits neither for its stream nor for the device.

The stream (then another one) is kept busy; if the work in front has ended when the call returns, the
call has waited for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from truefuse.context import Context, as_tuple, describe
from truefuse.delay import Delay
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "sync"
DELAY_MS = 60.0
ATTEMPTS = 3


def run(context: Context) -> Result:
    if context.device.type != "cuda":
        return Result(NAME, Status.SKIP, "no-streams", "a call on a CPU ends when its work does")
    delay = Delay(context.device)
    good = context.good
    return judge(
        NAME,
        context,
        lambda one: examine(one, delay),
        {
            "a synchronisation of the device": _after(good, lambda out: torch.cuda.synchronize()),
            "a value that is read back": _after(good, lambda out: float(out.flatten()[0])),
        },
        "hidden-synchronisation",
        f"back at once, with {DELAY_MS:g} ms of work still in front",
        lambda: Result(
            NAME,
            Status.PASS,
            "asynchronous",
            "returns while its stream is busy, and while another is",
        ),
    )


def examine(context: Context, delay: Delay) -> Complaint | None:
    case = context.case
    mode = case.modes[0]
    inputs = context.inputs(case.medium_size, case.dtypes[0], case.kinds[0], NAME)
    stream, other = (torch.cuda.Stream(context.device) for _ in range(2))
    for one in (stream, other):
        delay.prepare(one)
    with torch.cuda.stream(stream):
        for _ in range(2):  # compiles; leaves freed memory in the allocator for this stream
            case.candidate(*context.fresh(inputs).values(), **mode)
    context.synchronize()
    for label, busy in (("its own stream", stream), ("another stream", other)):
        waited = []
        for _ in range(ATTEMPTS):
            given = context.fresh(inputs)
            context.synchronize()
            event = delay.on(busy, DELAY_MS)
            begin = time.perf_counter()
            with torch.cuda.stream(stream):
                case.candidate(*given.values(), **mode)
            seconds = time.perf_counter() - begin
            waited.append(event.query() or seconds > DELAY_MS / 2e3)
            context.synchronize()
        if all(waited):
            return Complaint(f"waits for {label}", describe(inputs, mode))
    return None


def _after(good: Callable[..., Any], wait: Callable[[Any], Any]) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        wait(as_tuple(outputs)[0])
        return outputs

    return candidate
