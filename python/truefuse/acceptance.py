"""The acceptance list for a fused operator, each point ticked only with evidence from this run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from truefuse import command_line
from truefuse.verdict import Result, Status

Evidence = str | None
_NOT_OURS = (
    "nothing: the case names no operator whose kernels truefuse compiles, keeps and launches"
)
# The operators that `truefuse ab` can put into a model, and a model that has them.
SWAPPED = {"bias_gelu": "tiny-gpt2", "swiglu": "tiny-llama", "gdn_decode": "tiny-qwen3.5"}


def points(
    target: str,
    device: torch.device,
    replay: str,
    results: list[Result],
    performance: dict[str, Any] | None,
    operator: str | None = None,
) -> list[dict[str, Any]]:
    """[{point, evidence or None, how}]; `how` says what would show a point that has no evidence.
    `target` is the case as it was named, `replay` the command that checks it again."""
    by_gate = {result.gate: result for result in results}
    again = replay
    on_gpu = device.type == "cuda"
    gpu = again if on_gpu else command_line.of("check", target, "cuda")

    def passed(gate: str) -> Evidence:
        return _passed_on(by_gate, gate)

    def all_passed(*gates: str) -> Evidence:
        found = [passed(gate) for gate in gates]
        return " · ".join(filter(None, found)) if all(found) else None

    rows: list[tuple[str, Evidence, str]] = [
        ("Reference semantics and approximation identical", passed("numerics"), again),
        ("Errors for device, dtype, shape and layout are clear", passed("contract"), again),
        ("An empty input launches nothing", _nothing_launched(by_gate), gpu),
        ("Work goes to the current stream", _passed_on(by_gate, "streams"), gpu),
        ("Launch status checked", None, "make gpu" if operator else _NOT_OURS),
        ("Random and edge tests pass", all_passed("edges", "numerics", "special", "drift"), again),
        (
            "Benchmark synchronised on both sides",
            performance["method"] if performance and on_gpu else None,
            gpu,
        ),
        ("Cold, cached and warm recorded apart", _cold_and_cached(by_gate, performance), gpu),
        (
            "The cache key holds source and runtime fingerprints",
            None,
            f"truefuse cache why {operator.split('::')[-1]}" if operator else _NOT_OURS,
        ),
        ("No build product in the source tree", _clean_sources(by_gate), again),
        ("Real shapes", _real_shapes(performance), again),
        (
            "Whole model re-measured for time, memory and output",
            None,
            whole_model(operator, device),
        ),
        (
            "Backward implemented and verified, or training refused",
            all_passed("training", "gradients"),
            again,
        ),
    ]
    return [{"point": point, "evidence": found, "how": how} for point, found, how in rows]


def whole_model(operator: str | None, device: torch.device) -> str:
    """The command that compares a model with and without the operator; without one that truefuse can swap,
    of a file that the user writes."""
    name = (operator or "").split("::")[-1]
    if name in SWAPPED:
        return f"truefuse ab run --model {SWAPPED[name]} --op {name} --device {device}"
    return "truefuse ab run experiment.py"


def _passed_on(by_gate: dict[str, Result], gate: str) -> Evidence:
    result = by_gate.get(gate)
    return result.summary if result and result.status is Status.PASS else None


def _numbers(by_gate: dict[str, Result], gate: str) -> dict[str, Any]:
    result = by_gate.get(gate)
    return result.numbers if result else {}


def _nothing_launched(by_gate: dict[str, Result]) -> Evidence:
    counted = _numbers(by_gate, "contract").get("empty_launches")
    return "0 device activities in a calibrated profile" if counted == 0 else None


def _cold_and_cached(by_gate: dict[str, Result], performance: dict[str, Any] | None) -> Evidence:
    """Warm is a call of the compiled kernel, which only a GPU can make."""
    rows = _numbers(by_gate, "compile").get("table", [])
    complete = [row for row in rows if row.get("cached_seconds") is not None]
    if not complete or not performance or performance["device"] == "cpu":
        return None
    row = complete[0]
    warm = performance["shapes"][0]["candidate"]["median_ms"]
    return (
        f"{row['compiler']}: cold {row['cold_seconds']:.2g} s, "
        f"cached {row['cached_seconds'] * 1e3:.2g} ms, warm call {warm:.2g} ms"
    )


def _clean_sources(by_gate: dict[str, Result]) -> Evidence:
    numbers = _numbers(by_gate, "compile")
    compiled: Callable[[dict], bool] = lambda row: "cold_seconds" in row  # noqa: E731
    if numbers.get("new_files") != [] or not any(map(compiled, numbers["table"])):
        return None
    return (
        f"kernels are compiled from memory; no new file in the folder of the case "
        f"({numbers['source_files']} there) after compiling"
    )


def _real_shapes(performance: dict[str, Any] | None) -> Evidence:
    if not performance:
        return None
    shapes = ", ".join("×".join(map(str, shape["size"])) for shape in performance["shapes"])
    return f"{shapes}: every element near mathematics, every timed result bit-identical"
