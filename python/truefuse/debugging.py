"""When something is wrong, from the outside in: environment, compile, a tiny input beside the reference,
random inputs, real shapes, the model. Stops at the first step that fails."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from truefuse import acceptance, case_check, command_line, in_place, supervise, worker
from truefuse import case as cases
from truefuse.child import EndedEarly
from truefuse.context import CandidateRaised, Context, describe, mode_name, short
from truefuse.gates import compiled, edges, numerics, run_one, special
from truefuse.gates.edges import coarse_error
from truefuse.terminal import MARKS
from truefuse.verdict import Result, Status
from truefuse.worker import contract_of

Step = Callable[[Context], Iterator[str]]
COMMAND = (sys.executable, "-m", "truefuse.debugging")
SHOWN = 8  # elements of a tiny result
SHOWN_WORDS = 12  # lines of what a process that died has said


class Failed(Exception):
    """What is wrong, and what to do."""


Event = dict[
    str, Any
]  # {"kind": "step", "name"}, {"kind": "line", "text", "style", "indent"}, {"kind": "end"}


def walk(events: Iterator[Event], screen: Any) -> int:
    """Shows them as they come; the exit status: 0 all steps that can be taken here hold, 1 one failed, 2 no
    such case."""
    for event in events:
        if event["kind"] == "end":
            return event["status"]
        if event["kind"] == "line":
            screen.line(event["text"], event["style"], event["indent"])
    return 1


def of_child(target: str, device: torch.device, seed: int, limit: float | None) -> Iterator[Event]:
    """`events` in a process of its own: one that crashes, hangs or exits has failed in that step."""
    request = supervise.Request(target, str(device), seed, time_limit=limit, command=COMMAND)
    with request.child() as child:
        try:
            for event in child.messages(lambda step: request.limit):
                yield event
                if event["kind"] == "end":
                    return
        except EndedEarly as error:
            yield _failure(f"{error} ({error.step})")
            for line in error.words.strip().splitlines()[-SHOWN_WORDS:]:
                yield _line(line, indent=4)
            yield _again(target, device, seed)
            yield {"kind": "end", "status": 128 + error.signal if error.signal else 1}


def events(
    target: str, device: torch.device, seed: int, limit: float | None = None
) -> Iterator[Event]:
    yield {"kind": "step", "name": supervise.LOAD}
    try:
        case = cases.load(target)
        contract = contract_of(case)
        with torch.no_grad():
            case_check.ask(case, device, contract)
        context = in_place.judged(Context(case, device, seed, target, contract))
    except cases.NotFound as error:
        yield _line(f"truefuse: {error}")
        yield {"kind": "end", "status": 2}
        return
    except (cases.CaseError, RuntimeError) as error:
        yield _failure(f"the case: {error}", indent=0)
        yield {"kind": "end", "status": 1}
        return
    for number, (name, step) in enumerate(STEPS, start=1):
        yield {"kind": "step", "name": name}
        yield _line(f"{number} {name}", "bold")
        try:
            with torch.no_grad():
                for line in step(context):
                    yield _line(line, indent=4)
        except Exception as error:
            is_ours = isinstance(error, (Failed, CandidateRaised))
            yield _failure(str(error) if is_ours else f"{type(error).__name__}: {error}")
            yield _again(target, device, seed)
            yield {"kind": "end", "status": 1}
            return
    yield {"kind": "end", "status": 0}


def _line(text: str, style: str = "", indent: int = 0) -> Event:
    return {"kind": "line", "text": text, "style": style, "indent": indent}


def _failure(text: str, indent: int = 2) -> Event:
    return _line(f"{MARKS[Status.FAIL]} {text}", "bold red", indent)


def _again(target: str, device: torch.device, seed: int) -> Event:
    return _line(f"again: {command_line.of('debug', target, str(device), seed)}", indent=2)


def main() -> None:
    """The child: the one argument is the request as JSON; events go to the pipe that it names."""
    faulthandler.enable()
    request, send = worker.answering()
    worker.end_with_parent(request["parent"])
    for event in events(request["target"], torch.device(request["device"]), request["seed"]):
        send(event.pop("kind"), **event)


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
    command = acceptance.whole_model(context.case.operator, context.device)
    yield f"the case knows no model; what compares outputs first, and times only then: {command}"


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


if __name__ == "__main__":
    main()
