"""A check in a child process: a case that raises, hangs, crashes or exits is a verdict, and the report is
written all the same.

The child (`truefuse.worker`) sends one JSON object a line: what it begins, each gate's result, the
finished report. If it ends before that, or a step takes longer than its limit, the step that it was in
has failed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from truefuse import command_line
from truefuse.report import Report
from truefuse.verdict import Result, Status, Verdict, combine

START, LOAD = "start", "load"
WORKER = (sys.executable, "-m", "truefuse.worker")
# A CPU may be shared with many; a simulated device is slow.
STEP_SECONDS = {"cpu": 600.0, "cuda": 300.0, "sim": 900.0}
START_SECONDS = 180.0  # importing PyTorch on a busy machine
LOOK_SECONDS = 0.5  # between looks at whether the child is there
TAIL = 4000  # characters of what a child that died has said
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
    child = Child(request)
    results: list[Result] = []
    step, begin, limit = START, time.monotonic(), START_SECONDS
    try:
        while True:
            message = child.next(begin + limit)
            if message is None:
                results.append(child.verdict(step, time.monotonic() - begin, limit))
                on_result(results[-1])
                return _unfinished(request, results)
            kind = message["kind"]
            if kind == "step":
                step, begin, limit = message["name"], time.monotonic(), request.limit
                progress(step)
            elif kind == "progress":
                begin = time.monotonic()  # measuring is many steps
                progress(message["text"])
            elif kind == "result":
                results.append(_result(message["result"]))
                on_result(results[-1])
            elif kind == "end":
                return _unfinished(request, results)
            elif kind == "no-case":
                raise NoCase(message["text"])
            elif kind == "no-device":
                raise NoDevice(message["text"])
            elif kind == "report":
                return _finished(request, results, message["report"])
    finally:
        child.end()


class Child:
    """A process that answers to a request, one JSON object a line."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._words = tempfile.TemporaryFile()
        receive, send = os.pipe()
        arguments = {
            "target": request.target,
            "device": request.device,
            "seed": request.seed,
            "only": list(request.only),
            "share": request.share,
            "pipe": send,
            "parent": os.getpid(),
        }
        # A group of its own: what a case starts ends with it.
        self._process = subprocess.Popen(
            [*request.command, json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=subprocess.STDOUT,
            pass_fds=(send,),
            env={**KEPT_MEMORY, **os.environ, **request.environment},
            start_new_session=True,
        )
        os.close(send)
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._hung = False
        threading.Thread(target=self._read, args=(receive,), daemon=True).start()

    def _read(self, receive: int) -> None:
        with open(receive, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    self._messages.put(json.loads(line))
                except ValueError:
                    break  # cut off in the middle, or not ours: it ends here
        self._messages.put(None)

    def next(self, deadline: float) -> dict[str, Any] | None:
        """None if there is no more to come, or not in time."""
        while True:
            has_ended = self._process.poll() is not None  # others may still hold its pipe
            left = deadline - time.monotonic()
            try:
                return self._messages.get(timeout=max(0.0, min(left, LOOK_SECONDS)))
            except queue.Empty:
                if has_ended:
                    return None
                if left <= 0:
                    self._hung = True
                    return None

    def verdict(self, step: str, seconds: float, limit: float) -> Result:
        """Of a child that ended, or did not end, in this step. Before the first it is not the case's
        fault."""
        if self._hung:
            reason, got = "hangs", f"nothing for {limit:g} s"
        else:
            try:
                code = self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                code = None
            reason, got = _ending(code)
        self.end()
        self._words.seek(0)
        words = self._words.read().decode("utf-8", "replace")[-TAIL:]
        return Result(
            step,
            Status.UNKNOWN if step == START else Status.FAIL,
            reason,
            f"the process {'had to be ended' if self._hung else 'ended'} in this step: {got}",
            expected=f"an answer within {limit:g} s",
            got=got,
            first=step,
            seed=self._request.seed,
            replay=self._request.replay(step),
            seconds=seconds,
            traceback=words,
        )

    def end(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()


def _ending(code: int | None) -> tuple[str, str]:
    if code is None:
        return "closed-its-pipe", "it goes on without a word"
    if code < 0:
        name = signal.Signals(-code).name
        return f"died-{name.lower()}", f"killed by {name}"
    return "exits", f"it called exit({code})"


def _result(data: dict[str, Any]) -> Result:
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
