"""The operators as documented Python functions."""

from __future__ import annotations

import torch

from truefuse import _native  # noqa: F401  (registers torch.ops.truefuse)

_bias_gelu = torch.ops.truefuse.bias_gelu.default


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
    return _bias_gelu(x, bias, approximate=approximate)
