"""The operator that the case names is what runs: a candidate that quietly calls something else is
measured under a wrong name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity

from truefuse.context import CandidateRaised, Context, describe
from truefuse.gates.proof import self_test_failed
from truefuse.profiling import record
from truefuse.verdict import Result, Status

NAME = "dispatch"


def run(context: Context) -> Result:
    case = context.case
    if case.operator is None:
        return Result(
            NAME, Status.PASS, "no-operator-named", "the case names a callable and no operator"
        )
    inputs = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME)
    call = lambda function: function(*context.fresh(inputs).values(), **case.modes[0])  # noqa: E731
    if case.operator in called(lambda: call(context.baseline)):
        return self_test_failed(NAME, [f"eager PyTorch seems to call {case.operator}"])
    if "aten::add" not in called(lambda: next(iter(inputs.values())).add(1)):
        return self_test_failed(NAME, ["an addition of PyTorch's is not seen"])
    try:
        seen = called(lambda: call(case.candidate))
    except Exception as error:
        raise CandidateRaised(
            f"{type(error).__name__}: {error} [{describe(inputs, case.modes[0])}]"
        ) from error
    if case.operator not in seen:
        return Result(
            NAME,
            Status.FAIL,
            "operator-not-called",
            f"{case.operator} is not called",
            expected=f"a call of {case.operator}",
            got=", ".join(sorted(seen)[:8]) or "no operator at all",
            first=describe(inputs, case.modes[0]),
        )
    return Result(NAME, Status.PASS, "operator-called", f"{case.operator} is what runs")


def called(call: Callable[[], Any]) -> set[str]:
    """The names of PyTorch's operators that a call goes through."""
    recorded = record(call, [ProfilerActivity.CPU])
    return {event.name for event in recorded.events() if "::" in event.name}
