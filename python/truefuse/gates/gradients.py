"""Accuracy of gradients against mathematics, by the rules that hold for results."""

from __future__ import annotations

from typing import Any

import torch

from truefuse import compare, derivatives
from truefuse.accuracy import Trial, spoilt, trial
from truefuse.case import Mode
from truefuse.context import CandidateRaised, Context, mode_name, short
from truefuse.gates import numerics
from truefuse.gates.proof import self_test_failed
from truefuse.verdict import Result, Status

NAME = "gradients"


def run(context: Context) -> Result:
    if not context.case.gradients:
        return Result(
            NAME,
            Status.PASS,
            "none-declared",
            "the case declares none; the training gate shows that a call for one is refused",
        )
    table: list[dict[str, Any]] = []
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            with compare.one_thread():
                group = [_trial(context, mode, dtype, kind) for kind in context.case.kinds]
                undefined = _undefined(group)
                if undefined:
                    return undefined
                faults = self_test(context, group)
            if faults:
                return self_test_failed(NAME, faults)
            results = [_candidate(context, one) for one in group]
            with compare.one_thread():
                for one, result in zip(group, results, strict=True):
                    broken = one.violations(result)
                    if broken:
                        return numerics.failure(NAME, one, broken, table)
                table += numerics.rows(group, results, dtype)
    return Result(
        NAME,
        Status.PASS,
        "within-bounds",
        "worst ulp error of gradients against mathematics, "
        f"|gradient| ≥ 2^{numerics.LARGE_EXPONENT}: " + " · ".join(numerics.worst_by_mode(table)),
        lines=[numerics.line(row) for row in table],
        numbers={"table": table},
    )


def _trial(context: Context, mode: Mode, dtype: torch.dtype, kind: str) -> Trial:
    wanted = context.case.gradients
    inputs = context.inputs(context.case.numeric_size, dtype, kind, NAME)
    sent = derivatives.incoming(context, inputs, mode, dtype, kind)
    made = trial(
        context.case,
        f"{short(dtype)} {mode_name(mode)} {kind}",
        kind,
        inputs,
        mode,
        derivatives.mathematics(context, inputs, mode, wanted, sent),
        lambda: derivatives.yardstick(context, inputs, mode, wanted, sent),
        lambda: derivatives.gradients(context.baseline, inputs, mode, wanted, sent),
    )
    return made


def _sent(context: Context, one: Trial) -> tuple[torch.Tensor, ...]:
    dtype = next(iter(one.rulers.values())).dtype
    return derivatives.incoming(context, one.inputs, one.mode, dtype, one.kind)


def _candidate(context: Context, one: Trial) -> dict[str, torch.Tensor]:
    wanted = context.case.gradients
    try:
        return derivatives.of_candidate(context, one.inputs, one.mode, wanted, _sent(context, one))
    except Exception as error:
        raise CandidateRaised(
            f"{type(error).__name__}: {error} [gradient of {one.describe()}]"
        ) from error


def _undefined(group: list[Trial]) -> Result | None:
    for one in group:
        references = {name: ruler.reference for name, ruler in one.rulers.items()}
        where = derivatives.undefined(references, one.inputs)
        if where:
            return Result(
                NAME,
                Status.UNKNOWN,
                "reference-without-gradient",
                f"autograd of the reference gives no number at {where} ({one.label}); give the case "
                "`reference_gradients`",
            )
    return None


def self_test(context: Context, group: list[Trial]) -> list[str]:
    faults = []
    for one in group:
        complaints = one.violations(one.right())
        if complaints:
            faults.append(f"turned away mathematics rounded once ({one.label}): {complaints[0]}")
    for name, alter in context.case.faults.items():
        seen = [_altered(context, one, alter) for one in group]
        if any(differs for differs, _ in seen) and not any(caught for _, caught in seen):
            faults.append(f"did not catch '{name}' ({group[0].label})")
    for name, results in spoilt(group[0].right()).items():
        if not group[0].violations(results):
            faults.append(f"did not catch '{name}' ({group[0].label})")
    return faults


def _altered(context: Context, one: Trial, alter: Any) -> tuple[bool, bool]:
    """(the mistake changes a gradient, it is caught)."""
    inputs, mode = alter(one.inputs, one.mode)
    wanted, sent = context.case.gradients, _sent(context, one)
    return one.seen(derivatives.mathematics(context, inputs, mode, wanted, sent))
