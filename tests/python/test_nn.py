"""Modules that take the place of PyTorch's."""

import copy

import pytest
import torch
from torch import nn

from truefuse import _native
from truefuse.nn import BiasGelu, GeGLU, PackedGeGLU, PackedSwiGLU, SwiGLU, options


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


def test_an_operator_of_the_same_name_is_not_asked(monkeypatch):
    """truefuse.load takes any name in another namespace."""
    shipped = _native.operators()
    others = [one | {"namespace": "mine", "contract": {"arguments": []}} for one in shipped]
    monkeypatch.setattr(_native, "operators", lambda: others + shipped + others)
    monkeypatch.setattr(options, "_texts", options._texts.__wrapped__)
    with pytest.raises(ValueError, match="approximate is 'fast'"):
        BiasGelu(3, approximate="fast")
    assert BiasGelu(3, approximate="tanh").approximate == "tanh"


RIGHT = {"packing": "gate|up", "approximate": "tanh", "gate_rounding": "storage"}
BLOCKS = {
    SwiGLU: ["gate_rounding"],
    GeGLU: ["approximate", "gate_rounding"],
    PackedSwiGLU: ["packing", "gate_rounding"],
    PackedGeGLU: ["packing", "approximate", "gate_rounding"],
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_a_block_refuses_an_option_when_it_is_made_and_shows_it(block):
    options = {name: RIGHT[name] for name in BLOCKS[block]}
    for name in options:
        with pytest.raises(ValueError, match=f"{name} is 'some'; it must be \""):
            block(8, 12, **{**options, name: "some"})
        assert f"{name}={options[name]!r}" in repr(block(8, 12, **options))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_a_block_is_made_where_and_as_a_linear_is(block):
    options = {name: RIGHT[name] for name in BLOCKS[block]}
    made = block(8, 12, bias=True, device="meta", dtype=torch.bfloat16, **options)
    assert {(p.device.type, p.dtype) for p in made.parameters()} == {("meta", torch.bfloat16)}
    assert len(list(made.parameters())) == 2 * len(list(made.children()))
