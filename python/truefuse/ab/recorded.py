"""The A/B of four recordings of servers: A B B A."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from truefuse.ab import gates, speed
from truefuse.ab.engine import MEASURE, timing
from truefuse.ab.recording import Recording
from truefuse.ab.report import AbReport
from truefuse.ab.sides import Pass, Request, Side
from truefuse.ab.trajectory import differences
from truefuse.verdict import Result, Status, Verdict, combine

COMPARABLE = "comparable"
LABELS = ("a1", "b1", "b2", "a2")


class NotComparable(Exception):
    """Recordings that differ in more than the operator: a sentence that names what and where."""


def compare(
    recordings: Sequence[Recording],
    *,
    amdahl: speed.Amdahl | None = None,
    replay: str = "truefuse ab compare",
    on_result: Callable[[Result], None] = lambda result: None,
) -> AbReport:
    """Judges a1, b1, b2, a2, recorded in this order. Raises NotComparable."""
    refuse_unlike(recordings)
    a1, b1, _, _ = recordings
    names = a1.names
    results: list[Result] = []

    def add(result: Result) -> Result:
        result.replay = replay
        results.append(result)
        on_result(result)
        return result

    passes = [one.played() for one in recordings]
    performance = None
    if add(_whole(recordings)).status is Status.PASS:
        baseline, candidate = passes[0] + passes[3], passes[1] + passes[2]
        first = baseline[0]
        if add(_repeats(names, baseline)).status is Status.PASS:
            add(_ran(recordings, baseline, candidate))
            add(_trajectory(names, first, candidate))
    if combine(results) is Verdict.ACCEPT:
        performance = _performance(passes, a1, amdahl)
        rounds, count = performance["rounds"], len(names)
        add(Result(MEASURE, Status.PASS, "measured", f"{rounds} rounds of {count} requests"))
    return AbReport(
        name=f"{b1.said['operator']} against {a1.said['operator']}",
        mode="recorded",
        verdict=combine(results),
        device=a1.said["arch"],
        seed=int(a1.sampling.get("seed", 0)),
        replay=replay,
        results=results,
        environment={"said": a1.said, "server": a1.server, "sampling": a1.sampling},
        performance=performance,
    )


def refuse_unlike(recordings: Sequence[Recording]) -> None:
    a1, b1, b2, a2 = recordings
    what: dict[str, Callable[[Recording], Any]] = {
        "host": lambda one: one.host,
        "prompts": lambda one: one.prompts,
        "sampling": lambda one: one.sampling,
        "server": lambda one: one.server,
        **{key: (lambda one, key=key: one.said[key]) for key in ("arch", "engine", "flags")},
    }
    for name, of in what.items():
        for label, one in zip(LABELS[1:], recordings[1:], strict=True):
            if of(one) != of(a1):
                raise NotComparable(
                    f"{name} differs: a1 has {of(a1)!r}, {label} has {of(one)!r}. Only the operator may "
                    "differ; record again"
                )
    for label, one in zip(LABELS, recordings, strict=True):
        if (one.models() and one.models() != a1.models()) or len(one.models()) > 1:
            raise NotComparable(
                f"the model that the answers name differs: a1 has {', '.join(a1.models())}, {label} has "
                f"{', '.join(one.models())}. One model has to answer everything; record again"
            )
    operators = [one.said["operator"] for one in recordings]
    if a1.said["operator"] != a2.said["operator"] or b1.said["operator"] != b2.said["operator"]:
        raise NotComparable(
            f"--operator is {operators}; it must be the same in a1 and a2, and in b1 and b2"
        )
    if a1.said["operator"] == b1.said["operator"]:
        raise NotComparable(f"both sides are {operators[0]!r}: nothing is compared. Say --operator")
    dates = [one.date for one in recordings]
    for label, one, after in zip(LABELS[1:], recordings, recordings[1:], strict=False):
        if one.began < after.began < one.answered():
            raise NotComparable(
                f"{label} was begun at {after.date}, while the recording before it still ran: each slowed the "
                "other down. Record one after the other"
            )
    if sorted(dates) != dates or len(set(dates)) != 4:
        raise NotComparable(
            f"recorded at {', '.join(dates)}: the order has to be A B B A in time, four recordings, so "
            "that a drift of the machine falls on both sides"
        )


def _whole(recordings: Sequence[Recording]) -> Result:
    for label, one in zip(LABELS, recordings, strict=True):
        done = sum(map(len, one.passes))
        if not one.complete or not one.played():
            return Result(
                COMPARABLE,
                Status.UNKNOWN,
                "recording-incomplete",
                f"{label} is incomplete: {done} answers of {len(one.names)} prompts a pass are kept. "
                "Record it again",
                expected="a complete recording",
                got=f"{done} answers",
            )
    said = recordings[0].said
    return Result(
        COMPARABLE,
        Status.PASS,
        "only-the-operator-differs",
        f"same host, arch {said['arch']}, engine {said['engine']}, flags and prompts",
    )


def _repeats(names: list[str], baseline: list[Pass]) -> Result:
    """The last result, or the first that is not PASS: every pass of a1 and a2 against the first."""
    result = gates.reproducible(names, baseline[0], baseline[0])
    for again in baseline[1:]:
        if result.status is Status.PASS:
            result = gates.reproducible(names, baseline[0], again)
    return result


def _ran(recordings: Sequence[Recording], baseline: list[Pass], candidate: list[Pass]) -> Result:
    def side(name: str, known: Sequence[Recording]) -> Side:
        counted = all(one.hits is not None for one in known)
        operators = [word.strip() for word in known[0].said["operator"].split(",")]
        return Side(name, _nothing, hits=dict if counted else None, operators=operators)

    a1, b1, b2, a2 = recordings
    both = (side("baseline", (a1, a2)), side("candidate", (b1, b2)))
    found = [gates.ran(baseline, one, both) for one in candidate]
    result = next((one for one in found if one.status is not Status.PASS), found[0])
    if result.reason == "hits-not-counted":
        result.summary = (
            "not measured whether the swapped operator ran: record with --hits, a file or URL where the "
            "server counts (TRUEFUSE_HITS)"
        )
    return result


def _nothing(request: Request) -> Any:
    return iter(())


def _trajectory(names: list[str], first: Pass, candidate: list[Pass]) -> Result:
    for one in candidate:
        failed = [output.error for output in one.outputs if output.error]
        if failed:
            return Result(
                gates.TRAJECTORY,
                Status.UNKNOWN,
                "candidate-failed",
                f"the candidate's server failed in {len(failed)}/{len(names)} requests: {failed[0]}",
                expected="an answer to every request",
                got=failed[0],
            )
    other = next((p for p in candidate if differences(names, first.outputs, p.outputs)), None)
    return gates.trajectory(names, first, other or candidate[0])


def _performance(
    passes: list[list[Pass]], a1: Recording, amdahl: speed.Amdahl | None
) -> dict[str, Any]:
    rounds = [tuple(map(timing, four)) for four in zip(*passes, strict=False)]
    found = speed.metrics(rounds, int(a1.sampling.get("seed", 0)))
    return {
        "device": a1.said["arch"],
        "method": "host clock at the client, requests one after the other (concurrency 1), warm; "
        "recordings in the order A B B A; medians of passes, 95 % bootstrap interval over pairs",
        "rounds": len(rounds),
        "requests": len(a1.names),
        "metrics": found,
        "launches_per_token": None,
        "peak_memory": None,
        "amdahl": speed.compared_with_amdahl(amdahl, found["tpot"]) if amdahl else None,
    }
