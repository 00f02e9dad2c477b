"""How many kernels a call launches, as a calibrated profiler sees it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity

from truefuse.context import Context
from truefuse.profiling import record


def count(context: Context, call: Callable[[], object]) -> int | None:
    """Device activities (kernels, copies, fills) of one call; None where they cannot be counted.

    A profiler may lose events, so it first has to see a known number of them.
    """
    if context.device.type != "cuda":
        return None
    ones = torch.ones(64, device=context.device)
    if _observed(context, lambda: [ones.add(1) for _ in range(7)]) != 7:
        return None
    return _observed(context, call)


def _observed(context: Context, call: Callable[[], object]) -> int:
    def finished() -> None:
        call()
        context.synchronize()

    context.synchronize()
    recorded = record(finished, [ProfilerActivity.CPU, ProfilerActivity.CUDA])
    on_device = torch.autograd.DeviceType.CUDA
    return sum(event.device_type == on_device for event in recorded.events())
