"""Modules to put in the place of PyTorch's own; state dicts fit."""

from truefuse.nn.bias_gelu import BiasGelu

__all__ = ["BiasGelu"]
