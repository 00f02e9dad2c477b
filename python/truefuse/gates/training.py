"""Where gradients are asked for: the right ones, or a refusal in words. Never silence."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from truefuse.case import Inputs, Mode
from truefuse.context import Context, describe
from truefuse.verdict import Result, Status

NAME = "training"
SIZE = (3, 5)


def run(context: Context) -> Result:
    eager = next(iter(context.case.baselines.values()))
    dtype = torch.float64 if torch.float64 in context.case.dtypes else context.case.dtypes[0]
    inputs = context.inputs(SIZE, dtype, context.case.kinds[0], NAME)
    outcomes = []
    for mode in context.case.modes:
        planted = examine(lambda *t, **m: eager(*t, **m).detach(), eager, inputs, mode)
        honest = examine(eager, eager, inputs, mode)
        if planted[0] != Status.FAIL or honest[0] != Status.PASS:
            return Result(
                NAME, Status.UNKNOWN, "self-test-failed", f"cannot be trusted here: {honest[1]}"
            )
        status, found = examine(context.case.candidate, eager, inputs, mode)
        if status != Status.PASS:
            return Result(
                NAME,
                status,
                "gradient-error",
                found,
                expected="gradients as eager's, or a RuntimeError that says there are none",
                got=found,
                first=describe(inputs, mode),
            )
        outcomes.append(found)
    return Result(NAME, Status.PASS, "gradients-or-refusal", "; ".join(dict.fromkeys(outcomes)))


def examine(candidate, eager, inputs: Inputs, mode: Mode) -> tuple[Status, str]:
    with torch.enable_grad():
        try:
            got = _gradients(candidate, inputs, mode)
        except RuntimeError as error:
            text = str(error).splitlines()[0]
            if re.search(r"grad|backward|training|differentia", text, re.IGNORECASE):
                return Status.PASS, f"refused: {text}"
            return Status.FAIL, f"raises without a word of gradients: {text}"
        if got is None:
            return Status.FAIL, "gradients are silently missing"
        want = _gradients(eager, inputs, mode)
        for name, ours, theirs in zip(inputs, got, want, strict=True):
            if not torch.allclose(ours, theirs, rtol=1e-3, atol=1e-6):
                return Status.FAIL, f"the gradient of '{name}' is not eager's"
    return Status.PASS, "gradients as eager's"


def _gradients(function, inputs: Inputs, mode: Mode) -> tuple[Tensor, ...] | None:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs.values()]
    result = function(*leaves, **mode)
    if not result.requires_grad:
        return None
    weights = torch.linspace(0.5, 1.5, result.numel(), device=result.device, dtype=result.dtype)
    return torch.autograd.grad(result, leaves, weights.reshape(result.shape))
