"""Modules that take the place of PyTorch's."""

import copy

import pytest
import torch
from torch import nn

from truefuse.nn import BiasGelu


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.activation = nn.GELU(approximate="tanh")
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


def test_a_model_with_the_bias_taken_computes_and_trains_the_same():
    torch.manual_seed(0)
    model = Mlp()
    fused = copy.deepcopy(model)
    bias = fused.up.bias
    fused.activation = BiasGelu.taking_bias(fused.up, approximate="tanh")
    assert fused.activation.bias is bias and fused.up.bias is None
    assert len(list(fused.parameters())) == len(list(model.parameters()))
    x = torch.randn(3, 8)
    torch.testing.assert_close(fused(x), model(x))
    for each in (fused, model):
        each(x).square().sum().backward()
    torch.testing.assert_close(fused.activation.bias.grad, model.up.bias.grad)
    torch.testing.assert_close(fused.up.weight.grad, model.up.weight.grad)


def test_its_state_is_a_bias_as_in_linear():
    module = BiasGelu(16, approximate="none")
    assert {name: value.shape for name, value in module.state_dict().items()} == {"bias": (16,)}
    linear = nn.Linear(4, 16)
    module.load_state_dict({"bias": linear.state_dict()["bias"]})
    assert torch.equal(module.bias, linear.bias)
    other = copy.deepcopy(module).to(torch.bfloat16)
    assert other(torch.ones(2, 16, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert "16, approximate='none'" in repr(module)


def test_what_it_cannot_do_is_said():
    with pytest.raises(ValueError, match="no bias to take"):
        BiasGelu.taking_bias(nn.Linear(2, 3, bias=False), approximate="tanh")
    with pytest.raises(ValueError, match="tanh"):
        BiasGelu(3, approximate="fast")
