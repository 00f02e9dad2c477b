"""Relative errors over successive decode steps, as a picture."""

from __future__ import annotations

import math
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, KEY = 640, 360, 60, 20, 300  # pixels; the key's column behind the plot
COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed")


def picture(drifts: list[dict[str, Any]]) -> str:
    """An SVG: logarithmic error over steps, for each of `drifts` (see gdn_decode.py) the output as a line and
    the state as a broken one."""
    lines = []
    for drift, colour in zip(drifts, COLOURS, strict=True):
        label = f"{drift['output']}, {'slow' if drift['slow decay'] else 'usual'} decay"
        curve = drift["curve [step, output, state]"]
        for name, column, dashes in (("output", 1, ""), ("state", 2, ' stroke-dasharray="4 3"')):
            points = [(one[0], one[column]) for one in curve if one[column] > 0]
            lines.append((f"{name}, {label}", points, f'stroke="{colour}"{dashes}'))
    errors = [error for _, points, _ in lines for _, error in points]
    steps = max(drift["steps"] for drift in drifts)
    low, high = math.floor(math.log10(min(errors))), math.ceil(math.log10(max(errors)))

    def place(step: float, error: float) -> tuple[float, float]:
        share = (high - math.log10(error)) / max(1, high - low)
        return LEFT + step / steps * WIDTH, TOP + share * HEIGHT

    parts = []
    for power in range(low, high + 1):
        _, y = place(0, 10.0**power)
        parts.append(
            f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    for number, (label, points, style) in enumerate(lines):
        path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke-width="1.5" {style}/>')
        x, y = LEFT + WIDTH + 16, TOP + 12 + 18 * number
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="{y - 4}" y2="{y - 4}" {style}/>')
        parts.append(f'<text x="{x + 30}" y="{y}">{escape(label)}</text>')
    below = TOP + HEIGHT + 18
    parts.append(f'<text x="{LEFT}" y="{below}">step 1</text>')
    parts.append(f'<text x="{LEFT + WIDTH}" y="{below}" text-anchor="end">{steps}</text>')
    size = f'width="{LEFT + WIDTH + KEY}" height="{below + 10}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
        "<title>Relative L2 error against float64 over successive decode steps</title>\n"
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
