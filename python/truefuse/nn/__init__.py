"""Modules to swap in: their parameters have the names of those that they replace."""

from truefuse.nn.gated import GeGLU, PackedGeGLU, PackedSwiGLU, SwiGLU
from truefuse.nn.swish import Swish

__all__ = ["GeGLU", "PackedGeGLU", "PackedSwiGLU", "SwiGLU", "Swish"]
