"""What a check looks like in a terminal, a pipe, a narrow window or a locale without UTF-8."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape

from truefuse import company
from truefuse.report import Report
from truefuse.verdict import Result, Status, Verdict

MARKS = {Status.PASS: "✓", Status.FAIL: "✗", Status.UNKNOWN: "?", Status.SKIP: "-"}
PLAIN_MARKS = {Status.PASS: "ok", Status.FAIL: "FAIL", Status.UNKNOWN: "?", Status.SKIP: "-"}
STYLES = {
    Status.PASS: "green",
    Status.FAIL: "bold red",
    Status.UNKNOWN: "bold yellow",
    Status.SKIP: "dim",
}
VERDICT_STYLES = {
    Verdict.ACCEPT: "bold green",
    Verdict.REJECT: "bold red",
    Verdict.UNKNOWN: "bold yellow",
}
ASCII = str.maketrans(
    {
        "·": "|",
        "×": "x",
        "±": "+/-",
        "→": "->",
        "≤": "<=",
        "≥": ">=",
        "…": "...",
        "✓": "ok",
        "✗": "x",
    }
)
# How many lines of a gate that passed are worth showing; all are in the report.
SHOWN_LINES = {"contract": 3, "compile": 8, "numerics": 16, "gradients": 16}


class Screen:
    """Prints to `file` (standard output by default) whatever its encoding can show."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.console = Console(file=file or sys.stdout, highlight=False)
        encoding = (getattr(self.console.file, "encoding", None) or "utf-8").lower()
        self.unicode = encoding.replace("-", "") in ("utf8", "utf8sig", "utf16")
        self.encoding = encoding

    def text(self, text: str) -> str:
        if self.unicode:
            return text.encode("utf-8", "replace").decode("utf-8")
        return text.translate(ASCII).encode(self.encoding, "replace").decode(self.encoding)

    def line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """One line; wrapped with its indent kept in a terminal, left whole in a pipe."""
        shown = self.text(text)
        if not self.console.is_terminal:
            self.console.print(" " * indent + escape(shown), style=style or None, soft_wrap=True)
            return
        width = max(self.console.width - indent, 20)
        for piece in escape_wrap(shown, width):
            self.console.print(" " * indent + escape(piece), style=style or None, soft_wrap=True)

    def mark(self, status: Status) -> str:
        return (MARKS if self.unicode else PLAIN_MARKS)[status]


def escape_wrap(text: str, width: int) -> list[str]:
    """At spaces where there are any; nothing is cut off."""
    import textwrap

    return textwrap.wrap(
        text, width, replace_whitespace=False, drop_whitespace=True, break_on_hyphens=False
    ) or [""]


def show_result(screen: Screen, result: Result) -> None:
    mark = screen.mark(result.status)
    style = STYLES[result.status]
    screen.line(f"{mark} {result.gate:<12} {result.summary}", style if mark != "✓" else "")
    if result.status is Status.PASS:
        for line in result.lines[: SHOWN_LINES.get(result.gate, 0)]:
            screen.line(line, "dim", indent=4)
    if result.status in (Status.FAIL, Status.UNKNOWN):
        for name, text in (
            ("expected", result.expected),
            ("got", result.got),
            ("first", result.first),
            ("replay", result.replay),
        ):
            if text:
                screen.line(f"{name:<9} {text}", indent=4)
        if result.traceback:
            screen.line("traceback in the report", "dim", indent=4)


def show_timing(screen: Screen, performance: dict[str, Any]) -> None:
    screen.line()
    screen.line(f"time on {performance['device']}: {performance['method']}", "dim")
    screen.line(f"memory: {performance['memory']}", "dim")
    header = ("size", "dtype", "candidate ms", "baseline ms", "speed-up [95 %]", "peak", "baseline")
    rows = [header]
    for shape in performance["shapes"]:
        for baseline in shape["baselines"]:
            rows.append(_timing_row(shape, baseline))
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    if screen.console.is_terminal and sum(widths) + 2 * len(widths) > screen.console.width:
        for row in rows[1:]:
            screen.line("  ".join(row[:2]))
            for name, value in zip(header[2:], row[2:], strict=True):
                screen.line(f"{name:<16} {value}", indent=2)
        return
    for number, row in enumerate(rows):
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        screen.line("  ".join(cells).rstrip(), "dim" if number == 0 else "")
    for shape in performance["shapes"]:
        screen.line(_state_line(shape), "dim", indent=2)
        if text := busy_line(shape):
            screen.line(text, "bold yellow", indent=4)
        if shape["device_time"]:
            _show_device_time(screen, shape)
    screen.line(amdahl_line(performance["amdahl"]))


def _state_line(shape: dict[str, Any]) -> str:
    cached = ", ".join(f"{name} {ms:.4g}" for name, ms in shape["cached"].items())
    return (
        f"{' × '.join(map(str, shape['size']))}  {shape['sets']} input sets"
        f"{_share(shape)} · on one set, ms: {cached} · A/A ±{shape['noise']['floor']:.1%}"
    )


def busy_line(shape: dict[str, Any]) -> str:
    """A parallel call waits for the slowest of its threads, so that a busy machine favours whoever needs fewer
    of them: that is not noise, and no interval shows it."""
    if shape.get("device_shared"):
        who = "the device was busy: calls waited for it longer than they took on it, the baseline's too"
    elif (shape.get("waited") or 0.0) >= company.BUSY:
        who = (
            f"the machine was busy: a thread waited for a processor {shape['waited']:.0%} of the time, "
            "while others had them"
        )
    else:
        return ""
    return f"{who}. On a quiet one the ratio may be another, so there is no verdict on it"


def _share(shape: dict[str, Any]) -> str:
    """Of the bandwidth of memory, where memory is what serves the calls."""
    if not shape["cold"]:
        return ", too few to be cold: the cache serves them, not memory"
    return f" · {shape['bandwidth_share']:.0%} of the measured bandwidth"


def amdahl_line(amdahl: dict[str, Any]) -> str:
    begin = f"the most a model can gain over '{amdahl['baseline']}'"
    if amdahl["verdict"] in ("SAME", "AMBIGUOUS"):
        return f"{begin}: not known, the ratio is {amdahl['verdict']}"
    gains = " · ".join(
        f"at {one['share']:.0%} of its time {100 * (one['gain'] - 1):.2g} %"
        for one in amdahl["gains"]
    )
    return f"{begin}: {gains}"


def _timing_row(shape: dict[str, Any], baseline: dict[str, Any]) -> tuple[str, ...]:
    speedup = baseline["speedup"]
    return (
        " × ".join(map(str, shape["size"])),
        shape["dtype"],
        f"{shape['candidate']['median_ms']:.4g}",
        f"{baseline['median_ms']:.4g} ({baseline['name']})",
        f"{speedup['value']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}] "
        f"{baseline['verdict']}",
        mebibytes(shape["candidate"]["peak"]["allocated"]),
        mebibytes(baseline["peak"]["allocated"]),
    )


def _show_device_time(screen: Screen, shape: dict[str, Any]) -> None:
    device = shape["device_time"]
    size = " × ".join(map(str, shape["size"]))
    for state in ("cold", "warm"):
        found = device[state]
        parts = [f"candidate {found['candidate_us']:.4g} us"]
        parts += [
            f"{name} {entry['us']:.4g} us ({entry['speedup']['value']:.2f})"
            for name, entry in found["baselines"].items()
        ]
        screen.line(f"{size}  {state}: {' · '.join(parts)}", indent=2)
    screen.line(device["method"], "dim", indent=4)


def mebibytes(count: int | None) -> str:
    return "not measured" if count is None else f"{count / 2**20:.2f} MiB"


def show_verdict(screen: Screen, report: Report, page: str) -> None:
    screen.line()
    undecided = any(one.status is Status.UNKNOWN for one in report.results)
    partly = report.verdict is Verdict.UNKNOWN and not undecided
    screen.line(
        f"{report.verdict.value} on {report.device}{' (not all gates ran)' if partly else ''} · {page} · "
        f"replay: {report.replay}",
        VERDICT_STYLES[report.verdict],
    )
