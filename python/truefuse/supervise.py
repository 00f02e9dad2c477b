"""A check in a child process: a case that raises, hangs, crashes or exits is a verdict, and the report is
written all the same.

The child (`truefuse.worker`) sends one JSON object a line: what it begins, each gate's result, the
finished report. If it ends before that, or a step takes longer than its limit, the step that it was in
has failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from truefuse import command_line
from truefuse.child import Child, EndedEarly
from truefuse.report import Report
from truefuse.verdict import Result, Status, Verdict, combine

LOAD = "load"
WORKER = (sys.executable, "-m", "truefuse.worker")
# A CPU may be shared with many; a simulated device is slow.
STEP_SECONDS = {"cpu": 600.0, "cuda": 300.0, "sim": 900.0}
# glibc returns freed memory to the system and asks for it again as it has come to expect: every third call
# of one kernel would wait for thousands of pages. So it keeps all that it allocates in pieces of up to 32
# MiB, the most that it can be told.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 62)}


class NoCase(Exception):
    """There is no case to check: a usage error, and the text is for the user."""


class NoDevice(Exception):
    """The device does not even add one and one."""


@dataclass
class Request:
    target: str
    device: str
    seed: int
    only: tuple[str, ...] = ()
    share: float | None = None
    time_limit: float | None = None  # seconds for loading the case, and for each gate
    command: Sequence[str] = WORKER
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        return self.time_limit or STEP_SECONDS[self.device.partition(":")[0]]

    @property
    def host(self) -> torch.device:
        """Where its tensors are: a simulated device works on the CPU's."""
        return torch.device("cpu" if self.device.startswith("sim:") else self.device)

    def child(self) -> Child:
        """Of which only `command` knows what it answers."""
        asked = {
            "target": self.target,
            "device": self.device,
            "seed": self.seed,
            "only": list(self.only),
            "share": self.share,
        }
        return Child(self.command, asked, {**KEPT_MEMORY, **os.environ, **self.environment})

    def gates(self) -> list[str]:
        """Those that `--gate` takes on this device: not every step is one."""
        from truefuse import gates, simulate_check

        return (simulate_check if self.device.startswith("sim:") else gates).names()

    def replay(self, gate: str | None = None) -> str:
        more = () if self.time_limit is None else ("--time-limit", f"{self.time_limit:g}")
        if gate in self.gates():
            more += ("--gate", gate)
        return command_line.of("check", self.target, self.device, self.seed, *more)


def run(
    request: Request,
    on_result: Callable[[Result], None] = lambda result: None,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Raises NoCase or NoDevice."""
    results: list[Result] = []

    def found(result: Result) -> None:
        results.append(result)
        on_result(result)

    with request.child() as child:
        try:
            for message in child.messages(lambda step: request.limit):
                kind = message["kind"]
                if kind == "step":
                    progress(message["name"])
                elif kind == "progress":
                    progress(message["text"])
                elif kind == "result":
                    found(result_of(message["result"]))
                elif kind == "end":
                    break
                elif kind == "no-case":
                    raise NoCase(message["text"])
                elif kind == "no-device":
                    raise NoDevice(message["text"])
                elif kind == "report":
                    return _finished(request, results, message["report"])
        except EndedEarly as error:
            found(error.result(Status.FAIL, request.seed, request.replay(error.step)))
    return _unfinished(request, results)


def result_of(data: dict[str, Any]) -> Result:
    return Result(**{**data, "status": Status(data["status"])})


def _finished(request: Request, results: list[Result], data: dict[str, Any]) -> Report:
    return Report(
        case=data["case"],
        device=data["device"],
        seed=request.seed,
        replay=data["replay"],
        verdict=Verdict(data["verdict"]),
        results=results,
        environment=data["environment"],
        acceptance=data["acceptance"],
        performance=data.get("performance"),
        layouts=data.get("layouts", []),
    )


def _unfinished(request: Request, results: list[Result]) -> Report:
    """What can be said without the child, whose device may be in a bad state."""
    from truefuse import acceptance, environment

    return Report(
        case=request.target,
        device=request.device,
        seed=request.seed,
        replay=request.replay(),
        verdict=combine(results, complete=False),
        results=results,
        environment=environment.describe(torch.device("cpu")),
        acceptance=acceptance.points(request.target, request.host, request.replay(), results, None),
    )
