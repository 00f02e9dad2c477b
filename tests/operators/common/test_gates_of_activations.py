"""The operators through the gates, in short: honest ones pass, the other form offered in place of this
one is caught in every dtype, forward and backward."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from truefuse import case as cases
from truefuse import gates
from truefuse.case import Case
from truefuse.context import Context
from truefuse.verdict import Status
from truefuse.worker import contract_of

OPERATORS = ("bias_gelu", "swish", "swiglu", "geglu", "swiglu_packed", "geglu_packed")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def short(name: str) -> Case:
    """Fewer numbers; every rule, dtype and mode."""
    return replace(
        cases.load(name),
        numeric_size=(32, 256),
        special_sizes=((1, 1), (1, 33)),
        rank_sizes=((8,), (2, 3, 8)),
    )


def run(case: Case, gate: str):
    context = Context(case, torch.device("cpu"), 3, "case.py", contract_of(case))
    return gates.run_one(next(one for one in gates.GATES if gate == one.NAME), context)


@pytest.mark.parametrize("gate", ["contract", "numerics", "special", "gradients"])
@pytest.mark.parametrize("name", OPERATORS)
def test_honest_operators_pass(name: str, gate: str) -> None:
    found = run(short(name), gate)
    assert found.status is Status.PASS, found


def other(mode: dict) -> dict:
    return {**mode, "approximate": "none" if mode["approximate"] == "tanh" else "tanh"}


class OtherGradient(torch.autograd.Function):
    """The right result with the gradients of the other form."""

    @staticmethod
    def forward(ctx, function, mode, *tensors):
        ctx.function, ctx.mode = function, other(mode)
        ctx.save_for_backward(*tensors)
        with torch.no_grad():
            return function(*tensors, **mode)

    @staticmethod
    def backward(ctx, gradient):
        leaves = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            out = ctx.function(*leaves, **ctx.mode)
        return None, None, *torch.autograd.grad(out, leaves, gradient)


@pytest.mark.parametrize("form", ["tanh", "none"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["bias_gelu", "geglu"])
def test_the_other_form_is_caught(name: str, dtype: torch.dtype, form: str) -> None:
    case = short(name)
    honest = case.candidate
    modes = tuple(mode for mode in case.modes if mode["approximate"] == form)
    case = replace(case, dtypes=(dtype,), modes=modes)
    forward = replace(case, candidate=lambda *tensors, **mode: honest(*tensors, **other(mode)))
    found = run(forward, "numerics")
    assert (found.status, found.reason) == (Status.FAIL, "binade-error"), found
    backward = replace(
        case, candidate=lambda *tensors, **mode: OtherGradient.apply(honest, mode, *tensors)
    )
    assert run(backward, "numerics").status is Status.PASS
    found = run(backward, "gradients")
    assert (found.status, found.reason) == (Status.FAIL, "binade-error"), found
