"""How fast this device was seen to compute: no call that does so many operations can be faster."""

from __future__ import annotations

import torch

from truefuse.bandwidth import MARGIN, fastest
from truefuse.context import Context

SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices whose product is timed


def measured(context: Context, dtype: torch.dtype) -> float:
    """Operations per second of a matrix product in `dtype`, where a multiplication and an addition are
    two: the densest arithmetic there is."""
    side = SIDE[context.device.type]
    left = torch.ones(side, side, device=context.device, dtype=dtype)
    return 2 * side**3 / fastest(context, lambda: left @ left)


def floor_seconds(context: Context, operations: float, rate: float) -> float:
    """No call that does so many operations can be faster."""
    return operations / (rate * MARGIN[context.device.type])
