"""Device time on a GPU: calls captured in a graph, over many sets of inputs (cold) and over one (warm).

The results of all captured calls are checked, before the timed replays and after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from truefuse import stats
from truefuse.context import Context, as_tuple
from truefuse.gates.outputs import same_results
from truefuse.rotation import Sets

REPLAYS = 40
WARM_CALLS = 20


def measure(context: Context, sets: Sets) -> dict[str, Any]:
    """{"method", "cold", "warm": {"candidate_us", "baselines": {name: {us, speedup}}}}."""
    return {
        "method": f"device time: events around a graph of calls, cold over {len(sets)} input sets"
        f"{'' if sets.cold else ' (too few to be cold)'}, warm {WARM_CALLS} calls on one",
        "cold": _state(context, sets, list(range(len(sets)))),
        "warm": _state(context, sets, [0] * WARM_CALLS),
    }


def _state(context: Context, sets: Sets, chosen: list[int]) -> dict[str, Any]:
    case = context.case
    functions = {"candidate": case.candidate, **case.baselines}
    graphs = {name: _Graph(context, function, sets, chosen) for name, function in functions.items()}
    graphs["candidate"].check()
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(REPLAYS):
        for name, graph in graphs.items():
            samples[name].append(graph.replay() / len(chosen))
    graphs["candidate"].check()
    ours = samples["candidate"]
    return {
        "candidate_us": stats.median(ours) * 1e6,
        "baselines": {
            name: {
                "us": stats.median(samples[name]) * 1e6,
                "speedup": vars(stats.ratio_interval(samples[name], ours, context.seed)),
            }
            for name in case.baselines
        },
    }


class _Graph:
    def __init__(
        self, context: Context, function: Callable[..., Any], sets: Sets, chosen: list[int]
    ) -> None:
        self.context, self.sets, self.chosen = context, sets, chosen
        mode, device = context.case.timed_mode, context.device
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(3):
                function(*context.fresh(sets.inputs[0]).values(), **mode)
        torch.cuda.current_stream(device).wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        self.outputs = []
        with torch.cuda.graph(self.graph):
            for number in chosen:
                self.outputs.append(function(*sets.inputs[number].values(), **mode))

    def replay(self) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.context.synchronize()
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def check(self) -> None:
        """Poisons all outputs, replays once, and looks at each."""
        for number in set(self.chosen):
            self.sets.restore(number)
        for output in self.outputs:
            for tensor in as_tuple(output):
                if tensor.is_floating_point():
                    tensor.fill_(torch.nan)
        self.replay()
        if self.context.case.mutates and len(set(self.chosen)) < len(self.chosen):
            return  # several calls in a row on one state: no single result is expected
        for number, output in zip(self.chosen, self.outputs, strict=True):
            results = self.context.named(output, self.sets.inputs[number])
            if not same_results(results, self.sets.expected[number]):
                raise RuntimeError(
                    f"a replayed graph gives other bits than the call, on set {number}"
                )
