"""Which element of a packed argument is whose: the operator is asked (see `truefuse.probe`).

A case says what to ask in a `probes.py` beside it. Where it has none, nothing is declared; then the reference
alone says who is where.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from truefuse import case as cases
from truefuse import probe as probing
from truefuse.context import Context
from truefuse.gates.proof import self_test_failed
from truefuse.probe import Probe
from truefuse.verdict import Result, Status

NAME = "layout"


def run(context: Context) -> Result:
    probes = of_case(context)
    if not probes:
        return Result(NAME, Status.PASS, "none-declared", "the case declares no layout to ask for")
    fault = self_test(probes[0])
    if fault:
        return self_test_failed(NAME, [fault])
    found = [probing.run(one) for one in probes]
    lines = [line for one in found for line in one.lines()]
    for one in found:
        if one.agrees is not True:
            return Result(
                NAME,
                Status.UNKNOWN if one.agrees is None else Status.FAIL,
                "elements-alike" if one.agrees is None else "another-layout",
                f"{one.argument}: "
                + (
                    "not every element can be told apart"
                    if one.agrees is None
                    else "another layout"
                ),
                expected=one.declared.text,
                got=one.found or "no layout that fits",
                first=one.first_disagreement() or "",
                lines=lines,
            )
    names = ", ".join(one.argument for one in found)
    return Result(
        NAME,
        Status.PASS,
        "as-declared",
        f"read as declared, element by element: {names}",
        lines=lines,
        numbers={
            "layouts": [
                {
                    "input": one.argument,
                    "text": one.declared.text,
                    "sizes": dict(one.declared.sizes),
                }
                for one in found
            ]
        },
    )


def of_case(context: Context) -> list[Probe]:
    source = context.case.source
    path = source and source.with_name("probes.py")
    if path is None or not path.is_file():
        return []
    probes = getattr(cases.beside(str(source), "probes"), "probes", [])
    return [replace(one, device=str(context.device)) for one in probes]


def self_test(one: Probe) -> str:
    """Whether an operator that reads every element where its neighbour should be is noticed."""

    def shifted(rows: Tensor) -> dict[str, Tensor]:
        return dict(one.kernel(rows.roll(1, dims=-1)))

    if probing.run(replace(one, kernel=shifted)).agrees:
        return f"did not catch {one.argument} read one element further on"
    return ""
