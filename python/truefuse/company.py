"""What a process does when nobody calls: a candidate's thread that goes on working takes the processors from
whoever is timed after it.

Counted is processor time of the whole process. A runtime's own threads wait actively for a while after a
parallel call, the baseline's as the candidate's: so long after the last call nothing may go on, and right after
a call no more than after one of the baseline's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SETTLED = 0.3  # seconds after which every runtime's threads sleep; LLVM's OpenMP waits for 0.2
WATCHED, WATCHED_LATER = 0.05, 0.2
# In processors. Where others use the machine, a thread that never rests may get no more than that.
AT_REST, MARGIN = 0.05, 0.25


def busy(seconds: float = WATCHED) -> float:
    """Processors that this process keeps busy while the caller sleeps."""
    begin, used = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - used) / (time.perf_counter() - begin)


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
