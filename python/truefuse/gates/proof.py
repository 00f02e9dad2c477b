"""How a gate proves itself before it judges: its check must catch the bad and accept the good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from truefuse.context import CandidateRaised, Context
from truefuse.verdict import Result, Status


@dataclass(frozen=True)
class Complaint:
    """What a check found wrong, first. `what` is a phrase that can follow the gate's name."""

    what: str
    where: str = ""
    expected: str = ""
    got: str = ""


Check = Callable[[Context], "Complaint | None"]


def with_candidate(context: Context, candidate: Callable) -> Context:
    """The same check of another candidate. Planted ones are built from the eager baseline."""
    return replace(context, case=replace(context.case, candidate=candidate))


def judge(
    gate: str,
    context: Context,
    check: Check,
    bad: Mapping[str, Callable],
    reason: str,
    expected: str,
    passed: Callable[[], Result],
) -> Result:
    """UNKNOWN unless `check` catches every bad candidate and accepts the eager baseline; FAIL with
    `reason` if it complains of the candidate; else what `passed` gives."""
    unknown = unproven(gate, context, check, bad)
    if unknown:
        return unknown
    found = check(context)
    if found:
        return Result(
            gate,
            Status.FAIL,
            reason,
            found.what,
            expected=found.expected or expected,
            got=found.got or found.what,
            first=found.where,
        )
    return passed()


def unproven(
    gate: str, context: Context, check: Check, bad: Mapping[str, Callable]
) -> Result | None:
    """None if `check` catches every bad candidate and accepts the eager baseline, else UNKNOWN."""
    faults = []
    for name, candidate in bad.items():
        try:
            caught = check(with_candidate(context, candidate))
        except CandidateRaised as error:
            faults.append(f"could not plant {name}: {error}")
            continue
        if not caught:
            faults.append(f"did not catch {name}")
    try:
        found = check(with_candidate(context, context.baseline))
        complaint = f"{found.what} {found.where}" if found else ""
    except CandidateRaised as error:
        complaint = str(error)
    if complaint:
        faults.append(f"turned away a good candidate: {complaint}")
    return self_test_failed(gate, faults) if faults else None


def self_test_failed(gate: str, faults: list[str]) -> Result:
    return Result(
        gate,
        Status.UNKNOWN,
        "self-test-failed",
        f"cannot be trusted here: {faults[0]}",
        expected="every planted fault caught, the known-good candidate accepted",
        got="; ".join(faults),
    )
