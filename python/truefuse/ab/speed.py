"""Throughput, time to the first token and time per token of two sides with one trajectory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from truefuse import stats

LEAST_FOR_P99 = 100  # served requests; with fewer the worst one is shown, and called max
LEAST_PAIRS = 8  # pairs of passes, below which no interval of a median is worth a verdict
UNEXPLAINED = 0.15  # of the predicted gain


@dataclass(frozen=True)
class Timing:
    """One pass over all requests: seconds of each, and of each token where tokens were timed."""

    tokens: list[int | None]
    totals: list[float]
    first: list[float | None]

    @property
    def throughput(self) -> float | None:
        """Tokens per second while a request was being served."""
        if any(count is None for count in self.tokens):
            return None
        return sum(filter(None, self.tokens)) / sum(self.totals)

    @property
    def ttft(self) -> list[float]:
        return [first for first in self.first if first is not None]

    @property
    def tpot(self) -> list[float]:
        """(end - first token) / (tokens - 1), of requests with at least two tokens."""
        rows = zip(self.tokens, self.totals, self.first, strict=True)
        return [
            (total - first) / (count - 1)
            for count, total, first in rows
            if count is not None and count > 1 and first is not None
        ]


@dataclass(frozen=True)
class Amdahl:
    """The operator's share of the baseline's time per token, and how much faster it alone became."""

    share: float
    operator_speedup: float

    @property
    def predicted(self) -> float:
        return 1 / (1 - self.share + self.share / self.operator_speedup)


Rounds = Sequence[tuple[Timing, Timing, Timing, Timing]]  # A B B A


def metrics(rounds: Rounds, seed: int) -> dict[str, Any]:
    """{"throughput", "ttft", "tpot"}: each both sides, the gain (above 1: the candidate is faster) with
    its interval, a verdict and the smallest effect it could have shown; None where not measured."""
    rounds = _measured_alike(rounds)
    return {
        "throughput": _metric(rounds, seed, "tokens/s", lambda t: t.throughput, lambda t: [], True),
        "ttft": _metric(rounds, seed, "s", lambda t: _mean(t.ttft), lambda t: t.ttft),
        "tpot": _metric(rounds, seed, "s", lambda t: _mean(t.tpot), lambda t: t.tpot),
    }


def _measured_alike(rounds: Rounds) -> Rounds:
    """Without the first tokens of requests of which some pass does not know it: means of other requests do
    not compare."""
    firsts = zip(*(timing.first for one in rounds for timing in one), strict=True)
    known = [None not in first for first in firsts]

    def alike(timing: Timing) -> Timing:
        kept = [
            first if all_know else None for first, all_know in zip(timing.first, known, strict=True)
        ]
        return replace(timing, first=kept)

    return [(alike(a1), alike(b1), alike(b2), alike(a2)) for a1, b1, b2, a2 in rounds]


def _metric(
    rounds: Rounds,
    seed: int,
    unit: str,
    of_pass: Callable[[Timing], float | None],
    of_requests: Callable[[Timing], list[float]],
    higher_is_better: bool = False,
) -> dict[str, Any] | None:
    values = [[of_pass(timing) for timing in one] for one in rounds]
    if any(value is None for one in values for value in one):
        return None
    a1, b1, b2, a2 = zip(*values, strict=True)
    baseline, candidate = [*a1, *a2], [*b1, *b2]
    over = (candidate, baseline) if higher_is_better else (baseline, candidate)
    gain = stats.ratio_interval(*over, seed)
    floor = stats.noise_floor(stats.ratio_interval(a1, a2, seed))
    verdict = stats.speed_verdict(gain, floor)
    sides = {
        name: {**_summary(list(samples)), **_tail([v for t in timings for v in of_requests(t)])}
        for name, samples, timings in (
            ("baseline", baseline, [t for one in rounds for t in (one[0], one[3])]),
            ("candidate", candidate, [t for one in rounds for t in (one[1], one[2])]),
        )
    }
    return {
        "unit": unit,
        **sides,
        "gain": vars(gain),
        "noise_floor": floor,
        "verdict": verdict if len(baseline) >= LEAST_PAIRS else "AMBIGUOUS",
        "smallest_effect": smallest_effect(gain, floor),
        "passes": len(baseline),
    }


def smallest_effect(gain: stats.Interval, floor: float) -> float:
    """The relative gain that this spread and noise would have let FASTER claim."""
    half_width = (math.log(gain.high) - math.log(gain.low)) / 2
    return math.exp(max(floor, stats.INDIFFERENCE) + half_width) - 1


def _summary(passes: list[float]) -> dict[str, float]:
    return {"mean": sum(passes) / len(passes), "p50": stats.median(passes)}


def _tail(served: list[float]) -> dict[str, float | int]:
    if not served:
        return {}
    requests = torch.tensor(served, dtype=torch.float64)
    found: dict[str, float | int] = {
        "mean": float(requests.mean()),
        "p50": float(requests.quantile(0.5)),
        "requests": len(served),
    }
    if len(served) >= LEAST_FOR_P99:
        return {**found, "p99": float(requests.quantile(0.99))}
    return {**found, "max": float(requests.max())}


def compared_with_amdahl(amdahl: Amdahl, tpot: dict[str, Any] | None) -> dict[str, Any]:
    """The gain that the operator's share allows beside the measured one."""
    predicted = amdahl.predicted
    found: dict[str, Any] = {
        "share": amdahl.share,
        "operator_speedup": amdahl.operator_speedup,
        "predicted": predicted,
        "most": 1 / (1 - amdahl.share) if amdahl.share < 1 else None,
        "measured": tpot["gain"]["value"] if tpot else None,
        "finding": "time per token was not measured",
    }
    if tpot:
        gain = tpot["gain"]
        off = abs(gain["value"] - predicted) / predicted
        if off <= UNEXPLAINED or gain["low"] <= predicted <= gain["high"]:
            found["finding"] = f"measured and predicted gain agree within {off:.0%}"
        else:
            found["finding"] = (
                f"measured and predicted gain are {off:.0%} apart: look for synchronisation, overlap "
                "with other work, clocks, or time around the operator that changed too"
            )
    return found


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
