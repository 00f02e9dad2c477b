"""The child of `truefuse.tuning`: device time of an operator with the policies of its environment."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import torch

from truefuse import case as cases
from truefuse import derivatives, graphtime
from truefuse.context import Context, short
from truefuse.rotation import Sets
from truefuse.tuning import case_and_gates


def main() -> None:
    """The one argument is the request as JSON; prints {dtype: microseconds}."""
    request = json.loads(sys.argv[1])
    name, _ = case_and_gates(request["operator"])
    case = cases.load(name)
    if name != request["operator"]:
        case = replace(case, candidate=_with_gradients(case))
    # Only the candidate is of interest; whether it is right the gates have said.
    found = {}
    for dtype in case.dtypes:
        one = replace(
            case, timing_dtype=dtype, baselines=dict([next(iter(case.baselines.items()))])
        )
        context = Context(one, torch.device(request["device"]), request["seed"])
        with torch.no_grad():
            sets = Sets(context, one.timing_sizes[-1])
            found[short(dtype)] = graphtime.measure(context, sets)["cold"]["candidate_us"]
    print(json.dumps(found))


def _with_gradients(case: cases.Case) -> Any:
    """The call and its backward pass: the gradients as results."""
    names = tuple(case.gradients)
    forward = case.candidate

    def candidate(*given: torch.Tensor, **mode: Any) -> tuple[torch.Tensor, ...]:
        inputs = dict(zip(_names(case), given, strict=True))
        sent = lambda outputs: sum(out.sum() for out in outputs)  # noqa: E731
        return tuple(derivatives.gradients(forward, inputs, mode, names, sent).values())

    return candidate


def _names(case: cases.Case) -> tuple[str, ...]:
    context = Context(case, torch.device("cpu"), 0)
    return context.names


if __name__ == "__main__":
    main()
