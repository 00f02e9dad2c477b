"""``torch.nn.SiLU`` with a fused backward."""

from __future__ import annotations

from torch import Tensor, nn

from truefuse._ops import swish


class Swish(nn.Module):
    """``x * sigmoid(x)``, in place of ``torch.nn.SiLU()``; see :func:`truefuse.swish`."""

    def forward(self, x: Tensor) -> Tensor:
        return swish(x)
