"""use(model, ops): the operators are in, and out again, and only where they belong."""

from __future__ import annotations

import copy
import json
from types import MethodType

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from misread import other_layout
from transformers.models.bert.modeling_bert import BertIntermediate
from transformers.models.electra.modeling_electra import ElectraIntermediate
from transformers.models.roberta.modeling_roberta import RobertaIntermediate

from truefuse.integrations.hits import Hits
from truefuse.integrations.transformers import swap as swaps
from truefuse.integrations.transformers import tiny, use
from truefuse.integrations.transformers.decoding import CACHE

PROMPT = torch.tensor([tiny.text(3, 9), tiny.text(5, 9)])
GDN = ("tiny-qwen3-next", "tiny-qwen3.5", "tiny-qwen3.5-moe")


def built(name: str, dtype: torch.dtype = torch.float32):
    torch.manual_seed(1)
    return tiny.MODELS[name].build().to(dtype).eval().requires_grad_(False)


def decoded(model, steps: int = 4, attention_mask=None):
    """Logits of a prefill and some decode steps, and the cache after them."""
    ids, cache, logits = PROMPT, None, []
    with torch.no_grad():
        for step in range(steps + 1):
            found = model(
                input_ids=ids, use_cache=True, attention_mask=attention_mask, **{CACHE: cache}
            )
            cache = found[CACHE]
            logits.append(found.logits[:, -1])
            ids = PROMPT[:, step : step + 1]
            if attention_mask is not None:
                attention_mask = torch.cat([attention_mask, torch.ones(2, 1)], 1)
    return torch.stack(logits), cache


def used(model, *ops, **implementations):
    return use(model, ops, implementations)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", GDN)
def test_gdn_decode_gives_transformers_own_result_and_states(name, dtype):
    model = built(name, dtype)
    wanted, cache = decoded(model)
    with used(model, "gdn_decode") as swap:
        found, swapped_cache = decoded(model)
    assert swap.hits() == {f"gdn_decode@model.layers.{i}.linear_attn": 4 for i in (0, 1)}
    exact = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(found, wanted, **exact)
    for layer in (0, 1):
        one, other = (c.layers[layer] for c in (cache, swapped_cache))
        assert other.conv_states[0].shape[-1] == 4
        torch.testing.assert_close(other.conv_states[0], one.conv_states[0], **exact)
        torch.testing.assert_close(other.recurrent_states[0], one.recurrent_states[0], **exact)


@pytest.mark.parametrize("name", GDN)
def test_states_are_written_in_place_and_prefill_is_untouched(name):
    model = built(name)
    with used(model, "gdn_decode") as swap, torch.no_grad():
        found = model(input_ids=PROMPT, use_cache=True)
        assert swap.hits() == {}
        cache = found[CACHE]
        tensors = [(c.conv_states[0], c.recurrent_states[0]) for c in cache.layers[:2]]
        before = [(a.data_ptr(), b.data_ptr(), b.clone()) for a, b in tensors]
        model(input_ids=PROMPT[:, :1], use_cache=True, **{CACHE: cache})
        for layer, (conv, state, values) in zip(cache.layers[:2], before, strict=True):
            assert layer.conv_states[0].data_ptr() == conv
            assert layer.recurrent_states[0].data_ptr() == state
            assert not torch.equal(layer.recurrent_states[0], values)
        # A continuation of several tokens goes the original way.
        model(input_ids=PROMPT[:, :3], use_cache=True, **{CACHE: cache})
    assert set(swap.hits().values()) == {1}


def test_padding_of_a_batch_is_masked_as_before():
    model = built("tiny-qwen3.5")
    mask = torch.ones(PROMPT.shape)
    mask[1, :4] = 0
    wanted, _ = decoded(model, attention_mask=mask)
    with used(model, "gdn_decode"):
        found, _ = decoded(model, attention_mask=mask)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", GDN)
def test_the_other_models_layout_fits_and_is_wrong(name):
    model = built(name)
    wanted, _ = decoded(model)
    with used(model, "gdn_decode", gdn_decode=other_layout):
        found, _ = decoded(model)
    assert found.isfinite().all()
    assert torch.equal(found[0], wanted[0])  # the prefill
    # Far beyond what rounding does.
    assert (found[1:] - wanted[1:]).norm() > 1e-3 * wanted[1:].norm()


@pytest.mark.parametrize(
    ("name", "op"), [("tiny-gpt2", "bias_gelu"), ("tiny-llama", "swiglu"), (GDN[0], "swiglu")]
)
def test_feed_forward_layers(name, op):
    model = built(name)
    wanted, _ = decoded(model)
    with used(model, op) as swap:
        found, _ = decoded(model)
    assert len(swap.layers[op]) == 3 and set(swap.hits().values()) == {5}
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    again, _ = decoded(model)
    assert torch.equal(again, wanted) and set(swap.hits().values()) == {5}


@pytest.mark.parametrize("kind", [BertIntermediate, RobertaIntermediate, ElectraIntermediate])
@pytest.mark.parametrize(("activation", "mode"), [("gelu", "none"), ("gelu_new", "tanh")])
def test_bert_class_layers_and_their_approximation(kind, activation, mode):
    config = transformers.BertConfig(hidden_size=16, intermediate_size=32, hidden_act=activation)
    layer = kind(config).eval().requires_grad_(False)
    torch.nn.init.normal_(layer.dense.bias)
    modes = []

    def noted(x, bias, *, approximate):
        modes.append(approximate)
        return torch.ops.truefuse.bias_gelu(x, bias, approximate=approximate)

    x = torch.randn(3, 5, 16)
    wanted = layer(x)
    with used(torch.nn.ModuleList([layer]), "bias_gelu", bias_gelu=noted):
        torch.testing.assert_close(layer(x), wanted)
    assert modes == [mode]


def test_where_a_gradient_is_needed_the_original_runs():
    model = tiny.MODELS["tiny-gpt2"].build().train()
    with used(model, "bias_gelu") as swap:
        tiny._loss(model, PROMPT).backward()
        assert swap.hits() == {}
        assert model.transformer.h[0].mlp.c_fc.bias.grad.abs().sum() > 0
        with torch.no_grad():
            model(input_ids=PROMPT)
        assert len(swap.hits()) == 3


def test_it_is_reversible_and_leaves_nothing():
    model = built("tiny-gpt2")
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    keys = list(model.state_dict())
    swap = used(model, "bias_gelu")
    assert list(model.state_dict()) == keys
    swap.restore()
    swap.restore()
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before


def test_a_forward_that_was_put_over_an_operators_is_not_taken_away():
    """accelerate keeps the forward that it finds and puts it back when its hook is removed."""
    model = built("tiny-gpt2")
    layers = [block.mlp for block in model.transformer.h]
    swap = used(model, "bias_gelu")
    kept = layers[1].forward
    layers[1].forward = lambda x: kept(x)
    del layers[2].forward  # somebody has been here already
    with pytest.raises(
        RuntimeError, match=r"forward was put over .* in transformer\.h\.1\.mlp and"
    ):
        swap.restore()
    assert [("forward" in vars(layer)) for layer in layers] == [False, True, False]
    layers[1].forward = kept
    swap.restore()
    assert "forward" not in vars(layers[1])


def test_a_copied_model_uses_its_own_weights():
    model = built("tiny-gpt2")
    with used(model, "bias_gelu"):
        other = copy.deepcopy(model)
        for block in other.transformer.h:
            block.mlp.c_fc.weight.zero_()
        changed, _ = decoded(other)
        own, _ = decoded(model)
    assert not torch.allclose(changed, own)


def test_twice_is_refused_and_undone():
    model = built("tiny-gpt2")
    with used(model, "bias_gelu"), pytest.raises(RuntimeError, match="already"):
        used(model, "bias_gelu")
    used(model, "bias_gelu").restore()


@pytest.mark.parametrize(
    ("name", "ops", "sentence"),
    [
        ("tiny-llama", ["gdn_decode"], "has no layer that gdn_decode can compute"),
        ("tiny-llama", ["conv"], "operators are bias_gelu, swiglu, gdn_decode"),
        ("tiny-llama", [], "ops has none"),
    ],
)
def test_what_cannot_be_done_is_said(name, ops, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        use(built(name), ops)


def test_an_operator_that_this_build_lacks_is_said(monkeypatch):
    def lacking(operator):
        raise RuntimeError(f"use: this build of truefuse has no operator {operator}.")

    monkeypatch.setattr(swaps, "_of_library", lacking)
    model = built("tiny-llama")
    with pytest.raises(RuntimeError, match="no operator swiglu"):
        use(model, ["swiglu"])
    assert "forward" not in vars(model.model.layers[0].mlp)


@pytest.mark.parametrize("version", ["4.57.1", "5.2.0", "6.0.0"])
def test_versions_that_were_not_tested_are_refused_in_words(monkeypatch, version):
    monkeypatch.setattr(swaps.transformers, "__version__", version)
    with pytest.raises(RuntimeError, match=f"this is transformers {version}; .* tested with"):
        use(built("tiny-gpt2"), ["bias_gelu"])


def test_layers_with_another_activation_or_hooks_are_skipped_with_a_reason():
    model = built("tiny-gpt2")
    layers = [block.mlp for block in model.transformer.h]
    layers[0].act = torch.nn.ReLU()
    layers[1].c_fc.register_forward_hook(lambda *_: None)
    with used(model, "bias_gelu") as swap:
        assert swap.layers["bias_gelu"] == ["transformer.h.2.mlp"]
        reasons = list(swap.skipped.values())
    assert "ReLU" in reasons[0] and "hooks" in reasons[1]
    layers[2].act = torch.nn.ReLU()
    with pytest.raises(RuntimeError, match=r"skipped transformer\.h\.0\.mlp"):
        used(model, "bias_gelu")


class LlamaMLP(torch.nn.Module):
    """Remote code that has kept the name of the class it began as."""

    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(8, 16) for _ in range(2))
        self.down_proj, self.act_fn = torch.nn.Linear(16, 8), torch.nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x).clamp(-0.1, 0.1))


def test_a_class_that_only_has_the_name_is_left_alone():
    model = torch.nn.ModuleList([LlamaMLP()])
    with pytest.raises(RuntimeError, match=r"LlamaMLP is not transformers' own but of .*test_swap"):
        used(model, "swiglu")
    model = built("tiny-llama")
    model.model.layers[1].mlp.__class__ = type("LlamaMLP", (type(model.model.layers[1].mlp),), {})
    with used(model, "swiglu") as swap:
        assert list(swap.skipped) == ["model.layers.1.mlp"] and len(swap.layers["swiglu"]) == 2


def hooked(module):
    module.register_forward_hook(lambda _module, _inputs, output: 2 * output)


class Adapter(torch.nn.Module):
    """As adapters are: the weight is the base's, and the forward adds to it."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    weight = property(lambda self: self.base.weight)
    bias = property(lambda self: self.base.bias)

    def forward(self, x):
        return 2 * self.base(x)


def adapted(mlp):
    mlp.c_fc = Adapter(mlp.c_fc)


@pytest.mark.parametrize(
    ("name", "op", "change"),
    [
        ("tiny-gpt2", "bias_gelu", lambda model: hooked(model.transformer.h[1].mlp.c_fc)),
        ("tiny-gpt2", "bias_gelu", lambda model: hooked(model.transformer.h[1].mlp.act)),
        ("tiny-gpt2", "bias_gelu", lambda model: adapted(model.transformer.h[1].mlp)),
        ("tiny-llama", "swiglu", lambda model: hooked(model.model.layers[1].mlp.act_fn)),
        (
            "tiny-qwen3.5",
            "gdn_decode",
            lambda model: hooked(model.model.layers[1].linear_attn.norm),
        ),
    ],
)
def test_what_is_attached_after_the_swap_is_not_left_out(name, op, change):
    model = built(name)
    original, _ = decoded(model)
    other = copy.deepcopy(model)
    change(other)
    wanted, _ = decoded(other)
    assert not torch.allclose(wanted[1:], original[1:])
    with used(model, op) as swap:
        change(model)
        found, _ = decoded(model)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert len(swap.hits()) == len(swap.layers[op]) - 1  # the other layers go on


@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-llama"])
def test_a_compiled_model_takes_operators_in_and_out_without_a_graph_break(name):
    model = built(name)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    op = tiny.MODELS[name].operators[0]
    with torch.no_grad():
        before = compiled(input_ids=PROMPT, use_cache=False).logits
        with used(model, op) as swap:
            for count in (1, 2):
                compiled(input_ids=PROMPT, use_cache=False)
                assert list(swap.hits().values()) == [count] * 3
        assert torch.equal(compiled(input_ids=PROMPT, use_cache=False).logits, before)
        assert list(swap.hits().values()) == [2] * 3


@pytest.mark.parametrize("of", [lambda layer: layer, lambda layer: layer.norm])
def test_a_layer_with_a_kernel_of_transformers_mapping_is_said(of):
    """What its kernelize() does to a layer: another class' forward, bound to this one."""
    model = built("tiny-qwen3.5")
    for block in model.model.layers[:2]:
        layer = of(block.linear_attn)
        layer.forward = MethodType(type(layer).forward, layer)
    with pytest.raises(
        RuntimeError, match=r"0\.linear_attn and 1 more: the forward .* replaced .* use_kernels"
    ):
        used(model, "gdn_decode")
    assert "forward" in vars(layer)  # and left as it was


class Odd:
    """A cache that nobody knows."""

    layers = tuple(object() for _ in range(3))

    def has_previous_state(self, *_):
        return True


def test_a_cache_of_unknown_class_is_said():
    model = built("tiny-qwen3.5")
    layer = model.model.layers[0].linear_attn
    with (
        used(model, "gdn_decode"),
        torch.no_grad(),
        pytest.raises(RuntimeError, match=r"LinearAttentionLayer .* TRUEFUSE_DISABLE"),
    ):
        layer(torch.zeros(1, 1, 64), Odd())


@pytest.mark.parametrize(
    ("value", "left"), [("bias_gelu", False), ("all", False), ("swiglu", True)]
)
def test_disable(monkeypatch, value, left):
    monkeypatch.setenv("TRUEFUSE_DISABLE", value)
    model = built("tiny-gpt2")
    with used(model, "bias_gelu") as swap:
        assert bool(swap.layers) == left and bool(swap.disabled) != left
        assert ("forward" in vars(model.transformer.h[0].mlp)) == left
    monkeypatch.setenv("TRUEFUSE_DISABLE", "gelu")
    with pytest.raises(RuntimeError, match="TRUEFUSE_DISABLE names 'gelu'"):
        used(model, "bias_gelu")


def test_hits_are_written_where_a_server_is_asked_to(tmp_path, monkeypatch):
    monkeypatch.setattr(Hits, "_published", [])
    path = tmp_path / "hits.json"
    path.write_text('{"gdn_decode@layers.0": 1000}')
    monkeypatch.setenv("TRUEFUSE_HITS", str(path))
    hits = Hits()
    assert json.loads(path.read_text()) == {}  # of the process before
    for _ in range(3):
        hits.add("gdn_decode", "layers.0")
    other = Hits()
    other.add("swiglu", "layers.0")
    other.add("gdn_decode", "layers.0")
    hits.write()
    assert json.loads(path.read_text()) == {"gdn_decode@layers.0": 4, "swiglu@layers.0": 1}
