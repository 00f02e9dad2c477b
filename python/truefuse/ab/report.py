"""The report of an A/B, by a schema that knows no ratio unless the verdict is ACCEPT."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truefuse.report import finite, replace_file
from truefuse.verdict import Result, Verdict, exit_code

SCHEMA_VERSION = 1
SCHEMA_PATH = Path(__file__).parent / "ab.schema.json"


@dataclass
class AbReport:
    """`mode` is "free", "forced" or "recorded" (servers)."""

    name: str
    mode: str
    verdict: Verdict
    device: str
    seed: int
    replay: str
    results: list[Result]
    environment: dict[str, Any]
    performance: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """A forced ACCEPT is said to be one: it is no claim about a free run."""
        return f"{self.verdict.value} (forced)" if self.mode == "forced" else self.verdict.value

    @property
    def exit_code(self) -> int:
        """As of `truefuse check`."""
        return exit_code(self.verdict, self.results)

    def to_json(self) -> dict[str, Any]:
        """Without a performance object unless the verdict is ACCEPT."""
        data = {
            "schema_version": SCHEMA_VERSION,
            "kind": "ab",
            "name": self.name,
            "mode": self.mode,
            "verdict": self.verdict.value,
            "label": self.label,
            "device": self.device,
            "seed": self.seed,
            "replay": self.replay,
            "gates": [_gate_json(result) for result in self.results],
            "environment": self.environment,
        }
        if self.verdict is Verdict.ACCEPT and self.performance is not None:
            data["performance"] = self.performance
        return finite(data)


def _gate_json(result: Result) -> dict[str, Any]:
    """Without its duration: gates run one side each, and a ratio could be read out of two of them."""
    return {key: value for key, value in result.to_json().items() if key != "seconds"}


def write(report: AbReport, path: Path) -> None:
    """The old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(report.to_json(), indent=1, allow_nan=False))
