"""What memory allows: the size of the last cache, and the fastest that this device was seen to move bytes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch

from truefuse.context import Context

LEAST_CACHE = 32 << 20
# A device may report only a part of its last cache: an MI300X says 4 MiB and has 256.
GPU_CACHE = 256 << 20
CPU_BUFFER, GPU_BUFFER = 64 << 20, 1 << 30
# Beyond what was measured a device may have this much in hand; a call that beats it has not done the
# work. A CPU is shared with others, and what was measured may have been the worse moment.
MARGIN = {"cpu": 4.0, "cuda": 1.25}
REPEATS = 15


def last_cache_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        reported = torch.cuda.get_device_properties(device).L2_cache_size
        return max(GPU_CACHE, 0 if torch.version.hip else reported)
    sizes = [LEAST_CACHE]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            found = re.fullmatch(r"(\d+)([KMG])", path.read_text().strip())
        except OSError:
            continue
        if found:
            sizes.append(int(found[1]) << {"K": 10, "M": 20, "G": 30}[found[2]])
    return max(sizes)


def measured(context: Context, size: int | None = None) -> float:
    """Bytes per second, the best of copying, reading and writing a buffer of `size` bytes, by default
    a large one."""
    if size is None:
        size = GPU_BUFFER if context.device.type == "cuda" else CPU_BUFFER
    count = max(1, size // 4)
    source = torch.ones(count, device=context.device)
    target = torch.empty_like(source)
    trials: tuple[tuple[int, Callable[[], object]], ...] = (
        (8 * count, lambda: target.copy_(source)),
        (8 * count, lambda: torch.relu(source)),
        (4 * count, lambda: source.sum()),
        (4 * count, lambda: target.zero_()),
    )
    return max(size / fastest(context, call) for size, call in trials)


def fastest(context: Context, call: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls."""
    least = math.inf
    for _ in range(REPEATS):
        context.synchronize()
        begin = time.perf_counter()
        call()
        context.synchronize()
        least = min(least, time.perf_counter() - begin)
    return least


def floor_seconds(context: Context, size: int, bandwidth: float) -> float:
    """No call that reads and writes `size` bytes of memory can be faster."""
    return size / (bandwidth * MARGIN[context.device.type])
