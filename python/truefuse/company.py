"""What a process does when nobody calls: a candidate's thread that goes on working takes the processors from
whoever is timed after it. And what others do meanwhile: a parallel call waits for the last of its threads, which
stands in line for a processor.

Counted is processor time of the whole process, and of those that it has started. A runtime's own threads wait actively for a while after a
parallel call, the baseline's as the candidate's: so long after the last call nothing may go on, and right after
a call no more than after one of the baseline's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

SETTLED = 0.3  # seconds after which every runtime's threads sleep; LLVM's OpenMP waits for 0.2
WATCHED, WATCHED_LATER = 0.05, 0.2
# In processors. Where others use the machine, a thread that never rests may get no more than that.
AT_REST, MARGIN = 0.05, 0.25
# Of the time: how long a thread may stand in line for a processor that others have before there is no verdict on
# speed; and in processors, what others use at least where they are said to be there.
BUSY = 0.1


def busy(seconds: float = WATCHED) -> float:
    """Processors that this process keeps busy while the caller sleeps."""
    before = _seconds_of_descendants()
    begin, used = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    passed, own = time.perf_counter() - begin, time.process_time() - used
    theirs = [
        after - before.get(process, 0.0) for process, after in _seconds_of_descendants().items()
    ]
    return (own + sum(theirs)) / passed


class Watch:
    """From now on: how long this process stood in line for a processor because others had them."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._waited, self._others = _waited(), _seconds_of_others()

    def share(self) -> float | None:
        """Of the time until now, for the thread that waited most: the others of a parallel call wait for it. 0
        where nobody else ran: a process that keeps more threads than there are processors stands in its own
        way. None where the system does not count."""
        passed = time.perf_counter() - self._begin
        others = _seconds_of_others()
        if not self._waited or self._others is None or others is None:
            return None
        if others - self._others < BUSY * passed:
            return 0.0
        waits = {
            thread: seconds - self._waited.get(thread, 0.0) for thread, seconds in _waited().items()
        }
        return min(1.0, max(0.0, *waits.values()) / passed)


def _waited() -> dict[str, float]:
    """Of each thread of this process, the seconds that it has been ready to run and did not."""
    found = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
        except (OSError, LookupError, ValueError):
            continue  # a thread that has ended
    return found


def _seconds_of_others() -> float | None:
    """Processor time of everybody but this process and those that it has started."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields[1:9])
    except (OSError, ValueError):
        return None
    everybody = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return everybody - time.process_time() - sum(_seconds_of_descendants().values())


def _seconds_of_descendants() -> dict[int, float]:
    return {process: _seconds_of(process) for process in _descendants()}


def _descendants() -> set[int]:
    """The processes that this one has started, and those that have left them but not the session."""
    own, parents = os.getpid(), {}
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(path)
        if fields:
            parents[int(path.parent.name)] = int(fields[1])
            if int(fields[3]) == own:  # where this one leads the session
                found.add(int(path.parent.name))
    reached = {own}
    while reached:
        reached = {one for one, parent in parents.items() if parent in reached} - found
        found |= reached
    return found - {own}


def _seconds_of(process: int) -> float:
    fields = _fields(Path(f"/proc/{process}/stat"))
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _fields(path: Path) -> list[str]:
    """Behind the program's name: state, parent, group, session, ...; nothing of a process that is gone."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def end_compile_workers() -> None:
    """PyTorch starts them beside the first torch.compile: it takes them seconds to come up, of nobody's time
    who is judged. With the next one they start again."""
    compiling = sys.modules.get("torch._inductor.async_compile")
    if compiling is not None:
        compiling.shutdown_compile_workers()


def left_working(candidate: Callable[[], object], baseline: Callable[[], object]) -> str:
    """What goes on after a call of the candidate, or nothing. Both have run before."""
    complaint = ""
    for _ in range(2):  # the first time may have seen what somebody else in this process did once
        complaint = _seen(candidate, baseline)
        if not complaint:
            return ""
    return complaint


def _settle() -> None:
    """Until the process is at rest, which takes SETTLED at most."""
    end = time.perf_counter() + SETTLED
    while (left := end - time.perf_counter()) > 0 and busy(min(left, WATCHED)) > AT_REST:
        pass


def _seen(candidate: Callable[[], object], baseline: Callable[[], object]) -> str:
    after = {}
    for name, call in (("the baseline", baseline), ("the candidate", candidate)):
        _settle()
        call()
        after[name] = busy()
    time.sleep(SETTLED)
    later = busy(WATCHED_LATER)
    if later > AT_REST:
        return f"{later:.2g} processors busy {SETTLED:g} s after the last call"
    theirs, ours = after["the baseline"], after["the candidate"]
    if ours > theirs + MARGIN:
        return f"{ours:.2g} processors busy after a call of the candidate, {theirs:.2g} after the baseline's"
    return ""
