"""Equal calls give equal bits, thousands of them too: what goes wrong in one of so many is seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from truefuse.compare import another
from truefuse.context import CandidateRaised, Context, Results, as_tuple, describe
from truefuse.gates.outputs import same_results
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "determinism"
REPEATS = 10
MANY, SECONDS = 4096, 0.5  # of a small call, as many as there is time for
TOGETHER = 64


def run(context: Context) -> Result:
    return judge(
        NAME,
        context,
        examine,
        {
            "a last bit at random": _noisy(context.good, 3),
            "one of hundreds of calls with another bit": _noisy(context.good, 199),
        },
        "not-deterministic",
        f"{REPEATS} equal results",
        lambda: Result(
            NAME,
            Status.PASS,
            "bit-identical",
            f"{REPEATS} repeats of every dtype and mode, bit for bit",
        ),
    )


def examine(context: Context) -> Complaint | None:
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            inputs = context.inputs(context.case.medium_size, dtype, context.case.kinds[0], NAME)
            results = context.candidate(inputs, mode)
            first = {name: tensor.clone() for name, tensor in results.items()}
            for repeat in range(1, REPEATS):
                if not same_results(context.candidate(inputs, mode), first):
                    where = f"repeat {repeat}, {describe(inputs, mode)}"
                    return Complaint(
                        "equal calls give different bits", where, got="a different one"
                    )
    return _one_of_many(context)


def _one_of_many(context: Context) -> Complaint | None:
    """Compared together: on a GPU waiting for each call takes longer than the call."""
    case = context.case
    mode = case.modes[0]
    inputs = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME, "many")
    first = {name: tensor.clone() for name, tensor in context.candidate(inputs, mode).items()}
    end = time.perf_counter() + SECONDS
    for begin in range(1, MANY, TOGETHER):
        found = []
        try:
            for _ in range(TOGETHER):
                own = context.fresh(inputs)
                found.append(context.named(case.candidate(*own.values(), **mode), own))
            context.synchronize()
        except Exception as error:
            where = f"one of many calls of a small input, {describe(inputs, mode)}"
            raise CandidateRaised(f"{type(error).__name__}: {error} [{where}]") from error
        if not _all_same(found, first):
            call = begin + [same_results(one, first) for one in found].index(False)
            where = f"call {call} of a small input, {describe(inputs, mode)}"
            return Complaint("one of many equal calls gives other bits", where, got="another one")
        if time.perf_counter() > end:
            break
    return None


def _all_same(found: list[Results], first: Results) -> bool:
    if any(
        list(one) != list(first) or any(one[name].shape != first[name].shape for name in first)
        for one in found
    ):
        return all(same_results(one, first) for one in found)
    together = {name: torch.stack([one[name] for one in found]) for name in first}
    wanted = {name: first[name].expand(together[name].shape) for name in first}
    return same_results(together, wanted)


def _noisy(good: Callable[..., Any], period: int) -> Callable[..., Any]:
    calls = 0

    def candidate(*tensors: Tensor, **mode: Any) -> Any:
        nonlocal calls
        calls += 1
        outputs = good(*tensors, **mode)
        if calls % period == 0:
            last = as_tuple(outputs)[0].view(-1)[-1:]
            last.copy_(another(last))
        return outputs

    return candidate
