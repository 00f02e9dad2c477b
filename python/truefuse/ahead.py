"""Kernels that the gates will need, compiled many at a time before the first gate; compiled when they are
needed, each would hold up a gate of its own. What does not compile is left to that gate."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from truefuse import _native
from truefuse import case as cases
from truefuse._runtime import prepare
from truefuse.case import Inputs, Mode
from truefuse.context import Context
from truefuse.gates.bounds import guard
from truefuse.variants import variants

NAME = "ahead"
FEWEST_CORES = 4


def compile_ahead(context: Context) -> None:
    """Those of an operator of the library and of its backward. Where the case has other sizes than the models, of
    which the shipped kernels are, calls like those of the gates have them compiled: only the library's own
    candidate is called, which any thread may call, and the results are looked at by nobody."""
    case = context.case
    namespace, _, name = (case.operator or "").partition("::")
    cores = len(os.sched_getaffinity(0))
    if namespace != "truefuse" or cores < FEWEST_CORES:
        return
    if not case.uses_shipped_variants:
        if context.target in cases.builtin_names():
            _call_all(context, cores)
        return
    known = {one["name"] for one in _native.operators() if one["namespace"] == namespace}
    for one in (name, f"{name}_backward"):
        if one in known:
            with contextlib.suppress(RuntimeError):
                prepare(one, context.device)


def _call_all(context: Context, threads: int) -> None:
    candidate = context.case.candidate

    def call(inputs: Inputs, mode: Mode) -> None:
        with torch.no_grad(), contextlib.suppress(RuntimeError):
            context.call(candidate, inputs, mode)

    with ThreadPoolExecutor(threads) as pool:
        for one in _calls(context):
            pool.submit(call, *one)


def _calls(context: Context) -> Iterator[tuple[Inputs, Mode]]:
    """What the contract allows, and the sizes of the other gates, at aligned addresses and at others."""
    case = context.case
    sizes = (case.small_size, case.medium_size, case.numeric_size)
    for dtype in case.dtypes:
        given = [
            one.inputs for one in variants(context, context.contract or {"arguments": []}, dtype)
        ]
        for size in dict.fromkeys((*sizes, *case.edge_sizes, *case.special_sizes)):
            inputs = context.inputs(size, dtype, case.kinds[0], NAME)
            moved = {name: _moved(value) for name, value in inputs.items()}
            given += [inputs, moved]
        for mode in case.modes:
            yield from ((inputs, mode) for inputs in given)


def _moved(value: Any) -> Any:
    """As the gate of bounds lays a tensor: one element beyond alignment, its strides kept."""
    if not isinstance(value, Tensor) or 0 in value.stride():
        return value
    view = guard(value, 0, 1).view
    view.copy_(value)
    return view
