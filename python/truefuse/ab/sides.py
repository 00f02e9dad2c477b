"""The two sides of an A/B, and how a request is run on one of them."""

from __future__ import annotations

import copy
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from truefuse.ab.states import StateLog
from truefuse.ab.trajectory import Output


@dataclass(frozen=True)
class Request:
    """One prompt, in whatever form the sides take it; each run gets a copy of its own.

    With `forced`, a side decodes these tokens whatever the model prefers. With `observe`, it fills in
    every field of Step that it can; otherwise only `token`, so that nothing extra is timed.
    """

    name: str
    prompt: Any
    max_tokens: int
    seed: int = 0
    forced: tuple[int, ...] | None = None
    observe: bool = False


@dataclass(frozen=True)
class Step:
    """One generated token. It is handed over when it is known on the host: no work is left running.

    `margin` is the best logit less the second, `preferred` the best token, `log_probability` that of
    `token`; `states` are the model's recurrent states after the step, by name, in the order of layers.
    """

    token: int
    margin: float | None = None
    preferred: int | None = None
    log_probability: float | None = None
    states: Mapping[str, Tensor] = field(default_factory=dict)


# Yields the tokens of a request; the generator's return value is the stop reason.
Run = Callable[[Request], Iterator[Step]]


@dataclass(frozen=True)
class Side:
    """`active` is entered around every pass (it swaps operators in, for instance). `hits` gives how
    often the operator under test has run so far, by layer or operator; None: nobody counts. Of a candidate
    `operators` are those of which each has to run; none are named: one that runs is enough."""

    name: str
    run: Run
    active: Callable[[], AbstractContextManager[Any]] = nullcontext
    hits: Callable[[], Mapping[str, int]] | None = None
    operators: Sequence[str] = ()


@dataclass
class Played:
    """A request's output with its times in seconds (of each token, since the request began)."""

    output: Output
    times: list[float]
    total: float
    steps: list[Step]  # without states; empty unless observed
    states: StateLog


@dataclass
class Pass:
    """All requests, once, on one side."""

    played: list[Played]
    hits: dict[str, int] | None
    peak_bytes: int | None

    @property
    def outputs(self) -> list[Output]:
        return [played.output for played in self.played]


def play(
    side: Side, requests: Sequence[Request], device: torch.device, state_bytes: int = 0
) -> Pass:
    """Runs the requests one after the other. An exception of a side, sys.exit too, ends its request, not the pass."""
    on_gpu = device.type == "cuda"
    with side.active():
        before = dict(side.hits()) if side.hits else None
        _finish(device)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(device)
        played = []
        for request in requests:
            played.append(_play_one(side, request, device, state_bytes))
            state_bytes -= played[-1].states.bytes
        peak = torch.cuda.max_memory_allocated(device) if on_gpu else None
        hits = None
        if before is not None and side.hits:
            counts = {name: n - before.get(name, 0) for name, n in side.hits().items()}
            hits = {name: count for name, count in counts.items() if count}
    return Pass(played, hits, peak)


def _of_type(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _finish(device: torch.device) -> None:
    """What is queued belongs to the token before: a recorded token (mode "forced") is there before the
    device has computed anything. Sides may use a GPU of which nobody said `device`."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _play_one(side: Side, request: Request, device: torch.device, state_bytes: int) -> Played:
    request = replace(request, prompt=copy.deepcopy(request.prompt))
    torch.manual_seed(request.seed)
    tokens: list[int] = []
    steps: list[Step] = []
    times: list[float] = []
    states = StateLog(state_bytes)
    stop = error = None
    begin = time.perf_counter()
    try:
        generator = side.run(request)
        if not isinstance(generator, Iterator):
            raise TypeError(
                f"the side {side.name} returned {_of_type(generator)}; it must be a generator that "
                "yields truefuse.ab.Step"
            )
        while True:
            step = next(generator)
            if not isinstance(step, Step):
                raise TypeError(
                    f"the side {side.name} yielded {_of_type(step)}; it must be a truefuse.ab.Step"
                )
            token = operator.index(step.token)  # On the host, if it was not yet.
            _finish(device)
            times.append(time.perf_counter() - begin)
            tokens.append(token)
            if request.observe:
                states.add(len(tokens) - 1, step.states)
                steps.append(replace(step, states={}))
    except StopIteration as end:
        stop = None if end.value is None else str(end.value)
    except (Exception, SystemExit) as exception:  # sys.exit(0) would pass for an acceptance
        error = f"{type(exception).__name__}: {exception}"
    _finish(device)
    total = time.perf_counter() - begin
    return Played(
        Output(tuple(tokens), None, len(tokens), stop, error), times, total, steps, states
    )
