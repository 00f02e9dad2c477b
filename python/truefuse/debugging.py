"""When something is wrong, from the outside in: environment, compile, a tiny input beside the reference,
random inputs, real shapes, the model. Stops at the first step that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from truefuse import case as cases
from truefuse.context import Context, describe, mode_name, short
from truefuse.gates import compiled, edges, numerics, run_one, special
from truefuse.gates.edges import coarse_error
from truefuse.verdict import Result, Status
from truefuse.worker import contract_of

Step = Callable[[Context], Iterator[str]]
SHOWN = 8  # elements of a tiny result


class Failed(Exception):
    """What is wrong, and what to do."""


def walk(target: str, device: torch.device, seed: int, screen: Any) -> int:
    """Exit status: 0 all steps that can be taken here hold, 1 one failed, 2 no such case."""
    try:
        case = cases.load(target)
    except cases.NotFound as error:
        screen.line(f"truefuse: {error}")
        return 2
    except cases.CaseError as error:
        screen.line(f"{screen.mark(Status.FAIL)} the case: {error}", "bold red")
        return 1
    context = Context(case, device, seed, target, contract_of(case.operator) or case.contract)
    for number, (name, step) in enumerate(STEPS, start=1):
        screen.line(f"{number} {name}", "bold")
        try:
            with torch.no_grad():
                for line in step(context):
                    screen.line(line, indent=4)
        except Failed as failure:
            screen.line(f"{screen.mark(Status.FAIL)} {failure}", "bold red", indent=2)
            screen.line(f"again: truefuse debug {target} --device {device} --seed {seed}", indent=2)
            return 1
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            screen.line(f"{screen.mark(Status.FAIL)} {text}", "bold red", indent=2)
            return 1
    return 0


def _environment(context: Context) -> Iterator[str]:
    from truefuse import environment

    yield environment.one_line(environment.describe(context.device))
    value = torch.ones(1, device=context.device).add(1).item()
    if value != 2:
        raise Failed(f"one plus one is {value} on {context.device}: see `truefuse doctor --device`")
    yield f"a one-element tensor works on {context.device}"


def _compile(context: Context) -> Iterator[str]:
    yield from _gate(compiled, context)


def _tiny(context: Context) -> Iterator[str]:
    case = context.case
    size = case.special_sizes[min(1, len(case.special_sizes) - 1)]
    for dtype in case.dtypes:
        for mode in case.modes:
            inputs = context.inputs(size, dtype, case.kinds[0], "tiny")
            results = context.candidate(inputs, mode)
            yield f"{short(dtype)} {mode_name(mode)}: {describe(inputs, mode)}"
            for name, reference in context.reference(inputs, mode).items():
                for side, tensor in (("reference", reference.rounded), (name, results[name])):
                    values = tensor.flatten()[:SHOWN].tolist()
                    yield f"  {side:<10} " + "  ".join(f"{value:>12.6g}" for value in values)
            complaint = coarse_error(context, inputs, mode, results)
            if complaint:
                raise Failed(complaint)


def _random(context: Context) -> Iterator[str]:
    for gate in (edges, numerics, special):
        yield from _gate(gate, context)


def _real(context: Context) -> Iterator[str]:
    case = context.case
    for size in case.timing_sizes:
        inputs = context.inputs(size, case.timed_dtype, case.kinds[0], "real")
        mode = case.timed_mode
        complaint = coarse_error(context, inputs, mode, context.candidate(inputs, mode))
        if complaint:
            raise Failed(f"{list(size)}: {complaint}")
        yield f"{' × '.join(map(str, size))} {short(case.timed_dtype)}: every element right"


def _model(context: Context) -> Iterator[str]:
    yield "the case knows no model: run yours with and without the operator, on equal requests, and"
    yield "compare its outputs before its times"


STEPS: tuple[tuple[str, Step], ...] = (
    ("environment", _environment),
    ("compile", _compile),
    ("a tiny input beside the reference", _tiny),
    ("random inputs", _random),
    ("real shapes", _real),
    ("the model", _model),
)


def _gate(gate: Any, context: Context) -> Iterator[str]:
    result: Result = run_one(gate, context)
    if result.status in (Status.FAIL, Status.UNKNOWN):
        parts = [result.summary, result.expected and f"expected {result.expected}"]
        parts += [result.got and f"got {result.got}", result.first and f"first {result.first}"]
        raise Failed("; ".join(part for part in parts if part))
    yield f"{result.gate}: {result.summary}"
