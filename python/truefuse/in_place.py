"""Operators that give nothing but inputs that they have changed: rotary embeddings of q and k, a write to a cache.

Most faults are planted in what a call gives, and found there. So the gates judge such an operator as one that
also gives copies of what it has changed; whoever times it, or counts what it does, takes it as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from truefuse.case import Case
from truefuse.context import Context, as_tuple


def judged(context: Context) -> Context:
    """The context in which the gates judge: `context` itself, unless its case gives nothing of its own."""
    if not gives_nothing_else(context):
        return context
    return replace(context, case=_with_copies(context.case, context.names), given=context.case)


def gives_nothing_else(context: Context) -> bool:
    case = context.case
    inputs = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], "in place")
    changed = {inputs[name].untyped_storage().data_ptr() for name in case.mutates}
    with torch.no_grad():
        made = as_tuple(context.baseline(*inputs.values(), **case.modes[0]))
    return all(one.untyped_storage().data_ptr() in changed for one in made)


def _with_copies(case: Case, names: tuple[str, ...]) -> Case:
    places = [names.index(name) for name in case.mutates]

    def and_copies(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*given: Any, **mode: Any) -> tuple[Any, ...]:
            outputs = as_tuple(function(*given, **mode))
            return (*(given[place].clone() for place in places), *outputs)

        return call

    def sizes(function: Callable[..., Any]) -> Callable[..., Any]:
        """Those of the mutated inputs, which come last, are those of the copies too."""

        def call(*given: Any, **mode: Any) -> tuple[Any, ...]:
            found = as_tuple(function(*given, **mode))
            return (*found[-len(places) :], *found)

        return call

    rounded = case.rounded_reference
    return replace(
        case,
        candidate=and_copies(case.candidate),
        baselines={name: and_copies(one) for name, one in case.baselines.items()},
        reference=and_copies(case.reference),
        yardstick=case.yardstick and and_copies(case.yardstick),
        rounded_reference=rounded and (lambda dtype: and_copies(rounded(dtype))),
        scale=case.scale and sizes(case.scale),
    )
