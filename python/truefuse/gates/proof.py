"""How a gate proves itself before it judges: its check must catch the bad and accept the good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from truefuse.compare import one_thread
from truefuse.context import CandidateRaised, Context
from truefuse.verdict import SELF_TEST_FAILED, Result, Status


@dataclass(frozen=True)
class Complaint:
    """What a check found wrong, first. `what` is a phrase that can follow the gate's name."""

    what: str
    where: str = ""
    expected: str = ""
    got: str = ""

    def text(self) -> str:
        """All of it in one line; checks may have named the place in `what` already."""
        rest = (part for part in (self.where, self.got) if part and part not in self.what)
        return ", ".join((self.what, *rest))


Check = Callable[[Context], "Complaint | None"]


def with_candidate(context: Context, candidate: Callable) -> Context:
    """The same check of another candidate. Planted ones are built from the yardstick."""
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
    """UNKNOWN unless `check` catches every bad candidate and accepts a good candidate; FAIL with
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


@one_thread()  # No candidate of the case's runs here.
def unproven(
    gate: str, context: Context, check: Check, bad: Mapping[str, Callable]
) -> Result | None:
    """None if `check` catches every bad candidate and accepts a good candidate, else UNKNOWN."""
    faults = []
    small = _representative(context)
    for name, candidate in bad.items():
        try:
            caught = check(with_candidate(small, candidate))
        except CandidateRaised as error:
            faults.append(f"could not plant {name}: {error}")
            continue
        if not caught:
            faults.append(f"did not catch {name}")
    try:
        found = check(with_candidate(small, small.good))
        complaint = found.text() if found else ""
    except CandidateRaised as error:
        complaint = str(error)
    if complaint:
        name = next(iter(context.case.baselines))
        faults.append(f"turned away a good candidate, the baseline '{name}': {complaint}")
    return self_test_failed(gate, faults) if faults else None


def _representative(context: Context) -> Context:
    """The first and the last dtype in one mode, at few sizes: enough to see whether a check works."""
    case = context.case
    return replace(
        context,
        case=replace(
            case,
            dtypes=tuple(dict.fromkeys((case.dtypes[0], case.dtypes[-1]))),
            modes=case.modes[:1],
            edge_sizes=case.edge_sizes[:3],
            drift_steps=min(case.drift_steps, 64),
        ),
    )


def self_test_failed(gate: str, faults: list[str]) -> Result:
    return Result(
        gate,
        Status.UNKNOWN,
        SELF_TEST_FAILED,
        f"cannot be trusted here: {faults[0]}",
        expected="every planted fault caught, the known-good candidate accepted",
        got="; ".join(faults),
    )
