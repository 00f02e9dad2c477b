"""Time spent in named layers while they process one token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class Stopwatch:
    def __init__(self, device: torch.device) -> None:
        self.seconds = 0.0
        self._device = device
        self._begin = 0.0

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def start(self, *_: Any) -> None:
        self._begin = self._now()

    def stop(self, _: nn.Module, __: Any, output: torch.Tensor) -> None:
        if output.dim() == 3 and output.shape[1] == 1:  # [batch, tokens, hidden]
            self.seconds += self._now() - self._begin


@contextmanager
def stopwatch(model: nn.Module, layers: list[str], device: torch.device) -> Iterator[Stopwatch]:
    """Synchronises around every call of the layers, none of which is within another."""
    watch = Stopwatch(device)
    handles = []
    try:
        for name in layers:
            module = model.get_submodule(name)
            handles.append(module.register_forward_pre_hook(watch.start))
            handles.append(module.register_forward_hook(watch.stop))
        yield watch
    finally:
        for handle in handles:
            handle.remove()
