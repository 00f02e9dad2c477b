"""The bias of a Linear and the GELU behind it, in one pass over memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from truefuse._ops import bias_gelu
from truefuse.nn.options import require


class BiasGelu(nn.Module):
    """``gelu(x + bias)``, for the output of a Linear that is without its bias.

    ``bias`` is a parameter ``[features]``, named as in ``nn.Linear``. To fuse what a model has:

        mlp.activation = BiasGelu.taking_bias(mlp.up, approximate="tanh")

    moves the bias of ``mlp.up`` here: the same Parameter object, so an optimizer keeps it.

    Args:
        features: size of the last dimension.
        approximate: ``"tanh"`` or ``"none"``, as in ``truefuse.bias_gelu``; required.
        device, dtype: of the bias, which begins as zeros.
    """

    def __init__(
        self,
        features: int,
        *,
        approximate: str,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require("bias_gelu", approximate=approximate)
        self.features = features
        self.approximate = approximate
        self.bias = nn.Parameter(torch.zeros(features, device=device, dtype=dtype))

    @classmethod
    def taking_bias(cls, linear: nn.Linear, *, approximate: str) -> BiasGelu:
        """A module with the bias of ``linear``, which is left without one.

        The parameter changes its place in the model, and with it its name in a state dict: load
        checkpoints of the original model before this, or rename ``<linear>.bias`` to
        ``<activation>.bias`` in them.
        """
        if linear.bias is None:
            raise ValueError("the Linear has no bias to take; use torch.nn.GELU behind it")
        module = cls(linear.out_features, approximate=approximate, device="meta")
        module.bias = linear.bias
        linear.bias = None
        module.train(linear.training)
        return module

    def forward(self, x: Tensor) -> Tensor:
        return bias_gelu(x, self.bias, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"{self.features}, approximate={self.approximate!r}"
