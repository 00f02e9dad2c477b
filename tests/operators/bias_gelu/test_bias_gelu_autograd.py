"""No derivative is ever left out silently: neither reverse nor forward mode."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad

import truefuse


def call(x, bias):
    return truefuse.bias_gelu(x, bias, approximate="tanh")


@pytest.fixture
def tensors():
    return torch.randn(3, 8), torch.randn(8)


@pytest.mark.parametrize("which", [0, 1])
def test_reverse_mode_is_refused_for_either_argument(tensors, which):
    tensors[which].requires_grad_()
    with pytest.raises(RuntimeError, match="gradient"):
        call(*tensors)
    with torch.no_grad():
        assert not call(*tensors).requires_grad
    with torch.inference_mode():
        call(*tensors)


def test_forward_mode_is_refused(tensors):
    x, bias = tensors
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="gradient"):
        call(forward_ad.make_dual(x, torch.ones_like(x)), bias)
    with forward_ad.dual_level(), torch.no_grad(), pytest.raises(RuntimeError, match="gradient"):
        call(forward_ad.make_dual(x, torch.ones_like(x)), bias)


def test_functional_transforms_are_refused(tensors):
    x, bias = tensors
    with pytest.raises(RuntimeError):
        torch.func.jvp(lambda x: call(x, bias), (x,), (torch.ones_like(x),))
    with pytest.raises(RuntimeError):
        torch.func.grad(lambda x: call(x, bias).sum())(x)


def test_the_compiler_keeps_the_stride_order_that_the_contract_asks_for(tensors):
    bias = torch.randn(64)
    model = torch.compile(lambda x: call((x.t() + 1).contiguous(), bias), fullgraph=True)
    x = torch.randn(64, 32)
    torch.testing.assert_close(model(x), call((x.t() + 1).contiguous(), bias))
