"""The two gates of gradients: what they catch, in every dtype, and whom they let pass."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from truefuse import derivatives, gates
from truefuse.case import Case
from truefuse.context import HALF_TYPES, Context
from truefuse.gates import gradients as gate
from truefuse.verdict import Status

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def slopes(v, approximate):
    """The derivative of GELU as two summands, from tables of derivatives: Phi(v) + v phi(v)."""
    if approximate == "none":
        return 0.5 * torch.special.erfc(-v * math.sqrt(0.5)), v * torch.exp(-v * v / 2) / math.sqrt(
            2 * math.pi
        )
    twice = 2 * math.sqrt(2 / math.pi)
    s, rest = (torch.sigmoid(sign * twice * (v + 0.044715 * v**3)) for sign in (1, -1))
    return s, v * s * rest * twice * (1 + 3 * 0.044715 * v * v)


def true_gradients(sent, x, bias, *, approximate):
    slope = sent * sum(slopes(x + bias, approximate))
    return slope, slope.sum_to_size(bias.shape)


def sizes(sent, x, bias, *, approximate):
    first, second = ((sent * part).abs() for part in slopes(x + bias, approximate))
    largest = first.maximum(second)
    return largest, largest.square().sum_to_size(bias.shape).sqrt()


def precise(x, bias, *, approximate):
    """Rounded once, differentiable twice. (The exact form of PyTorch 2.5 in float32 is off by more than half
    an ulp of float16 in the tail.)"""
    wide = x.double() + bias.double() if x.dtype in HALF_TYPES else x + bias
    return F.gelu(wide, approximate=approximate).to(x.dtype)


def other_form(x, bias, *, approximate):
    return precise(x, bias, approximate="none" if approximate == "tanh" else "tanh")


class HalfPrecise(torch.autograd.Function):
    """The right result, with the gradient of the other form."""

    @staticmethod
    def forward(ctx, x, bias, approximate):
        ctx.save_for_backward(x, bias)
        ctx.other = "none" if approximate == "tanh" else "tanh"
        return precise(x, bias, approximate=approximate)

    @staticmethod
    def backward(ctx, gradient):
        x, bias = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            out = precise(x, bias, approximate=ctx.other)
            return *torch.autograd.grad(out, (x, bias), gradient, create_graph=True), None


@pytest.fixture
def trained(bias_gelu):
    case: Case = replace(
        bias_gelu,
        candidate=precise,
        gradients=("x", "bias"),
        reference_gradients=true_gradients,
        gradient_scale=sizes,
        kinds=("normal", "zero_bias"),
        numeric_size=(64, 256),
    )
    return Context(case, torch.device("cpu"), 1, "mine", bias_gelu.contract)


def run(context, module, dtype=None, **changes):
    changes |= {"dtypes": (dtype,)} if dtype else {}
    return gates.run_one(module, replace(context, case=replace(context.case, **changes)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_honest_gradients_are_accepted(trained, dtype):
    found = run(trained, gate, dtype)
    assert found.status is Status.PASS, found
    assert {row["result"] for row in found.numbers["table"]} == {
        "gradient of x",
        "gradient of bias",
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("approximate", ["tanh", "none"])
def test_one_gelu_offered_as_the_other(trained, dtype, approximate):
    """Forward and backward, either way round."""
    modes = ({"approximate": approximate},)
    forward = run(trained, gates.numerics, dtype, modes=modes, candidate=other_form)
    assert (forward.status, forward.reason) == (Status.FAIL, "binade-error"), forward

    def only_backward(x, bias, *, approximate):
        return HalfPrecise.apply(x, bias, approximate)

    right = run(trained, gates.numerics, dtype, modes=modes, candidate=only_backward)
    assert right.status is Status.PASS, right
    backward = run(trained, gate, dtype, modes=modes, candidate=only_backward)
    assert (backward.status, backward.reason) == (Status.FAIL, "binade-error"), backward
    assert backward.expected and backward.got and "gradient of" in backward.first


def test_bias_gradient_summed_in_half_precision(trained):
    class SumsInHalf(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, bias, approximate):
            ctx.save_for_backward(x, bias)
            ctx.approximate = approximate
            return precise(x, bias, approximate=approximate)

        @staticmethod
        def backward(ctx, gradient):
            x, bias = ctx.saved_tensors
            slope = true_gradients(
                gradient.double(), x.double(), bias.double(), approximate=ctx.approximate
            )[0].to(x.dtype)
            total = torch.zeros_like(bias)
            for row in slope:
                total = total + row
            return slope, total, None

    found = run(
        trained,
        gate,
        torch.bfloat16,
        candidate=lambda x, bias, approximate: SumsInHalf.apply(x, bias, approximate),
    )
    assert found.status is Status.FAIL and "gradient of bias" in found.first, found


def test_without_declared_gradients_none_is_judged(trained):
    found = run(trained, gate, gradients=())
    assert (found.status, found.reason) == (Status.PASS, "none-declared")


def test_reference_that_cannot_be_differentiated_is_unknown(trained):
    def overflowing(x, bias, *, approximate):
        v = x + bias
        return v / (1 + torch.exp(-1.702 * v))  # autograd: inf / inf

    found = run(
        trained,
        gate,
        torch.float32,
        reference=overflowing,
        reference_gradients=None,
        kinds=("sweep",),
    )
    assert (found.status, found.reason) == (Status.UNKNOWN, "reference-without-gradient")


def test_a_mistake_that_no_gradient_shows_makes_the_gate_unknown(trained):
    def tiny(inputs, mode):
        return {**inputs, "x": inputs["x"] * (1 + 2.0**-30)}, mode

    found = run(trained, gate, torch.float64, faults={"hardly a mistake": tiny})
    assert found.status is Status.PASS, found  # float64 shows it
    found = run(
        trained,
        gate,
        torch.float32,
        faults={"hardly": lambda inputs, mode: (inputs, mode)},
    )
    assert found.status is Status.PASS  # no change at all is no mistake of the gradient


def test_declared_gradients_may_not_be_refused(trained):
    def refuses(x, bias, *, approximate):
        if torch.is_grad_enabled() and (x.requires_grad or bias.requires_grad):
            raise RuntimeError("no gradient here")
        return precise(x, bias, approximate=approximate)

    found = run(trained, gates.training, candidate=refuses)
    assert (found.status, found.got) == (Status.FAIL, "no gradient here")
    assert run(trained, gates.training, candidate=refuses, gradients=()).reason == "refused"


def with_backward(backward):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, bias, approximate):
            ctx.save_for_backward(x, bias)
            ctx.approximate = approximate
            return precise(x, bias, approximate=approximate)

    Function.backward = staticmethod(backward)
    return lambda x, bias, *, approximate: Function.apply(x, bias, approximate)


def first_derivative(ctx, gradient):
    x, bias = (t.detach().double() for t in ctx.saved_tensors)
    found = true_gradients(gradient.double(), x, bias, approximate=ctx.approximate)
    return *(t.to(gradient.dtype) for t in found), None


def test_twice_may_be_refused_in_words(trained):
    def backward(ctx, gradient):
        if torch.is_grad_enabled():
            raise RuntimeError("there is no second derivative")
        return first_derivative(ctx, gradient)

    found = run(trained, gates.training, candidate=with_backward(backward))
    assert found.status is Status.PASS and "second derivatives" in found.lines[1], found


def test_twice_may_not_be_silent(trained):
    """PyTorch's once_differentiable is silent where the incoming gradient is a constant."""
    once = torch.autograd.function.once_differentiable(first_derivative)
    found = run(trained, gates.training, candidate=with_backward(once))
    assert (found.status, found.got) == (
        Status.FAIL,
        "second derivatives are silently missing",
    ), found


class Squared(torch.autograd.Function):
    """Its gradient is a constant, or refuses to be differentiated."""

    @staticmethod
    def forward(ctx, x, refusal):
        ctx.save_for_backward(x)
        ctx.refusal = refusal
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        if ctx.refusal and torch.is_grad_enabled():
            raise RuntimeError(ctx.refusal)
        return 2 * x.detach() * gradient, None


@pytest.mark.parametrize(
    ("function", "has"),
    [
        (lambda x: x - x.mean(-1, keepdim=True), False),
        (lambda x: torch.nn.functional.leaky_relu(x, 0.125), False),
        (lambda x: x * x, True),
        (lambda x: torch.softmax(x, -1), True),  # whose gradients sum to zero
        (lambda x: Squared.apply(x, None), False),  # nothing is recorded
        (lambda x: Squared.apply(x, "not twice"), True),
    ],
)
def test_only_what_is_curved_has_a_second_derivative(function, has):
    x, sent = torch.randn((2, 3, 5), dtype=torch.float64)
    assert derivatives.has_second(function, {"x": x}, {}, ("x",), (sent,)) is has


def test_second_derivatives_by_inputs_and_by_incoming_gradients():
    x, sent = torch.randn((2, 3, 5), dtype=torch.float64)
    found = derivatives.second(lambda x: x**3, {"x": x}, {}, ("x",), (sent,))
    first = 3 * x**2 * sent  # whose squares are derived, one factor held
    assert torch.allclose(found["by x"], first * 6 * x * sent)
    assert torch.allclose(found["by incoming gradient 0"], first * 3 * x**2)


def test_layouts_of_an_incoming_gradient_hold_the_same_values():
    gradient = torch.randn(3, 4)
    made = derivatives.layouts(gradient)
    for name in ("contiguous", "narrow", "every second element", "transposed"):
        assert torch.equal(made[name], gradient)
    assert made["stride 0, from sum"].stride() == (0, 0)
    assert made["stride 0, one number for all"].stride() == (0, 0)
    assert bool((made["stride 0, one number for all"] != 1).all())
    assert made["one row for all"].stride(0) == 0


def test_gradients_and_mutation_are_two_cases(trained):
    with pytest.raises(ValueError, match="both gradients and mutates"):
        replace(trained.case, mutates=("x",))
