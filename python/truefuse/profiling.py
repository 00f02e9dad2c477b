"""PyTorch's profiler, without what it writes to standard error about itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.profiler import ProfilerActivity, profile


def record(
    call: Callable[[], Any], activities: Sequence[ProfilerActivity], **options: bool
) -> profile:
    """Profiles one call; its result is released before the profile ends."""
    with _quiet_stderr(), profile(activities=list(activities), **options) as recorded:
        call()
    return recorded


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """The profiler's C++ library logs to file descriptor 2 and takes no orders once it is loaded."""
    try:
        kept = os.dup(2)
    except OSError:  # closed: then nothing can be written to it either
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
