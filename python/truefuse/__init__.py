"""Fused PyTorch operators for Hygon DCU, AMD ROCm and NVIDIA GPUs.

    import truefuse
    y = truefuse.bias_gelu(x, bias, approximate="tanh")

Importing registers the operators as ``torch.ops.truefuse.*``; nothing is compiled until one is called
on a GPU.
"""

from truefuse import _native, nn
from truefuse._ops import (
    bias_gelu,
    gdn_decode,
    geglu,
    geglu_packed,
    swiglu,
    swiglu_packed,
    swish,
)
from truefuse._runtime import cache_statistics, prepare
from truefuse._vmap import register_all, register_vmap
from truefuse.describe import load
from truefuse.layouts import layout

__all__ = [
    "__version__",
    "bias_gelu",
    "cache_statistics",
    "gdn_decode",
    "geglu",
    "geglu_packed",
    "layout",
    "load",
    "nn",
    "prepare",
    "register_vmap",
    "swiglu",
    "swiglu_packed",
    "swish",
]
__version__ = _native.version()
register_all()
