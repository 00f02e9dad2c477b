"""Equal calls give equal bits."""

from __future__ import annotations

import torch
from torch import Tensor

from truefuse.case import Mode
from truefuse.context import Context, describe
from truefuse.gates.outputs import same_bits
from truefuse.gates.proof import unproven
from truefuse.verdict import Result, Status

NAME = "determinism"
REPEATS = 10
SIZE = (67, 257)


def run(context: Context) -> Result:
    eager = next(iter(context.case.baselines.values()))
    unknown = unproven(NAME, context, examine, {"a last bit at random": _noisy(eager)}, eager)
    if unknown:
        return unknown
    complaint = examine(context)
    if complaint:
        return Result(
            NAME,
            Status.FAIL,
            "not-deterministic",
            "equal calls give different bits",
            expected=f"{REPEATS} equal results",
            got="a different one",
            first=complaint,
        )
    return Result(
        NAME,
        Status.PASS,
        "bit-identical",
        f"{REPEATS} repeats of every dtype and mode, bit for bit",
    )


def examine(context: Context) -> str:
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            inputs = context.inputs(SIZE, dtype, context.case.kinds[0], NAME)
            first = context.candidate(inputs, mode).clone()
            for repeat in range(1, REPEATS):
                if not same_bits(context.candidate(inputs, mode), first):
                    return f"repeat {repeat}, {describe(inputs, mode)}"
    return ""


def _noisy(eager):
    calls = 0

    def candidate(*tensors: Tensor, **mode: Mode) -> Tensor:
        nonlocal calls
        calls += 1
        result = eager(*tensors, **mode)
        if calls % 3 == 0:
            flat = result.view(-1)
            flat[7] = torch.nextafter(flat[7].float(), torch.tensor(9e9)).to(flat.dtype) * 1.01
        return result

    return candidate
