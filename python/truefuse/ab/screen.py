"""What an A/B looks like in a terminal."""

from __future__ import annotations

from typing import Any

from truefuse.ab.report import AbReport
from truefuse.terminal import VERDICT_STYLES, Screen, mebibytes, show_result
from truefuse.verdict import Result

NAMES = {"throughput": "throughput", "ttft": "time to first token", "tpot": "time per token"}


class Live:
    """Results as they come; in a terminal also one line of progress, overwritten."""

    def __init__(self, screen: Screen, quiet: bool) -> None:
        self.screen = screen
        self.quiet = quiet

    def progress(self, text: str) -> None:
        if self.screen.console.is_terminal and not self.quiet:
            self.screen.console.file.write(f"\r\x1b[K{self.screen.text(text)}")
            self.screen.console.file.flush()

    def result(self, result: Result) -> None:
        self.progress("")
        if not self.quiet:
            show_result(self.screen, result)


def show(screen: Screen, report: AbReport, path: str) -> None:
    data = report.to_json()
    if "performance" in data:
        _show_performance(screen, data["performance"])
    screen.line()
    screen.line(
        f"{report.label} · {report.name} on {report.device} · {path} · replay: {report.replay}",
        VERDICT_STYLES[report.verdict],
    )


def _show_performance(screen: Screen, performance: dict[str, Any]) -> None:
    screen.line()
    screen.line(f"{performance['device']}: {performance['method']}", "dim")
    for name, metric in performance["metrics"].items():
        screen.line(f"{NAMES[name]:<20} {_metric_text(metric)}")
    launches = performance["launches_per_token"]
    screen.line(f"{'launches per token':<20} {_counted_text(launches, '{:.4g}'.format)}")
    screen.line(f"{'peak memory':<20} {_counted_text(performance['peak_memory'], mebibytes)}")
    amdahl = performance["amdahl"]
    if amdahl:
        measured = "not measured" if amdahl["measured"] is None else f"{amdahl['measured']:.4f}"
        screen.line(
            f"{'Amdahl':<20} share {amdahl['share']:.1%}, there {amdahl['operator_speedup']:.3g} times as "
            f"fast: predicted {amdahl['predicted']:.4f}, measured {measured}; {amdahl['finding']}"
        )
    else:
        screen.line(f"{'Amdahl':<20} the operator's share was not measured")


def _metric_text(metric: dict[str, Any] | None) -> str:
    if metric is None:
        return "not measured"
    gain = metric["gain"]
    return (
        f"{side_text(metric, 'baseline')} → {side_text(metric, 'candidate')}  "
        f"gain {gain['value']:.4f} [{gain['low']:.4f}, {gain['high']:.4f}] {metric['verdict']} "
        f"(smallest detectable {metric['smallest_effect']:.1%})"
    )


def side_text(metric: dict[str, Any], side: str) -> str:
    values = metric[side]
    if metric["unit"] != "s":
        return f"{values['mean']:.4g} {metric['unit']}"
    tail = "p99" if "p99" in values else "max"
    parts = [f"{values['mean'] * 1e3:.4g}", f"{values['p50'] * 1e3:.4g}"]
    if tail in values:
        return f"mean {parts[0]} p50 {parts[1]} {tail} {values[tail] * 1e3:.4g} ms"
    return f"mean {parts[0]} p50 {parts[1]} ms"


def _counted_text(counted: dict[str, Any] | None, show_one: Any) -> str:
    if counted is None:
        return "not measured"
    return (
        f"{show_one(counted['baseline'])} → {show_one(counted['candidate'])} {counted['verdict']} "
        f"({counted['unit']})"
    )
