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


def test_between_comes_before_each_round_and_every_timer_knows_the_round():
    told = []
    timers = {name: lambda number, name=name: told.append((name, number)) or 1.0 for name in "abc"}
    samples = interleaved(timers, 4, lambda number: told.append(("between", number)))
    assert [name for name, _ in told[::4]] == ["between"] * 4
    assert [number for _, number in told] == [n for n in range(4) for _ in range(4)]
    assert samples == {name: [1.0] * 4 for name in "abc"}


def test_every_side_comes_in_every_place_and_after_every_other():
    """Within a round; whatever one side leaves behind is then found by all others alike."""
    order = []
    interleaved({name: lambda _, name=name: order.append(name) or 1.0 for name in "abc"}, 12)
    rounds = ["".join(order[i : i + 3]) for i in range(0, 36, 3)]
    assert all(sorted(names) == list("abc") for names in rounds)
    assert all([names[i] for names in rounds].count(side) == 4 for i in range(3) for side in "abc")
    pairs = [names[i : i + 2] for names in rounds for i in range(2)]
    assert all(pairs.count(first + second) == 4 for first in "abc" for second in "abc" if first != second)  # fmt: skip


def test_a_side_that_leaves_something_behind_changes_no_verdict():
    """Every sample is longer after the baseline's, as after one that has filled the caches."""
    for seed in range(RUNS):
        generator = numpy.random.default_rng(seed)
        last = []

        def timer(name, last=last, generator=generator):
            def sample(number):
                longer = 1.04 if last == ["eager"] else 1.0
                last[:] = [name]
                return longer * noise(generator, "quiet")

            return sample

        timers = {name: timer(name) for name in (CANDIDATE, AGAIN, "eager")}
        _noise, found = verdicts(interleaved(timers, ROUNDS), seed)
        assert found["eager"]["verdict"] in ("SAME", "AMBIGUOUS")
