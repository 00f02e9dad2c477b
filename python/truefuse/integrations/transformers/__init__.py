"""Operators of truefuse in transformers' models.

from truefuse.integrations.transformers import use

with use(model, ops=["bias_gelu"]):
    model.generate(...)
"""

import torch
import transformers

if not transformers.utils.is_torch_available():
    raise ImportError(
        f"transformers {transformers.__version__} does not work with PyTorch {torch.__version__}, which is "
        "too old for it; install another version of one of them"
    )

from truefuse.integrations.transformers.swap import Swap, use

__all__ = ["Swap", "use"]
