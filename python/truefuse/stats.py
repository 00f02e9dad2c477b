"""Robust statistics of timings. Needs torch alone; every function is deterministic for a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

RESAMPLES = 2000
# A difference below this is not claimed even where the machine is quiet enough to resolve it.
INDIFFERENCE = 0.01
# SAME is a claim too: the interval has to be this narrow, however noisy the machine is.
SAME_WITHIN = 0.05


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    if not ordered:
        raise ValueError("median of no values")
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True)
class Interval:
    """A ratio of medians with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float], seed: int) -> Interval:
    """median(numerator) / median(denominator), resampling rounds in pairs.

    Both sequences hold one sample per interleaved round; a round that was disturbed as a whole is
    drawn as a whole, so that a drift of the machine does not widen or shift the ratio.
    """
    if len(numerator) != len(denominator) or not numerator:
        raise ValueError("both sides need the same number of samples, at least one")
    generator = torch.Generator().manual_seed(seed)
    count = len(numerator)
    rounds = torch.randint(count, (RESAMPLES, count), generator=generator)
    sides = [torch.tensor(side, dtype=torch.float64) for side in (numerator, denominator)]
    top, bottom = (side[rounds].quantile(0.5, dim=1) for side in sides)
    bounds = (top / bottom).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    return Interval(median(numerator) / median(denominator), *bounds.tolist())


def noise_floor(same: Interval) -> float:
    """The largest relative difference that an A/A run of this very session could not exclude."""
    return max(abs(math.log(same.low)), abs(math.log(same.high)))


def speed_verdict(speedup: Interval, floor: float) -> str:
    """FASTER, SLOWER, SAME or AMBIGUOUS for a speed-up (baseline time / candidate time)."""
    low, high = math.log(speedup.low), math.log(speedup.high)
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(floor)):
        return "AMBIGUOUS"
    threshold = max(floor, INDIFFERENCE)
    if low > threshold:
        return "FASTER"
    if high < -threshold:
        return "SLOWER"
    if -SAME_WITHIN <= low and high <= SAME_WITHIN:
        return "SAME"
    return "AMBIGUOUS"
