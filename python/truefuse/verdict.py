"""The three-valued outcome of a check, and what each gate hands back."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Status(str, Enum):
    """Of one gate. SKIP means only "has no meaning on this device"."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    SKIP = "SKIP"


class Verdict(str, Enum):
    """Of a whole check; it holds for one device."""

    ACCEPT = "ACCEPT"
    REJECT = "REJECT"
    UNKNOWN = "UNKNOWN"


SELF_TEST_FAILED = "self-test-failed"
INTERRUPTED = "interrupted"  # the result has `got` the signal's name


def exit_code(verdict: Verdict, results: Iterable[Result]) -> int:
    """0 accept, 1 reject, 3 unknown, 4 unknown because a gate could not prove itself; 128 and the number of the
    signal that interrupted the check, as of a program that a signal ended."""
    results = list(results)
    for one in results:
        if one.reason == INTERRUPTED:
            return 128 + signal.Signals[one.got]
    if verdict is Verdict.UNKNOWN and any(one.reason == SELF_TEST_FAILED for one in results):
        return 4
    return {Verdict.ACCEPT: 0, Verdict.REJECT: 1, Verdict.UNKNOWN: 3}[verdict]


@dataclass
class Result:
    """What one gate found.

    `reason` is a stable code for machines ("binade-error"), `summary` one line for people. `first` is
    the first offender: which dtype, mode, kind of input and index. `lines` are extra lines worth
    showing in the terminal, `numbers` everything measured.
    """

    gate: str
    status: Status
    reason: str
    summary: str
    expected: str = ""
    got: str = ""
    first: str = ""
    lines: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    replay: str = ""
    seconds: float = 0.0
    traceback: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "status": self.status.value}


def combine(results: Iterable[Result], complete: bool = True) -> Verdict:
    """REJECT if any gate failed; else UNKNOWN if any does not know, or nothing or not everything ran."""
    statuses = [result.status for result in results]
    if Status.FAIL in statuses:
        return Verdict.REJECT
    if Status.UNKNOWN in statuses or Status.PASS not in statuses or not complete:
        return Verdict.UNKNOWN
    return Verdict.ACCEPT
