"""The memory high-water of one call, beyond what was there before it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from truefuse.context import Context
from truefuse.profiling import record


def label(context: Context) -> str:
    if context.device.type == "cuda":
        return "allocator's high-water during one call, beyond what was allocated before"
    return "live tensor bytes: high-water of the CPU allocator during one call, beyond its inputs"


def peak(context: Context, call: Callable[[], Any]) -> dict[str, int | None]:
    """{"allocated": bytes, "reserved": bytes or None} of one call; None where it is not measured."""
    call()  # whatever is allocated once and kept is not part of a call
    with _no_garbage_collection():
        if context.device.type == "cuda":
            return _on_gpu(context, call)
        return {"allocated": _on_cpu(call), "reserved": None}


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """What others have left behind is not released in the middle of a call."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _on_gpu(context: Context, call: Callable[[], Any]) -> dict[str, int | None]:
    device = context.device
    context.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    result = call()
    context.synchronize()
    del result
    return {
        "allocated": torch.cuda.max_memory_allocated(device) - allocated,
        "reserved": torch.cuda.max_memory_reserved(device) - reserved,
    }


def kept(context: Context, call: Callable[[], Any]) -> int | None:
    """Bytes that are still allocated after the result of a call is gone; None where it is not
    measured."""
    if context.device.type == "cuda":
        before = torch.cuda.memory_allocated(context.device)
        call()
        context.synchronize()
        return torch.cuda.memory_allocated(context.device) - before
    changes = _changes(call)
    return sum(changes) if changes else None


def _on_cpu(call: Callable[[], Any]) -> int | None:
    live = highest = 0
    for change in _changes(call):
        live += change
        highest = max(highest, live)
    return highest or None


def _changes(call: Callable[[], Any]) -> list[int]:
    """Every allocation and release in bytes, in order, also those inside C++ operators."""
    recorded = record(call, [torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    results = getattr(recorded.profiler, "kineto_results", None)
    events = results.events() if results is not None else []
    found = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return [change for _, change in found]
