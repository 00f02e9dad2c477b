"""What has to hold before an A/B may speak of speed. Each gate judges passes that were already run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from truefuse.ab import states
from truefuse.ab.sides import Pass, Played, Side
from truefuse.ab.trajectory import Difference, differences
from truefuse.verdict import Result, Status

REPRODUCIBLE = "reproducible"
RAN = "ran"
TRAJECTORY = "trajectory"
SETTINGS = (
    "greedy decoding with a fixed seed, concurrency 1, prefix cache off, no batching with other "
    "requests, deterministic kernels (torch.use_deterministic_algorithms(True)), one thread count"
)


def reproducible(names: Sequence[str], first: Pass, again: Pass) -> Result:
    """The baseline against itself: what does not repeat its own output cannot judge another's."""
    failed = [output.error for output in first.outputs if output.error]
    if failed:
        return Result(
            REPRODUCIBLE,
            Status.UNKNOWN,
            "baseline-failed",
            f"the baseline failed in {len(failed)}/{len(names)} requests: {failed[0]}",
            expected="a baseline that answers every request",
            got=failed[0],
        )
    if not any(output.length or output.text for output in first.outputs):
        return Result(
            REPRODUCIBLE,
            Status.UNKNOWN,
            "nothing-generated",
            f"the baseline generated nothing in any of {len(names)} requests: there is nothing to compare",
            expected="tokens, or a text",
            got="neither",
        )
    rows = zip(names, first.outputs, strict=True)
    mute = [name for name, one in rows if (one.length or 0) > 1 and not (one.tokens or one.text)]
    if mute:
        return Result(
            REPRODUCIBLE,
            Status.UNKNOWN,
            "output-not-given",
            f"the baseline generated tokens in {len(mute)}/{len(names)} requests, first in {mute[0]}, and gave "
            "neither ids nor a text of them: there is nothing to compare",
            expected="token ids, or a text",
            got=f"a number of tokens alone, in {mute[0]}",
        )
    if undefined := _first_undefined(names, first):
        return Result(
            REPRODUCIBLE,
            Status.UNKNOWN,
            "logits-not-finite",
            f"the baseline's logits are not finite at {undefined}: any candidate agrees with a model that "
            "prefers nothing",
            expected="finite logits",
            got=undefined,
        )
    found = differences(names, first.outputs, again.outputs, margins(first))
    tokens = sum(output.length or 0 for output in first.outputs)
    if found:
        return Result(
            REPRODUCIBLE,
            Status.UNKNOWN,
            "workload-not-reproducible",
            f"workload not reproducible: the baseline differs from itself in {len(found)}/{len(names)}"
            f" requests. Settings to change: {SETTINGS}",
            expected="the baseline's own trajectory, twice",
            got=found[0].sentence(),
            first=found[0].sentence(),
            numbers={"differing": len(found), "requests": len(names)},
        )
    return Result(
        REPRODUCIBLE,
        Status.PASS,
        "repeats-itself",
        f"the baseline repeats itself: {len(names)}/{len(names)} requests, {tokens} tokens",
        numbers={"differing": 0, "requests": len(names), "tokens": tokens},
    )


def ran(baseline: Sequence[Pass], candidate: Pass, sides: tuple[Side, Side]) -> Result:
    """The operator under test ran on the candidate's side, and on no other. The sentence says in how
    many layers: one that is never reached, such as an expert that no token is sent to, is none."""
    expected = "the swapped operator runs on the candidate's side and nowhere else"
    if any(side.hits is None for side in sides):
        return Result(
            RAN,
            Status.UNKNOWN,
            "hits-not-counted",
            "nobody counts whether the swapped operator runs: give both sides `hits`",
            expected=expected,
            got="no count",
        )
    stray = [one.hits for one in baseline if one.hits]
    if stray:
        return Result(
            RAN,
            Status.UNKNOWN,
            "baseline-uses-it",
            f"the swapped operator ran on the baseline's side: {_hits_text(stray[0])}. Its original "
            "has to run there (use(...) was left on?)",
            expected=expected,
            got=_hits_text(stray[0]),
        )
    if not candidate.hits:
        return Result(
            RAN,
            Status.UNKNOWN,
            "candidate-never-ran",
            "the swapped operator never ran on the candidate's side: nothing was compared with it",
            expected=expected,
            got="0 hits",
        )
    names = {name.partition("@")[0] for name in candidate.hits}
    idle = [operator for operator in sides[1].operators if operator not in names]
    if idle:
        return Result(
            RAN,
            Status.UNKNOWN,
            "candidate-never-ran",
            f"{', '.join(idle)} never ran on the candidate's side, only {_hits_text(candidate.hits)}: nothing "
            f"was compared with it. Leave it out, or find out why it does not run",
            expected=expected,
            got=f"0 hits of {', '.join(idle)}",
        )
    return Result(
        RAN,
        Status.PASS,
        "candidate-ran",
        f"candidate ran: {_hits_text(candidate.hits)}",
        numbers={"hits": candidate.hits},
    )


def trajectory(names: Sequence[str], baseline: Pass, candidate: Pass) -> Result:
    """Token ids, lengths and stop reasons of every request, equal; no ratio otherwise."""
    found = differences(names, baseline.outputs, candidate.outputs, margins(baseline))
    distances = states.distances(_logs(baseline), _logs(candidate))
    numbers: dict[str, Any] = {
        "differing": len(found),
        "requests": len(names),
        "tokens": {
            "baseline": [output.length for output in baseline.outputs],
            "candidate": [output.length for output in candidate.outputs],
        },
        "differences": [difference.to_json() for difference in found],
        "states": _states_json(distances),
    }
    if found:
        return _rejected(found, states.first_parted(distances), numbers)
    tokens = sum(output.length or 0 for output in baseline.outputs)
    worst = max((distance.relative for distance in distances), default=None)
    apart = "" if worst is None else f"; states within {worst:.2g} relative L2"
    smallest = smallest_margin(baseline)
    margin = "" if smallest is None else f"; smallest margin {smallest:.3g}"
    return Result(
        TRAJECTORY,
        Status.PASS,
        "trajectory-equal",
        f"{len(names)}/{len(names)} requests equal, {tokens} tokens{margin}{apart}",
        numbers={**numbers, "smallest_margin": smallest},
    )


def _rejected(
    found: list[Difference], parted: states.Distance | None, numbers: dict[str, Any]
) -> Result:
    count = numbers["requests"]
    where = (
        ""
        if parted is None
        else f"; states part first in {parted.layer}, step {parted.step} of request "
        f"{parted.request} ({parted.relative:.2g} relative L2)"
    )
    totals = [
        sum(length or 0 for length in numbers["tokens"][side]) for side in ("baseline", "candidate")
    ]
    return Result(
        TRAJECTORY,
        Status.FAIL,
        "trajectory-differs",
        f"DIFFERENT in {len(found)}/{count} requests, first at {found[0].sentence()}{where}. No speed "
        f"is reported: {totals[0]:,} and {totals[1]:,} other tokens are not the same work",
        expected="the baseline's tokens, lengths and stop reasons",
        got=found[0].sentence(),
        first=found[0].sentence() + where,
        numbers={**numbers, "first_parted": parted.to_json() if parted else None},
    )


def margins(one: Pass) -> list[list[float] | None]:
    """Of every request: the margins of its steps, or None where they are not known."""
    return [_known(played) for played in one.played]


def _known(played: Played) -> list[float] | None:
    known = [step.margin for step in played.steps if step.margin is not None]
    return known if known and len(known) == len(played.steps) else None


def _first_undefined(names: Sequence[str], one: Pass) -> str | None:
    for name, played in zip(names, one.played, strict=True):
        for position, step in enumerate(played.steps):
            # A margin is infinite where only one token was possible.
            if any(
                value is not None and math.isnan(value)
                for value in (step.margin, step.log_probability)
            ):
                return f"request {name}, token {position}"
    return None


def smallest_margin(one: Pass) -> float | None:
    return min((value for known in margins(one) for value in known or []), default=None)


def _logs(one: Pass) -> list[states.StateLog]:
    return [played.states for played in one.played]


def _states_json(found: list[states.Distance]) -> dict[str, Any] | None:
    if not found:
        return None
    return {
        "measure": "relative L2, candidate against baseline",
        "worst_by_layer": states.worst_by_layer(found),
        "by_step": [distance.to_json() for distance in found if distance.request == 0],
    }


def _hits_text(hits: dict[str, int]) -> str:
    """ "gdn_decode 48 layers × 1,776": hits are named operator or operator@layer."""
    by_operator: dict[str, list[int]] = {}
    for name, count in hits.items():
        by_operator.setdefault(name.partition("@")[0], []).append(count)
    parts = []
    for operator, counts in by_operator.items():
        low, high = min(counts), max(counts)
        times = f"{low:,}" if low == high else f"{low:,}…{high:,}"
        places = "1 place" if len(counts) == 1 else f"{len(counts)} layers"
        parts.append(f"{operator} {places} × {times}")
    return ", ".join(parts)
