"""The verdict on speed, with timers whose truth is known."""

import numpy
import pytest

from truefuse.sampling import AGAIN, CANDIDATE, interleaved, verdicts

RUNS = 50
ROUNDS = 40


def noise(generator, kind):
    """Seconds per call of a machine, in one of several moods."""
    base = 1e-3
    if kind == "quiet":
        return base * generator.lognormal(0, 0.01)
    if kind == "loud":
        return base * generator.lognormal(0, 0.10)
    if kind == "bimodal":  # where the allocator was lucky, and where it was not
        return base * (1.0 if generator.random() < 0.5 else 1.15) * generator.lognormal(0, 0.01)
    return base * generator.lognormal(0, 0.02) * (10 if generator.random() < 0.05 else 1)  # spikes


def session(seed, kind, slowdown=1.0, drift=0.0):
    generator = numpy.random.default_rng(seed)

    def timer(factor):
        return lambda number: factor * (1 + drift * number) * noise(generator, kind)

    timers = {CANDIDATE: timer(slowdown), AGAIN: timer(slowdown), "eager": timer(1.0)}
    _noise, found = verdicts(interleaved(timers, ROUNDS), seed)
    return found["eager"]["verdict"]


@pytest.mark.parametrize("kind", ["quiet", "loud", "bimodal", "spikes"])
def test_the_same_kernel_is_never_faster_or_slower(kind):
    found = [session(seed, kind) for seed in range(RUNS)]
    assert not {"FASTER", "SLOWER"} & set(found)


@pytest.mark.parametrize(("kind", "slowdown"), [("quiet", 1.03), ("quiet", 1.2), ("spikes", 1.2)])
def test_a_slowed_candidate_is_called_slower(kind, slowdown):
    found = [session(seed, kind, slowdown) for seed in range(RUNS)]
    assert found.count("SLOWER") >= 48, found
    assert "FASTER" not in found


def test_a_faster_candidate_is_called_faster():
    found = [session(seed, "quiet", 0.8) for seed in range(RUNS)]
    assert found.count("FASTER") >= 48


def test_a_machine_that_gets_slower_changes_no_verdict():
    found = [session(seed, "quiet", drift=0.01) for seed in range(RUNS)]
    assert not {"FASTER", "SLOWER"} & set(found)


def test_a_constant_speed_is_the_same():
    assert session(1, "quiet") == "SAME"


def test_everyone_begins_a_round_in_turn():
    order = []
    timers = {name: lambda number, name=name: order.append(name) or 1.0 for name in "abc"}
    before = []
    samples = interleaved(timers, 4, before.append)
    assert order == [*"abc", *"bca", *"cab", *"abc"]
    assert before == [0, 1, 2, 3] and all(len(one) == 4 for one in samples.values())
