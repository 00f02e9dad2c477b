"""Many calls in a row: each right, not only the first.

A case that changes inputs in place runs `drift_steps` steps, each on the state that the last one left,
beside mathematics and beside the yardstick with states of their own: the candidate may drift away from
mathematics as the yardstick does, by the factors of accuracy. Any other case gives the same right result
however many calls went before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from truefuse import compare
from truefuse.case import Inputs, Mode
from truefuse.context import (
    HALF_TYPES,
    Context,
    Results,
    as_tuple,
    cast,
    copies,
    describe,
    has_half,
    is_floating,
    mode_name,
    short,
    widened,
)
from truefuse.gates.edges import coarse_error
from truefuse.gates.outputs import case_call
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
    steps = context.case.drift_steps
    return judge(
        NAME,
        context,
        lambda one: walk(one, curves),
        {
            "a state that loses a fiftieth a step": _fades(context),
            "a state that never changes": _on_copies(good),
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


def walk(context: Context, curves: list[Curve]) -> Complaint | None:
    case = context.case
    curve: Curve = []
    curves.append(curve)
    for dtype in case.dtypes:
        for mode in case.modes:
            found = _walk_one(context, dtype, mode, curve)
            if found:
                return found
    return None


def _walk_one(context: Context, dtype: torch.dtype, mode: Mode, curve: Curve) -> Complaint | None:
    case = context.case
    first = context.inputs(case.small_size, dtype, case.kinds[0], NAME, 0)
    dtypes = context.result_dtypes(first, mode)
    steps = range(1, case.drift_steps + 1)
    fresh = [context.inputs(case.small_size, dtype, case.kinds[0], NAME, step) for step in steps]

    def walked(
        function: Callable[..., Any], prepare: Callable[[Inputs], Inputs]
    ) -> dict[int, Results]:
        """The results of the last step and of those that are powers of two."""
        state = {name: copies(prepare(first))[name] for name in case.mutates}
        kept = {}
        for step, inputs in zip(steps, fresh, strict=True):
            given = prepare(inputs) | state
            results = context.named(case_call(context, function, given, mode), given)
            if not step & (step - 1) or step == case.drift_steps:
                kept[step] = {name: tensor.clone() for name, tensor in results.items()}
        return kept

    found = walked(case.candidate, lambda inputs: inputs)
    with compare.one_thread():
        beside, mathematics = walked(*_yardstick(context, first)), walked(case.reference, widened)
    label = f"{short(dtype)} {mode_name(mode)}"
    for step, truths in mathematics.items():
        for name, truth in truths.items():
            ours, eager = (_distance(side[step][name], truth) for side in (found, beside))
            curve.append(
                {"case": label, "result": name, "step": step, "ours": ours, "eager": eager}
            )
            tolerance = case.tolerance_for(dtypes[name])
            unit = torch.finfo(dtypes[name]).eps if dtypes[name].is_floating_point else 0.0
            bound = tolerance.factor * eager + tolerance.ulps * unit
            if not ours <= bound:
                return Complaint(
                    f"'{name}' drifts away",
                    f"step {step}, {label}: {describe(fresh[step - 1], mode)}",
                    f"relative error at most {bound:.3g}",
                    f"{ours:.3g}",
                )
    return None


def _yardstick(
    context: Context, inputs: Inputs
) -> tuple[Callable[..., Any], Callable[[Inputs], Inputs]]:
    """What to call, and what to make of the inputs before."""
    if not has_half(inputs):
        return context.baseline, copies
    if context.case.yardstick is not None:
        return context.case.yardstick, copies
    return context.baseline, lambda given: copies(cast(given, torch.float32, HALF_TYPES))


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


def _on_copies(good: Callable[..., Any]) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        return good(*(t.clone() if isinstance(t, Tensor) else t for t in given), **mode)

    return candidate
