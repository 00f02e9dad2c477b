"""Modules to put in the place of PyTorch's own and of published models'; state dicts fit."""

from truefuse.nn.bias_gelu import BiasGelu
from truefuse.nn.gated import GeGLU, PackedGeGLU, PackedSwiGLU, SwiGLU
from truefuse.nn.swish import Swish

__all__ = ["BiasGelu", "GeGLU", "PackedGeGLU", "PackedSwiGLU", "SwiGLU", "Swish"]
