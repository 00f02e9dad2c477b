"""One whole check: gates in order, measuring only if every one of them passed, the report always."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any

from truefuse import acceptance, elsewhere, environment, gates
from truefuse.context import Context
from truefuse.measure import measure
from truefuse.report import Report
from truefuse.turns import Refuted
from truefuse.verdict import Result, Status, Verdict, combine

MEASURE = "measure"


def run(
    context: Context,
    only: Collection[str] = (),
    on_result: Callable[[Result], None] = lambda result: None,
    progress: Callable[[str], None] = lambda text: None,
    on_step: Callable[[str], None] = lambda name: None,
    share: float | None = None,
) -> Report:
    """Checks `context.case`. With `only`, just those gates run: that can reject, never accept. `share`:
    the operator's part of a model's time."""
    chosen = (lambda name: name in only) if only else (lambda name: True)
    results: list[Result] = []
    performance = None
    # The process in which the candidate is never called comes up while the gates run.
    with nullcontext(None) if only else elsewhere.beside(context.as_given) as apart:
        for gate in gates.GATES:
            if chosen(gate.NAME):
                on_step(gate.NAME)
                results.append(gates.run_one(gate, context))
                on_result(results[-1])
        verdict = combine(results, complete=not only)
        if verdict is Verdict.ACCEPT:
            on_step(MEASURE)
            result, performance = _measured(context, progress, share, apart)
            results.append(result)
            on_result(result)
            verdict = combine(results)
    return Report(
        case=context.case.name,
        device=str(context.device),
        seed=context.seed,
        replay=context.replay(),
        verdict=verdict,
        results=results,
        environment=environment.describe(context.device),
        acceptance=acceptance.points(
            context.target,
            context.device,
            context.replay(),
            results,
            performance,
            context.case.operator,
        ),
        performance=performance,
        layouts=_layouts(context, results),
    )


def _layouts(context: Context, results: list[Result]) -> list[dict[str, Any]]:
    """Those that the case has drawn, and those that the operator was asked for."""
    drawn = [
        {"input": name, "text": bound.text, "sizes": bound.sizes}
        for name, bound in context.case.layouts.items()
    ]
    return drawn + [one for result in results for one in result.numbers.get("layouts", [])]


def _measured(
    context: Context,
    progress: Callable[[str], None],
    share: float | None,
    apart: Callable[[], str] | None = None,
) -> tuple[Result, dict[str, Any] | None]:
    begin = time.perf_counter()
    performance = None
    try:
        performance = measure(context.as_given, progress, share, apart)
        count = sum(shape["outputs_checked"] for shape in performance["shapes"])
        result = Result(
            MEASURE,
            Status.PASS,
            "measured",
            f"{count} timed results, each bit for bit that of the untimed call; two clocks agree; "
            "no faster than memory allows",
        )
    except Refuted as error:
        result = Result(
            MEASURE,
            Status.FAIL,
            error.reason,
            f"cannot be what it seems: {error}",
            expected=error.expected,
            got=str(error),
            first=str(error),
        )
    except Exception as error:
        result = Result(
            MEASURE,
            Status.UNKNOWN,
            "gate-error",
            f"measuring failed: {type(error).__name__}: {error}",
            traceback=traceback.format_exc(),
        )
    result.seconds = time.perf_counter() - begin
    result.seed, result.replay = context.seed, context.replay()
    return result, performance
