"""Streams, synchronisation and graphs."""

from __future__ import annotations

import torch
from subject import checked, swish_bias, wide

from cheats.common import Row


def on_the_default_stream():
    """A kernel launched on stream 0, whatever PyTorch's current stream is."""

    def candidate(x, bias):
        with torch.cuda.stream(torch.cuda.default_stream(x.device)):
            return wide(swish_bias)(x, bias)

    return checked(candidate)


def on_the_first_stream():
    """A stream that is baked into cached launch arguments."""
    streams = {}

    def candidate(x, bias):
        if x.device.type != "cuda":
            return wide(swish_bias)(x, bias)
        stream = streams.setdefault(x.device, torch.cuda.current_stream(x.device))
        with torch.cuda.stream(stream):
            return wide(swish_bias)(x, bias)

    return checked(candidate)


def on_a_stream_that_is_joined():
    """Honest use of a second stream."""
    streams = {}

    def candidate(x, bias):
        if x.device.type != "cuda":
            return wide(swish_bias)(x, bias)
        side = streams.setdefault(x.device, torch.cuda.Stream(x.device))
        current = torch.cuda.current_stream(x.device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            out = wide(swish_bias)(x, bias)
        out.record_stream(current)
        current.wait_stream(side)
        return out

    return checked(candidate)


def synchronises():
    def candidate(x, bias):
        out = wide(swish_bias)(x, bias)
        if x.device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(x.device)
        return out

    return checked(candidate)


def reads_a_value_back():
    def candidate(x, bias):
        out = wide(swish_bias)(x, bias)
        if out.numel() and not bool(out.flatten()[0].isnan()):
            return out
        return out + 0

    return checked(candidate)


def launches_nothing_after_the_first():
    kept = {}

    def candidate(x, bias):
        key = (x.shape, x.dtype)
        if key not in kept:
            kept[key] = wide(swish_bias)(x, bias)
        return kept[key]

    return checked(candidate)


ROWS = (
    Row(
        "A4 mission A/B: work on the default stream",
        "streams",
        on_the_default_stream,
        on_a_stream_that_is_joined,
        where="cuda",
    ),
    Row("A5 a stream remembered from the first call", "streams", on_the_first_stream, where="cuda"),
    Row("A4 absent from the graph", "capture", launches_nothing_after_the_first, where="cuda"),
    Row("the device synchronised in the call", "sync", synchronises, where="cuda"),
    Row("a value read back in the call", "sync", reads_a_value_back, where="cuda"),
    Row(
        "nothing launched after the first call",
        "launches",
        launches_nothing_after_the_first,
        where="cuda",
    ),
)
