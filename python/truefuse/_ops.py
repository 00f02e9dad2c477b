"""The operators as documented Python functions."""

from __future__ import annotations

from typing import Any

import torch
from torch.compiler import is_dynamo_compiling as _is_traced

from truefuse import _native  # noqa: F401  (registers torch.ops.truefuse)


def _pair(name: str) -> tuple[Any, Any]:
    """The operator, which torch.compile knows, and the function behind it, which is called a third of a
    microsecond sooner. Options go by place there, which PyTorch finds sooner than names."""
    operator = getattr(torch.ops.truefuse, name).default
    return operator, operator._op


_bias_gelu, _bias_gelu_now = _pair("bias_gelu")
_swish, _swish_now = _pair("swish")
_swiglu, _swiglu_now = _pair("swiglu")
_geglu, _geglu_now = _pair("geglu")
_swiglu_packed, _swiglu_packed_now = _pair("swiglu_packed")
_geglu_packed, _geglu_packed_now = _pair("geglu_packed")
_gdn_decode, _gdn_decode_now = _pair("gdn_decode")


def bias_gelu(x: torch.Tensor, bias: torch.Tensor, *, approximate: str) -> torch.Tensor:
    """``gelu(x + bias)`` in one pass over memory.

    Args:
        x: ``[..., hidden]``, float32, float64, float16 or bfloat16, on a CPU, CUDA, ROCm or DCU
            device. The last dimension must be contiguous; the others may have any strides.
        bias: ``[hidden]``, same dtype and device as ``x``, any stride. (Eager PyTorch would promote
            a mixed pair; here the caller converts, so that nothing is rounded unasked.)
        approximate: ``"tanh"`` for ``0.5 v (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)))``, ``"none"``
            for the exact ``v Phi(v)``. There is no default: the two are different functions.

    Returns:
        A contiguous tensor of x's shape, dtype and device. Half types are computed in float32 from
        the unrounded sum and rounded once.

    Raises:
        RuntimeError: what the contract does not allow, in a sentence that names the argument.

    Differentiable in reverse mode, as often as wanted. The backward pass reads ``x`` and the incoming
    gradient, of any strides, once; only the gradients that are asked for are computed. Sums for
    ``bias`` are kept in float32 (float64 for float64) and added in a fixed order, so every run gives
    the same bits.
    """
    return (_bias_gelu if _is_traced() else _bias_gelu_now)(x, bias, approximate)


def swish(x: torch.Tensor) -> torch.Tensor:
    """``x * sigmoid(x)`` (SiLU), element by element, in one pass over memory.

    Args:
        x: float32, float64, float16 or bfloat16, on a CPU, CUDA, ROCm or DCU device; any shape, any
            strides.

    Returns:
        A tensor of x's shape, dtype and device. It lies in memory as x does (channels_last stays
        channels_last), without gaps. Half types are computed in float32 and rounded once.

    The gradient is ``sigmoid(x) (1 + x sigmoid(-x))`` times the incoming one, whose strides are read
    as they are; it is 0.5 at 0, 1 and 0 at the infinities.
    """
    return (_swish if _is_traced() else _swish_now)(x)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, gate_rounding: str) -> torch.Tensor:
    """``swish(gate) * up`` in one pass over memory.

    Args:
        gate: ``[..., hidden]``, float32, float64, float16 or bfloat16; any strides.
        up: shape, dtype and device of ``gate``; any strides.
        gate_rounding: ``"none"`` keeps ``swish(gate)`` in float32 until it is multiplied;
            ``"storage"`` first rounds it to the dtype, as ``F.silu(gate) * up`` does. They differ in
            half types only, by about one unit in the last place; there is no default.

    Returns:
        A contiguous tensor of gate's shape, dtype and device.

    Raises:
        RuntimeError: what the contract does not allow, in a sentence that names the argument.
    """
    return (_swiglu if _is_traced() else _swiglu_now)(gate, up, gate_rounding)


def geglu(
    gate: torch.Tensor, up: torch.Tensor, *, approximate: str, gate_rounding: str
) -> torch.Tensor:
    """``gelu(gate) * up`` in one pass over memory: see :func:`swiglu`.

    Args:
        approximate: ``"tanh"`` or ``"none"``, as for :func:`bias_gelu`.
    """
    return (_geglu if _is_traced() else _geglu_now)(gate, up, approximate, gate_rounding)


def swiglu_packed(packed: torch.Tensor, *, packing: str, gate_rounding: str) -> torch.Tensor:
    """``swish(gate) * up`` for gate and up in one tensor, such as a fused projection makes.

    Args:
        packed: ``[..., 2 * hidden]``; any strides.
        packing: where the two lie in the last dimension. ``"gate|up"`` and ``"up|gate"`` are halves
            (``F.glu`` has the gate in the second one), ``"gate,up interleaved"`` and
            ``"up,gate interleaved"`` take turns. There is no default.
        gate_rounding: as for :func:`swiglu`.

    Returns:
        ``[..., hidden]``, contiguous. The gradient of ``packed`` is one contiguous tensor.
    """
    call = _swiglu_packed if _is_traced() else _swiglu_packed_now
    return call(packed, packing, gate_rounding)


def geglu_packed(
    packed: torch.Tensor, *, packing: str, approximate: str, gate_rounding: str
) -> torch.Tensor:
    """``gelu(gate) * up`` for gate and up in one tensor: see :func:`swiglu_packed`."""
    call = _geglu_packed if _is_traced() else _geglu_packed_now
    return call(packed, packing, approximate, gate_rounding)


def gdn_decode(
    qkvz: torch.Tensor,
    ba: torch.Tensor | None,
    conv_state: torch.Tensor,
    state: torch.Tensor,
    conv_weight: torch.Tensor,
    conv_bias: torch.Tensor | None,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    norm_weight: torch.Tensor | None,
    *,
    qkvz_layout: str,
    state_layout: str,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    rounding: str,
    ba_layout: str | None = None,
    z: torch.Tensor | None = None,
    z_layout: str | None = None,
    a: torch.Tensor | None = None,
    a_layout: str | None = None,
    state_indices: torch.Tensor | None = None,
    write_indices: torch.Tensor | None = None,
    num_accepted: torch.Tensor | None = None,
    padding: str | None = None,
    norm_eps: float | None = None,
    gate_activation: str | None = None,
) -> torch.Tensor:
    """One decode step of a Gated DeltaNet layer; writes ``conv_state`` and ``state`` in place.

    Split of the projections, causal convolution with SiLU, gates, q/k norm, delta rule and, if
    ``norm_weight`` is given, the gated RMSNorm, for one or more tokens of each sequence. The rows may
    have any layout: ``qkvz_layout`` and ``ba_layout`` say which, and have no default. Every argument,
    the mathematics and the rounding points are in docs/gdn.md.

    Returns:
        ``[batch, (tokens,) num_v_heads, head_v_dim]`` in the dtype of ``qkvz``; zeros for padding.

    Raises:
        RuntimeError: what the contract or the layouts do not allow, in a sentence that names the
            argument, before anything is written; also if a gradient is required.
    """
    return (_gdn_decode if _is_traced() else _gdn_decode_now)(
        qkvz, ba, conv_state, state, conv_weight, conv_bias, A_log, dt_bias, norm_weight,
        qkvz_layout=qkvz_layout, state_layout=state_layout, num_k_heads=num_k_heads,
        num_v_heads=num_v_heads, head_k_dim=head_k_dim, head_v_dim=head_v_dim, rounding=rounding,
        ba_layout=ba_layout, z=z, z_layout=z_layout, a=a, a_layout=a_layout,
        state_indices=state_indices, write_indices=write_indices, num_accepted=num_accepted,
        padding=padding, norm_eps=norm_eps, gate_activation=gate_activation,
    )  # fmt: skip
