"""How the benchmarks take times: device time by graph replay, host time by rounds that take turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch

Call = Callable[[], object]
REPLAYS, ROUNDS, ROUND = 40, 21, 200


def rotated_sets(bytes_each: int) -> int:
    """How many sets of tensors are together twice the last-level cache and one more; 2 to 20."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, min(20, math.ceil(2 * cache / bytes_each) + 1))


def graph_microseconds(calls: Sequence[Call], *, kept: int, replays: int = REPLAYS) -> list[float]:
    """Device time per call of each replay of one CUDA graph of all calls, in µs, by events.

    kept: results that stay alive while later calls are captured, so that written memory rotates too.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[: max(kept, 2)]:
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    results: list[object] = []
    with torch.cuda.graph(graph):
        for call in calls:
            results.append(call())
            if len(results) > kept:
                results.pop(0)
    for _ in range(5):
        graph.replay()
    times = []
    for _ in range(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return times


def host_microseconds(
    calls: dict[str, Call], *, rounds: int = ROUNDS, count: int = ROUND
) -> dict[str, float]:
    """Host time per call in µs: median over rounds of `count` calls; every round times all, in turn.

    A GPU is idle when a round begins, and its queue takes `count` calls, so that nothing waits for it.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            samples[name].append((time.perf_counter() - begin) / count * 1e6)
    return {name: statistics.median(values[1:]) for name, values in samples.items()}
