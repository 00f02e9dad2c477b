"""transformers' own functions for Gated DeltaNet, and those of other packages that it calls where it finds them
(flash-linear-attention, causal-conv1d). What it finds it calls on every device, though these run on GPUs only."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

# Names that a model's module may have; each is a wrapper which chooses when it is called.
FUNCTIONS = (
    "causal_conv1d_update",
    "causal_conv1d_fn",
    "torch_chunk_gated_delta_rule",
    "torch_recurrent_gated_delta_rule",
)


@contextmanager
def put_aside(model: nn.Module) -> Iterator[None]:
    """For as long as the context lasts, the code that `model` comes from calls its own functions."""
    module: Any = sys.modules[type(model).__module__]
    before = {name: getattr(module, name) for name in FUNCTIONS if hasattr(module, name)}
    try:
        for name, function in before.items():
            setattr(module, name, inspect.unwrap(function))
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


@contextmanager
def put_aside_on_cpu(model: nn.Module) -> Iterator[None]:
    """The same where the model is on a CPU; elsewhere nothing changes."""
    if next(model.parameters()).device.type != "cpu":
        yield
        return
    with put_aside(model):
        yield
