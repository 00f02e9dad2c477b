"""Many calls in a row: each right, not only the first.

A case that changes inputs in place runs `drift_steps` steps, each on the state that the last one left,
beside mathematics and beside the yardstick with states of their own: the candidate may drift away from
mathematics as the yardstick does, by the factors of accuracy. Any other case gives the same right result
however many calls went before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from truefuse import compare
from truefuse.case import Inputs, Mode
from truefuse.context import (
    Context,
    Results,
    as_tuple,
    copies,
    describe,
    is_floating,
    mode_name,
    short,
    widened,
)
from truefuse.gates.edges import coarse_error
from truefuse.gates.outputs import case_call, on_copies
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "drift"
CALLS = 24  # of a case without state
Curve = list[dict[str, Any]]


def run(context: Context) -> Result:
    good, mutates = context.good, context.case.mutates
    if not mutates:
        return judge(
            NAME,
            context,
            repeat,
            {"a sum that is never reset": _accumulates(good)},
            "wrong-later",
            f"each of {CALLS} calls right",
            lambda: Result(
                NAME,
                Status.PASS,
                "no-state",
                f"{CALLS} calls in a row on new inputs, each right",
                numbers={"calls": CALLS},
            ),
        )
    curves: list[Curve] = []
    beside = Beside()
    steps = context.case.drift_steps
    return judge(
        NAME,
        context,
        lambda one: walk(one, beside, curves),
        {
            "a state that loses a fiftieth a step": _fades(context),
            "a state that never changes": on_copies(good),
        },
        "drifts",
        f"within the accuracy's factors of the yardstick's own drift over {steps} steps",
        lambda: Result(
            NAME,
            Status.PASS,
            "bounded",
            f"{steps} steps, each on the state of the last: {_last(curves[-1])}",
            numbers={"steps": steps, "curves": curves[-1]},
        ),
    )


def repeat(context: Context) -> Complaint | None:
    case = context.case
    mode = case.modes[0]
    for dtype in (case.dtypes[0], case.dtypes[-1]):
        given = [
            context.inputs(case.small_size, dtype, case.kinds[0], NAME, call)
            for call in range(CALLS)
        ]
        found = [context.candidate(inputs, mode) for inputs in given]
        with compare.one_thread():
            for call, (inputs, results) in enumerate(zip(given, found, strict=True), 1):
                complaint = coarse_error(context, inputs, mode, results)
                if complaint:
                    where = f"call {call} of {CALLS}: {describe(inputs, mode)}"
                    return Complaint("wrong after other calls", where, got=complaint)
    return None


def walk(context: Context, beside: Beside, curves: list[Curve]) -> Complaint | None:
    case = context.case
    curve: Curve = []
    curves.append(curve)
    call = functools.partial(case_call, context, case.candidate)
    for dtype in case.dtypes:
        steps = Steps(context, dtype)
        with compare.one_thread():
            others = [beside.walked(context, steps, mode) for mode in case.modes]
        for mode, (eager, mathematics) in zip(case.modes, others, strict=True):
            way = _Way(call, steps.state(copies))
            for step in eager:  # Whoever has left it early goes no further.
                found = {step: way.walked(context, steps, mode, step)[step]}
                complaint = _compared(context, steps, mode, found, eager, mathematics, curve)
                if complaint:
                    return complaint
    return None


class Steps:
    """The inputs of a case's steps in one dtype. In every mode they are the same."""

    def __init__(self, context: Context, dtype: torch.dtype) -> None:
        case = context.case
        self.dtype, self._mutates = dtype, case.mutates
        self.first, *drawn = (
            context.inputs(case.small_size, dtype, case.kinds[0], NAME, step)
            for step in range(case.drift_steps + 1)
        )
        # A step has the state of the last one.
        self.fresh = [{k: v for k, v in one.items() if k not in case.mutates} for one in drawn]
        self._wide: dict[int, Inputs] = {}

    def state(self, prepare: Callable[[Inputs], Inputs]) -> Inputs:
        """Before the first step."""
        return {name: prepare(self.first)[name] for name in self._mutates}

    def wide(self, number: int) -> Inputs:
        if number not in self._wide:
            self._wide[number] = widened(self.fresh[number])
        return self._wide[number]

    def describe(self, step: int, mode: Mode) -> str:
        return describe(self.first | self.fresh[step - 1], mode)


@dataclass
class _Way:
    """One side's way, each step on the state that the last one left; it goes on where it has come to."""

    call: Callable[[Inputs, Mode], Any]
    state: Inputs
    inputs: Callable[[Steps, int], Inputs] = lambda steps, number: steps.fresh[number]
    kept: dict[int, Results] = field(default_factory=dict)
    step: int = 0

    def walked(
        self, context: Context, steps: Steps, mode: Mode, until: int | None = None
    ) -> dict[int, Results]:
        """The results of the last step and of those that are powers of two, `until` one of these."""
        last = len(steps.fresh)
        while self.step < (until or last):
            inputs = self.inputs(steps, self.step) | self.state
            given = {name: inputs[name] for name in steps.first}  # in the order of the call
            results = context.named(self.call(given, mode), given)
            self.step += 1
            if not self.step & (self.step - 1) or self.step == last:
                self.kept[self.step] = {name: one.clone() for name, one in results.items()}
        return self.kept


class Beside:
    """The yardstick's way and that of mathematics. Whoever is judged, they are the same: walked once."""

    def __init__(self) -> None:
        self._ways: dict[str, tuple[_Way, _Way]] = {}

    def walked(self, context: Context, steps: Steps, mode: Mode) -> tuple[dict[int, Results], ...]:
        """The results of both; of more steps if somebody has asked for more."""
        key = repr((steps.dtype, mode))
        if key not in self._ways:
            # Its state too is rounded to its dtype at every step: nobody can keep more than that.
            self._ways[key] = (
                _Way(_plain(context.good), steps.state(copies)),
                _Way(_plain(context.case.reference), steps.state(widened), Steps.wide),
            )
        return tuple(way.walked(context, steps, mode) for way in self._ways[key])


def _plain(function: Callable[..., Any]) -> Callable[[Inputs, Mode], Any]:
    return lambda given, mode: function(*given.values(), **mode)


def _compared(
    context: Context,
    steps: Steps,
    mode: Mode,
    found: dict[int, Results],
    yardstick: dict[int, Results],
    mathematics: dict[int, Results],
    curve: Curve,
) -> Complaint | None:
    """The first result that is farther from mathematics than it may be; `curve` gets a row for each."""
    dtypes = context.result_dtypes(steps.first, mode)
    label = f"{short(steps.dtype)} {mode_name(mode)}"
    for step, results in found.items():
        for name, truth in mathematics[step].items():
            ours, eager = (_distance(one[name], truth) for one in (results, yardstick[step]))
            curve.append(
                {"case": label, "result": name, "step": step, "ours": ours, "eager": eager}
            )
            tolerance = context.case.tolerance_for(dtypes[name])
            unit = torch.finfo(dtypes[name]).eps if dtypes[name].is_floating_point else 0.0
            bound = tolerance.factor * eager + tolerance.ulps * unit
            if not ours <= bound:
                return Complaint(
                    f"'{name}' drifts away",
                    f"step {step}, {label}: {steps.describe(step, mode)}",
                    f"relative error at most {bound:.3g}",
                    f"{ours:.3g}",
                )
    return None


def _distance(result: Tensor, truth: Tensor) -> float:
    """Relative L2 distance; infinite where either is no number."""
    difference = result.detach().cpu().double() - truth.double()
    if not bool(difference.isfinite().all()):
        return float("inf")
    size = compare.root_mean_square(truth.double()) or 1.0
    return compare.root_mean_square(difference) / size


def _last(curve: Curve) -> str:
    ends = {f"{row['result']}": row for row in curve}
    return " · ".join(
        f"{name} {row['ours']:.2g} (eager {row['eager']:.2g})" for name, row in ends.items()
    )


def _accumulates(good: Callable[..., Any]) -> Callable[..., Any]:
    total = 0.0

    def candidate(*given: Any, **mode: Any) -> Any:
        nonlocal total
        outputs = good(*given, **mode)
        first, *others = as_tuple(outputs)
        result = first + total
        total += float(first.double().abs().max()) / 4
        return result if isinstance(outputs, Tensor) else (result, *others)

    return candidate


def _fades(context: Context) -> Callable[..., Any]:
    case, good, names = context.case, context.good, context.names

    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        for name, value in zip(names, given, strict=True):
            if name in case.mutates and is_floating(value):
                value.mul_(0.98)
        return outputs

    return candidate
