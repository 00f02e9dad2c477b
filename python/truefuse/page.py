"""The report as one self-contained page: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import jinja2

from truefuse.terminal import amdahl_line, busy_line

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
    environment.filters["busy"] = busy_line
    template = environment.get_template("report.html.j2")
    return template.render(
        report=report,
        charts=[error_chart(row) for row in _numeric_rows(report)],
        drift=drift_charts(_numbers(report, "drift").get("curves", [])),
        intervals=speedup_bars(report.get("performance")),
        amdahl=amdahl_line(report["performance"]["amdahl"]) if "performance" in report else "",
        environment=_flat(report["environment"]),
        layouts=layout_strips(report.get("layouts", [])),
    )


def _numbers(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next((gate["numbers"] for gate in report["gates"] if gate["gate"] == name), {})


def layout_strips(given: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Who is where in each input, as pictures of their own: their styles are not the page's."""
    from truefuse import layout_picture, layouts

    bound = [layouts.layout(one["text"]).bind(**one["sizes"]) for one in given]
    drawn = [layout_picture.show(one, beside=bound).encode() for one in bound]
    return [
        {
            "input": one["input"],
            "source": f"data:image/svg+xml;base64,{base64.b64encode(d).decode()}",
        }
        for one, d in zip(given, drawn, strict=True)
    ]


def _numeric_rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    found = [_numbers(report, gate).get("table", []) for gate in ("numerics", "gradients")]
    return [row for table in found for row in table if row["binades"]]


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
        "title": " ".join(
            (row["dtype"], row["mode"], "" if row["result"] == "out" else row["result"])
        ).strip(),
        "worst": {"ours": row["worst_ulps"]["large"], "eager": row["eager_worst_ulps"]["large"]},
        "ours": line("ours"),
        "eager": line("eager"),
        "x_ticks": [(x(e), f"2^{e}") for e in range(first, last + 1, step)],
        "y_ticks": [(y(10.0**power), _power(power)) for power in (0, 2, 4, 6)],
    }


def _power(power: int) -> str:
    return {0: "1", 2: "100", 4: "1e4", 6: "≥1e6"}[power]


def drift_charts(curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Relative error over the steps, candidate and yardstick, one chart a result."""
    charts: dict[str, list[dict[str, Any]]] = {}
    for row in curves:
        charts.setdefault(f"{row['case']} {row['result']}", []).append(row)
    return [_drift_chart(title, rows) for title, rows in charts.items()]


def _drift_chart(title: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    steps = [row["step"] for row in rows]
    span = max(math.log2(steps[-1]), 1.0)
    found = [float(row[side]) for row in rows for side in ("ours", "eager")]
    positive = [value for value in found if 0 < value < math.inf] or [1e-16, 1.0]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    high = max(high, low + 1)

    def x(step: int) -> float:
        return round(LEFT + math.log2(step) / span * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        level = min(max(math.log10(value) if value > 0 else low, low), high)
        return round(TOP + (high - level) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    return {
        "title": title,
        "last": f"step {steps[-1]}: {float(rows[-1]['ours']):.2g}, "
        f"yardstick {float(rows[-1]['eager']):.2g}",
        "ours": " ".join(f"{x(row['step'])},{y(float(row['ours']))}" for row in rows),
        "eager": " ".join(f"{x(row['step'])},{y(float(row['eager']))}" for row in rows),
        "x_ticks": [(x(step), str(step)) for step in (steps[0], steps[-1])],
        "y_ticks": [(y(10.0**power), f"1e{power}") for power in (low, high)],
    }


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
