"""Small models of the classes that operators are swapped into, trained until their margins are real.

With random weights the best two logits are all but equal, so that any rounding flips the output; a
model that has learned its text prefers the next token by a margin that no rounding reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from truefuse.compare import one_thread
from truefuse.integrations.transformers.peers import put_aside_on_cpu

VOCABULARY = 48
PERIOD = 24  # the synthetic text repeats after this many tokens, and not before:
STRIDES = (1, 5, 7, 11, 13)  # each without a common divisor with it
CONTEXT = 512
BATCH = 6


@dataclass(frozen=True)
class Tiny:
    """A named configuration, the operators that it has layers for, and how long it learns, from texts of
    how many tokens: rotary positions carry little beyond those that were seen."""

    build: Callable[[], nn.Module]
    operators: tuple[str, ...]
    steps: int
    length: int = 64


def _gdn(config_class: Any, model_class: Any, **changes: Any) -> nn.Module:
    """K != V, and more than one value head for each key head, so that no wrong layout fits by luck."""
    config = config_class(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        layer_types=["linear_attention", "linear_attention", "full_attention"],
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        linear_num_key_heads=2,
        linear_num_value_heads=6,
        linear_key_head_dim=16,
        linear_value_head_dim=8,
        **changes,
    )
    return model_class(config)


EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}


def _qwen3_next() -> nn.Module:
    return _gdn(transformers.Qwen3NextConfig, transformers.Qwen3NextForCausalLM, **EXPERTS)


def _qwen3_5() -> nn.Module:
    from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    return _gdn(Qwen3_5TextConfig, Qwen3_5ForCausalLM)


def _qwen3_5_moe() -> nn.Module:
    from transformers.models.qwen3_5_moe import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    return _gdn(Qwen3_5MoeTextConfig, Qwen3_5MoeForCausalLM, **EXPERTS)


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=CONTEXT,
        n_embd=64,
        n_layer=3,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return transformers.GPT2LMHeadModel(config)


def _llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        eos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config)


MODELS = {
    "tiny-qwen3-next": Tiny(_qwen3_next, ("gdn_decode", "swiglu"), 48),
    "tiny-qwen3.5": Tiny(_qwen3_5, ("gdn_decode", "swiglu"), 48),
    "tiny-qwen3.5-moe": Tiny(_qwen3_5_moe, ("gdn_decode", "swiglu"), 48),
    "tiny-gpt2": Tiny(_gpt2, ("bias_gelu",), 96),
    "tiny-llama": Tiny(_llama, ("swiglu",), 64, length=288),
}


def text(number: int, length: int) -> list[int]:
    """Sequence `number` of the synthetic text: a walk through the vocabulary whose stride depends on its
    beginning. A prompt shorter than the period holds no continuation that could be copied: it has to be
    computed from the context."""
    which = number % len(STRIDES)
    start = (number * 7) % PERIOD
    return [1 + 4 * which + (start + STRIDES[which] * i) % PERIOD for i in range(length)]


@one_thread()
def trained(name: str, seed: int = 0) -> nn.Module:
    """The model in float32 and evaluation mode, trained on the CPU in seconds; the same weights for a
    seed, however many threads there are."""
    torch.manual_seed(seed)
    learns = MODELS[name]
    model, steps = learns.build().train(), learns.steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    with put_aside_on_cpu(model):
        for step in range(steps):
            rows = [text(step * BATCH + i, learns.length) for i in range(BATCH)]
            batch = torch.tensor(rows)
            loss = _loss(model, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model.eval().requires_grad_(False)


def _loss(model: nn.Module, batch: Tensor) -> Tensor:
    logits = model(input_ids=batch, use_cache=False).logits[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
