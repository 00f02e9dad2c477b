"""The decode step of Gated DeltaNet layers: Qwen3-Next, Qwen3.5 and their MoE forms.

Only a single token with a cache that has a state is replaced: prefill, continuations of several tokens
and caches that record the past go the original way. Projections stay the modules they are.

The operator is a callable with the arguments of `torch.ops.truefuse.gdn_decode`:

    call(qkvz, ba, conv_state, state, conv_weight, conv_bias, A_log, dt_bias, norm_weight, *,
         qkvz_layout, ba_layout, z, z_layout, a, a_layout, state_layout, num_k_heads, num_v_heads,
         head_k_dim, head_v_dim, rounding, norm_eps, gate_activation) -> [batch, HV, V]

    qkvz, ba, z, a   rows [batch, columns] of the model's dtype; who each column is, is said by its layout
    conv_state       [batch, channels, 4], written in place: the newest three of four are read, and all
                     shift left by one
    state            [batch, HV, K, V] float32, written in place
    conv_weight      [channels, 4], channels as [q heads | k heads | v heads]
    returns          norm(core) * silu(z), of the model's dtype
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers.cache_utils import LinearAttentionLayer

from truefuse.integrations.transformers.replacement import (
    Forward,
    Place,
    Replacement,
    Unsupported,
    listened_to,
    needs_gradient,
    refuse,
)

# Qwen3-Next's projections are interleaved per key head; Qwen3.5's four are flat.
INTERLEAVED = {
    "qkvz_layout": "H (q=K | k=K | v=G V | z=G V)",
    "ba_layout": "H (b=G | a=G)",
    "z_layout": None,
    "a_layout": None,
}
FLAT = {
    "qkvz_layout": "q=H K | k=H K | v=H G V",
    "ba_layout": "b=H G",
    "z_layout": "z=H G V",
    "a_layout": "a=H G",
}
STATE_LAYOUT = "[HV,K,V]"
ROUNDING = "transformers"  # where its own code rounds


def _interleaved(layer: Any, x: Tensor) -> dict[str, Any]:
    rows = {"qkvz": layer.in_proj_qkvz(x), "ba": layer.in_proj_ba(x), "z": None, "a": None}
    return {**rows, **INTERLEAVED}


def _flat(layer: Any, x: Tensor) -> dict[str, Any]:
    rows = {
        "qkvz": layer.in_proj_qkv(x),
        "ba": layer.in_proj_b(x),
        "z": layer.in_proj_z(x),
        "a": layer.in_proj_a(x),
    }
    return {**rows, **FLAT}


def _bind(place: Place, rows: Callable[[Any, Tensor], dict[str, Any]]) -> Forward:
    layer: Any = place.module
    if layer.activation not in ("silu", "swish"):
        raise Unsupported(f"its convolution's activation is {layer.activation}, not SiLU")
    gate = getattr(layer.norm, "activation", "silu")
    if gate not in ("silu", "swish", "sigmoid"):
        raise Unsupported(f"its norm's gate is {gate}, neither SiLU nor sigmoid")
    refuse(listened_to(layer.conv1d) or listened_to(layer.norm))
    own = sys.modules[type(layer).__module__]
    if type(layer.norm).__module__ != own.__name__:
        raise Unsupported(f"its norm is {type(layer.norm).__name__}, not transformers' own")
    mask_padding = own.apply_mask_to_padding_states
    constants = {
        "num_k_heads": layer.num_k_heads,
        "num_v_heads": layer.num_v_heads,
        "head_k_dim": layer.head_k_dim,
        "head_v_dim": layer.head_v_dim,
        "norm_eps": layer.norm.variance_epsilon,
        "gate_activation": "sigmoid" if gate == "sigmoid" else "silu",
        "state_layout": STATE_LAYOUT,
        "rounding": ROUNDING,
    }

    def forward(
        layer: Any,
        hidden_states: Tensor,
        cache: Any = None,
        attention_mask: Tensor | None = None,
        cache_params: Any = None,  # what `cache` was called before 5.24
        **kwargs: Any,
    ) -> Tensor:
        cache = cache_params if cache is None else cache
        states = _states(place.name, layer, hidden_states, cache, kwargs)
        if states is None:
            return place.original(layer, hidden_states, cache, attention_mask, **kwargs)
        x = mask_padding(hidden_states, attention_mask)[:, 0]
        arguments = rows(layer, x)
        place.hit()
        core = place.call(
            arguments.pop("qkvz"),
            arguments.pop("ba"),
            *states,
            layer.conv1d.weight.squeeze(1),
            layer.conv1d.bias,
            layer.A_log,
            layer.dt_bias,
            layer.norm.weight,
            **arguments,
            **constants,
        )
        return layer.out_proj(core.reshape(x.shape[0], 1, -1))

    return forward


def _states(
    name: str, layer: Any, hidden_states: Tensor, cache: Any, kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor] | None:
    """conv_state and state themselves, to be written in place; None where this is no decode step."""
    if cache is None or hidden_states.shape[1] != 1 or kwargs.get("cu_seq_lens_q") is not None:
        return None
    if needs_gradient(hidden_states, layer) or listened_to(layer.conv1d) or listened_to(layer.norm):
        return None
    cached = cache.layers[layer.layer_idx] if hasattr(cache, "layers") else cache
    if not isinstance(cached, LinearAttentionLayer):
        raise RuntimeError(
            f"gdn_decode in {name}: the cache's layer is {type(cached).__name__}; the states of a "
            "LinearAttentionLayer can be updated in place, those of another class are unknown. Let "
            "transformers make the cache (DynamicCache(config=...)), or set TRUEFUSE_DISABLE=gdn_decode"
        )
    if cached.record_past or not cache.has_previous_state(layer.layer_idx):
        return None
    return cached.conv_states[0], cached.recurrent_states[0]


REPLACEMENTS = (
    Replacement(
        "gdn_decode", ("Qwen3NextGatedDeltaNet",), lambda place: _bind(place, _interleaved)
    ),
    Replacement(
        "gdn_decode",
        ("Qwen3_5GatedDeltaNet", "Qwen3_5MoeGatedDeltaNet"),
        lambda place: _bind(place, _flat),
    ),
)
