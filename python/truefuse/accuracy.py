"""The rules of accuracy, for one result of one call: whole tensor, worst row, worst of every binade.

Each figure must be <= factor * yardstick + 1 ulp (and 2 ulp are always allowed in a binade). Where the
inputs leave no rounding before the function itself (`strict`), the worst error of every binade must
besides be no worse than eager's, or 2 ulp where eager does better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from truefuse import compare
from truefuse.case import Case, Inputs, Mode
from truefuse.compare import Reference, Summary
from truefuse.context import Results, describe, short, tensors

ALWAYS_ALLOWED_ULPS = 2.0
SCARCITY = 3.0
CANCELLED_ULPS = 16.0  # of the yardstick: digits are lost that no rounding of a result explains


@dataclass(frozen=True)
class Violation:
    rule: str  # "class", "rmse", "row", "binade"; a reason code with "-error"
    got: str
    bound: str
    place: str


@dataclass(frozen=True)
class Ruler:
    """What one result is compared with, and how far it may be off."""

    label: str
    inputs: Inputs
    reference: Reference
    yardstick: Summary
    eager: Summary
    factor: float
    ulps: float
    strict: bool

    @property
    def dtype(self) -> torch.dtype:
        return self.reference.dtype

    def bound(self) -> Tensor:
        """Allowed ulp error per binade; NaN where no element lies."""
        bound = self.factor * self._usual() + self.ulps
        if self.strict:
            # The worst of n elements underestimates eager's worst; the fewer, the more.
            scarcity = 1 + SCARCITY / self.eager.binade_count.clamp(min=1).sqrt()
            bound = bound.minimum(self.eager.binade_max * scarcity)
        if self.dtype.is_floating_point:
            bound = bound.clamp(min=ALWAYS_ALLOWED_ULPS)
        return bound.where(self.yardstick.binade_count > 0, math.nan)

    def _usual(self) -> Tensor:
        """The yardstick's worst error of every binade. Where digits cancel, an error is of the size of the summands
        whatever is left of them: what was lost in the two binades above, of more elements, may be lost here."""
        found = self.yardstick.binade_max
        usual = found.clone()
        for steps in range(1, min(3, len(found))):
            above = found[steps:]
            lost = torch.where(above >= CANCELLED_ULPS, above * 2.0**steps, 0.0)
            usual[:-steps] = usual[:-steps].maximum(lost)
        return usual

    def summary(self, result: Tensor) -> Summary:
        return compare.summarise(compare.errors(result, self.reference))

    def violations(self, result: Tensor) -> list[Violation]:
        """Every rule that `result` breaks, gravest first."""
        if result.dtype != self.dtype or result.shape != self.reference.high.shape:
            got, want = (result.dtype, result.shape), (self.dtype, self.reference.high.shape)
            return [
                Violation("class", *(f"{short(d)} {list(s)}" for d, s in (got, want)), self.label)
            ]
        found = compare.errors(result, self.reference)
        got = compare.summarise(found)
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
            f"({self._measures(worst)}){self._advice(worst)}",
            place,
        )

    def _measures(self, binade: int) -> str:
        """What the bound comes from; for half types that is not eager."""
        figures = {"yardstick": self.yardstick, "eager": self.eager}
        texts = {name: f"{one.binade_max[binade]:.3g}" for name, one in figures.items()}
        if texts["yardstick"] == texts["eager"]:
            del texts["yardstick"]
        return ", ".join(f"{name}: {text}" for name, text in texts.items())

    def _advice(self, binade: int) -> str:
        """Of two sides that have lost most digits one is soon twice as far off as the other."""
        if self.reference.scale is not None or self.yardstick.binade_max[binade] < CANCELLED_ULPS:
            return ""
        return (
            "; where summands cancel, errors can count in ulp of their size, if the case says it: "
            "`scale`, `gradient_scale`"
        )

    def _row(self, got: Summary) -> Violation | None:
        if not got.row_max.numel():
            return None
        largest = compare.as_rows(self.reference.size).nan_to_num(0, 0, 0).amax(dim=1)
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
            f"row {row}, {self.label}",
        )

    def _rmse(self, got: Summary) -> Violation | None:
        truth = self.reference.size
        size = compare.root_mean_square(truth[truth.isfinite()])
        unit = float(compare.ulp(torch.tensor(size, dtype=torch.float64), self.dtype))
        bound = self.factor * self.yardstick.rmse + self.ulps * unit
        if got.rmse <= bound:
            return None
        return Violation("rmse", f"{got.rmse:.3g}", f"at most {bound:.3g}", self.label)

    def _element(self, mask: Tensor, result: Tensor) -> tuple[str, str, str]:
        position = int(mask.flatten().to(torch.int8).argmax())
        index = compare.index_of(position, mask.shape)
        at = {
            name: float(tensor.broadcast_to(mask.shape).flatten()[position])
            for name, tensor in tensors(self.inputs).items()
            if broadcasts(tensor, mask.shape)
        }
        values = ", ".join(f"{name}={value!r}" for name, value in at.items())
        got = float(result.flatten()[position])
        want = float(self.reference.high.flatten()[position])
        where = f"index {index} ({values})" if values else f"index {index}"
        return f"{got!r}", f"{want!r}", f"{where}, {self.label}"


def broadcasts(tensor: Tensor, shape: torch.Size) -> bool:
    """To `shape` itself. (torch.broadcast_shapes takes 100 microseconds.)"""
    pairs = zip(reversed(tensor.shape), reversed(shape), strict=False)
    return tensor.dim() <= len(shape) and all(own in (1, whole) for own, whole in pairs)


@dataclass(frozen=True)
class Trial:
    """One call's inputs, with a ruler for each of its results."""

    label: str
    kind: str
    inputs: Inputs
    mode: Mode
    rulers: dict[str, Ruler]

    def violations(self, results: Results) -> list[Violation]:
        if list(results) != list(self.rulers):
            names = (", ".join(results) or "nothing", ", ".join(self.rulers))
            return [Violation("class", *names, self.label)]
        return [v for name, ruler in self.rulers.items() for v in ruler.violations(results[name])]

    def seen(self, wrong: Mapping[str, Reference]) -> tuple[bool, bool]:
        """Of what mathematics says to something else: it differs, and is caught."""
        differs = any(
            not torch.equal(wrong[name].high, ruler.reference.high)
            for name, ruler in self.rulers.items()
        )
        return differs, bool(self.violations({name: one.rounded for name, one in wrong.items()}))

    def right(self) -> Results:
        """Mathematics rounded once: the best results there can be."""
        return {name: ruler.reference.rounded for name, ruler in self.rulers.items()}

    def describe(self) -> str:
        return describe(self.inputs, self.mode)


def trial(
    case: Case,
    label: str,
    kind: str,
    inputs: Inputs,
    mode: Mode,
    references: dict[str, Reference],
    yardstick: Callable[[], Results],
    eager: Callable[[], Results],
    strict: bool = False,
) -> Trial:
    measured, beside = yardstick(), eager()

    def ruler(name: str, reference: Reference) -> Ruler:
        tolerance = case.tolerance_for(reference.dtype)
        summaries = []
        for results in (measured, beside):
            found = compare.forgiving(compare.errors(results[name], reference))
            summaries.append(compare.summarise(found))
        text = label if len(references) == 1 else f"{label} {name}"
        return Ruler(text, inputs, reference, *summaries, tolerance.factor, tolerance.ulps, strict)

    rulers = {name: ruler(name, reference) for name, reference in references.items()}
    return Trial(label, kind, inputs, mode, rulers)


def spoilt(results: Results) -> dict[str, Results]:
    """Right results, spoilt in ways that every ruler must notice."""
    name, good = max(results.items(), key=lambda item: item[1].numel())
    wrong = good.clone()
    middle = wrong.view(-1)[wrong.numel() // 2 :][:1]
    middle.copy_(compare.another(middle) if not good.is_floating_point() else math.nan * middle)
    planted = {"one NaN" if good.is_floating_point() else "one wrong": results | {name: wrong}}
    rows = compare.as_rows(good).clone()
    if len(rows) > 1:
        rows[len(rows) // 2] = rows[len(rows) // 2 - 1]
        planted["one wrong row"] = results | {name: rows.reshape(good.shape)}
    return planted
