"""swish and the gated forms on a real device: values, gradients, layouts, sizes, capture, tracing."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import truefuse

_spec = importlib.util.spec_from_file_location(
    "activations", Path(__file__).resolve().parents[1] / "operators" / "common" / "activations.py"
)
activations = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = activations  # dataclasses look their module up
_spec.loader.exec_module(activations)
ALL, DTYPES = activations.ALL, activations.DTYPES
TOLERANCE = {torch.float32: 4e-6, torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def assert_right(activation, tensors, grad) -> None:
    """Values and gradients against eager in float64."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    wide = [t.detach().double().requires_grad_() for t in tensors]
    out, expected = activation(*leaves), activation.eager(*wide)
    tolerance = TOLERANCE[tensors[0].dtype]
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    got = torch.autograd.grad(out, leaves, grad)
    want = torch.autograd.grad(expected, wide, grad.double())
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("activation", "dtype"), itertools.product(ALL, DTYPES), ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (257, 1023), (64, 1024), (3, 5, 48)], ids=str)
def test_values_and_gradients(activation, dtype, shape) -> None:
    torch.manual_seed(0)
    tensors = activation.tensors(*shape, dtype=dtype, device="cuda")
    grad = torch.randn(shape, device="cuda").to(dtype)
    assert_right(activation, tensors, grad)
    assert_right(activation, tensors, torch.ones((), device="cuda", dtype=dtype).expand(shape))
    assert_right(activation, tensors, grad.mT.contiguous().mT if len(shape) > 1 else grad)
    # Memory that begins one element past an aligned address.
    shifted = [torch.cat((t.flatten()[:1], t.flatten()))[1:].view(t.shape) for t in tensors]
    assert_right(activation, shifted, grad)


@pytest.mark.parametrize("shape", [(65_536, 1), (4_194_304, 1), (65_537, 8)], ids=str)
def test_grid_limits(shape) -> None:
    for activation in ALL[:2] + ALL[4:7:2]:
        tensors = activation.tensors(*shape, dtype=torch.bfloat16, device="cuda")
        assert_right(activation, tensors, torch.ones(shape, device="cuda", dtype=torch.bfloat16))


def test_more_than_two_to_the_31_elements() -> None:
    rows, hidden = (1 << 18) + 1, 8192
    packed = torch.empty(rows, 2 * hidden, device="cuda", dtype=torch.bfloat16)
    packed.uniform_(-4, 4)
    out = truefuse.swiglu_packed(packed, packing="gate|up", gate_rounding="none")
    for part in (slice(0, 2), slice(-2, None)):
        gate, up = packed[part].double().chunk(2, -1)
        torch.testing.assert_close(out[part].double(), F.silu(gate) * up, rtol=8e-3, atol=1e-6)
    x = packed.view(-1)
    y = truefuse.swish(x)
    torch.testing.assert_close(y[-100:].double(), F.silu(x[-100:].double()), rtol=8e-3, atol=1e-6)


def has_memory(gigabytes: float) -> bool:
    return torch.cuda.is_available() and torch.cuda.mem_get_info()[1] > gigabytes * 1e9


@pytest.mark.skipif(not has_memory(40), reason="a smaller GPU")
def test_gradients_of_more_than_two_to_the_31_elements() -> None:
    """Each beside eager in float64 at both ends."""
    packed = torch.empty((1 << 18) + 1, 2 * 8192, device="cuda", dtype=torch.bfloat16)
    packed.uniform_(-4, 4).requires_grad_()
    # One element for all, and more than 2^31 of them in memory.
    grad = torch.full((), 0.5, device="cuda", dtype=torch.bfloat16)

    def slope(activation, x):
        wide = x.detach().double().requires_grad_()
        out = activation(wide)
        return torch.autograd.grad(out, wide, torch.full_like(out, 0.5))[0]

    def gated(x):
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    out = truefuse.swiglu_packed(packed, packing="gate|up", gate_rounding="none")
    for given in (grad.expand(out.shape), grad.expand(out.shape).contiguous()):
        (found,) = torch.autograd.grad(out, packed, given, retain_graph=True)
        for part in (slice(0, 2), slice(-2, None)):
            want = slope(gated, packed[part])
            torch.testing.assert_close(found[part].double(), want, rtol=1.6e-2, atol=1e-6)
    del out, found
    x = packed.detach().view(-1).requires_grad_()
    (found,) = torch.autograd.grad(truefuse.swish(x), x, grad.expand(x.shape))
    for part in (slice(0, 100), slice(-100, None)):
        want = slope(F.silu, x[part])
        torch.testing.assert_close(found[part].double(), want, rtol=1.6e-2, atol=1e-6)


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_a_gradient_alone_at_an_odd_address(activation) -> None:
    tensors = activation.tensors(5, 64, dtype=torch.bfloat16, device="cuda")
    assert_right(activation, tensors, torch.randn(321, device="cuda").bfloat16()[1:].view(5, 64))


@pytest.mark.parametrize("activation", ALL, ids=str)
@pytest.mark.parametrize("shape", [(0, 8), (4, 0)], ids=str)
def test_empty(activation, shape) -> None:
    leaves = [t.requires_grad_() for t in activation.tensors(*shape, dtype=torch.float32, device="cuda")]  # fmt: skip
    out = activation(*leaves)
    assert out.shape == shape
    for found, leaf in zip(torch.autograd.grad(out.sum(), leaves), leaves, strict=True):
        assert found.shape == leaf.shape


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_the_current_stream_is_used(activation) -> None:
    """What the stream writes late is what is read."""
    late = activation.tensors(64, 256, dtype=torch.float32, device="cuda")
    grad = torch.randn(64, 256, device="cuda")
    tensors = [torch.zeros_like(t).requires_grad_() for t in late]
    assert_right(activation, late, grad)  # Compiles.
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        with torch.no_grad():
            for tensor, value in zip(tensors, late, strict=True):
                tensor.copy_(value)
        out = activation(*tensors)
        gradients = torch.autograd.grad(out, tensors, grad)
    stream.synchronize()
    leaves = [t.requires_grad_() for t in late]
    want = activation(*leaves)
    torch.testing.assert_close(out, want, rtol=0, atol=0)
    torch.testing.assert_close(gradients, torch.autograd.grad(want, leaves, grad), rtol=0, atol=0)


@pytest.mark.skipif(not has_memory(16), reason="a smaller GPU")
def test_elements_further_apart_than_32_bits_reach() -> None:
    """A block's neighbours lie 2^22 elements apart, and its next ones beyond 2^32."""
    memory = torch.zeros(1300, 1 << 22, device="cuda", dtype=torch.bfloat16)
    columns = torch.randn(3, 1300, device="cuda").bfloat16()
    memory[:, :3] = columns.mT
    x, up, grad = memory[:, 0], memory[:, 1], memory[:, 2]
    for function in (
        truefuse.swish,
        lambda t: truefuse.swiglu(t, up if t.stride(0) > 1 else columns[1], gate_rounding="none"),
    ):
        leaf, near = x.detach().requires_grad_(), columns[0].clone().requires_grad_()
        out, want = function(leaf), function(near)
        torch.testing.assert_close(out, want, rtol=0, atol=0)
        (found,) = torch.autograd.grad(out, leaf, grad)
        (expected,) = torch.autograd.grad(want, near, columns[2])
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_swish_of_channels_last() -> None:
    x = torch.randn(8, 3, 17, 19, device="cuda").to(memory_format=torch.channels_last)
    leaf = x.requires_grad_()
    out = truefuse.swish(leaf)
    assert out.stride() == x.stride()
    (grad,) = torch.autograd.grad(out.sum(), leaf)
    assert grad.stride() == x.stride()
    torch.testing.assert_close(out, F.silu(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(dtype) -> None:
    infinity, huge = float("inf"), torch.finfo(dtype).max
    special = [-infinity, infinity, float("nan"), -0.0, 0.0, huge, -huge]
    x = torch.tensor(special * 9, dtype=dtype, device="cuda", requires_grad=True)
    value = torch.tensor([-0.0, infinity, float("nan"), -0.0, 0.0, huge, -0.0] * 9, dtype=dtype)
    slope = torch.tensor([0, 1, float("nan"), 0.5, 0.5, 1, 0] * 9, dtype=dtype)
    out = truefuse.swish(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    exact = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(out.cpu(), value, **exact)
    torch.testing.assert_close(grad.cpu(), slope, **exact)


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_graph_replays_forward_and_backward_with_new_inputs(activation) -> None:
    static = [t.requires_grad_() for t in activation.tensors(32, 256, dtype=torch.float32, device="cuda")]  # fmt: skip
    grad = torch.randn(32, 256, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            torch.autograd.grad(activation(*static), static, grad)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = activation(*static)
        gradients = torch.autograd.grad(out, static, grad)
    for _ in range(3):
        with torch.no_grad():
            for tensor in [*static, grad]:
                tensor.normal_()
        graph.replay()
        expected = activation(*static)
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
        want = torch.autograd.grad(expected, static, grad)
        torch.testing.assert_close(gradients, want, rtol=0, atol=0)


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_opcheck_and_inductor(activation) -> None:
    leaves = [t.requires_grad_() for t in activation.tensors(5, 24, dtype=torch.float32, device="cuda")]  # fmt: skip
    torch.library.opcheck(activation.operator, leaves, activation.mode)
    torch._dynamo.reset()  # all of these trace one function, and PyTorch counts its graphs
    compiled = torch.compile(lambda *t: activation(*t) * 2, fullgraph=True, dynamic=True)
    for rows in (3, 5, 9):
        tensors = activation.tensors(rows, 24, dtype=torch.float32, device="cuda")
        torch.testing.assert_close(compiled(*tensors), activation(*tensors) * 2)


def test_peak_memory_is_one_output() -> None:
    gate, up = torch.randn(2, 4096, 4096, device="cuda", dtype=torch.bfloat16)
    truefuse.swiglu(gate, up, gate_rounding="none")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = truefuse.swiglu(gate, up, gate_rounding="none")
    assert torch.cuda.max_memory_allocated() - before <= out.nbytes + (1 << 20)


def test_second_gpu() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = torch.randn(8, 16, device="cuda:1", requires_grad=True)
    truefuse.swish(x).sum().backward()
    torch.testing.assert_close(truefuse.swish(x), F.silu(x))
