"""How many kernels, copies and fills a call puts on the device: the same number every time, and some.

The counting is calibrated first (see `truefuse.launches`); where the profiler loses events the answer is
UNKNOWN.
"""

from __future__ import annotations

from truefuse import launches
from truefuse.context import Context, describe
from truefuse.gates.proof import self_test_failed
from truefuse.verdict import Result, Status

NAME = "launches"
CALLS = (3, 8)


def run(context: Context) -> Result:
    if context.device.type != "cuda":
        return Result(NAME, Status.SKIP, "no-launches", "a CPU launches no kernels")
    context = context.as_given
    case = context.case
    inputs = context.inputs(case.medium_size, case.dtypes[0], case.kinds[0], NAME)
    mode = case.modes[0]
    own = context.fresh(inputs)

    def per_call(function, calls: int) -> float | None:
        function(*own.values(), **mode)  # compiles
        total = launches.count(
            context, lambda: [function(*own.values(), **mode) for _ in range(calls)]
        )
        return None if total is None else total / calls

    eager = [per_call(context.baseline, calls) for calls in CALLS]
    if None in eager:
        return Result(
            NAME,
            Status.UNKNOWN,
            "profiler-loses-events",
            "the profiler does not see a known number of kernels, so nothing can be counted",
        )
    if per_call(lambda *given, **mode: given, CALLS[0]) != 0 or not eager[0]:
        return self_test_failed(NAME, ["a call that launches nothing is not told from eager"])
    ours = [per_call(case.candidate, calls) for calls in CALLS]
    where = describe(inputs, mode)
    if ours[0] != ours[1] or ours[0] != int(ours[0]):
        found = " and ".join(
            f"{value:g} over {n} calls" for value, n in zip(ours, CALLS, strict=True)
        )
        return Result(
            NAME,
            Status.FAIL,
            "launches-vary",
            "equal calls launch different numbers of kernels",
            expected="one whole number",
            got=found,
            first=where,
        )
    if not ours[0]:
        return Result(
            NAME,
            Status.FAIL,
            "nothing-launched",
            "a call launches nothing",
            expected="at least one kernel",
            got="0",
            first=where,
        )
    return Result(
        NAME,
        Status.PASS,
        "counted",
        f"{ours[0]:g} a call, eager {eager[0]:g} (kernels, copies and fills; calibrated)",
        numbers={"candidate": ours[0], "eager": eager[0]},
    )
