"""Operators of truefuse in transformers' models.

from truefuse.integrations.transformers import use

with use(model, ops=["bias_gelu"]):
    model.generate(...)
"""

from truefuse.integrations.transformers.swap import Swap, use

__all__ = ["Swap", "use"]
