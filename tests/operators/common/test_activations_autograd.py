"""swish and the gated forms inside PyTorch: derivatives of any order, tracing, batching, autocast."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from activations import ALL, DTYPES, parts
from torch import nn

import truefuse


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_higher_derivatives(activation) -> None:
    torch.manual_seed(0)
    leaves = [t.requires_grad_() for t in activation.tensors(2, 3, dtype=torch.float64)]
    assert torch.autograd.gradcheck(activation, leaves)
    assert torch.autograd.gradgradcheck(activation, leaves)


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_a_gradient_penalty(activation) -> None:
    def penalised(function, leaves):
        out = function(*leaves)
        (first,) = torch.autograd.grad(out.sum(), leaves[:1], create_graph=True)
        (out.sum() + (first**2).sum()).backward()
        return [leaf.grad for leaf in leaves]

    tensors = activation.tensors(4, 6, dtype=torch.float64)
    ours = penalised(activation, [t.clone().requires_grad_() for t in tensors])
    eager = penalised(activation.eager, [t.clone().requires_grad_() for t in tensors])
    torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ALL, ids=str)
def test_a_gradient_is_the_same_where_it_is_differentiated_again(activation, dtype) -> None:
    """Also at the infinities, where x^2 overflows, and in the tail, where 1 + erf and 1 + tanh cancel."""
    infinity, huge = float("inf"), torch.finfo(dtype).max
    special = [infinity, -infinity, huge, -huge, float("nan"), -0.0, 1.0, -2.0, -5.5, -6.0, -8.0]
    gate = torch.tensor(special, dtype=dtype)
    tensors = [gate, torch.full_like(gate, 0.5)][: activation.inputs]
    if activation.width == 2:
        mode, tensors = activation.mode["packing"], [torch.full((len(gate) * 2,), 0.5, dtype=dtype)]
        parts(tensors[0], mode)[0].copy_(gate)
    leaves = [t.requires_grad_() for t in tensors]
    grad = torch.full((len(gate),), 1.0, dtype=dtype)
    once = torch.autograd.grad(activation(*leaves), leaves, grad)
    again = torch.autograd.grad(activation(*leaves), leaves, grad, create_graph=True)
    unit = torch.finfo(torch.float32 if dtype.itemsize == 2 else dtype).eps
    step = torch.finfo(dtype).smallest_normal  # half types: one rounding of values that agree
    rtol = 256 * unit if dtype.itemsize > 2 else torch.finfo(dtype).eps
    for ours, theirs in zip(again, once, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=step, equal_nan=True)
    of_gate = again[0] if activation.width == 1 else parts(again[0], mode)[0]
    (second,) = torch.autograd.grad(of_gate.sum(), leaves[:1])
    second = second if activation.width == 1 else parts(second, mode)[0]
    assert second[:4].tolist() == [0, 0, 0, 0] and second[4].isnan()


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_opcheck(activation) -> None:
    for tensors in (activation.tensors(3, 8, dtype=torch.float32), activation.tensors(7, dtype=torch.float32)):  # fmt: skip
        leaves = [t.requires_grad_() for t in tensors]
        torch.library.opcheck(activation.operator, leaves, activation.mode)
    flags = {"swish": ["x"], "swiglu": ["gate", "up"], "geglu": ["gate", "up"]}
    wanted = {f"{n}_wanted": True for n in flags.get(activation.name, ["packed"])}
    backward = getattr(torch.ops.truefuse, activation.name + "_backward").default
    tensors = activation.tensors(3, 8, dtype=torch.float32)
    torch.library.opcheck(backward, [torch.randn(3, 8), *tensors], {**activation.mode, **wanted})


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_one_graph_for_five_row_counts(activation) -> None:
    torch._dynamo.reset()  # It counts the graphs of one line of code over all tests.
    graphs = []

    def backend(module, example_inputs):
        graphs.append(module)
        return module.forward

    compiled = torch.compile(lambda *t: activation(*t) + 1, fullgraph=True, dynamic=True, backend=backend)  # fmt: skip
    for rows in (3, 4, 5, 7, 64):
        tensors = activation.tensors(rows, 16, dtype=torch.float32)
        torch.testing.assert_close(compiled(*tensors), activation(*tensors) + 1)
    assert len(graphs) == 1


def test_channels_last_is_one_graph_too() -> None:
    torch._dynamo.reset()  # It counts the graphs of one line of code over all tests.
    graphs = []

    def backend(module, example_inputs):
        graphs.append(module)
        return module.forward

    compiled = torch.compile(truefuse.swish, fullgraph=True, dynamic=True, backend=backend)
    for rows in (2, 3, 5, 8):
        x = torch.randn(rows, 3, 4, 5).to(memory_format=torch.channels_last)
        assert compiled(x).is_contiguous(memory_format=torch.channels_last)
    assert len(graphs) == 1


@pytest.mark.parametrize("activation", ALL[:2] + ALL[4:5], ids=str)
def test_compiled_training_agrees(activation) -> None:
    compiled = torch.compile(activation, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 5):
        tensors = activation.tensors(rows, 16, dtype=torch.float32)
        results = []
        for function in (compiled, activation):
            leaves = [t.clone().requires_grad_() for t in tensors]
            function(*leaves).square().sum().backward()
            results.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(results[0], results[1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("activation", ALL, ids=str)
def test_vmap(activation) -> None:
    tensors = activation.tensors(3, 4, 6, dtype=torch.float32)
    for dim in (0, 1):
        got = torch.vmap(activation, in_dims=dim, out_dims=dim)(*tensors)
        torch.testing.assert_close(got, activation(*tensors))
    if activation.inputs == 2:
        got = torch.vmap(activation, in_dims=(0, None))(tensors[0], tensors[1][0])
        torch.testing.assert_close(got, activation(tensors[0], tensors[1][0].expand(3, 4, 6)))


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_inference_mode_and_refused_forward_mode(activation) -> None:
    tensors = activation.tensors(2, 4, dtype=torch.float32)
    with torch.inference_mode():
        assert activation(*tensors).is_inference()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tensors[0], torch.ones_like(tensors[0]))
        with pytest.raises(RuntimeError, match="forward-mode"):
            activation(dual, *tensors[1:])


def test_autocast_follows_the_gate() -> None:
    gate, up = torch.randn(3, 8, dtype=torch.bfloat16), torch.randn(3, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="up is float32"):
        truefuse.swiglu(gate, up, gate_rounding="none")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = truefuse.swiglu(gate, up, gate_rounding="none")
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert up.grad.dtype == torch.float32


def test_only_the_gradients_that_are_wanted() -> None:
    gate, up = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8)
    truefuse.swiglu(gate, up, gate_rounding="none").sum().backward()
    assert gate.grad is not None and up.grad is None
    one, other = torch.ops.truefuse.swiglu_backward(
        torch.ones(3, 8), gate.detach(), up, gate_rounding="none", gate_wanted=False, up_wanted=True
    )
    assert one.shape == (0,)
    torch.testing.assert_close(other, torch.nn.functional.silu(gate.detach()))


class Reference(nn.Module):
    """A feed-forward block as published models write it."""

    def __init__(self, packed: bool, activation: nn.Module) -> None:
        super().__init__()
        if packed:
            self.gate_up_proj = nn.Linear(8, 24, bias=False)
        else:
            self.gate_proj = nn.Linear(8, 12, bias=False)
            self.up_proj = nn.Linear(8, 12, bias=False)
        self.down_proj = nn.Linear(12, 8, bias=False)
        self.activation = activation

    def forward(self, x):
        if hasattr(self, "gate_proj"):
            gate, up = self.gate_proj(x), self.up_proj(x)
        else:
            gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(self.activation(gate) * up)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_modules_take_the_state_of_what_they_replace(dtype) -> None:
    torch.manual_seed(0)
    form, rounding = {"approximate": "tanh"}, {"gate_rounding": "storage"}
    halves = {"packing": "gate|up"}
    for reference, module in (
        (Reference(False, nn.SiLU()), truefuse.nn.SwiGLU(8, 12, **rounding)),
        (Reference(False, nn.GELU("tanh")), truefuse.nn.GeGLU(8, 12, **form, **rounding)),
        (Reference(True, nn.SiLU()), truefuse.nn.PackedSwiGLU(8, 12, **halves, **rounding)),
        (Reference(True, nn.GELU("tanh")), truefuse.nn.PackedGeGLU(8, 12, **halves, **form, **rounding)),
        (nn.SiLU(), truefuse.nn.Swish()),
    ):  # fmt: skip
        module.load_state_dict(reference.state_dict())
        reference.to(dtype), module.to(dtype)
        x = torch.randn(5, 8, dtype=torch.float64).to(dtype).requires_grad_()
        torch.testing.assert_close(module(x), reference(x), rtol=2e-2, atol=2e-2)
        if dtype == torch.float64:
            torch.testing.assert_close(module(x), reference(x))
            module(x).sum().backward()
