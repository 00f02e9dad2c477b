"""The gradients of bias_gelu on a real device: values, layouts, sizes, streams, capture, determinism."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import truefuse

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FORMS = ["tanh", "none"]
# Of a derivative before it is rounded: the half types' approximations are good to some 0.03 ulp.
UNIT = {torch.float32: 2**-23, torch.float64: 2**-52, torch.float16: 2**-20, torch.bfloat16: 2**-15}
backward = torch.ops.truefuse.bias_gelu_backward


def inputs(dtype: torch.dtype, *sizes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """grad_out, x, bias"""
    generator = torch.Generator("cuda").manual_seed(seed)

    def random(*sizes: int) -> Tensor:
        return torch.randn(*sizes, device="cuda", generator=generator).to(dtype)

    return random(*sizes), random(*sizes) * 2, random(sizes[-1])


def assert_right(grad: Tensor, x: Tensor, bias: Tensor, form: str = "tanh") -> None:
    """Against float64; a sum over rows may be off by some float32 roundings of its terms."""
    leaves = [x.detach().requires_grad_(), bias.detach().requires_grad_()]
    out = truefuse.bias_gelu(*leaves, approximate=form)
    got = torch.autograd.grad(out, leaves, grad)
    v = (x.double() + bias.double()).requires_grad_()
    want = torch.autograd.grad(F.gelu(v, approximate=form), v, grad.double())[0]
    dtype = x.dtype
    eps = torch.finfo(dtype).eps
    compute = UNIT[dtype]
    magnitude = grad.double().abs()
    slack = eps * want.abs() + 16 * compute * magnitude + torch.finfo(dtype).tiny
    assert got[0].dtype == dtype and got[0].is_contiguous() and got[0].shape == x.shape
    assert ((got[0].double() - want).abs() <= slack).all()
    rows = tuple(range(x.dim() - 1))
    sums = want.sum(rows) if rows else want
    terms = magnitude.sum(rows) if rows else magnitude
    assert got[1].dtype == dtype and got[1].shape == bias.shape
    assert (
        (got[1].double() - sums).abs()
        <= eps * sums.abs() + 32 * compute * terms + torch.finfo(dtype).tiny
    ).all()


@pytest.mark.parametrize(("dtype", "form"), itertools.product(DTYPES, FORMS), ids=str)
def test_values(dtype: torch.dtype, form: str) -> None:
    for sizes in [(1, 1), (7, 33), (16, 64), (257, 1023), (1024, 768), (3, 5, 7, 11), (13,), (4096, 1024), (100_000, 8)]:  # fmt: skip
        assert_right(*inputs(dtype, *sizes), form)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layouts(dtype: torch.dtype) -> None:
    big_grad, big, bias = inputs(dtype, 6, 10, 64)
    grads = {
        "dense": big_grad,
        "of a sum": torch.ones((), device="cuda", dtype=dtype).expand(6, 10, 64),
        "of a row sum": big_grad[:1, :1].expand(6, 10, 64),
        "of a cat": torch.cat([big_grad, big_grad], -1)[..., 3:67],
        "transposed": inputs(dtype, 64, 10, 6)[0].permute(2, 1, 0),
        "unaligned": inputs(dtype, 6 * 10 * 64 + 1)[0][1:].view(6, 10, 64),
    }
    views = {
        "dense": big,
        "sliced": inputs(dtype, 6, 10, 80)[1][..., 8:72],
        "transposed leading": inputs(dtype, 10, 6, 64)[1].transpose(0, 1),
        "unaligned": inputs(dtype, 6 * 10 * 64 + 1)[1][1:].view(6, 10, 64),
        "expanded": big[:1, :1].expand(6, 10, 64),
    }
    for grad, x in itertools.product(grads, views):
        for b in (bias, torch.cat([bias, bias])[1::2][:64], bias[:1].expand(64)):
            try:
                assert_right(grads[grad], views[x], b)
            except AssertionError as error:
                raise AssertionError(f"grad_out {grad}, x {x}: {error}") from error


@pytest.mark.parametrize("shape", [(65536, 1), (65536, 3), (4194304, 1), (1, 1 << 22)], ids=str)
def test_grid_limits(shape: tuple[int, int]) -> None:
    assert_right(*inputs(torch.bfloat16, *shape))


@pytest.mark.parametrize("shape", [(262145, 8200), ((1 << 31) + 8, 1), (1, (1 << 31) + 8)], ids=str)
def test_more_than_two_to_the_31_elements(shape: tuple[int, int]) -> None:
    """Where x is 30 the derivative is 1: grad_x is grad_out, grad_bias its sum."""
    rows, hidden = shape
    x = torch.full((1, 1), 30.0, device="cuda", dtype=torch.bfloat16).expand(shape)
    x = x.contiguous()
    grad = torch.ones((), device="cuda", dtype=torch.bfloat16).expand(shape)
    bias = torch.zeros(hidden, device="cuda", dtype=torch.bfloat16)
    grad_x, grad_bias = backward(grad, x, bias, approximate="tanh", x_wanted=True, bias_wanted=True)
    assert grad_x.view(-1)[-4096:].eq(1).all() and grad_x.view(-1)[: 1 << 20].eq(1).all()
    assert grad_x.sum(dtype=torch.float64).item() == rows * hidden
    expected = torch.tensor(float(rows), dtype=torch.float64).bfloat16().item()
    assert grad_bias.eq(expected).all()


def test_limits_of_the_derivative() -> None:
    infinity = float("inf")
    for dtype, form in itertools.product(DTYPES, FORMS):
        huge = min(torch.finfo(dtype).max, 1e38)
        values = [-infinity, infinity, float("nan"), -0.0, huge, -huge, 0.0]
        want = torch.tensor([0, 1, float("nan"), 0.5, 1, 0, 0.5], device="cuda", dtype=dtype)
        for length in (1, 7, 8, 16, 33):
            x = torch.tensor(values * 5, device="cuda", dtype=dtype)[:length].requires_grad_()
            out = truefuse.bias_gelu(x, torch.zeros_like(x), approximate=form)
            got = torch.autograd.grad(out.sum(), x)[0]
            torch.testing.assert_close(got, want.repeat(5)[:length], rtol=1e-3, atol=0, equal_nan=True)  # fmt: skip


def test_the_same_bits_every_time() -> None:
    grad, x, bias = inputs(torch.bfloat16, 5000, 1024)
    wants = {"x_wanted": True, "bias_wanted": True}
    first = backward(grad, x, bias, approximate="tanh", **wants)
    for _ in range(20):
        again = backward(grad, x, bias, approximate="tanh", **wants)
        assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


def test_empty() -> None:
    for shape in [(0, 8), (4, 0), (0,), (2, 0, 3)]:
        x = torch.empty(shape, device="cuda", requires_grad=True)
        bias = torch.ones(shape[-1], device="cuda", requires_grad=True)
        truefuse.bias_gelu(x, bias, approximate="tanh").sum().backward()
        assert x.grad.shape == shape and torch.equal(bias.grad, torch.zeros_like(bias))


def test_side_stream_sees_its_late_producer_and_scratch_is_not_shared() -> None:
    tensors = [inputs(torch.float32, 4096, 1024, seed=seed) for seed in range(4)]
    wants = {"approximate": "tanh", "x_wanted": True, "bias_wanted": True}
    expected = [backward(*given, **wants) for given in tensors]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in tensors]
    results = []
    # Of this stream, and so all kept: another would get the memory while a side stream is at it.
    all_late = [torch.full_like(x, float("nan")) for _, x, _ in tensors]
    for stream, late, (grad, x, bias) in zip(streams, all_late, tensors, strict=True):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            late.copy_(x)
            results.append(backward(grad, late, bias, **wants))
    torch.cuda.synchronize()
    for got, want in zip(results, expected, strict=True):
        assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def test_a_training_step_is_captured_and_replayed() -> None:
    grad, x, bias = inputs(torch.bfloat16, 4096, 1024)
    x, bias = x.requires_grad_(), bias.requires_grad_()

    def step() -> tuple[Tensor, ...]:
        out = truefuse.bias_gelu(x, bias, approximate="tanh")
        return torch.autograd.grad(out, (x, bias), grad)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in (1, 2):
        fresh = inputs(torch.bfloat16, 4096, 1024, seed=seed)
        with torch.no_grad():
            grad.copy_(fresh[0])
            x.copy_(fresh[1])
        graph.replay()
        want = step()
        assert torch.equal(captured[0], want[0]) and torch.equal(captured[1], want[1])


def test_memory_of_a_training_step_is_one_gradient_and_small_change() -> None:
    grad, x, bias = inputs(torch.float32, 8192, 2048)
    wants = {"approximate": "tanh", "x_wanted": True, "bias_wanted": True}
    backward(grad, x, bias, **wants)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    backward(grad, x, bias, **wants)
    assert torch.cuda.max_memory_allocated() - before < 1.1 * x.nbytes


def test_higher_derivatives_and_opcheck() -> None:
    x = torch.randn(3, 5, device="cuda", dtype=torch.float64, requires_grad=True)
    bias = torch.randn(5, device="cuda", dtype=torch.float64, requires_grad=True)
    for form in FORMS:
        function = lambda x, b, form=form: truefuse.bias_gelu(x, b, approximate=form)  # noqa: E731
        assert torch.autograd.gradcheck(function, (x, bias))
        assert torch.autograd.gradgradcheck(function, (x, bias))
    torch.library.opcheck(torch.ops.truefuse.bias_gelu.default, (x, bias), {"approximate": "tanh"})
    modes = {"approximate": "tanh", "x_wanted": True, "bias_wanted": True}
    torch.library.opcheck(backward.default, (torch.randn_like(x.detach()), x.detach(), bias.detach()), modes)  # fmt: skip


def test_autocast() -> None:
    linear = torch.nn.Linear(64, 128, device="cuda")
    activation = truefuse.nn.BiasGelu.taking_bias(linear, approximate="tanh")
    x = torch.randn(16, 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = activation(linear(x))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert activation.bias.grad.dtype == torch.float32


def test_inductor_agrees_with_eager() -> None:
    def model(x: Tensor, bias: Tensor) -> Tensor:
        return truefuse.bias_gelu(x * 2, bias, approximate="tanh") + 1

    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for rows in (3, 17, 64, 100, 1000):
        _, x, bias = inputs(torch.float32, rows, 96)
        leaves = (x.requires_grad_(), bias.requires_grad_())
        got = torch.autograd.grad(compiled(*leaves).square().sum(), leaves)
        torch.testing.assert_close(got, torch.autograd.grad(model(*leaves).square().sum(), leaves))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU in this machine")
def test_second_gpu() -> None:
    tensors = [tensor.to("cuda:1") for tensor in inputs(torch.float32, 4096, 1024)]
    assert torch.cuda.current_device() == 0
    assert_right(*tensors)


def test_random_calls_share_few_kernels(tmp_path) -> None:
    code = """
import random, torch, truefuse
random.seed(3)
backward = torch.ops.truefuse.bias_gelu_backward
for _ in range(1000):
    rows, hidden, pad = random.randint(1, 400), random.randint(1, 300), random.choice([0, 0, 1, 8])
    shift = random.choice([0, 0, 1])
    base = torch.randn((rows + 1) * 3 * (hidden + pad) + 8, device="cuda")
    x = base[shift:].as_strided((3, rows, hidden), (random.choice([rows, rows + 1]) * (hidden + pad), hidden + pad, 1))
    grad = random.choice([
        lambda: torch.randn(3, rows, hidden, device="cuda"), lambda: torch.ones((), device="cuda").expand(3, rows, hidden),
        lambda: torch.randn(hidden, rows, 3, device="cuda").permute(2, 1, 0), lambda: torch.randn(3, rows, 2 * hidden, device="cuda")[..., :hidden],
    ])()
    bias = torch.randn(hidden * 2, device="cuda")[:: random.choice([1, 2])][:hidden]
    grad_x, grad_bias = backward(grad, x, bias, approximate="tanh", x_wanted=True, bias_wanted=True)
    v = (x.double() + bias.double()).requires_grad_()
    want, = torch.autograd.grad(torch.nn.functional.gelu(v, approximate="tanh"), v, grad.double())
    torch.testing.assert_close(grad_x, want.float(), rtol=2e-5, atol=5e-6)
    torch.testing.assert_close(grad_bias, want.sum((0, 1)).float(), rtol=2e-5, atol=2e-4)
"""
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ, TRUEFUSE_CACHE_DIR=str(cache)),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert 1 <= len(list(cache.glob("*.tfk"))) <= 7
