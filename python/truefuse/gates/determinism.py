"""Equal calls give equal bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from truefuse.compare import another
from truefuse.context import Context, as_tuple, describe
from truefuse.gates.outputs import same_results
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "determinism"
REPEATS = 10


def run(context: Context) -> Result:
    return judge(
        NAME,
        context,
        examine,
        {"a last bit at random": _noisy(context.good)},
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
    return None


def _noisy(good: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def candidate(*tensors: Tensor, **mode: Any) -> Any:
        nonlocal calls
        calls += 1
        outputs = good(*tensors, **mode)
        if calls % 3 == 0:
            last = as_tuple(outputs)[0].view(-1)[-1:]
            last.copy_(another(last))
        return outputs

    return candidate
