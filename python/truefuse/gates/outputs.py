"""What comes back: shape, dtype, device, strides, its own storage; and inputs left as they were."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from truefuse.case import Inputs, Mode
from truefuse.context import Context, describe, short
from truefuse.gates.proof import unproven
from truefuse.verdict import Result, Status

NAME = "outputs"
SIZE = (5, 24)


def run(context: Context) -> Result:
    eager = next(iter(context.case.baselines.values()))
    planted = {
        "an output that is an input": lambda *tensors, **mode: tensors[0],
        "an output inside an input's storage": _inside_an_input(eager),
        "an input overwritten": _overwrites(eager),
        "another shape": lambda *tensors, **mode: eager(*tensors, **mode).unsqueeze(0),
        "another dtype": lambda *tensors, **mode: _other_dtype(eager(*tensors, **mode)),
        "transposed strides": lambda *tensors, **mode: _transposed(eager(*tensors, **mode)),
        "no tensor": lambda *tensors, **mode: [],
    }
    unknown = unproven(NAME, context, examine, planted, eager)
    if unknown:
        return unknown
    complaint = examine(context)
    if complaint:
        what, _, where = complaint.partition(" | ")
        wanted, got = what.split(": ", 1)
        return Result(
            NAME, Status.FAIL, "output-error", what, expected=wanted, got=got, first=where
        )
    return Result(
        NAME,
        Status.PASS,
        "as-declared",
        "shape, dtype, device and strides right · fresh storage · inputs untouched",
    )


def examine(context: Context) -> str:
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            inputs = context.inputs(SIZE, dtype, context.case.kinds[0], NAME)
            before = {name: tensor.clone() for name, tensor in inputs.items()}
            wanted = context.eager(before, mode)
            complaint = _complaint(context.candidate(inputs, mode), wanted, inputs, before)
            if complaint:
                return f"{complaint} | {describe(before, mode)}"
    return ""


def _complaint(result: Any, wanted: Tensor, inputs: Inputs, before: Inputs) -> str:
    """ "what is wanted: what came", or nothing."""
    if not isinstance(result, Tensor):
        return f"one tensor: {type(result).__name__}"
    for what, got, want in (
        ("shape", list(result.shape), list(wanted.shape)),
        ("dtype", short(result.dtype), short(wanted.dtype)),
        ("device", str(result.device), str(wanted.device)),
        ("strides", list(result.stride()), list(wanted.stride())),
    ):
        if got != want:
            return f"{what} {want}: {got}"
    for name, tensor in inputs.items():
        if not same_bits(tensor, before[name]):
            return f"'{name}' left as it was: it was overwritten"
        if result.numel() and _storage(result) == _storage(tensor):
            return f"an output with storage of its own: it shares that of '{name}'"
    return ""


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, so that NaN equals itself and -0 does not equal +0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _other_dtype(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64 if tensor.dtype == torch.float32 else torch.float32)


def _transposed(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def _overwrites(eager):
    def candidate(*tensors: Tensor, **mode: Mode) -> Tensor:
        result = eager(*tensors, **mode)
        tensors[0].zero_()
        return result

    return candidate


def _inside_an_input(eager):
    def candidate(*tensors: Tensor, **mode: Mode) -> Tensor:
        target = tensors[0]
        target.copy_(eager(*tensors, **mode))
        return target.view(-1).view(target.shape)

    return candidate
