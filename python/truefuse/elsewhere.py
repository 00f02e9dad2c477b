"""The baseline in a process in which the candidate is never called, beside the same baseline here.

Settings that can be read are compared one by one (see `flags`). What a process has come to besides, by an allocator
that was told otherwise, an operator that was registered anew or a global variable, shows in what it does: the
baseline takes longer, or gives something else. The two processes take turns, each resting while the other works, on one
thread each: where others use the machine, many threads wait for the one that does not run.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from truefuse import case as cases
from truefuse.case import Case, Inputs, Size
from truefuse.compare import one_thread
from truefuse.context import Context, Results
from truefuse.supervise import KEPT_MEMORY

# So many times as long and so many seconds more. Memory that lies otherwise in a process that has done much else was
# seen to cost 1.3 times as long; a profiler that was used makes launches dearer.
SLOWER, MORE = 1.75, {"cpu": 20e-6, "cuda": 50e-6}
# On a busy machine a single trial says little: of many calls the fastest of all trials is nearest to what a call takes.
LEAST_TRIALS, TRIALS, TRIAL_SECONDS, LEAST_CALLS = 3, 12, 0.1, 3
NEAR_ULPS = 4  # of the largest result: what an order of sums may make of it


def sizes(case: Case) -> tuple[Size, ...]:
    """The smallest that is timed and one between: of the largest every call waits for fresh pages anyway."""
    ordered = sorted(case.timing_sizes, key=math.prod)
    return tuple(dict.fromkeys((ordered[0], ordered[len(ordered) // 2])))


@contextmanager
def beside(context: Context) -> Iterator[Callable[[], str]]:
    """How to ask what differs, or nothing; nothing too where the case has no file that another process could load.
    The other process comes up meanwhile."""
    if context.case.source is None:
        yield lambda: ""
        return
    chosen = sizes(context.case)
    with _another_process(context, chosen) as other:
        yield lambda: _complaint(context, chosen, other)


@one_thread()
def _complaint(context: Context, chosen: tuple[Size, ...], other: _Other) -> str:
    results = other.results()
    for number, size in enumerate(chosen):
        ask = functools.partial(other.seconds, number)
        found = _compared(context, size, ask, results[number])
        if found:
            return f"{list(size)}: the baseline {found} where the candidate was never called"
    return ""


def _compared(context: Context, size: Size, ask: Callable[[], float], theirs: Results) -> str:
    inputs = _inputs(context, size)
    ours = context.eager(inputs, context.case.timed_mode)
    for name, tensor in theirs.items():
        if not _near(ours[name].cpu(), tensor):
            return f"gives another '{name}' than"
    best, other = math.inf, math.inf
    for trial in range(TRIALS):
        other = min(other, ask())
        best = min(best, seconds(context, inputs))
        near = best <= SLOWER * other + MORE[context.device.type]
        if near and trial >= LEAST_TRIALS - 1:
            return ""
    return f"takes {best * 1e6:.4g} µs, and {other * 1e6:.4g} µs"


def _near(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if not theirs.is_floating_point() or not theirs.numel():
        return torch.equal(ours, theirs)
    unit = NEAR_ULPS * torch.finfo(theirs.dtype).eps * float(theirs.double().abs().max())
    return torch.allclose(ours.double(), theirs.double(), rtol=0, atol=unit, equal_nan=True)


def seconds(context: Context, inputs: Inputs) -> float:
    """Of the fastest of several calls."""
    function, mode = next(iter(context.case.baselines.values())), context.case.timed_mode
    best, calls, end = math.inf, 0, time.perf_counter() + TRIAL_SECONDS
    while calls < LEAST_CALLS or time.perf_counter() < end:
        own = context.fresh(inputs)
        context.synchronize()
        begin = time.perf_counter()
        made = function(*own.values(), **mode)
        context.synchronize()
        best, calls = min(best, time.perf_counter() - begin), calls + 1
        del made
    return best


def _inputs(context: Context, size: Size) -> Inputs:
    case = context.case
    return context.inputs(size, case.timed_dtype, case.kinds[0], "elsewhere")


@contextmanager
def _another_process(context: Context, chosen: tuple[Size, ...]) -> Iterator[_Other]:
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "results.pt"
        request = {
            "target": context.target,
            "device": str(context.device),
            "seed": context.seed,
            "sizes": chosen,
            "results": str(kept),
        }
        command = [sys.executable, "-m", "truefuse.elsewhere", json.dumps(request)]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # Nothing is left to be written to a process that has ended.
            env={**KEPT_MEMORY, **os.environ},
        ) as process:
            try:
                yield _Other(process, kept)
            finally:
                process.kill()


@dataclass(frozen=True)
class _Other:
    """The process in which the candidate is never called."""

    process: subprocess.Popen[bytes]
    kept: Path

    def results(self) -> list[Results]:
        """What its baseline gave at each of the sizes."""
        self.seconds(0)  # It has begun, and is warm.
        found: list[Results] = torch.load(self.kept)
        return found

    def seconds(self, number: int) -> float:
        """Of a call at one of the sizes."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{number}\n".encode())
        for line in self.process.stdout:
            if line.startswith(_MARK):  # a case may print what it likes
                return float(line.removeprefix(_MARK))
        raise RuntimeError(
            "the process that runs the baseline without the candidate has ended: the case must load, and the "
            "device must be there for a second process too"
        )


_MARK = b"truefuse.elsewhere seconds "


def main() -> None:
    """The one argument is the request as JSON; for each number of a size that comes in, the seconds of a call. Until the
    first nothing is done on the device, where gates may be at work."""
    request = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    case = cases.load(request["target"])
    context = Context(case, torch.device(request["device"]), request["seed"])
    inputs: list[Inputs] = []
    with torch.no_grad():
        for line in sys.stdin:
            if not inputs:
                inputs = [_inputs(context, tuple(size)) for size in request["sizes"]]
                found = [context.eager(one, case.timed_mode) for one in inputs]
                on_cpu = [{name: tensor.cpu() for name, tensor in one.items()} for one in found]
                torch.save(on_cpu, request["results"])
            print(_MARK.decode(), seconds(context, inputs[int(line)]), flush=True)


if __name__ == "__main__":
    main()
