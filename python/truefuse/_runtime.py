"""Compiling ahead of the first call."""

from __future__ import annotations

import torch

from truefuse import _native


def prepare(operator: str, device: torch.device | str | int | None = None) -> None:
    """Compiles and loads every kernel variant of ``operator`` (a name such as ``"bias_gelu"``) for a
    GPU, so that no later call compiles; with ``TRUEFUSE_NO_COMPILE=1`` a late compile is an error.

    ``device`` defaults to the current one. Raises RuntimeError with the compiler's own words.
    """
    chosen = torch.device("cuda" if device is None else device)
    if chosen.type != "cuda":
        raise RuntimeError(
            f"prepare: device is {chosen}; kernels are compiled for CUDA, ROCm and DCU devices "
            '("cuda" in PyTorch). On the CPU nothing needs preparing.'
        )
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    _native.prepare(operator, index)
