"""The report as one self-contained page: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jinja2

TEMPLATES = Path(__file__).parent / "templates"

# Chart geometry, in SVG units.
WIDTH, HEIGHT = 340, 150
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 8, 26
LOWEST, HIGHEST = -1.0, 6.0  # log10 of ulp; outside is drawn at the edge


def render(report: dict[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True
    )
    environment.filters["mebibytes"] = _mebibytes
    template = environment.get_template("report.html.j2")
    return template.render(
        report=report,
        charts=[error_chart(row) for row in _numeric_rows(report)],
        intervals=speedup_bars(report.get("performance")),
        environment=_flat(report["environment"]),
    )


def _numeric_rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    for gate in report["gates"]:
        if gate["gate"] == "numerics":
            return gate["numbers"].get("table", [])
    return []


def error_chart(row: dict[str, Any]) -> dict[str, Any]:
    """Worst ulp error over the binades of the result, candidate and eager, as SVG polylines."""
    binades = row["binades"]
    first, last = binades[0]["exponent"], binades[-1]["exponent"]
    span = max(last - first, 1)

    def x(exponent: float) -> float:
        return round(LEFT + (exponent - first) / span * (WIDTH - LEFT - RIGHT), 1)

    def y(ulps: Any) -> float:
        value = float(ulps)
        level = math.log10(value) if value > 0 else LOWEST
        level = min(max(level, LOWEST), HIGHEST)
        return round(TOP + (HIGHEST - level) / (HIGHEST - LOWEST) * (HEIGHT - TOP - BOTTOM), 1)

    def line(side: str) -> str:
        return " ".join(f"{x(entry['exponent'])},{y(entry[side])}" for entry in binades)

    step = max(1, round(span / 4))
    return {
        "title": f"{row['dtype']} {row['mode']}",
        "worst": {"ours": row["worst_ulps"]["large"], "eager": row["eager_worst_ulps"]["large"]},
        "ours": line("ours"),
        "eager": line("eager"),
        "x_ticks": [(x(e), f"2^{e}") for e in range(first, last + 1, step)],
        "y_ticks": [(y(10.0**power), _power(power)) for power in (0, 2, 4, 6)],
    }


def _power(power: int) -> str:
    return {0: "1", 2: "100", 4: "1e4", 6: "≥1e6"}[power]


def speedup_bars(performance: dict[str, Any] | None) -> dict[str, Any] | None:
    """Speed-up intervals on a common logarithmic axis, in percent of its width."""
    if not performance:
        return None
    ratios = [
        baseline["speedup"] for shape in performance["shapes"] for baseline in shape["baselines"]
    ]
    bounds = [ratio[side] for ratio in ratios for side in ("low", "high")]
    low = math.floor(math.log2(min([1.0, *bounds])) - 0.1)
    high = math.ceil(math.log2(max([1.0, *bounds])) + 0.1)

    def x(ratio: float) -> float:
        return round((math.log2(ratio) - low) / (high - low) * 100, 2)

    rows = [{key: x(value) for key, value in ratio.items()} for ratio in ratios]
    return {"rows": rows, "from": f"{2.0**low:g}", "to": f"{2.0**high:g}", "one": x(1.0)}


def _flat(environment: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in environment.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, dict):
            rows += _flat(value, f"{name} ")
        elif value is not None:
            rows.append((name, str(value)))
    return rows


def _mebibytes(count: int | None) -> str:
    return "not measured" if count is None else f"{count / 2**20:.2f} MiB"
