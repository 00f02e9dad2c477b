"""truefuse probe: which layout a kernel really uses."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from truefuse.layout_cli import refuse


def probe(
    case: Annotated[Path, typer.Argument(help="A file that defines `probes`, a list of Probe.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Find out which layout a kernel really uses. Exit: 0 as declared, 1 another, 3 not known."""
    from truefuse import probe as probing
    from truefuse.terminal import Screen

    findings = [probing.run(asked) for asked in _load(case)]
    if as_json:
        print(json.dumps([_data(finding) for finding in findings], indent=1))
    else:
        screen = Screen()
        for finding in findings:
            for line in finding.lines():
                style = {"✗": "bold red", "✓": "green", "?": "bold yellow"}.get(line[0], "")
                screen.line(line, style)
    agrees = [finding.agrees for finding in findings]
    raise typer.Exit(1 if False in agrees else 3 if None in agrees else 0)


def _load(path: Path) -> list[Any]:
    from truefuse.probe import Probe

    if path.suffix != ".py" or not path.is_file():
        refuse(f"{path} is no Python file. Name one that defines `probes`, a list of Probe.")
    spec = importlib.util.spec_from_file_location(f"truefuse_probe_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        refuse(f"{path} cannot be loaded: {type(error).__name__}: {error}")
    probes = getattr(module, "probes", None)
    if not isinstance(probes, list) or not all(isinstance(p, Probe) for p in probes) or not probes:
        refuse(f"{path} defines no `probes`; it must be a list of truefuse.probe.Probe.")
    return probes


def _data(finding: Any) -> dict[str, Any]:
    return {
        "argument": finding.argument,
        "declared": finding.declared.text,
        "found": finding.found,
        "alternative": finding.alternative,
        "agrees": finding.agrees,
        "first_disagreement": finding.first_disagreement(),
        "unknown": {str(offset): fits for offset, fits in finding.candidates.items()},
    }
