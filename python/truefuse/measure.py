"""A candidate beside its baselines: verdicts on speed, and what of the timing cannot be believed. Called
only once every gate has passed."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
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
from truefuse.case import Inputs, Mode
from truefuse.context import Context, Results, contents_of, copies, describe, mode_name, short
from truefuse.gates.edges import coarse_error
from truefuse.gates.remembered import one_of_many
from truefuse.sampling import CANDIDATE, OWN
from truefuse.turns import Refuted, Shape, Turns

# The second clock may differ by this share and this many seconds: on a GPU it stands on the stream and
# does not see the synchronisation itself.
CLOCKS_AGREE = {"cpu": (0.02, 50e-6), "cuda": (0.3, 100e-6)}
SHARES = (0.05, 0.2)
NEW_CONTENTS, TRIALS = 15, 8  # on a busy machine a single trial says little
SLOWER_ON_NEW = 1.25
YARDSTICK_ULPS = 64  # of the largest result


def measure(
    context: Context,
    progress: Callable[[str], None] = lambda text: None,
    share: float | None = None,
    apart: Callable[[], str] | None = None,
) -> dict[str, Any]:
    """The report's performance object; `share` is the operator's part of a model's time, `apart` asks a process
    that is there already how the baseline does in it (elsewhere.beside). Raises Refuted."""
    progress("measuring the memory")
    peak = bandwidth.measured(context)
    shapes = []
    with torch.no_grad():
        for size in context.case.timing_sizes:
            text = " × ".join(map(str, size))
            shape = Shape(context, size, lambda t, text=text: progress(f"{text} {t}"))
            _require_right(shape)
            shapes.append(_performance(shape, peak))
        progress("other dtypes and modes")
        _right_in_others(context)
        for name, (was, now) in flags.changed_since(context.at_start, context.device).items():
            raise Refuted(
                "flags-changed", f"{name}: {was} became {now}", "settings as at the start"
            )
        progress("the baseline in a process of its own")
        with nullcontext(apart) if apart else elsewhere.beside(context) as complaint:
            _as_without_candidate(complaint())
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
            # Both may be right where a rounding decides.
            near = near or not coarse_error(context, inputs, mode, results)
        if not near:
            return True
    return False


def _as_without_candidate(complaint: str) -> None:
    """A baseline is what it is where the candidate was never called: whatever a candidate has done to the process,
    it has slowed down or changed what it is compared with."""
    if complaint:
        raise Refuted(
            "baseline-changed",
            complaint,
            "a baseline as fast and as right as in a process in which the candidate is never called",
        )


def _require_right(shape: Shape) -> None:
    """One set beside mathematics; the others, which cost as much again, beside the yardstick."""
    context, sets = shape.context, shape.sets
    complaint = coarse_error(context, sets.inputs[0], shape.mode, sets.expected[0])

    def is_far(inputs: Inputs, results: Results) -> bool:
        return _far_from_yardstick(context, inputs, shape.mode, results)

    for number in sets.distinct()[1:]:
        if is_far(sets.inputs[number], sets.expected[number]):
            complaint = complaint or f"far from the yardstick on set {number}"
    complaint = complaint or one_of_many(context, copies(sets.inputs[0]), shape.mode, is_far)
    if complaint:
        text = f"{list(shape.size)}: {complaint}"
        raise Refuted("timed-output-wrong", text, "a result near mathematics")


def verdicts(
    shape: Shape, turns: Turns
) -> tuple[dict[str, float], dict[str, dict[str, Any]], bool]:
    """As sampling's; and whether a device that others use too made every side wait."""
    is_shared = _clocks_agree(shape, turns.batch)
    noise, found = sampling.verdicts(turns.samples, shape.context.seed)
    if is_shared or (turns.waited or 0.0) >= company.BUSY:
        # What many threads lose to others says nothing of a candidate that needs fewer.
        for one in found.values():
            one["verdict"] = "AMBIGUOUS"
    return noise, found, is_shared


def _performance(shape: Shape, peak: float) -> dict[str, Any]:
    """`peak`: bytes per second that memory was seen to move."""
    context, case, sets = shape.context, shape.context.case, shape.sets
    turns = shape.turns()
    samples = turns.samples
    _alone(shape)
    _as_fast_on_new_contents(shape)
    noise, found, is_shared = verdicts(shape, turns)
    peak = _physics(shape, samples[CANDIDATE], peak)
    _arithmetic(shape, samples[CANDIDATE])
    moved = sets.bytes_moved
    shape.progress("cached, memory")
    return {
        "size": list(shape.size),
        "dtype": short(case.timed_dtype),
        "mode": mode_name(shape.mode),
        "sets": len(sets),
        "cold": sets.cold,
        "bytes": moved,
        "bandwidth_share": moved / stats.median(samples[CANDIDATE]) / peak,
        "candidate": _side(shape, CANDIDATE, samples),
        "noise": noise,
        "waited": turns.waited,
        "device_shared": is_shared,
        "baselines": [
            {"name": name, **_side(shape, name, samples), **found[name]} for name in case.baselines
        ],
        "cached": shape.cached(turns.batch),
        "device_time": (
            graphtime.measure(context, sets) if context.device.type == "cuda" else None
        ),
        "outputs_checked": shape.checked,
    }


def _side(shape: Shape, name: str, samples: dict[str, list[float]]) -> dict[str, Any]:
    seconds = torch.tensor(samples[name], dtype=torch.float64)
    quartiles = seconds.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64))
    inputs = shape.context.fresh(shape.sets.inputs[0])
    function = shape.functions[name]
    with shape.untouched(name):
        peak = memory.peak(shape.context, lambda: function(*inputs.values(), **shape.mode))
    return {
        "median_ms": stats.median(samples[name]) * 1e3,
        "quartiles_ms": [float(value) * 1e3 for value in quartiles],
        "samples": len(samples[name]),
        "peak": peak,
    }


def _alone(shape: Shape) -> None:
    """Whoever is timed has the processors to itself."""
    names = (CANDIDATE, next(iter(shape.context.case.baselines)))
    ours, theirs = (lambda name=name: shape.timed(name, shape.next(1)) for name in names)
    complaint = company.left_working(ours, theirs)
    if complaint:
        raise Refuted(
            "works-on",
            f"{list(shape.size)}: {complaint}",
            "a call whose work ends with it: what goes on slows down the others' timed calls",
        )


def _as_fast_on_new_contents(shape: Shape) -> None:
    """A result that is looked up comes sooner where the same contents were there before. Each time
    they are written anew before the call, so that caches are as warm."""
    inputs = shape.sets.inputs[0]
    mutates = shape.context.case.mutates
    others = [value for name, value in contents_of(inputs).items() if name not in mutates]
    if not others:
        return
    largest = max(others, key=Tensor.numel)
    usual = largest.clone()

    def seconds(shift: int) -> float:
        """Of a call on contents that are made and written in the same way whether new or known."""
        largest.data.copy_(usual.roll(shift, dims=-1) if usual.dim() else usual + shift)
        return shape.timed(CANDIDATE, [0])[0]

    shift, new, known = 0, math.inf, math.inf
    for _ in range(TRIALS):
        for number in range(NEW_CONTENTS):
            # Turn and turn about: either comes first as often.
            if number % 2:
                known = min(known, seconds(shift))
            shift += 1
            new = min(new, seconds(shift))
            if number % 2 == 0:
                known = min(known, seconds(shift))
        # What else the machine does lengthens calls and shortens none: of many calls, the fastest of all
        # trials is nearest to what a call takes. A look-up is fast in every trial.
        ratio = new / known
        if not ratio > SLOWER_ON_NEW:
            break
    else:
        raise Refuted(
            "remembers",
            f"{list(shape.size)}: a call takes {ratio:.3g} times as long on contents that were "
            "not there before",
            "the same time whatever has been computed before",
        )
    largest.data.copy_(usual)


def _clocks_agree(shape: Shape, batch: int) -> bool:
    """Whether a device that others use too made every side wait for it."""
    share, seconds = CLOCKS_AGREE[shape.context.device.type]
    pairs = {name: _usual(found) for name, found in shape.clocks.items() if found}
    # A busy device takes up work late and says so late, whoever waits: the host's clock runs on. A host's
    # clock that runs slower has no such excuse.
    waits = [max(0.0, first - second) for name, (first, second) in pairs.items() if name not in OWN]
    late = min(waits, default=0.0)
    for name in OWN:
        first, second = pairs[name]
        allowed = share * max(first, second) + seconds
        if not -allowed <= first - second <= allowed + late:
            raise Refuted(
                "clocks-disagree",
                f"{list(shape.size)}: {first * 1e6:.4g} µs by the host's clock, {second * 1e6:.4g} "
                f"µs by the second one for {batch} calls",
                "two clocks that agree; on a GPU work off the current stream shows here",
            )
    return all(
        first - second > share * max(first, second) + seconds for first, second in pairs.values()
    )


def _physics(shape: Shape, ours: list[float], peak: float) -> float:
    """`peak`, or more if memory was seen to move more."""
    if not shape.sets.cold:
        return peak  # what lies in a cache may be faster than memory
    moved, seconds = shape.sets.bytes_moved, stats.median(ours)
    # A busy machine may have measured too little: before anybody is accused it is asked again, on
    # buffers of the call's own size, which a cache may hold, and on the large ones.
    for size in (moved // 2, None):
        if seconds >= bandwidth.floor_seconds(shape.context, moved, peak):
            return peak
        peak = max(peak, bandwidth.measured(shape.context, size))
    least = bandwidth.floor_seconds(shape.context, moved, peak)
    if seconds < least:
        raise Refuted(
            "faster-than-memory",
            f"{list(shape.size)}: {seconds * 1e6:.4g} µs for {moved} bytes",
            f"at least {least * 1e6:.4g} µs: memory was seen to move {peak / 1e9:.4g} GB/s at best",
        )
    return peak


def _arithmetic(shape: Shape, ours: list[float]) -> None:
    case, seconds = shape.context.case, stats.median(ours)
    if case.operations is None:
        return
    operations = case.operations(shape.sets.inputs[0], shape.mode)
    least, rate = 0.0, 0.0
    for _ in range(2):  # A busy machine may have shown too little the first time.
        rate = max(rate, arithmetic.measured(shape.context, case.timed_dtype))
        least = arithmetic.floor_seconds(shape.context, operations, rate)
        if seconds >= least:
            return
    raise Refuted(
        "faster-than-arithmetic",
        f"{list(shape.size)}: {seconds * 1e6:.4g} µs for {operations:.4g} operations",
        f"at least {least * 1e6:.4g} µs: a matrix product was seen to do {rate:.4g} a second",
    )


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
