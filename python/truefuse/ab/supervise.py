"""An A/B in a child process: sides that crash or exit, and whoever interrupts it, leave a report all the same.

Models are of any size, so no step has a limit."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from truefuse import environment
from truefuse.ab.experiment import ExperimentError
from truefuse.ab.report import AbReport
from truefuse.child import Child, EndedEarly
from truefuse.supervise import result_of
from truefuse.verdict import Result, Status, Verdict, combine

WORKER = (sys.executable, "-m", "truefuse.ab.worker")


@dataclass(frozen=True)
class Request:
    """Of a `file` that defines an experiment, or of a `model`: the arguments of experiments.of_model."""

    file: str | None
    model: dict[str, Any]
    mode: str
    rounds: int
    seed: int
    replay: str

    @property
    def name(self) -> str:
        return self.file or self.model["name"]


def run(
    request: Request,
    on_result: Callable[[Result], None] = lambda result: None,
    progress: Callable[[str], None] = lambda text: None,
) -> AbReport:
    """Raises ExperimentError."""
    results: list[Result] = []

    def found(result: Result) -> None:
        results.append(result)
        on_result(result)

    name, device = request.name, "a device that is not known yet"
    with Child(WORKER, asdict(request), os.environ) as child:
        try:
            for message in child.messages(lambda step: math.inf):
                kind = message["kind"]
                if kind == "progress":
                    progress(message["text"])
                elif kind == "result":
                    found(result_of(message["result"]))
                elif kind == "made":
                    name, device = message["name"], message["device"]
                elif kind == "no-experiment":
                    raise ExperimentError(message["text"])
                elif kind == "report":
                    return _finished(results, message["report"])
        except EndedEarly as error:
            # As an exception, an end is no verdict.
            found(error.result(Status.UNKNOWN, request.seed, request.replay))
    return AbReport(
        name=name,
        mode=request.mode,
        verdict=combine(results, complete=False),
        device=device,
        seed=request.seed,
        replay=request.replay,
        results=results,
        environment=environment.describe(torch.device("cpu")),
    )


def _finished(results: list[Result], data: dict[str, Any]) -> AbReport:
    return AbReport(
        name=data["name"],
        mode=data["mode"],
        verdict=Verdict(data["verdict"]),
        device=data["device"],
        seed=data["seed"],
        replay=data["replay"],
        results=results,
        environment=data["environment"],
        performance=data.get("performance"),
    )
