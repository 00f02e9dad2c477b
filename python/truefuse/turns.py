"""A candidate and its baselines at one size, and how long their calls take.

Candidate, candidate again (the A/A run that shows how quiet the machine is) and baselines take turns
within each round; each round begins with another of them. A sample is a batch of calls, each on another
set of inputs; all results are looked at, outside the timed region. Those of the baselines need not have
the candidate's bits, but what a sample leaves behind, in caches and in the allocator, is then the same
whoever was timed, and so is what the next one finds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from truefuse import company, flags, sampling, stats
from truefuse.case import Size
from truefuse.context import Context, Results
from truefuse.gates.outputs import as_bits
from truefuse.rotation import Sets
from truefuse.sampling import AGAIN, CANDIDATE, OWN

WARMUP_CALLS = 30
WARMUP_SECONDS = 0.3
SHORTEST_SAMPLE = 200e-6  # seconds; shorter calls are timed in batches
LEAST_ROUNDS = 30
MOST_ROUNDS = 200
ROUND_SECONDS = 0.8  # of timed work per shape, where LEAST_ROUNDS allow it
CACHED_ROUNDS = 7
MOVES = 3  # how often contents move on between sets while a shape is timed


class Refuted(Exception):
    """What was timed cannot be right: a reason code and a sentence."""

    def __init__(self, reason: str, text: str, expected: str) -> None:
        super().__init__(text)
        self.reason, self.expected = reason, expected


@dataclass(frozen=True)
class Turns:
    """Seconds per call, by side. A sample is of `batch` calls."""

    batch: int
    samples: dict[str, list[float]]
    waited: float | None  # see company.Watch


class Shape:
    def __init__(
        self, context: Context, size: Size, progress: Callable[[str], None] = lambda text: None
    ) -> None:
        case = context.case
        self.context, self.size, self.progress = context, size, progress
        self.mode = case.timed_mode
        progress("inputs")
        self.sets = Sets(context, size)
        self.functions = {CANDIDATE: case.candidate, AGAIN: case.candidate, **case.baselines}
        self.checked = 0
        self.position = 0
        self.clocks: dict[str, list[tuple[float, float]]] = {name: [] for name in self.functions}

    def turns(self) -> Turns:
        case, sets = self.context.case, self.sets
        self.progress("warming up")
        # The candidate's second turn is the same function: what warms one warms the other.
        warm = {name: self._warm_up(name) for name in self.functions if name != AGAIN}
        company.end_compile_workers()
        batch = max(1, math.ceil(SHORTEST_SAMPLE / min(map(min, warm.values()))))
        if case.mutates:
            batch = min(batch, len(sets))  # a set is used once between restorations
        medians = {name: stats.median(seconds) for name, seconds in warm.items()}
        seconds = batch * (sum(medians.values()) + medians[CANDIDATE])
        rounds = min(max(LEAST_ROUNDS, int(ROUND_SECONDS / seconds)), MOST_ROUNDS)

        # Over the rounds every side begins at every set: no side has the better addresses.
        step = batch * len(self.functions)
        while math.gcd(step, len(sets)) > 1:
            step += 1

        def between(number: int) -> None:
            self.progress(f"timing, round {number + 1} of {rounds}")
            self.position = number * step % len(sets)
            if number and number % (rounds // (MOVES + 1)) == 0:
                sets.move_on()

        timers = {name: self._timer(name, batch) for name in self.functions}
        watch = company.Watch()
        samples = sampling.interleaved(timers, rounds, between)
        return Turns(batch, samples, watch.share())

    def cached(self, batch: int) -> dict[str, float]:
        """Milliseconds where every call reads the same memory as the one before."""
        names = [name for name in self.functions if name != AGAIN]
        timers = {name: lambda _, name=name: self.timed(name, [0] * batch)[0] for name in names}
        samples = sampling.interleaved(timers, CACHED_ROUNDS)
        return {name: stats.median(samples[name]) * 1e3 for name in names}

    def _warm_up(self, name: str) -> list[float]:
        """Seconds of each call."""
        begin = time.perf_counter()
        seconds: list[float] = []
        while len(seconds) < WARMUP_CALLS:
            seconds.append(self.timed(name, self.next(1))[0])
            if len(seconds) >= 3 and time.perf_counter() - begin > WARMUP_SECONDS:
                break
        return seconds

    def next(self, count: int) -> list[int]:
        begin = self.position
        self.position = (begin + count) % len(self.sets)
        return [(begin + offset) % len(self.sets) for offset in range(count)]

    def _timer(self, name: str, batch: int) -> Callable[[int], float]:
        def timer(number: int) -> float:
            chosen = self.next(batch)
            seconds, outputs = self.timed(name, chosen)
            right = self._as_expected(chosen, outputs)
            if name in OWN:
                self._check(chosen, right, number)
            return seconds

        return timer

    def timed(self, name: str, chosen: list[int]) -> tuple[float, list[Any]]:
        """Seconds per call, by the host's clock, and all outputs."""
        context, function, mode = self.context, self.functions[name], self.mode
        for number in chosen if context.case.mutates else ():
            self.sets.restore(number)
        given = [tuple(self.sets.inputs[number].values()) for number in chosen]
        outputs: list[Any] = []
        second = _SecondClock(context)
        with self.untouched(name):
            context.synchronize()
            second.start()
            begin = time.perf_counter()
            for arguments in given:
                outputs.append(function(*arguments, **mode))
            second.stop()
            context.synchronize()
            seconds = time.perf_counter() - begin
        self.clocks[name].append((seconds, second.seconds()))
        return seconds / len(chosen), outputs

    def _as_expected(self, chosen: list[int], outputs: list[Any]) -> list[bool]:
        """Of each call: whether the results have the bits of the candidate's untimed call."""
        # A set that was used twice was changed twice: mutated inputs are looked at only once.
        results = [
            self.context.named(output, self.sets.inputs[number])
            for number, output in zip(chosen, outputs, strict=True)
        ]
        return [
            _all_read(one, self.sets.expected[number])
            for number, one in zip(chosen, results, strict=True)
        ]

    def _check(self, chosen: list[int], right: list[bool], round: int) -> None:
        if not all(right):
            raise Refuted(
                "timed-output-wrong",
                f"{list(self.size)}: other bits in timed round {round}, on set "
                f"{chosen[right.index(False)]}",
                "the result of the untimed call, bit for bit",
            )
        self.checked += len(right)

    def untouched(self, name: str) -> AbstractContextManager[None]:
        """Around calls of a side: a baseline's accuse nobody of what they change."""
        is_baseline = name in self.context.case.baselines
        return flags.subnormals_kept() if is_baseline else nullcontext()


def _all_read(found: Results, expected: Results) -> bool:
    """same_results, with the same work whatever the answer is: every element of what is expected is read twice."""
    same = list(found) == list(expected)
    for name, right in expected.items():
        one = found.get(name, right)
        if one.dtype != right.dtype or one.shape != right.shape:
            same, one = False, right
        same &= int((as_bits(one) != as_bits(right)).count_nonzero()) == 0
    return same


class _SecondClock:
    """Events on the current stream of a GPU; on a CPU the clock that nobody adjusts."""

    def __init__(self, context: Context) -> None:
        self._events = None
        if context.device.type == "cuda":
            self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._times = [0, 0]

    def start(self) -> None:
        self._mark(0)

    def stop(self) -> None:
        self._mark(1)

    def _mark(self, end: int) -> None:
        if self._events is not None:
            self._events[end].record()
        else:
            self._times[end] = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def seconds(self) -> float:
        if self._events is not None:
            return self._events[0].elapsed_time(self._events[1]) / 1e3
        return (self._times[1] - self._times[0]) / 1e9
