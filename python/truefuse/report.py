"""The report of a check: one JSON by a published schema, one self-contained page."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truefuse.verdict import Result, Status, Verdict

SCHEMA_VERSION = 2
SCHEMA_PATH = Path(__file__).parent / "report.schema.json"


@dataclass
class Report:
    case: str
    device: str
    seed: int
    replay: str
    verdict: Verdict
    results: list[Result]
    environment: dict[str, Any]
    acceptance: list[dict[str, Any]] = field(default_factory=list)
    performance: dict[str, Any] | None = None
    layouts: list[dict[str, Any]] = field(default_factory=list)  # {input, text, sizes}

    def to_json(self) -> dict[str, Any]:
        """Without a performance object unless the verdict is ACCEPT."""
        data = {
            "schema_version": SCHEMA_VERSION,
            "case": self.case,
            "verdict": self.verdict.value,
            "device": self.device,
            "seed": self.seed,
            "replay": self.replay,
            "gates": [result.to_json() for result in self.results],
            "acceptance": self.acceptance,
            "environment": self.environment,
        }
        if self.layouts:
            data["layouts"] = self.layouts
        if self.verdict is Verdict.ACCEPT and self.performance is not None:
            data["performance"] = self.performance
        return finite(data)


def remove(directory: Path) -> None:
    """Removes an earlier report, so that a check that does not finish leaves none."""
    for name in ("report.json", "index.html"):
        (directory / name).unlink(missing_ok=True)


def write(report: Report, directory: Path) -> tuple[Path, Path]:
    """Writes report.json and index.html; each is either the old one or the new one, never half."""
    from truefuse.page import render

    directory.mkdir(parents=True, exist_ok=True)
    data = report.to_json()
    texts = {"report.json": json.dumps(data, indent=1, allow_nan=False), "index.html": render(data)}
    for name, text in texts.items():
        replace_file(directory / name, text)
    return directory / "report.json", directory / "index.html"


def write_junit(report: Report, path: Path) -> None:
    """One test case a gate, for systems that read JUnit XML. UNKNOWN is an error, SKIP skipped."""
    from xml.etree import ElementTree

    count = {status: sum(one.status is status for one in report.results) for status in Status}
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(f"truefuse check {report.case} on {report.device}"),
        tests=str(len(report.results)),
        failures=str(count[Status.FAIL]),
        errors=str(count[Status.UNKNOWN]),
        skipped=str(count[Status.SKIP]),
        time=f"{sum(one.seconds for one in report.results):.3f}",
    )
    tags = {Status.FAIL: "failure", Status.UNKNOWN: "error", Status.SKIP: "skipped"}
    for one in report.results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_xml(f"{report.case}.{report.device}"),
            name=one.gate,
            time=f"{one.seconds:.3f}",
        )
        if one.status in tags:
            entry = ElementTree.SubElement(
                case, tags[one.status], type=one.reason, message=_xml(one.summary)
            )
            parts = ("expected", "got", "first", "replay", "traceback")
            entry.text = _xml(
                "\n".join(f"{p}: {getattr(one, p)}" for p in parts if getattr(one, p))
            )
    replace_file(path, ElementTree.tostring(suite, encoding="unicode", xml_declaration=True))


def _xml(text: str) -> str:
    """XML has no control characters but tab and newline, and neither halves of characters nor the two last."""
    return re.sub("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def replace_file(path: Path, text: str) -> None:
    """Writes a file that others see whole or not at all, with the permissions of the one before."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def finite(value: Any) -> Any:
    """JSON has neither NaN nor infinities: they become text."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
