"""Compiling ahead of the first call, and what compiling has cost."""

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


def cache_statistics() -> dict[str, dict[str, float]]:
    """Where this process had its kernels from, and what that cost:

    - ``compiled`` (cold), ``disk`` (from the cache; waiting for a process that was compiling the same
      kernel included), ``bundle``, ``failed`` (the compiler ended with an error) and ``loaded`` (handed
      to the driver), each with ``count``, ``seconds`` together and ``most_seconds``, the dearest one;
    - ``warm``: how many ``kernels`` are loaded, and the ``lookup_seconds`` in which a call finds one,
      measured now. Calls that find theirs loaded are not counted, which would cost each of them time.
    """
    return _native.statistics()
