"""How a gate proves itself before it judges: its check must catch the bad and accept the good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from truefuse.case import Case
from truefuse.context import CandidateRaised, Context
from truefuse.verdict import Result, Status

Check = Callable[[Context], str]  # "" if nothing is wrong, else what is


def with_candidate(context: Context, candidate: Callable) -> Context:
    """The same check of another candidate. Planted ones are built from the eager baseline."""
    case: Case = replace(context.case, candidate=candidate)
    return replace(context, case=case)


def unproven(
    gate: str, context: Context, check: Check, bad: Mapping[str, Callable], good: Callable
) -> Result | None:
    """None if `check` catches every bad candidate and accepts the good one, else UNKNOWN."""
    faults = []
    for name, candidate in bad.items():
        if not _verdict(check, with_candidate(context, candidate)):
            faults.append(f"did not catch {name}")
    complaint = _verdict(check, with_candidate(context, good))
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


def _verdict(check: Check, context: Context) -> str:
    try:
        return check(context)
    except CandidateRaised as error:
        return str(error)
