"""Edge sizes: one, vector and tile boundaries, primes; every element near mathematics."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from truefuse import compare
from truefuse.case import Inputs, Mode
from truefuse.context import Context, describe
from truefuse.gates.proof import unproven
from truefuse.verdict import Result, Status

NAME = "edges"
# A wrong index gives errors of the size of the values; how many ulp are right is the business of
# the numerics gate.
COARSE_ULPS = 8.0


def run(context: Context) -> Result:
    eager = next(iter(context.case.baselines.values()))
    planted = {
        "a last element left out": _spoilt(eager, -1),
        "a first element left out": _spoilt(eager, 0),
    }
    unknown = unproven(NAME, context, examine, planted, eager)
    if unknown:
        return unknown
    complaint = examine(context)
    if complaint:
        what, _, where = complaint.partition(" | ")
        return Result(
            NAME,
            Status.FAIL,
            "wrong-at-size",
            f"wrong result: {where}",
            expected=f"within {COARSE_ULPS:g} ulp of the largest value in the call",
            got=what,
            first=where,
        )
    sizes = " ".join(str(list(size)) for size in context.case.edge_sizes)
    count = len(context.case.edge_sizes) * len(context.case.dtypes) * len(context.case.modes)
    return Result(NAME, Status.PASS, "right-at-sizes", f"{sizes}: {count} calls right")


def examine(context: Context) -> str:
    for size in context.case.edge_sizes:
        for dtype in context.case.dtypes:
            inputs = context.inputs(size, dtype, context.case.kinds[0], NAME)
            for mode in context.case.modes:
                complaint = coarse_error(context, inputs, mode, context.candidate(inputs, mode))
                if complaint:
                    return f"{complaint} | {describe(inputs, mode)}"
    return ""


def coarse_error(context: Context, inputs: Inputs, mode: Mode, result: Tensor) -> str:
    """The first element far from mathematics, or nothing. For indexing, not for accuracy."""
    reference = context.reference(inputs, mode)
    if result.shape != reference.high.shape:
        return f"shape {list(result.shape)}, wanted {list(reference.high.shape)}"
    if not result.numel():
        return ""
    involved = [reference.high, *(tensor.cpu().double() for tensor in inputs.values())]
    largest = max(float(tensor.abs().max()) for tensor in involved)
    unit = compare.ulp(torch.tensor(largest, dtype=torch.float64), reference.dtype)
    found = compare.errors(result, reference)
    wrong = ~(found.absolute <= COARSE_ULPS * unit)
    if not wrong.any():
        return ""
    position = int(wrong.flatten().to(torch.int8).argmax())
    index = compare.index_of(position, result.shape)
    got, want = float(result.flatten()[position]), float(reference.high.flatten()[position])
    return f"{got:.6g} where mathematics has {want:.6g}, at index {index}"


def _spoilt(eager, position: int):
    def candidate(*tensors: Tensor, **mode: Mode) -> Tensor:
        result = eager(*tensors, **mode)
        if result.numel() > math.prod((1, 1)):
            result.view(-1)[position] = 1000.0
        return result

    return candidate
