"""The operators as documented Python functions."""

from __future__ import annotations

import torch

from truefuse import _native  # noqa: F401  (registers torch.ops.truefuse)

_bias_gelu = torch.ops.truefuse.bias_gelu.default
_gdn_decode = torch.ops.truefuse.gdn_decode.default


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
        RuntimeError: what the contract does not allow, in a sentence that names the argument; also
            if a gradient is required, because the operator has no derivative yet.
    """
    return _bias_gelu(x, bias, approximate=approximate)


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
    return _gdn_decode(
        qkvz, ba, conv_state, state, conv_weight, conv_bias, A_log, dt_bias, norm_weight,
        qkvz_layout=qkvz_layout, state_layout=state_layout, num_k_heads=num_k_heads,
        num_v_heads=num_v_heads, head_k_dim=head_k_dim, head_v_dim=head_v_dim, rounding=rounding,
        ba_layout=ba_layout, z=z, z_layout=z_layout, a=a, a_layout=a_layout,
        state_indices=state_indices, write_indices=write_indices, num_accepted=num_accepted,
        padding=padding, norm_eps=norm_eps, gate_activation=gate_activation,
    )  # fmt: skip
