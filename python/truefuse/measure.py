"""Timing a candidate beside its baselines. Called only once every gate has passed.

Candidate, candidate again (the A/A run that shows how quiet the machine is) and baselines take turns
within each round; each round begins with another of them. A sample is a batch of calls; its last output
is checked, outside the timed region.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from truefuse import graphtime, memory, stats
from truefuse.case import Size
from truefuse.context import Context, mode_name, short
from truefuse.gates.edges import coarse_error
from truefuse.gates.outputs import same_bits

WARMUP_CALLS = 30
WARMUP_SECONDS = 0.3
SHORTEST_SAMPLE = 200e-6  # seconds; shorter calls are timed in batches
LEAST_ROUNDS = 30
MOST_ROUNDS = 200
ROUND_SECONDS = 0.8  # of timed work per shape, where LEAST_ROUNDS allow it
AGAIN = "candidate again"


class WrongOutput(Exception):
    """A call gave another result while it was timed."""


def measure(
    context: Context, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """The report's performance object. Raises WrongOutput."""
    shapes = []
    with torch.no_grad():
        for size in context.case.timing_sizes:
            progress(f"timing {' × '.join(map(str, size))}")
            shapes.append(_shape(context, size))
    return {
        "device": str(context.device),
        "method": "end to end: host clock around calls, synchronised on both sides; warm; median of "
        "interleaved samples; 95 % bootstrap interval of the ratio of medians",
        "memory": memory.label(context),
        "shapes": shapes,
    }


def _shape(context: Context, size: Size) -> dict[str, Any]:
    case = context.case
    inputs = context.inputs(size, case.timing_dtype, case.kinds[0], "timing")
    mode = case.timed_mode
    functions = {"candidate": case.candidate, AGAIN: case.candidate, **case.baselines}
    calls = {
        name: (lambda function=function: function(*inputs.values(), **mode))
        for name, function in functions.items()
    }
    expected = calls["candidate"]()
    complaint = coarse_error(context, inputs, mode, expected)
    if complaint:
        raise WrongOutput(f"{list(size)}: {complaint}")
    samples = _samples(context, calls, expected)
    ours = samples["candidate"]
    seed = context.seed
    same = stats.ratio_interval(samples[AGAIN], ours, seed)
    floor = stats.noise_floor(same)
    device_time = graphtime.measure(context, size) if context.device.type == "cuda" else None
    baselines = []
    for name in case.baselines:
        speedup = stats.ratio_interval(samples[name], ours, seed)
        baselines.append(
            {
                "name": name,
                **_side(context, samples[name], calls[name]),
                "speedup": {"value": speedup.value, "low": speedup.low, "high": speedup.high},
                "verdict": stats.speed_verdict(speedup, floor),
            }
        )
    return {
        "size": list(size),
        "dtype": short(case.timing_dtype),
        "mode": mode_name(mode),
        "candidate": _side(context, ours, calls["candidate"]),
        "noise": {"low": same.low, "high": same.high, "floor": floor},
        "baselines": baselines,
        "device_time": device_time,
        "outputs_checked": len(ours) * 2,
    }


def _side(context: Context, seconds: list[float], call: Callable[[], Tensor]) -> dict[str, Any]:
    quartiles = torch.tensor(seconds, dtype=torch.float64).quantile(
        torch.tensor([0.25, 0.75], dtype=torch.float64)
    )
    return {
        "median_ms": stats.median(seconds) * 1e3,
        "quartiles_ms": [float(value) * 1e3 for value in quartiles],
        "samples": len(seconds),
        "peak": memory.peak(context, call),
    }


def _samples(
    context: Context, calls: dict[str, Callable[[], Tensor]], expected: Tensor
) -> dict[str, list[float]]:
    """Seconds per call of every side, one sample a round."""
    per_call = {name: _warm_up(context, call) for name, call in calls.items()}
    batch = max(1, math.ceil(SHORTEST_SAMPLE / min(per_call.values())))
    round_seconds = batch * sum(per_call.values())
    rounds = min(max(LEAST_ROUNDS, int(ROUND_SECONDS / round_seconds)), MOST_ROUNDS)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            seconds, result = _timed(context, calls[name], batch)
            samples[name].append(seconds)
            if name in ("candidate", AGAIN) and not same_bits(result, expected):
                raise WrongOutput(f"{list(expected.shape)}: other bits in timed round {number}")
            del result
    return samples


def _warm_up(context: Context, call: Callable[[], Tensor]) -> float:
    """Seconds of a warm call, roughly."""
    begin = time.perf_counter()
    least = math.inf
    for done in range(1, WARMUP_CALLS + 1):
        least = min(least, _timed(context, call, 1)[0])
        if done >= 3 and time.perf_counter() - begin > WARMUP_SECONDS:
            break
    return least


def _timed(context: Context, call: Callable[[], Tensor], batch: int) -> tuple[float, Tensor]:
    context.synchronize()
    begin = time.perf_counter()
    for _ in range(batch):
        result = call()
    context.synchronize()
    return (time.perf_counter() - begin) / batch, result
