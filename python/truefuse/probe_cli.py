"""truefuse probe: which layout a kernel really uses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from truefuse import source_file
from truefuse.apart import Refused
from truefuse.layout_cli import refuse

Report = tuple[bool | None, list[str], dict[str, Any]]  # whether it agrees, for people, for JSON


def probe(
    case: Annotated[
        str,
        typer.Argument(
            help="A built-in operator, or a file that defines `probes`, a list of Probe."
        ),
    ],
    producer: Annotated[
        bool,
        typer.Option(
            help="Follow marked weights to the columns that the file's `producers` write, and compare "
            "them with what the kernel reads."
        ),
    ] = False,
    device: Annotated[
        str, typer.Option(help="Where to ask, such as cuda; else where the file says.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Find out which layout a kernel really uses. Exit: 0 as declared, 1 another, 3 not known."""
    from truefuse import apart
    from truefuse.child import EndedEarly

    try:
        reports = apart.call(_reports, case, producer, device)
    except apart.Refused as error:
        refuse(str(error))
    except EndedEarly as error:
        sentence, status = apart.ended(error, status=3)
        refuse(f"{case}: {sentence}.", status)
    if as_json:
        print(json.dumps([data for _, _, data in reports], indent=1))
    else:
        _show([line for _, lines, _ in reports for line in lines])
    agrees = [one for one, _, _ in reports]
    raise typer.Exit(1 if False in agrees else 3 if None in agrees else 0)


def _reports(case: str, producer: bool, device: str) -> list[Report]:
    from truefuse import probe as probing

    module = _load(case)
    probes = _list(module, case, "probes", probing.Probe, required=not producer)
    findings = [_asked(probing.run, replace(p, device=device or p.device)) for p in probes]
    reports = [(finding.agrees, finding.lines(), _data(finding)) for finding in findings]
    if producer:
        reports += _followed(module, case, device, {f.argument: f for f in findings})
    return reports


def _followed(
    module: ModuleType, case: str, device: str, consumers: dict[str, Any]
) -> list[Report]:
    from truefuse import probe_producer

    reports: list[Report] = []
    for one in _list(module, case, "producers", probe_producer.Producer):
        produced = _asked(probe_producer.follow, replace(one, device=device or one.device))
        agrees, lines = produced.against(consumers.get(one.argument))
        data = {
            "argument": one.argument,
            "declared": one.declared.text,
            "written": produced.found,
            "agrees": agrees,
            "first_disagreement": lines[-1].removeprefix("✗ ") if agrees is False else None,
        }
        reports.append((agrees, lines, data))
    return reports


def _asked(ask: Any, one: Any) -> Any:
    """A case that cannot be asked is bad input; what a kernel itself raises is shown with its place."""
    from truefuse.probe_marks import CannotAsk

    try:
        return ask(one)
    except CannotAsk as error:
        raise Refused(f"probe of {one.argument}: {error}.") from error


def _show(lines: list[str]) -> None:
    from truefuse.terminal import Screen

    screen = Screen()
    for line in lines:
        screen.line(line, {"✗": "bold red", "✓": "green", "?": "bold yellow"}.get(line[0], ""))


def _load(name_or_path: str) -> ModuleType:
    from truefuse.case import builtin_directory

    path = Path(name_or_path)
    if path.suffix != ".py":
        path = builtin_directory() / path.name / "probes.py"
    if not path.is_file():
        names = ", ".join(sorted(p.parent.name for p in builtin_directory().glob("*/probes.py")))
        raise Refused(
            f"{name_or_path} is no Python file, and no operator that has probes. Operators: "
            f"{names or 'none in this installation'}; or name a file that defines `probes`, a list of "
            "Probe."
        )
    try:
        return source_file.run(path)
    except Exception as error:
        raise Refused(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error


def _list(module: ModuleType, case: str, name: str, kind: type, required: bool = True) -> list[Any]:
    found = getattr(module, name, None if required else [])
    if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
        found = None
    if found is None or (required and not found):
        raise Refused(
            f"{case} defines no `{name}`; it must be a list of {kind.__module__}.{kind.__name__}."
        )
    return found


def _data(finding: Any) -> dict[str, Any]:
    return {
        "argument": finding.argument,
        "declared": finding.declared.text,
        "found": finding.found,
        "alternative": finding.alternative,
        "otherwise": finding.otherwise,
        "agrees": finding.agrees,
        "first_disagreement": finding.first_disagreement(),
        "unknown": {str(offset): fits for offset, fits in finding.candidates.items()},
    }
