"""Special values against mathematics: zeros, infinities, NaN, huge and subnormal numbers.

Each goes through every floating argument, the other ones being zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from truefuse import compare
from truefuse.accuracy import broadcasts
from truefuse.case import Inputs, Mode
from truefuse.context import (
    Context,
    Results,
    describe,
    is_floating,
    mode_name,
    short,
    tensors,
)
from truefuse.gates.proof import self_test_failed
from truefuse.verdict import Result, Status

NAME = "special"
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
    sizes = ", ".join(str(list(size)) for size in context.case.special_sizes)
    return Result(
        NAME,
        Status.PASS,
        "as-mathematics",
        f"±0 ±inf NaN ±huge ±subnormal at sizes {sizes}: {calls} calls as in mathematics",
        numbers={"calls": calls},
    )


@compare.one_thread()
def _judge(context: Context, mode: Mode, tried: list[tuple[str, Inputs, Results]]) -> Result | None:
    for name, inputs, results in tried:
        complaint = complaint_about(context, inputs, mode, results)
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
                first=f"{where}, {describe(inputs, mode)}",
            )
    return None


def special_inputs(context: Context, dtype: torch.dtype) -> Iterator[tuple[str, Inputs]]:
    """(argument, inputs): its elements walk through the special values, the others are zero."""
    for size in context.case.special_sizes:
        template = context.inputs(size, dtype, context.case.kinds[0], NAME)
        for name, tensor in template.items():
            if not is_floating(tensor) or not tensor.numel():
                continue
            values = torch.tensor(special_values(tensor.dtype), dtype=torch.float64)
            # In a single element only the first value would be seen: start at each value in turn.
            for start in range(len(values)) if tensor.numel() == 1 else (0, 3):
                yield name, _filled(template, name, values.roll(-start))


def _filled(template: Inputs, chosen: str, values: Tensor) -> Inputs:
    filled = {k: torch.zeros_like(v) if is_floating(v) else v for k, v in template.items()}
    target = filled[chosen]
    repeated = values.repeat(target.numel() // len(values) + 1)[: target.numel()]
    target.copy_(repeated.reshape(target.shape))
    return filled


def complaint_about(
    context: Context, inputs: Inputs, mode: Mode, results: Results
) -> tuple[str, str, float] | None:
    """(expected, got, value) of the first wrong element."""
    references = context.reference(inputs, mode)
    if list(results) != list(references):
        return ", ".join(references), ", ".join(results), math.nan
    for name, reference in references.items():
        result = results[name]
        if result.shape != reference.high.shape:
            return f"shape {list(reference.high.shape)}", f"shape {list(result.shape)}", math.nan
        found = compare.errors(result, reference)
        wrong = found.wrong_class | ~(found.ulps <= ALLOWED_ULPS)
        if wrong.any():
            position = int(wrong.flatten().to(torch.int8).argmax())
            want = float(reference.rounded.flatten()[position])
            got = float(result.flatten()[position])
            return f"{want!r}", f"{got!r}", _value_at(inputs, wrong.shape, position)
    return None


def _value_at(inputs: Inputs, shape: torch.Size, position: int) -> float:
    """The special value that went into this element, where inputs broadcast to the result."""
    for tensor in tensors(inputs).values():
        if not (tensor.is_floating_point() and broadcasts(tensor, shape)):
            continue
        value = float(tensor.broadcast_to(shape).flatten()[position])
        if value != 0:  # also NaN
            return value
    return 0.0


@compare.one_thread()
def self_test(context: Context) -> list[str]:
    faults = []
    for dtype in context.case.dtypes:
        mode = context.case.modes[0]
        caught = {"NaN turned into 0": False, "-inf as inf * 0": False, "subnormals lost": False}
        plantable = dict(caught)
        for _, inputs in special_inputs(context, dtype):
            references = context.reference(inputs, mode)
            right = {name: reference.rounded for name, reference in references.items()}
            if complaint_about(context, inputs, mode, right):
                faults.append(f"turned away mathematics rounded once ({short(dtype)})")
                break
            name, out = next(iter(right.items()))
            smallest = torch.finfo(out.dtype).smallest_normal
            wrong = {
                "NaN turned into 0": out.nan_to_num(0.0, math.inf, -math.inf),
                "-inf as inf * 0": _nan_where_minus_infinity(inputs, out),
                "subnormals lost": out.masked_fill(out.abs() < smallest, 0.0),
            }
            for fault, result in wrong.items():
                # Another sign of zero, or another NaN, is no other number.
                other = (result != out) & ~(result.isnan() & out.isnan())
                plantable[fault] |= bool(other.any())
                spoilt = right | {name: result}
                caught[fault] |= complaint_about(context, inputs, mode, spoilt) is not None
        faults += [
            f"did not catch '{fault}' ({short(dtype)})"
            for fault, hit in caught.items()
            if plantable[fault] and not hit
        ]
        if not any(plantable.values()):
            faults.append(f"nothing to plant: no result is special ({short(dtype)})")
    return faults


def _nan_where_minus_infinity(inputs: Inputs, right: Tensor) -> Tensor:
    hit = torch.zeros(right.shape, dtype=torch.bool)
    for tensor in tensors(inputs).values():
        if broadcasts(tensor, right.shape):
            hit |= (tensor.cpu() == -math.inf).broadcast_to(right.shape)
    return right.masked_fill(hit, math.nan)
