"""Device time on a GPU: calls captured in a graph, over inputs that no cache can hold.

The calls of one graph walk through copies of the inputs that together exceed any last-level cache
known (a device may report only a part of its own), so that every replay reads memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from truefuse import stats
from truefuse.case import Inputs, Size
from truefuse.context import Context

ROTATED_BYTES = 512 << 20
MOST_SETS = 256
REPLAYS = 40


def measure(context: Context, size: Size) -> dict[str, Any]:
    """{"method", "cold", "candidate_us", "baselines": {name: {us, speedup}}}."""
    case = context.case
    one = context.inputs(size, case.timing_dtype, case.kinds[0], "timing")
    input_bytes = sum(tensor.numel() * tensor.element_size() for tensor in one.values())
    needed = max(2, math.ceil(ROTATED_BYTES / input_bytes))
    count = min(needed, MOST_SETS)
    sets = [one] + [{k: v.clone() for k, v in one.items()} for _ in range(count - 1)]
    functions = {"candidate": case.candidate, **case.baselines}
    graphs = {name: _capture(context, function, sets) for name, function in functions.items()}
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(REPLAYS):
        for name, (graph, _) in graphs.items():
            samples[name].append(_replay(context, graph) / count)
    ours = samples["candidate"]
    return {
        "method": f"device time: events around a graph of {count} calls over {count} input sets",
        "cold": count == needed,
        "candidate_us": stats.median(ours) * 1e6,
        "baselines": {
            name: {
                "us": stats.median(samples[name]) * 1e6,
                "speedup": vars(stats.ratio_interval(samples[name], ours, context.seed)),
            }
            for name in case.baselines
        },
    }


def _capture(
    context: Context, function: Callable[..., Tensor], sets: list[Inputs]
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    mode = context.case.timed_mode
    side = torch.cuda.Stream(context.device)
    side.wait_stream(torch.cuda.current_stream(context.device))
    with torch.cuda.stream(side):
        for _ in range(3):
            function(*sets[0].values(), **mode)
    torch.cuda.current_stream(context.device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for inputs in sets:
            # Each result is released at once: the graph's pool reuses its memory, as a model does.
            result = function(*inputs.values(), **mode)
    wanted = function(*sets[-1].values(), **mode)
    graph.replay()
    context.synchronize()
    if not torch.equal(result, wanted):
        raise RuntimeError("a replayed graph does not give the result of the call")
    return graph, result


def _replay(context: Context, graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    context.synchronize()
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3
