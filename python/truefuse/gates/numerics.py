"""Accuracy against mathematics: whole tensor, worst row, worst element of every binade.

Each figure must be <= factor * yardstick + 1 ulp (and 2 ulp are always allowed in a binade); where the
inputs leave no rounding before the function itself, the worst error of every binade must besides be no
worse than eager's, or 2 ulp where eager does better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truefuse import compare
from truefuse.case import Inputs, Mode
from truefuse.compare import Reference, Summary
from truefuse.context import Context, describe, mode_name, short
from truefuse.gates.proof import self_test_failed
from truefuse.verdict import Result, Status

NAME = "numerics"
ALWAYS_ALLOWED_ULPS = 2.0
SCARCITY = 3.0
LARGE_EXPONENT = -10  # figures are shown apart for results from 2^-10 on, and for the tail below
EXACT_SIZE = (16, 64)  # where every element is computed beyond float64


@dataclass(frozen=True)
class Violation:
    rule: str  # "class", "rmse", "row", "binade"; a reason code with "-error"
    got: str
    bound: str
    place: str


@dataclass(frozen=True)
class Trial:
    """One set of inputs with everything that a candidate is compared with."""

    dtype: torch.dtype
    kind: str
    inputs: Inputs
    mode: Mode
    reference: Reference
    yardstick: Summary
    eager: Summary
    factor: float
    ulps: float
    strict: bool

    def label(self) -> str:
        return f"{short(self.dtype)} {mode_name(self.mode)} {self.kind}"

    def bound(self) -> Tensor:
        """Allowed ulp error per binade; NaN where no element lies."""
        bound = self.factor * self.yardstick.binade_max + self.ulps
        if self.strict:
            # The worst of n elements underestimates eager's worst; the fewer, the more.
            scarcity = 1 + SCARCITY / self.eager.binade_count.clamp(min=1).sqrt()
            bound = bound.minimum(self.eager.binade_max * scarcity)
        bound = bound.clamp(min=ALWAYS_ALLOWED_ULPS)
        return bound.where(self.yardstick.binade_count > 0, math.nan)

    def summary(self, result: Tensor) -> Summary:
        return compare.summarise(self.errors(result), self.reference)

    def errors(self, result: Tensor) -> compare.Errors:
        return compare.errors(result, self.reference)

    def violations(self, result: Tensor) -> list[Violation]:
        """Every rule that `result` breaks, gravest first."""
        if result.dtype != self.dtype or result.shape != self.reference.high.shape:
            return [
                Violation(
                    "class",
                    f"{short(result.dtype)} {list(result.shape)}",
                    f"{short(self.dtype)} {list(self.reference.high.shape)}",
                    self.label(),
                )
            ]
        found = self.errors(result)
        got = compare.summarise(found, self.reference)
        rules = (self._class(found, result), self._binade(found, got, result))
        rules += (self._row(got), self._rmse(got))
        return [violation for violation in rules if violation]

    def _class(self, found: compare.Errors, result: Tensor) -> Violation | None:
        if not found.wrong_class.any():
            return None
        return Violation("class", *self._element(found.wrong_class, result))

    def _binade(self, found: compare.Errors, got: Summary, result: Tensor) -> Violation | None:
        bound = self.bound()
        broken = ~(got.binade_max <= bound) & (got.binade_max >= 0)
        if not broken.any():
            return None
        excess = torch.where(broken, got.binade_max / bound, 0.0)
        worst = int(excess.argmax())
        exponent = worst + compare.minimum_exponent(self.dtype)
        in_binade = self.reference.binade == exponent
        mask = in_binade & (found.ulps == got.binade_max[worst])
        _, _, place = self._element(mask, result)
        return Violation(
            "binade",
            f"{got.binade_max[worst]:.3g} ulp",
            f"at most {bound[worst]:.3g} ulp where |result| is in 2^{exponent} "
            f"(eager: {self.eager.binade_max[worst]:.3g})",
            place,
        )

    def _row(self, got: Summary) -> Violation | None:
        if not got.row_max.numel():
            return None
        largest = compare.as_rows(self.reference.high.abs()).nan_to_num(0, 0, 0).amax(dim=1)
        bound = self.factor * self.yardstick.row_max.max()
        bound = bound + self.ulps * compare.ulp(largest, self.dtype)
        broken = ~(got.row_max <= bound)
        if not broken.any():
            return None
        row = int(broken.to(torch.int8).argmax())
        return Violation(
            "row",
            f"error {got.row_max[row]:.3g}",
            f"at most {bound[row]:.3g}",
            f"row {row}, {self.label()}",
        )

    def _rmse(self, got: Summary) -> Violation | None:
        truth = self.reference.high
        size = compare.root_mean_square(truth[truth.isfinite()])
        unit = float(compare.ulp(torch.tensor(size, dtype=torch.float64), self.dtype))
        bound = self.factor * self.yardstick.rmse + self.ulps * unit
        if got.rmse <= bound:
            return None
        return Violation("rmse", f"{got.rmse:.3g}", f"at most {bound:.3g}", self.label())

    def _element(self, mask: Tensor, result: Tensor) -> tuple[str, str, str]:
        position = int(mask.flatten().to(torch.int8).argmax())
        index = compare.index_of(position, mask.shape)
        at = {
            name: float(tensor.broadcast_to(mask.shape).flatten()[position])
            for name, tensor in self.inputs.items()
            if _broadcasts(tensor, mask.shape)
        }
        values = ", ".join(f"{name}={value!r}" for name, value in at.items())
        got = float(result.flatten()[position])
        want = float(self.reference.high.flatten()[position])
        return f"{got!r}", f"{want!r}", f"index {index} ({values}), {self.label()}"


def _broadcasts(tensor: Tensor, shape: torch.Size) -> bool:
    try:
        return torch.broadcast_shapes(tensor.shape, shape) == shape
    except RuntimeError:
        return False


def trial(context: Context, inputs: Inputs, mode: Mode, dtype: torch.dtype, kind: str) -> Trial:
    exact = dtype == torch.float64
    reference = context.reference(inputs, mode, exact)
    tolerance = context.case.tolerance_for(dtype)

    def measured(result: Tensor) -> Summary:
        found = compare.forgiving(compare.errors(result, reference))
        return compare.summarise(found, reference)

    return Trial(
        dtype,
        kind,
        inputs,
        mode,
        reference,
        yardstick=measured(context.yardstick(inputs, mode, dtype)),
        eager=measured(context.eager(inputs, mode)),
        factor=tolerance.factor,
        ulps=tolerance.ulps,
        strict=kind in context.case.strict_kinds,
    )


def trials(context: Context, mode: Mode, dtype: torch.dtype) -> list[Trial]:
    case = context.case
    size = EXACT_SIZE if dtype == torch.float64 and case.exact else case.numeric_size
    return [
        trial(context, context.inputs(size, dtype, kind), mode, dtype, kind) for kind in case.kinds
    ]


def self_test(context: Context, group: list[Trial]) -> list[str]:
    """What the rules do with known results for one dtype and mode; empty if they do right."""
    faults = []
    for one in group:
        good = one.reference.rounded
        complaints = one.violations(good)
        if complaints:
            faults.append(f"turned away mathematics rounded once ({one.label()}): {complaints[0]}")
    for name, caught in _planted(context, group):
        if not caught:
            faults.append(f"did not catch '{name}' ({short(group[0].dtype)})")
    return faults


def _planted(context: Context, group: list[Trial]) -> Iterator[tuple[str, bool]]:
    first = group[0]
    for name, alter in context.case.faults.items():
        yield name, any(_altered(context, one, alter) for one in group)
    good = first.reference.rounded
    spoilt = good.clone()
    spoilt.view(-1)[spoilt.numel() // 2] = math.nan
    yield "one NaN", bool(first.violations(spoilt))
    rows = compare.as_rows(good).clone()
    rows[len(rows) // 2] = rows[len(rows) // 2 - 1]
    yield "one wrong row", bool(first.violations(rows.reshape(good.shape)))


def _altered(context: Context, one: Trial, alter: Any) -> bool:
    inputs, mode = alter(one.inputs, one.mode)
    wrong = context.reference(inputs, mode)
    return bool(one.violations(wrong.rounded))


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
                        return _failure(one, broken, table)
                table.append(_row(group, results))
    return Result(
        NAME,
        Status.PASS,
        "within-bounds",
        f"worst ulp error against mathematics, |result| ≥ 2^{LARGE_EXPONENT}: "
        + " · ".join(_worst_by_mode(context, table)),
        lines=[_line(row) for row in table],
        numbers={"table": table},
    )


def _failure(one: Trial, broken: list[Violation], table: list[dict[str, Any]]) -> Result:
    first = broken[0]
    return Result(
        NAME,
        Status.FAIL,
        f"{first.rule}-error",
        f"{one.label()}: {first.rule} error",
        expected=first.bound,
        got=first.got,
        first=f"{first.place}; call: {describe(one.inputs, one.mode)}",
        numbers={
            "broken": [f"{v.rule}: got {v.got}, wanted {v.bound}; {v.place}" for v in broken],
            "table": table,
        },
    )


def _row(group: list[Trial], results: list[Tensor]) -> dict[str, Any]:
    """Worst over the kinds, per binade; the chart and the terminal line come from here."""
    first = group[0]
    ours = [one.summary(result) for one, result in zip(group, results, strict=True)]
    worst = torch.stack([summary.binade_max for summary in ours]).amax(dim=0)
    eager = torch.stack([one.eager.binade_max for one in group]).amax(dim=0)
    used = (worst >= 0).nonzero().flatten().tolist()
    lowest = compare.minimum_exponent(first.dtype)
    large = torch.arange(len(worst)) + lowest >= LARGE_EXPONENT
    return {
        "dtype": short(first.dtype),
        "mode": mode_name(first.mode),
        "worst_ulps": {"large": _worst(worst, large), "small": _worst(worst, ~large)},
        "eager_worst_ulps": {"large": _worst(eager, large), "small": _worst(eager, ~large)},
        "rmse": {one.kind: summary.rmse for one, summary in zip(group, ours, strict=True)},
        "yardstick_rmse": {one.kind: one.yardstick.rmse for one in group},
        "binades": [
            {"exponent": i + lowest, "ours": float(worst[i]), "eager": float(eager[i])}
            for i in used
        ],
    }


def _worst(per_binade: Tensor, mask: Tensor) -> float:
    return max(float(per_binade[mask].max()), 0.0)


def _line(row: dict[str, Any]) -> str:
    ours, eager = row["worst_ulps"], row["eager_worst_ulps"]
    return (
        f"{row['dtype']:<5} {row['mode']:<6} ours {ours['large']:.3g} eager {eager['large']:.3g}"
        f" · smaller results: ours {ours['small']:.3g} eager {eager['small']:.3g}"
    )


def _worst_by_mode(context: Context, table: list[dict[str, Any]]) -> Iterator[str]:
    for mode in context.case.modes:
        rows = [row for row in table if row["mode"] == mode_name(mode)]
        ours = max(row["worst_ulps"]["large"] for row in rows)
        eager = max(row["eager_worst_ulps"]["large"] for row in rows)
        yield f"{mode_name(mode)}: ours {ours:.3g} eager {eager:.3g}"
