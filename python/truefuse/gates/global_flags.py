"""A call leaves global state alone; so does loading the case."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import torch

from truefuse import flags
from truefuse.context import Context, describe
from truefuse.gates.outputs import case_call
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "flags"


def run(context: Context) -> Result:
    good = context.good
    towards_zero = flags.TOWARDS_ZERO.get(platform.machine(), 0)
    # To draw random numbers while it is loaded is a case's own affair.
    found = {k: v for k, v in context.loading_changed.items() if not k.startswith("random")}
    if found:
        return _changed("loading the case changed", found, "before the first call")
    found = flags.changed_since(context.at_start, context.device)
    if found:
        flags.restore(context.at_start)  # for the gates to come
        return _changed("an earlier call changed", found, "in a gate before this one")
    return judge(
        NAME,
        context,
        examine,
        {
            "matmul precision lowered": _does(
                good, lambda: torch.set_float32_matmul_precision("medium")
            ),
            "another default dtype": _does(good, lambda: torch.set_default_dtype(torch.float64)),
            "random numbers consumed": _does(good, lambda: torch.rand(1)),
            "a slower function of PyTorch's": _does(good, _slow_function),
            "another clock": _does(good, _slow_clock),
            **(
                {"another rounding": _does(good, lambda: flags.set_rounding(towards_zero))}
                if towards_zero
                else {}
            ),
        },
        "flags-changed",
        "global state as before the call",
        lambda: Result(
            NAME,
            Status.PASS,
            "unchanged",
            "settings, random generators and clocks are as they were before the case was loaded",
            numbers={"flags": flags.settings(context.device)},
        ),
    )


def examine(context: Context) -> Complaint | None:
    case = context.case
    inputs = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME)
    for mode in case.modes:
        own = context.fresh(inputs)
        before = flags.snapshot(context.device)
        try:
            case_call(context, case.candidate, own, mode)
            found = flags.changes(before, flags.snapshot(context.device))
        finally:
            flags.restore(before)
        for name, (was, now) in found.items():
            where = describe(inputs, mode)
            return Complaint(f"a call changes: {name}", where, was, now)
    return None


def _changed(what: str, found: dict[str, tuple[str, str]], where: str) -> Result:
    name, (was, now) = next(iter(found.items()))
    return Result(
        NAME, Status.FAIL, "flags-changed", f"{what}: {name}", expected=was, got=now, first=where
    )


def _does(good: Callable[..., Any], harm: Callable[[], Any]) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        harm()
        return outputs

    return candidate


def _slow_function() -> None:
    real = torch.add
    torch.add = lambda *given, **named: real(*given, **named)


def _slow_clock() -> None:
    real = time.perf_counter
    time.perf_counter = lambda: real() / 2  # type: ignore[assignment]
