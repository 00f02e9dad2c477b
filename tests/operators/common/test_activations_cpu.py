"""swish and the gated forms on the CPU: values and gradients, for every dtype and any strides."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from activations import ALL, DTYPES, PACKINGS, parts
from hypothesis import given, settings
from hypothesis import strategies as st

import truefuse

CASES = list(itertools.product(ALL, DTYPES))
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
    for ours, theirs, leaf in zip(got, want, leaves, strict=True):
        assert ours.dtype == leaf.dtype and ours.shape == leaf.shape
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("activation", "dtype"), CASES, ids=str)
def test_widths_and_threads(activation, dtype) -> None:
    torch.manual_seed(0)
    for shape in ((1,), (3, 1), (5, 7), (2, 3, 16), (4, 33), (2, 257), (1, 70_001), (40_000, 1)):
        tensors = activation.tensors(*shape, dtype=dtype)
        assert_right(activation, tensors, torch.randn(shape, dtype=torch.float64).to(dtype))


@settings(max_examples=80, deadline=None)
@given(
    activation=st.sampled_from(ALL),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_any_strides_of_inputs_and_gradients(activation, sizes, order) -> None:
    def view(shape):
        """Permuted, sliced or expanded dimensions."""
        axes = list(range(len(shape)))
        order.shuffle(axes)
        kinds = [order.choice(("whole", "whole", "sliced", "expanded")) for _ in shape]
        stored = [
            {"whole": shape[a], "sliced": 2 * shape[a], "expanded": 1}[kinds[a]] for a in axes
        ]
        tensor = torch.randn(stored, dtype=torch.float64)
        tensor = tensor.permute([axes.index(a) for a in range(len(shape))])
        for a, kind in enumerate(kinds):
            if kind == "sliced":
                tensor = tensor.narrow(a, 0, 2 * shape[a])[
                    (slice(None),) * a + (slice(None, None, 2),)
                ]
        return tensor.expand(shape)

    wide = [*sizes[:-1], sizes[-1] * activation.width]
    assert_right(activation, [view(wide) for _ in range(activation.inputs)], view(sizes))


def strides(tensor: torch.Tensor) -> list[int]:
    """Those that mean something: a dimension of size 1 may have any."""
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def test_swish_keeps_the_layout_and_so_does_its_gradient() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    sliced = torch.randn(4, 6, 9)[:, ::2, 1:-1]
    for tensor in (x, x[:1], x.permute(3, 1, 0, 2), sliced, sliced.transpose(0, 2), x[..., :1]):
        leaf = tensor.detach().requires_grad_()
        out = truefuse.swish(leaf)
        assert strides(out) == strides(torch.empty_like(tensor))
        out.sum().backward()
        (grad,) = torch.autograd.grad(truefuse.swish(leaf).sum(), leaf)
        assert strides(grad) == strides(torch.empty_like(tensor))
        fake = torch.ops.truefuse.swish(
            torch.empty_strided(tensor.size(), tensor.stride(), device="meta")
        )
        assert fake.stride() == out.stride()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(dtype) -> None:
    infinity, huge = float("inf"), torch.finfo(dtype).max
    special = torch.tensor([-infinity, infinity, float("nan"), -0.0, 0.0, huge, -huge], dtype=dtype)
    value = torch.tensor([-0.0, infinity, float("nan"), -0.0, 0.0, huge, -0.0], dtype=dtype)
    slope = torch.tensor([0, 1, float("nan"), 0.5, 0.5, 1, 0], dtype=dtype)
    for length in (1, 7, 8, 16, 33):
        x = special.repeat(5)[:length].requires_grad_()
        out = truefuse.swish(x)
        (grad,) = torch.autograd.grad(out.sum(), x)
        exact = {"rtol": 0, "atol": 0, "equal_nan": True}
        torch.testing.assert_close(out, value.repeat(5)[:length], **exact)
        torch.testing.assert_close(grad, slope.repeat(5)[:length], **exact)
        zeros = out == 0
        assert torch.equal(out.signbit()[zeros], x.signbit()[zeros])


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("activation", ALL[:4], ids=str)
def test_every_value_of_the_half_types(activation, dtype) -> None:
    """Values within 0.55 ulp of float64 mathematics, and gradients in ulp of their larger summand."""
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    gate = bits.view(dtype)
    gate = gate[gate.isfinite()]
    x = gate.double().clamp(-200, 200)
    form = activation.mode.get("approximate")
    if form == "none":
        first = 0.5 * torch.special.erfc(-x * 0.5**0.5)
        second = x * torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5
    else:
        root = 1.0 if form is None else 2 * (2 / torch.pi) ** 0.5
        cubic = 0.0 if form is None else 0.044715
        u = root * (x + cubic * x**3)
        first = torch.sigmoid(u)
        second = x * first * torch.sigmoid(-u) * root * (1 + 3 * cubic * x**2)

    def ulp(size):
        size = size.abs().clamp(min=torch.finfo(dtype).tiny)
        return torch.exp2(torch.floor(torch.log2(size))) * torch.finfo(dtype).eps

    leaf = gate.clone().requires_grad_()
    out = activation(*[leaf, torch.ones_like(leaf)][: activation.inputs])
    want = gate.double() * first
    assert ((out.detach().double() - want).abs() / ulp(want)).max() <= 0.55
    (grad,) = torch.autograd.grad(out.sum(), leaf)
    size = torch.maximum((first + second).abs(), torch.maximum(first, second.abs()))
    assert ((grad.double() - (first + second)).abs() / ulp(size)).max() <= 0.55


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_the_rounding_of_the_gate_is_what_was_asked_for(dtype) -> None:
    torch.manual_seed(0)
    gate, up = torch.randn(2, 20_000, dtype=torch.float64).to(dtype)
    exact = F.silu(gate.double())
    stored = (exact.to(dtype).double() * up.double()).to(dtype)
    kept = (exact * up.double()).to(dtype)
    assert (truefuse.swiglu(gate, up, gate_rounding="storage") != stored).float().mean() < 1e-3
    assert (truefuse.swiglu(gate, up, gate_rounding="none") != kept).float().mean() < 1e-3
    assert (stored != kept).float().mean() > 0.1
    grad_up = torch.ops.truefuse.swiglu_backward(
        torch.ones_like(gate), gate, up, gate_rounding="storage", gate_wanted=False, up_wanted=True
    )[1]
    assert (grad_up != exact.to(dtype)).float().mean() < 1e-3


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_packed_tensor_gives_what_its_parts_give(packing) -> None:
    packed = torch.randn(6, 10, requires_grad=True)
    gate, up = (part.detach().clone().requires_grad_() for part in parts(packed, packing))
    out = truefuse.swiglu_packed(packed, packing=packing, gate_rounding="none")
    apart = truefuse.swiglu(gate, up, gate_rounding="none")
    assert torch.equal(out, apart)
    out.backward(torch.arange(30.0).view(6, 5))
    apart.backward(torch.arange(30.0).view(6, 5))
    assert packed.grad.is_contiguous()
    for got, want in zip(parts(packed.grad, packing), (gate.grad, up.grad), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("activation", ALL, ids=str)
def test_more_dimensions_than_the_loops_have_are_refused(activation) -> None:
    assert_right(
        activation, activation.tensors(*[1] * 64, dtype=torch.float32), torch.ones([1] * 64)
    )
    for size in (0, 1):
        with pytest.raises(RuntimeError, match="has 300 dimensions; it must have at most 64"):
            activation(*activation.tensors(*[size] * 300, dtype=torch.float32))


@pytest.mark.parametrize("activation", ALL, ids=str)
@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (0,), (2, 0, 3)], ids=str)
def test_empty(activation, shape) -> None:
    leaves = [t.requires_grad_() for t in activation.tensors(*shape, dtype=torch.float32)]
    out = activation(*leaves)
    assert out.shape == shape
    out.sum().backward()
    assert all(leaf.grad.shape == leaf.shape for leaf in leaves)


def test_each_mistake_has_its_sentence() -> None:
    ok = {"gate_rounding": "none"}
    x = torch.ones(3, 8)
    for call, words in (
        (lambda: truefuse.swiglu_packed(torch.ones(3, 7), packing="gate|up", **ok),
         "the last dimension of packed is 7; it must be a multiple of 2"),
        (lambda: truefuse.swiglu_packed(x, packing="halves", **ok),
         'packing is "halves"; it must be "gate|up", "up|gate", "gate,up interleaved" or'),
        (lambda: truefuse.swiglu(x, x, gate_rounding="up"), 'gate_rounding is "up"'),
        (lambda: truefuse.geglu(x, x, approximate="erf", **ok), 'approximate is "erf"'),
        (lambda: truefuse.swiglu(x, x.double(), **ok), "up is float64; it must have the dtype of gate"),
        (lambda: truefuse.swiglu(x, x.to("meta"), **ok), "up is on meta; gate is on cpu"),
        (lambda: truefuse.swiglu(x, torch.ones(3, 9), **ok), "the last dimension of up is 9"),
        (lambda: truefuse.swiglu(x, torch.ones(4, 8), **ok), "leading dimensions"),
        (lambda: truefuse.swish(torch.ones(3, dtype=torch.int32)), "x is int32; it must be float32"),
        (lambda: torch.ops.truefuse.swish_backward(x.double(), x, x_wanted=True), "dtype of grad_out"),
        (lambda: torch.ops.truefuse.swish_backward(x[:2], x, x_wanted=True), "x is [3, 8]"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError) as error:
            call()
        assert words in str(error.value)


PROBE = """
import json, sys, torch, truefuse
torch.manual_seed(0)
x = torch.randn(2, 5000, dtype=torch.float64)
result = {}
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    gate, up = x.to(dtype)
    gate.requires_grad_()
    out = truefuse.swish(gate) + truefuse.geglu(gate, up, approximate="none", gate_rounding="none")
    out.sum().backward()
    result[str(dtype)] = [out.double().tolist(), gate.grad.double().tolist()]
json.dump([truefuse._native.cpu()["level"], result], sys.stdout)
"""


def test_every_instruction_set_gives_the_same_within_rounding() -> None:
    results = {}
    for level in ("base", "avx2", "avx512"):
        run = subprocess.run(
            [sys.executable, "-c", PROBE],
            env={**os.environ, "TRUEFUSE_CPU_LEVEL": level}, capture_output=True, text=True,
        )  # fmt: skip
        if run.returncode == 0:
            used, results[level] = json.loads(run.stdout)
            assert used == level
        else:
            assert "does not run" in run.stderr
    for level, result in results.items():
        for name, values in result.items():
            dtype = getattr(torch, name.removeprefix("torch."))
            for got, want in zip(values, results["base"][name], strict=True):
                torch.testing.assert_close(
                    torch.tensor(got), torch.tensor(want), rtol=8 * torch.finfo(dtype).eps,
                    atol=8 * torch.finfo(dtype).eps, msg=level,
                )  # fmt: skip
