"""Mode "forced": every side decodes the same tokens; log-probabilities are judged, not tokens.

The workload is then the same even where two logits tie, as they do with random weights. What an
equivalent baseline (as right, rounded otherwise) moves the log-probabilities by is the measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from truefuse.ab.sides import Pass, Step
from truefuse.verdict import Result, Status

LOG_PROBABILITIES = "log-probabilities"
FACTOR = (
    3.0  # as for half types in PyTorch's own accuracy rule: error against an equivalent's error
)


@dataclass
class Shift:
    """How far a side's steps are from the baseline's."""

    worst: float = 0.0  # largest change of a log-probability
    rms: float = 0.0
    margin: float = 0.0  # largest change of a margin
    flips: int = 0  # steps that prefer another token
    ties: int = 0  # of these, where the baseline's two best logits are equal
    widest_flip: float = 0.0  # largest margin that was flipped
    first: str = ""  # where the widest flip is


def judge(
    names: Sequence[str], baseline: Pass, again: Pass, candidate: Pass, equivalent: Pass | None
) -> Result:
    """PASS if the candidate is no further from the baseline than FACTOR times an equivalent is."""
    others = [again, candidate, *([equivalent] if equivalent else [])]
    complaint = _unusable(names, baseline, others)
    if complaint:
        return complaint
    same, moved = shift(names, baseline, again), shift(names, baseline, candidate)
    noise = shift(names, baseline, equivalent) if equivalent else same
    steps = sum(len(played.steps) for played in baseline.played)
    numbers: dict[str, Any] = {
        "steps": steps,
        "factor": FACTOR,
        "again": vars(same),
        "candidate": vars(moved),
        "equivalent": vars(noise) if equivalent else None,
    }
    summary = (
        f"log-probabilities of {steps} forced tokens: candidate {moved.worst:.2g} at most, "
        f"{moved.rms:.2g} rms; {'equivalent baseline' if equivalent else 'baseline again'} "
        f"{noise.worst:.2g}, {noise.rms:.2g} rms; {moved.flips} flips, {moved.ties} of them ties"
    )
    expected = f"at most {FACTOR:g} times what an equivalent baseline moves"
    if not all(map(math.isfinite, (noise.worst, noise.rms, noise.margin, same.worst))):
        return Result(
            LOG_PROBABILITIES,
            Status.UNKNOWN,
            "noise-not-measured",
            f"{summary}. Log-probabilities that are not finite, or an equivalent baseline that moves them "
            "without bound, measure nothing",
            expected=expected,
            got=summary,
            numbers=numbers,
        )
    if moved.worst > 0 and noise.worst == 0:
        return Result(
            LOG_PROBABILITIES,
            Status.UNKNOWN,
            "noise-not-measured",
            f"{summary}. The baseline repeats itself bit for bit, so how much rounding may move is not "
            "known: give `equivalent`, a baseline that is as right and rounds otherwise",
            expected=expected,
            got=summary,
            numbers=numbers,
        )
    too_far = moved.worst > FACTOR * noise.worst or moved.rms > FACTOR * noise.rms
    too_wide = moved.widest_flip > FACTOR * noise.margin
    if too_far or too_wide:
        where = f"; widest flip at {moved.first}" if moved.first else ""
        return Result(
            LOG_PROBABILITIES,
            Status.FAIL,
            "log-probabilities-differ" if too_far else "flip-beyond-noise",
            f"{summary}{where}. No speed is reported",
            expected=expected,
            got=summary,
            first=moved.first,
            numbers=numbers,
        )
    return Result(
        LOG_PROBABILITIES, Status.PASS, "log-probabilities-equal", summary, numbers=numbers
    )


def shift(names: Sequence[str], baseline: Pass, other: Pass) -> Shift:
    found = Shift()
    squares = 0.0
    count = 0
    for name, position, one, two in _pairs(names, baseline, other):
        change = abs(_of(two.log_probability) - _of(one.log_probability))
        change = change if math.isfinite(change) else math.inf
        found.worst = max(found.worst, change)
        squares += change * change
        count += 1
        margin = _of(one.margin)
        moved = abs(_of(two.margin) - margin) if two.margin != one.margin else 0.0
        found.margin = max(found.margin, math.inf if math.isnan(moved) else moved)
        if one.preferred != two.preferred:
            found.flips += 1
            found.ties += margin == 0
            if margin > found.widest_flip:
                found.widest_flip = margin
                found.first = (
                    f"request {name}, token {position}: {one.preferred} → {two.preferred}, margin "
                    f"{margin:.3g}"
                )
    found.rms = math.sqrt(squares / count) if count else 0.0
    return found


def _pairs(names: Sequence[str], one: Pass, other: Pass) -> Iterator[tuple[str, int, Step, Step]]:
    for name, a, b in zip(names, one.played, other.played, strict=True):
        for position, (x, y) in enumerate(zip(a.steps, b.steps, strict=True)):
            yield name, position, x, y


def _of(value: float | None) -> float:
    return math.nan if value is None else value


def _unusable(names: Sequence[str], baseline: Pass, others: list[Pass]) -> Result | None:
    for one in [baseline, *others]:
        for name, wanted, played in zip(names, baseline.played, one.played, strict=True):
            if played.output.error or played.output.tokens != wanted.output.tokens:
                got = played.output.error or "other tokens than those it was given"
                return Result(
                    LOG_PROBABILITIES,
                    Status.FAIL,
                    "forced-tokens-not-decoded",
                    f"request {name}: {got}",
                    expected="every side decodes the forced tokens",
                    got=got,
                )
            steps = played.steps
            if any(s.log_probability is None or s.margin is None for s in steps) or not steps:
                return Result(
                    LOG_PROBABILITIES,
                    Status.UNKNOWN,
                    "no-log-probabilities",
                    f"request {name}: a side gives no log_probability or margin in its steps",
                    expected="Step.log_probability and Step.margin where the request says observe",
                    got="None",
                )
    return None
