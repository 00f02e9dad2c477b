"""Accuracy of every result against mathematics, by the rules of `truefuse.accuracy`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from truefuse import compare
from truefuse.accuracy import Trial, Violation, spoilt, trial
from truefuse.case import Mode
from truefuse.context import Context, Results, mode_name, short
from truefuse.gates.proof import self_test_failed
from truefuse.verdict import Result, Status

NAME = "numerics"
LARGE_EXPONENT = -10  # figures are shown apart for results from 2^-10 on, and for the tail below
EXACT_SIZE = (16, 64)  # where every element is computed beyond float64


def trials(context: Context, mode: Mode, dtype: torch.dtype) -> list[Trial]:
    case = context.case
    exact = dtype == torch.float64 and case.exact is not None
    size = EXACT_SIZE if exact else case.numeric_size

    def one(kind: str) -> Trial:
        inputs = context.inputs(size, dtype, kind)
        return trial(
            case,
            f"{short(dtype)} {mode_name(mode)} {kind}",
            kind,
            inputs,
            mode,
            context.reference(inputs, mode, exact),
            lambda: context.yardstick(inputs, mode),
            lambda: context.eager(inputs, mode),
            strict=kind in case.strict_kinds,
        )

    return [one(kind) for kind in case.kinds]


def self_test(context: Context, group: list[Trial]) -> list[str]:
    """What the rules do with known results for one dtype and mode; empty if they do right."""
    faults = []
    for one in group:
        complaints = one.violations(one.right())
        if complaints:
            faults.append(f"turned away mathematics rounded once ({one.label}): {complaints[0]}")
    for name, alter in context.case.faults.items():
        seen = [_altered(context, one, alter) for one in group]
        if not any(caught for _, caught in seen):
            differs = any(differs for differs, _ in seen)
            nothing = "" if differs else ", which changes no result: mend it in the case's `faults`"
            faults.append(f"did not catch '{name}' ({group[0].label}){nothing}")
    for name, results in spoilt(group[0].right()).items():
        if not group[0].violations(results):
            faults.append(f"did not catch '{name}' ({group[0].label})")
    return faults


def _altered(context: Context, one: Trial, alter: Any) -> tuple[bool, bool]:
    """(the mistake changes a result, it is caught)."""
    inputs, mode = alter(one.inputs, one.mode)
    return one.seen(context.reference(inputs, mode))


def run(context: Context) -> Result:
    table: list[dict[str, Any]] = []
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            with compare.one_thread():
                group = trials(context, mode, dtype)
                faults = self_test(context, group)
            if faults:
                return self_test_failed(NAME, faults)
            results = [context.candidate(one.inputs, mode) for one in group]
            with compare.one_thread():
                for one, result in zip(group, results, strict=True):
                    broken = one.violations(result)
                    if broken:
                        return failure(NAME, one, broken, table)
                table += rows(group, results, dtype)
    return Result(
        NAME,
        Status.PASS,
        "within-bounds",
        f"worst ulp error against mathematics, |result| ≥ 2^{LARGE_EXPONENT}: "
        + " · ".join(worst_by_mode(table)),
        lines=[line(row) for row in table],
        numbers={"table": table},
    )


def failure(gate: str, one: Trial, broken: list[Violation], table: list[dict[str, Any]]) -> Result:
    first = broken[0]
    return Result(
        gate,
        Status.FAIL,
        f"{first.rule}-error",
        f"{one.label}: {first.rule} error",
        expected=first.bound,
        got=first.got,
        first=f"{first.place}; call: {one.describe()}",
        numbers={
            "broken": [f"{v.rule}: got {v.got}, wanted {v.bound}; {v.place}" for v in broken],
            "table": table,
        },
    )


def rows(
    group: list[Trial], results: list[Results], dtype: torch.dtype
) -> Iterator[dict[str, Any]]:
    """For each result the worst over the kinds in which it has the same dtype, per binade; charts and
    lines come from here."""
    found: dict[tuple[str, torch.dtype], list[tuple[Trial, Tensor]]] = {}
    for one, result in zip(group, results, strict=True):
        for name, ruler in one.rulers.items():
            found.setdefault((name, ruler.dtype), []).append((one, result[name]))
    for (name, _), alike in found.items():
        rulers = [one.rulers[name] for one, _ in alike]
        ours = [ruler.summary(made) for ruler, (_, made) in zip(rulers, alike, strict=True)]
        worst = torch.stack([summary.binade_max for summary in ours]).amax(dim=0)
        eager = torch.stack([ruler.eager.binade_max for ruler in rulers]).amax(dim=0)
        used = (worst >= 0).nonzero().flatten().tolist()
        lowest = compare.minimum_exponent(rulers[0].dtype)
        large = torch.arange(len(worst)) + lowest >= LARGE_EXPONENT
        kinds = [one.kind for one, _ in alike]
        yield {
            "dtype": short(dtype),
            "mode": mode_name(group[0].mode),
            "result": name,
            "worst_ulps": {"large": _worst(worst, large), "small": _worst(worst, ~large)},
            "eager_worst_ulps": {"large": _worst(eager, large), "small": _worst(eager, ~large)},
            "rmse": {k: summary.rmse for k, summary in zip(kinds, ours, strict=True)},
            "yardstick_rmse": {k: r.yardstick.rmse for k, r in zip(kinds, rulers, strict=True)},
            "binades": [
                {"exponent": i + lowest, "ours": float(worst[i]), "eager": float(eager[i])}
                for i in used
            ],
        }


def _worst(per_binade: Tensor, mask: Tensor) -> float:
    return max([0.0, *per_binade[mask].tolist()])


def line(row: dict[str, Any]) -> str:
    ours, eager = row["worst_ulps"], row["eager_worst_ulps"]
    name = "" if row["result"] == "out" else f" {row['result']}"
    return (
        f"{row['dtype']:<5} {row['mode']:<6}{name} ours {ours['large']:.3g} eager {eager['large']:.3g}"
        f" · smaller results: ours {ours['small']:.3g} eager {eager['small']:.3g}"
    )


def worst_by_mode(table: list[dict[str, Any]]) -> Iterator[str]:
    for mode in dict.fromkeys(row["mode"] for row in table):
        of_mode = [row for row in table if row["mode"] == mode]
        ours = max(row["worst_ulps"]["large"] for row in of_mode)
        eager = max(row["eager_worst_ulps"]["large"] for row in of_mode)
        yield f"{mode}: ours {ours:.3g} eager {eager:.3g}"
