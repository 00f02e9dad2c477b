"""Work goes to PyTorch's current stream, and nothing is left running beside it.

Late producer: the input is written on the stream after a delay; whoever does not wait reads the decoy
that was there before. Blocked default stream: whoever launches there has not finished when the current
stream has. Early consumer: another stream copies the output as soon as the current one is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from truefuse.case import Inputs, Mode
from truefuse.context import Context, Results, copies, describe, tensors
from truefuse.delay import Delay
from truefuse.gates.edges import coarse_error
from truefuse.gates.outputs import case_call, same_results
from truefuse.gates.proof import Complaint, judge
from truefuse.gates.unwritten import poison
from truefuse.verdict import Result, Status

NAME = "streams"
DELAY_MS = 30.0
REPEATS = 10


def run(context: Context) -> Result:
    if context.device.type != "cuda":
        return Result(NAME, Status.SKIP, "no-streams", "a CPU has no streams")
    delay = Delay(context.device)
    good = context.good
    return judge(
        NAME,
        context,
        lambda one: examine(one, delay),
        {
            "work on the default stream": _on(good, torch.cuda.default_stream(context.device)),
            "work on a stream that is never joined": _unjoined(good, context.device, delay),
        },
        "wrong-stream",
        "all work on the current stream",
        lambda: Result(
            NAME,
            Status.PASS,
            "current-stream",
            "right behind a late producer, before an early consumer, beside a blocked default stream"
            + (" · from another current device" if torch.cuda.device_count() > 1 else ""),
        ),
    )


def examine(context: Context, delay: Delay) -> Complaint | None:
    case = context.case
    mode = case.modes[0]
    dtype = case.dtypes[0]
    stream = torch.cuda.Stream(context.device)
    delay.prepare(stream)
    delay.prepare(torch.cuda.default_stream(context.device))
    decoy = context.inputs(case.medium_size, dtype, case.kinds[0], NAME, "decoy")
    real = context.inputs(case.medium_size, dtype, case.kinds[0], NAME, "real")
    context.candidate(real, mode)  # compiles
    context.synchronize()
    return (
        _late_producer(context, stream, delay, decoy, real, mode)
        or _blocked_default(context, stream, delay, real, mode)
        or _early_consumer(context, stream, mode)
        or _other_device(context, real, mode)
    )


def _late_producer(
    context: Context,
    stream: torch.cuda.Stream,
    delay: Delay,
    decoy: Inputs,
    real: Inputs,
    mode: Mode,
) -> Complaint | None:
    given = copies(decoy)
    context.synchronize()
    with torch.cuda.stream(stream):
        delay.on(stream, DELAY_MS)
        for name, tensor in tensors(given).items():
            tensor.copy_(real[name])
        outputs = context.case.candidate(*given.values(), **mode)
        seen = _cloned(context.named(outputs, given))
    stream.synchronize()
    complaint = coarse_error(context, real, mode, seen)
    context.synchronize()
    if not complaint:
        return None
    early = not coarse_error(context, decoy, mode, seen)
    got = "the result of what the input held before" if early else complaint
    return Complaint("does not wait for the current stream", describe(real, mode), got=got)


def _blocked_default(
    context: Context, stream: torch.cuda.Stream, delay: Delay, real: Inputs, mode: Mode
) -> Complaint | None:
    given = copies(real)
    # Freed memory still holds the right result of an earlier call: whoever is late must not be lucky.
    wanted = context.candidate(real, mode)
    poison(wanted, 0x5A)
    with torch.cuda.stream(stream):
        poison(wanted, 0x5A)
    context.synchronize()
    event = delay.on(torch.cuda.default_stream(context.device), DELAY_MS)
    with torch.cuda.stream(stream):
        outputs = context.case.candidate(*given.values(), **mode)
        seen = _cloned(context.named(outputs, given))
    stream.synchronize()
    blocked = not event.query()
    complaint = coarse_error(context, real, mode, seen)
    context.synchronize()
    if complaint and blocked:
        return Complaint("waits for the default stream", describe(real, mode), got=complaint)
    return None


def _early_consumer(context: Context, stream: torch.cuda.Stream, mode: Mode) -> Complaint | None:
    case = context.case
    size = max(case.timing_sizes, key=lambda one: torch.Size(one).numel())
    inputs = context.inputs(size, case.timed_dtype, case.kinds[0], NAME, "large")
    consumer = torch.cuda.Stream(context.device)
    wanted = context.candidate(inputs, mode)
    for _ in range(REPEATS):
        given = context.fresh(inputs)
        with torch.cuda.stream(stream):
            poison(wanted, 0x5A)
            stream.synchronize()
            outputs = case.candidate(*given.values(), **mode)
            event = torch.cuda.Event()
            event.record(stream)
        with torch.cuda.stream(consumer):
            consumer.wait_event(event)
            seen = _cloned(context.named(outputs, given))
        consumer.synchronize()
        context.synchronize()
        if not same_results(seen, wanted):
            where = describe(inputs, mode)
            return Complaint("is not finished when the current stream is", where)
    return None


def _other_device(context: Context, real: Inputs, mode: Mode) -> Complaint | None:
    """With another current device than that of the tensors."""
    count = torch.cuda.device_count()
    if count < 2:
        return None
    other = ((context.device.index or 0) + 1) % count
    with torch.cuda.device(other):
        results = context.named(case_call(context, context.case.candidate, real, mode), real)
        changed = torch.cuda.current_device() != other
    complaint = coarse_error(context, real, mode, results)
    if complaint or changed:
        what = "depends on the current device" if complaint else "changes the current device"
        return Complaint(what, describe(real, mode), got=complaint or what)
    return None


def _cloned(results: Results) -> Results:
    return {name: tensor.clone() for name, tensor in results.items()}


def _on(good: Callable[..., Any], stream: torch.cuda.Stream) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        with torch.cuda.stream(stream):
            return good(*given, **mode)

    return candidate


def _unjoined(good: Callable[..., Any], device: torch.device, delay: Delay) -> Callable[..., Any]:
    side = torch.cuda.Stream(device)
    delay.prepare(side)

    def candidate(*given: Any, **mode: Any) -> Any:
        side.wait_stream(torch.cuda.current_stream(device))
        delay.on(side, 3.0)
        with torch.cuda.stream(side):
            return good(*given, **mode)

    return candidate
