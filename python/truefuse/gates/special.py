"""Special values against mathematics: zeros, infinities, NaN, huge and subnormal numbers.

Each goes through every argument, the others being zero; at lengths that reach vector code, its
scalar tail, and both.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from truefuse import compare
from truefuse.case import Inputs, Mode
from truefuse.context import Context, mode_name, short
from truefuse.gates.proof import self_test_failed
from truefuse.verdict import Result, Status

NAME = "special"
LENGTHS = (1, 7, 8, 16, 33)
ALLOWED_ULPS = 2.0


def special_values(dtype: torch.dtype) -> list[float]:
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    return [
        *(0.0, -0.0, math.inf, -math.inf, math.nan),
        *(info.max, -info.max, info.max / 1024, -info.max / 1024),
        *(info.smallest_normal, -info.smallest_normal),
        *(2 * smallest, -2 * smallest, 1000 * smallest, info.smallest_normal / 2),
    ]


def run(context: Context) -> Result:
    faults = self_test(context)
    if faults:
        return self_test_failed(NAME, faults)
    calls = 0
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            tried = [
                (name, inputs, context.candidate(inputs, mode))
                for name, inputs in special_inputs(context, dtype)
            ]
            calls += len(tried)
            failure = _judge(context, mode, tried)
            if failure:
                return failure
    lengths = ", ".join(map(str, LENGTHS))
    return Result(
        NAME,
        Status.PASS,
        "as-mathematics",
        f"±0 ±inf NaN ±huge ±subnormal at lengths {lengths}: {calls} calls as in mathematics",
        numbers={"calls": calls},
    )


@compare.one_thread()
def _judge(context: Context, mode: Mode, tried: list[tuple[str, Inputs, Tensor]]) -> Result | None:
    for name, inputs, result in tried:
        complaint = complaint_about(context, inputs, mode, result)
        if complaint:
            expected, got, value = complaint
            where = f"{name}={value!r}, {short(inputs[name].dtype)} {mode_name(mode)}"
            return Result(
                NAME,
                Status.FAIL,
                "special-value",
                f"wrong at {where}",
                expected=expected,
                got=got,
                first=f"{where}, length {inputs[name].numel()}",
            )
    return None


def special_inputs(context: Context, dtype: torch.dtype):
    """(argument, inputs): its elements walk through the special values, the others are zero."""
    values = torch.tensor(special_values(dtype), dtype=torch.float64)
    for length in LENGTHS:
        template = context.inputs((1, length), dtype, context.case.kinds[0], NAME)
        for name in template:
            # At length 1 only the first value would be seen: start at each value in turn.
            for start in range(len(values)) if length == 1 else (0, 3):
                yield name, _filled(template, name, values.roll(-start))


def _filled(template: Inputs, chosen: str, values: Tensor) -> Inputs:
    filled = {name: torch.zeros_like(tensor) for name, tensor in template.items()}
    target = filled[chosen]
    repeated = values.repeat(target.numel() // len(values) + 1)[: target.numel()]
    target.copy_(repeated.reshape(target.shape))
    return filled


def complaint_about(
    context: Context, inputs: Inputs, mode: Mode, result: Tensor
) -> tuple[str, str, float] | None:
    """(expected, got, value) of the first wrong element."""
    reference = context.reference(inputs, mode)
    if result.shape != reference.high.shape:
        return f"shape {list(reference.high.shape)}", f"shape {list(result.shape)}", math.nan
    found = compare.errors(result, reference)
    wrong = found.wrong_class | ~(found.ulps <= ALLOWED_ULPS)
    if not wrong.any():
        return None
    position = int(wrong.flatten().to(torch.int8).argmax())
    rows = [tensor.broadcast_to(wrong.shape).flatten()[position] for tensor in inputs.values()]
    value = next((float(entry) for entry in rows if entry != 0 or entry.isnan()), 0.0)
    want = float(reference.rounded.flatten()[position])
    return f"{want!r}", f"{float(result.flatten()[position])!r}", value


@compare.one_thread()
def self_test(context: Context) -> list[str]:
    faults = []
    for dtype in context.case.dtypes:
        mode = context.case.modes[0]
        caught = {"NaN turned into 0": False, "-inf as inf * 0": False, "subnormals lost": False}
        for _, inputs in special_inputs(context, dtype):
            right = context.reference(inputs, mode).rounded
            if complaint_about(context, inputs, mode, right):
                faults.append(f"turned away mathematics rounded once ({short(dtype)})")
                break
            wrong = {
                "NaN turned into 0": right.nan_to_num(0.0, math.inf, -math.inf),
                "-inf as inf * 0": _nan_where_minus_infinity(inputs, right),
                "subnormals lost": right.masked_fill(
                    right.abs() < torch.finfo(dtype).smallest_normal, 0.0
                ),
            }
            for name, result in wrong.items():
                caught[name] |= complaint_about(context, inputs, mode, result) is not None
        faults += [
            f"did not catch '{name}' ({short(dtype)})" for name, hit in caught.items() if not hit
        ]
    return faults


def _nan_where_minus_infinity(inputs: Inputs, right: Tensor) -> Tensor:
    hit = torch.zeros(right.shape, dtype=torch.bool)
    for tensor in inputs.values():
        hit |= (tensor.cpu() == -math.inf).broadcast_to(right.shape)
    return right.masked_fill(hit, math.nan)
