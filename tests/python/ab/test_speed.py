"""Metrics from timings made up so that the right answer is known."""

from __future__ import annotations

import pytest

from truefuse.ab import speed
from truefuse.ab.speed import Amdahl, Timing


def timing(per_token: float, requests: int = 4, first: float = 0.5, tokens: int = 11) -> Timing:
    total = first + per_token * (tokens - 1)
    return Timing([tokens] * requests, [total] * requests, [first] * requests)


def rounds(a: float, b: float, count: int = 6, wobble: float = 0.001):
    # A slow drift, the same on both sides of each round, as a warming machine makes it.
    for number in range(count):
        drift = 1 + wobble * number
        yield tuple(timing(t * drift) for t in (a, b, b, a))


@pytest.mark.parametrize(
    ("b", "verdict"), [(0.008, "FASTER"), (0.0125, "SLOWER"), (0.01001, "SAME")]
)
def test_verdicts(b, verdict):
    found = speed.metrics(list(rounds(0.01, b)), seed=1)["tpot"]
    assert found["verdict"] == verdict
    assert found["gain"]["value"] == pytest.approx(0.01 / b, rel=1e-6)
    assert found["baseline"]["mean"] == pytest.approx(0.01 * 1.0025, rel=1e-6)


def test_throughput_gain_is_above_one_for_a_faster_candidate():
    found = speed.metrics(list(rounds(0.01, 0.005)), seed=1)["throughput"]
    assert found["verdict"] == "FASTER" and found["gain"]["value"] > 1.05
    tokens, seconds = 4 * 11, 4 * (0.5 + 0.1)
    assert found["baseline"]["mean"] == pytest.approx(tokens / seconds, rel=0.01)


def test_few_passes_give_no_verdict():
    assert speed.metrics(list(rounds(0.01, 0.005, count=3)), 1)["tpot"]["verdict"] == "AMBIGUOUS"


def test_the_smallest_effect_grows_with_the_noise():
    quiet = speed.metrics(list(rounds(0.01, 0.01)), 1)["tpot"]
    noisy_rounds = [
        (timing(0.01), timing(0.01 * f), timing(0.01 / f), timing(0.01))
        for f in (1.0, 1.2, 1.1, 1.3, 1.15, 1.25)
    ]
    noisy = speed.metrics(noisy_rounds, 1)["tpot"]
    assert quiet["smallest_effect"] == pytest.approx(0.01, abs=2e-3)
    assert noisy["smallest_effect"] > 5 * quiet["smallest_effect"]
    assert noisy["verdict"] == "AMBIGUOUS"


def test_an_effect_of_the_smallest_size_is_found():
    found = speed.metrics(list(rounds(0.01, 0.01)), 1)["tpot"]
    larger = 0.01 / (1 + 1.1 * found["smallest_effect"])
    assert speed.metrics(list(rounds(0.01, larger)), 1)["tpot"]["verdict"] == "FASTER"


def test_what_is_not_known_is_not_measured():
    silent = Timing([None, None], [1.0, 1.0], [None, None])
    found = speed.metrics([(silent,) * 4] * 4, seed=1)
    assert found == {"throughput": None, "ttft": None, "tpot": None}


def test_means_are_of_the_same_requests_on_both_sides():
    """The second request is slower, and one pass of the candidate does not know its first token."""
    whole = Timing([11, 11], [0.5 + 0.1, 2.0 + 1.0], [0.5, 2.0])
    part = Timing([11, 11], [0.5 + 0.1, 2.0 + 1.0], [0.5, None])
    found = speed.metrics([(whole, part, whole, whole)] * 4, seed=1)
    assert found["ttft"]["gain"]["value"] == found["tpot"]["gain"]["value"] == 1
    assert found["ttft"]["candidate"]["requests"] == 8 and found["ttft"]["candidate"]["max"] == 0.5


def test_one_token_has_no_time_per_token():
    assert timing(0.01, tokens=1).tpot == []


def test_amdahl():
    # A twentieth of the time, 30 % faster: about 1.2 % for the whole, never more than 5.3 %.
    amdahl = Amdahl(0.05, 1.3)
    assert amdahl.predicted == pytest.approx(1 / (0.95 + 0.05 / 1.3))
    found = speed.metrics(list(rounds(0.01, 0.01 / amdahl.predicted)), 1)["tpot"]
    compared = speed.compared_with_amdahl(amdahl, found)
    assert "agree" in compared["finding"] and compared["most"] == pytest.approx(1 / 0.95)
    found = speed.metrics(list(rounds(0.01, 0.005)), 1)["tpot"]
    assert "apart" in speed.compared_with_amdahl(amdahl, found)["finding"]
