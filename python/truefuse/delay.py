"""Work that keeps a stream of a GPU busy for a known time, made of public operators alone.

A few large products rather than many small ones: a long queue of small launches blocks the host, which
looks like a hidden synchronisation.
"""

from __future__ import annotations

import math

import torch

SIZE = 4096


class Delay:
    """Calibrated on creation. `on(stream, milliseconds)` enqueues and returns at once."""

    def __init__(self, device: torch.device) -> None:
        self._matrices: dict[int, list[torch.Tensor]] = {}
        self._device = device
        stream = torch.cuda.current_stream(device)
        self._product(stream)  # loads the library
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        for _ in range(3):
            self._product(stream)
        end.record(stream)
        end.synchronize()
        self._each = begin.elapsed_time(end) / 3

    def prepare(self, stream: torch.cuda.Stream) -> None:
        """Whatever the library allocates for a stream is allocated before it matters."""
        self._product(stream)
        stream.synchronize()

    def on(self, stream: torch.cuda.Stream, milliseconds: float) -> torch.cuda.Event:
        """The event is recorded behind the delay."""
        for _ in range(math.ceil(milliseconds / self._each)):
            self._product(stream)
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def _product(self, stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            key = stream.cuda_stream
            if key not in self._matrices:
                self._matrices[key] = [
                    torch.ones(SIZE, SIZE, device=self._device) for _ in range(3)
                ]
            left, right, out = self._matrices[key]
            torch.mm(left, right, out=out)
