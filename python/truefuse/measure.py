"""Timing a candidate beside its baselines. Called only once every gate has passed.

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
from torch import Tensor

from truefuse import (
    arithmetic,
    bandwidth,
    company,
    elsewhere,
    flags,
    graphtime,
    memory,
    sampling,
    stats,
)
from truefuse.case import Inputs, Mode, Size
from truefuse.context import Context, Results, copies, describe, is_floating, mode_name, short
from truefuse.gates.edges import coarse_error
from truefuse.gates.outputs import as_bits
from truefuse.gates.remembered import one_of_many
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
# The second clock may differ by this share and this many seconds: on a GPU it stands on the stream and
# does not see the synchronisation itself.
CLOCKS_AGREE = {"cpu": (0.02, 50e-6), "cuda": (0.3, 100e-6)}
SHARES = (0.05, 0.2)
NEW_CONTENTS, TRIALS = 15, 8  # on a busy machine a single trial says little
SLOWER_ON_NEW = 1.25
YARDSTICK_ULPS = 64  # of the largest result


class Refuted(Exception):
    """What was timed cannot be right: a reason code and a sentence."""

    def __init__(self, reason: str, text: str, expected: str) -> None:
        super().__init__(text)
        self.reason, self.expected = reason, expected


def measure(
    context: Context,
    progress: Callable[[str], None] = lambda text: None,
    share: float | None = None,
) -> dict[str, Any]:
    """The report's performance object; `share` is the operator's part of a model's time. Raises
    Refuted."""
    progress("measuring the memory")
    peak = bandwidth.measured(context)
    shapes = []
    with torch.no_grad():
        for size in context.case.timing_sizes:
            text = " × ".join(map(str, size))
            shape = Shape(context, size, lambda t, text=text: progress(f"{text} {t}"))
            shape.require_right()
            shapes.append(shape.measure(peak))
        progress("other dtypes and modes")
        _right_in_others(context)
        for name, (was, now) in flags.changed_since(context.at_start, context.device).items():
            raise Refuted(
                "flags-changed", f"{name}: {was} became {now}", "settings as at the start"
            )
        progress("the baseline in a process of its own")
        _baseline_as_without_candidate(context)
    cache = bandwidth.last_cache_bytes(context.device)
    return {
        "device": str(context.device),
        "method": "end to end: host clock around calls, synchronised on both sides; median of "
        "interleaved samples; 95 % bootstrap interval of the ratio of medians; inputs rotate over "
        f"twice {cache >> 20} MiB, taken as the last cache"
        + ("; the C library keeps memory of up to 32 MiB" if context.device.type == "cpu" else ""),
        "memory": memory.label(context),
        "bandwidth": {
            "bytes_per_second": peak,
            "method": "the best of copy, relu, sum and zero_ on a buffer of its own",
        },
        "shapes": shapes,
        "amdahl": amdahl(shapes[-1], (share,) if share else SHARES),
    }


def amdahl(shape: dict[str, Any], shares: tuple[float, ...]) -> dict[str, Any]:
    """The most that a model can gain of which this operator is a share, against the fastest baseline."""
    fastest = min(shape["baselines"], key=lambda one: one["median_ms"])
    ratio = fastest["speedup"]["value"]
    return {
        "size": shape["size"],
        "baseline": fastest["name"],
        "verdict": fastest["verdict"],
        "gains": [{"share": s, "gain": 1 / (1 - s + s / ratio)} for s in shares],
    }


def _right_in_others(context: Context) -> None:
    """What is timed is of one dtype and one mode, the verdict is of all: each once at the largest size."""
    case = context.case
    size = max(case.timing_sizes, key=math.prod)
    calls = [(dtype, case.timed_mode) for dtype in case.dtypes if dtype != case.timed_dtype]
    calls += [(case.timed_dtype, mode) for mode in case.modes if mode != case.timed_mode]
    for dtype, mode in calls:
        inputs = context.inputs(size, dtype, case.kinds[0], "timing")
        if _far_from_yardstick(context, inputs, mode, context.candidate(inputs, mode)):
            raise Refuted(
                "timed-output-wrong",
                f"far from the yardstick: {describe(inputs, mode)}",
                "a result near mathematics in every dtype and mode at a size that is timed",
            )


def _far_from_yardstick(context: Context, inputs: Inputs, mode: Mode, results: Results) -> bool:
    theirs = context.yardstick(inputs, mode)
    for name, tensor in results.items():
        if tensor.is_floating_point():
            unit = YARDSTICK_ULPS * torch.finfo(tensor.dtype).eps
            # Neither makes a tensor of its own but for the difference; a NaN is not near anything.
            near = _largest(tensor - theirs[name]) <= unit * _largest(theirs[name])
        else:
            allowed = context.case.tolerance_for(theirs[name].dtype).ulps
            near = bool(((tensor.double() - theirs[name].double()).abs() <= allowed).all())
        if not near:
            return True
    return False


def _baseline_as_without_candidate(context: Context) -> None:
    """A baseline is what it is where the candidate was never called: whatever a candidate has done to the process,
    it has slowed down or changed what it is compared with."""
    complaint = elsewhere.complaint(context)
    if complaint:
        raise Refuted(
            "baseline-changed",
            complaint,
            "a baseline as fast and as right as in a process in which the candidate is never called",
        )


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

    def require_right(self) -> None:
        """One set beside mathematics; the others, which cost as much again, beside the yardstick."""
        context, sets = self.context, self.sets
        complaint = coarse_error(context, sets.inputs[0], self.mode, sets.expected[0])
        for number in sets.distinct()[1:]:
            if self._far_from_yardstick(sets.inputs[number], sets.expected[number]):
                complaint = complaint or f"far from the yardstick on set {number}"
        complaint = complaint or one_of_many(
            context, copies(sets.inputs[0]), self.mode, self._far_from_yardstick
        )
        if complaint:
            text = f"{list(self.size)}: {complaint}"
            raise Refuted("timed-output-wrong", text, "a result near mathematics")

    def _far_from_yardstick(self, inputs: Inputs, results: Results) -> bool:
        return _far_from_yardstick(self.context, inputs, self.mode, results)

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

    def verdicts(self, turns: Turns) -> tuple[dict[str, float], dict[str, dict[str, Any]], bool]:
        """As sampling's; and whether a device that others use too made every side wait."""
        is_shared = self._clocks_agree(turns.batch)
        noise, found = sampling.verdicts(turns.samples, self.context.seed)
        if is_shared or (turns.waited or 0.0) >= company.BUSY:
            # What many threads lose to others says nothing of a candidate that needs fewer.
            for one in found.values():
                one["verdict"] = "AMBIGUOUS"
        return noise, found, is_shared

    def measure(self, peak: float) -> dict[str, Any]:
        """`peak`: bytes per second that memory was seen to move."""
        context, case, sets = self.context, self.context.case, self.sets
        turns = self.turns()
        samples = turns.samples
        self._alone()
        self._as_fast_on_new_contents()
        noise, found, is_shared = self.verdicts(turns)
        peak = self._physics(samples[CANDIDATE], peak)
        self._arithmetic(samples[CANDIDATE])
        moved = sets.bytes_moved
        self.progress("cached, memory")
        return {
            "size": list(self.size),
            "dtype": short(case.timed_dtype),
            "mode": mode_name(self.mode),
            "sets": len(sets),
            "cold": sets.cold,
            "bytes": moved,
            "bandwidth_share": moved / stats.median(samples[CANDIDATE]) / peak,
            "candidate": self._side(CANDIDATE, samples),
            "noise": noise,
            "waited": turns.waited,
            "device_shared": is_shared,
            "baselines": [
                {"name": name, **self._side(name, samples), **found[name]}
                for name in case.baselines
            ],
            "cached": self._cached(turns.batch),
            "device_time": (
                graphtime.measure(context, sets) if context.device.type == "cuda" else None
            ),
            "outputs_checked": self.checked,
        }

    def _side(self, name: str, samples: dict[str, list[float]]) -> dict[str, Any]:
        seconds = torch.tensor(samples[name], dtype=torch.float64)
        quartiles = seconds.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64))
        inputs = self.context.fresh(self.sets.inputs[0])
        function = self.functions[name]
        with self._untouched(name):
            peak = memory.peak(self.context, lambda: function(*inputs.values(), **self.mode))
        return {
            "median_ms": stats.median(samples[name]) * 1e3,
            "quartiles_ms": [float(value) * 1e3 for value in quartiles],
            "samples": len(samples[name]),
            "peak": peak,
        }

    def _untouched(self, name: str) -> AbstractContextManager[None]:
        """Around calls of a side: a baseline's accuse nobody of what they change."""
        is_baseline = name in self.context.case.baselines
        return flags.subnormals_kept() if is_baseline else nullcontext()

    def _cached(self, batch: int) -> dict[str, float]:
        """Milliseconds where every call reads the same memory as the one before."""
        names = [name for name in self.functions if name != AGAIN]
        timers = {name: lambda _, name=name: self._timed(name, [0] * batch)[0] for name in names}
        samples = sampling.interleaved(timers, CACHED_ROUNDS)
        return {name: stats.median(samples[name]) * 1e3 for name in names}

    def _warm_up(self, name: str) -> list[float]:
        """Seconds of each call."""
        begin = time.perf_counter()
        seconds: list[float] = []
        while len(seconds) < WARMUP_CALLS:
            seconds.append(self._timed(name, self._next(1))[0])
            if len(seconds) >= 3 and time.perf_counter() - begin > WARMUP_SECONDS:
                break
        return seconds

    def _next(self, count: int) -> list[int]:
        begin = self.position
        self.position = (begin + count) % len(self.sets)
        return [(begin + offset) % len(self.sets) for offset in range(count)]

    def _timer(self, name: str, batch: int) -> Callable[[int], float]:
        def timer(number: int) -> float:
            chosen = self._next(batch)
            seconds, outputs = self._timed(name, chosen)
            right = self._as_expected(chosen, outputs)
            if name in OWN:
                self._check(chosen, right, number)
            return seconds

        return timer

    def _timed(self, name: str, chosen: list[int]) -> tuple[float, list[Any]]:
        """Seconds per call, by the host's clock, and all outputs."""
        context, function, mode = self.context, self.functions[name], self.mode
        for number in chosen if context.case.mutates else ():
            self.sets.restore(number)
        given = [tuple(self.sets.inputs[number].values()) for number in chosen]
        outputs: list[Any] = []
        second = _SecondClock(context)
        with self._untouched(name):
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

    def _alone(self) -> None:
        """Whoever is timed has the processors to itself."""
        names = (CANDIDATE, next(iter(self.context.case.baselines)))
        ours, theirs = (lambda name=name: self._timed(name, self._next(1)) for name in names)
        complaint = company.left_working(ours, theirs)
        if complaint:
            raise Refuted(
                "works-on",
                f"{list(self.size)}: {complaint}",
                "a call whose work ends with it: what goes on slows down the others' timed calls",
            )

    def _as_fast_on_new_contents(self) -> None:
        """A result that is looked up comes sooner where the same contents were there before. Each time
        they are written anew before the call, so that caches are as warm."""
        inputs = self.sets.inputs[0]
        others = [
            value
            for name, value in inputs.items()
            if is_floating(value) and name not in self.context.case.mutates
        ]
        if not others:
            return
        largest = max(others, key=Tensor.numel)
        usual = largest.clone()

        def seconds(shift: int) -> float:
            """Of a call on contents that are made and written in the same way whether new or known."""
            largest.data.copy_(usual.roll(shift, dims=-1) if usual.dim() else usual + shift)
            return self._timed(CANDIDATE, [0])[0]

        shift, new, known = 0, math.inf, math.inf
        for _ in range(TRIALS):
            for _ in range(NEW_CONTENTS):
                shift += 1
                new = min(new, seconds(shift))
                known = min(known, seconds(shift))
            # What else the machine does lengthens calls and shortens none: of many calls, the fastest of all
            # trials is nearest to what a call takes. A look-up is fast in every trial.
            ratio = new / known
            if not ratio > SLOWER_ON_NEW:
                break
        else:
            raise Refuted(
                "remembers",
                f"{list(self.size)}: a call takes {ratio:.3g} times as long on contents that were "
                "not there before",
                "the same time whatever has been computed before",
            )
        largest.data.copy_(usual)

    def _clocks_agree(self, batch: int) -> bool:
        """Whether a device that others use too made every side wait for it."""
        share, seconds = CLOCKS_AGREE[self.context.device.type]
        pairs = {name: _usual(found) for name, found in self.clocks.items() if found}
        # A busy device takes up work late and says so late, whoever waits: the host's clock runs on. A host's
        # clock that runs slower has no such excuse.
        waits = [
            max(0.0, first - second) for name, (first, second) in pairs.items() if name not in OWN
        ]
        late = min(waits, default=0.0)
        for name in OWN:
            first, second = pairs[name]
            allowed = share * max(first, second) + seconds
            if not -allowed <= first - second <= allowed + late:
                raise Refuted(
                    "clocks-disagree",
                    f"{list(self.size)}: {first * 1e6:.4g} µs by the host's clock, {second * 1e6:.4g} "
                    f"µs by the second one for {batch} calls",
                    "two clocks that agree; on a GPU work off the current stream shows here",
                )
        return all(
            first - second > share * max(first, second) + seconds
            for first, second in pairs.values()
        )

    def _physics(self, ours: list[float], peak: float) -> float:
        """`peak`, or more if memory was seen to move more."""
        if not self.sets.cold:
            return peak  # what lies in a cache may be faster than memory
        moved, seconds = self.sets.bytes_moved, stats.median(ours)
        # A busy machine may have measured too little: before anybody is accused it is asked again, on
        # buffers of the call's own size, which a cache may hold, and on the large ones.
        for size in (moved // 2, None):
            if seconds >= bandwidth.floor_seconds(self.context, moved, peak):
                return peak
            peak = max(peak, bandwidth.measured(self.context, size))
        least = bandwidth.floor_seconds(self.context, moved, peak)
        if seconds < least:
            raise Refuted(
                "faster-than-memory",
                f"{list(self.size)}: {seconds * 1e6:.4g} µs for {moved} bytes",
                f"at least {least * 1e6:.4g} µs: memory was seen to move "
                f"{peak / 1e9:.4g} GB/s at best",
            )
        return peak

    def _arithmetic(self, ours: list[float]) -> None:
        case, seconds = self.context.case, stats.median(ours)
        if case.operations is None:
            return
        operations = case.operations(self.sets.inputs[0], self.mode)
        least, rate = 0.0, 0.0
        for _ in range(2):  # A busy machine may have shown too little the first time.
            rate = max(rate, arithmetic.measured(self.context, case.timed_dtype))
            least = arithmetic.floor_seconds(self.context, operations, rate)
            if seconds >= least:
                return
        raise Refuted(
            "faster-than-arithmetic",
            f"{list(self.size)}: {seconds * 1e6:.4g} µs for {operations:.4g} operations",
            f"at least {least * 1e6:.4g} µs: a matrix product was seen to do {rate:.4g} a second",
        )


def _all_read(found: Results, expected: Results) -> bool:
    """same_results, with the same work whatever the answer is: every element of what is expected is read twice."""
    same = list(found) == list(expected)
    for name, right in expected.items():
        one = found.get(name, right)
        if one.dtype != right.dtype or one.shape != right.shape:
            same, one = False, right
        same &= int((as_bits(one) != as_bits(right)).count_nonzero()) == 0
    return same


def _usual(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """The pair whose two clocks are the median apart. A busy machine stops the process between them now and
    then; work that one of them does not see is missing in every sample."""
    return sorted(pairs, key=lambda pair: pair[0] - pair[1])[len(pairs) // 2]


def _largest(tensor: torch.Tensor) -> float:
    """The largest magnitude; NaN if there is one, 0 of nothing."""
    if not tensor.numel():
        return 0.0
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    low, high = (float(end) for end in tensor.aminmax())
    return max(-low, high)


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
