"""Taking turns, and what the samples say. Nothing here knows what is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from truefuse import stats

CANDIDATE = "candidate"
AGAIN = "candidate again"  # The same, as a side of its own: what noise there is.
OWN = (CANDIDATE, AGAIN)  # Everything else that is timed is a baseline.


def interleaved(
    timers: Mapping[str, Callable[[int], float]],
    rounds: int,
    between: Callable[[int], None] = lambda round: None,
) -> dict[str, list[float]]:
    """One sample of every side in each round. A timer gets the round's number and gives seconds per
    call; `between` runs before each round.

    Each round begins with another side, and every other one runs backwards: with three sides each comes
    first, second and last as often as the others, and as often after the one neighbour as after the other.
    """
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for number in range(rounds):
        between(number)
        names = list(timers) if number % 2 == 0 else list(reversed(timers))
        start = number // 2 % len(names)
        for name in names[start:] + names[:start]:
            samples[name].append(timers[name](number))
    return samples


def verdicts(
    samples: Mapping[str, Sequence[float]], seed: int
) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """(noise of the candidate against itself, {baseline: speed-up and verdict})."""
    ours = samples[CANDIDATE]
    same = stats.ratio_interval(samples[AGAIN], ours, seed)
    floor = stats.noise_floor(same)
    found = {}
    for name, theirs in samples.items():
        if name in OWN:
            continue
        speedup = stats.ratio_interval(theirs, ours, seed)
        found[name] = {"speedup": vars(speedup), "verdict": stats.speed_verdict(speedup, floor)}
    return {"low": same.low, "high": same.high, "floor": floor}, found
