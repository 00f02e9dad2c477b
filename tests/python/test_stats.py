"""Statistics against independent formulas."""

import math
import statistics

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truefuse.stats import Interval, median, noise_floor, ratio_interval, speed_verdict

times = st.floats(1e-6, 10.0)


@given(st.lists(times, min_size=1, max_size=40))
def test_median(values):
    assert median(values) == pytest.approx(statistics.median(values), rel=1e-15)


def test_median_of_nothing():
    with pytest.raises(ValueError, match="no values"):
        median([])


def lognormal(count, seed, scale=1.0):
    return list(scale * numpy.random.default_rng(seed).lognormal(0, 0.05, count))


def test_interval_agrees_with_a_bootstrap_in_numpy():
    ours, theirs = lognormal(60, 1), lognormal(60, 2, scale=1.5)
    found = ratio_interval(theirs, ours, seed=3)
    rounds = numpy.random.default_rng(4).integers(60, size=(20000, 60))
    medians = [numpy.median(numpy.array(side)[rounds], axis=1) for side in (theirs, ours)]
    low, high = numpy.percentile(medians[0] / medians[1], [2.5, 97.5])
    assert found.value == pytest.approx(statistics.median(theirs) / statistics.median(ours))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_interval_is_reproducible():
    ours, theirs = lognormal(40, 5), lognormal(40, 6)
    assert ratio_interval(theirs, ours, 7) == ratio_interval(theirs, ours, 7)


def test_interval_keeps_rounds_together():
    """A slow round slows both sides, so it does not widen the ratio."""
    drift = [1.0 + 0.5 * (i % 7) for i in range(50)]
    found = ratio_interval([2 * t for t in drift], drift, 8)
    assert (found.low, found.value, found.high) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize("sides", [([], []), ([1.0], [1.0, 2.0])])
def test_interval_needs_pairs(sides):
    with pytest.raises(ValueError, match="same number"):
        ratio_interval(*sides, seed=0)


def test_noise_floor_is_the_farther_bound():
    assert noise_floor(Interval(1.0, 0.9, 1.02)) == pytest.approx(math.log(1 / 0.9))


@pytest.mark.parametrize(
    ("low", "high", "floor", "verdict"),
    [
        (1.2, 1.4, 0.02, "FASTER"),
        (1.2, 1.4, 0.25, "AMBIGUOUS"),  # noise as large as the difference
        (0.7, 0.8, 0.02, "SLOWER"),
        (0.99, 1.01, 0.02, "SAME"),
        (0.9, 1.2, 0.02, "AMBIGUOUS"),
        (0.9, 1.2, 0.4, "AMBIGUOUS"),  # too noisy a machine proves no equality either
        (1.005, 1.009, 0.0, "SAME"),  # resolvable, but nothing anyone would notice
        (float("nan"), 2.0, 0.02, "AMBIGUOUS"),
        (1.2, 1.4, float("nan"), "AMBIGUOUS"),
    ],
)
def test_speed_verdict(low, high, floor, verdict):
    assert speed_verdict(Interval(1.0, low, high), floor) == verdict


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_equal_sides_are_never_told_apart(seed):
    first, again, other = (lognormal(40, seed + i) for i in range(3))
    same = ratio_interval(again, first, seed)
    found = speed_verdict(ratio_interval(other, first, seed), 2 * noise_floor(same) + 0.05)
    assert found in ("SAME", "AMBIGUOUS")
