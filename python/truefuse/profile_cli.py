"""truefuse profile: where the time goes, and what would be worth fusing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truefuse import source_file
from truefuse.apart import Refused
from truefuse.usage import refuse

if TYPE_CHECKING:
    from truefuse.profile_chains import Group
    from truefuse.profile_ops import Profile
    from truefuse.terminal import Screen

SHOWN = 8


def profile(
    target: Annotated[
        str,
        typer.Argument(
            help="A Chrome trace (.json, .json.gz), a Python file that defines call(), or a model: "
            "a folder or tiny-NAME."
        ),
    ],
    device: Annotated[str, typer.Option(help="For a model: cpu, cuda, cuda:N.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help="For a model: float32, bfloat16, float16.")
    ] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Name chains of operators that could be one kernel, with the most that could gain. Exit: 0; 2 for
    what cannot be profiled."""
    from truefuse import apart, profile_chains, profile_trace
    from truefuse.child import EndedEarly
    from truefuse.terminal import Screen

    try:
        if Path(target).suffix in (".json", ".gz"):
            found = profile_trace.read(Path(target))
        else:
            found = apart.call(_profile, target, device, dtype)
    except (profile_trace.BadTrace, apart.Refused) as error:
        refuse(str(error))
    except EndedEarly as error:
        sentence, status = apart.ended(error, status=2)
        refuse(f"{target}: {sentence}.", status)
    groups = profile_chains.groups(found)
    if as_json:
        print(json.dumps(to_json(target, found, groups), indent=1))
        return
    show(Screen(), target, found, groups)


def _profile(target: str, device: str, dtype: str) -> Profile:
    from truefuse import profile_live

    path = Path(target)
    call = _of_file(path) if path.suffix == ".py" else _of_model(target, device, dtype)
    try:
        return profile_live.run(call)
    except (Exception, SystemExit) as error:
        raise Refused(f"{target} raised {type(error).__name__}: {error}") from error


def _of_file(path: Path) -> Callable[[], Any]:
    if not path.is_file():
        raise Refused(f"'{path}' does not exist.")
    try:
        module = source_file.run(path)
    except Exception as error:
        raise Refused(f"'{path}' raised {type(error).__name__}: {error}") from error
    call = getattr(module, "call", None)
    if not callable(call):
        raise Refused(
            f"'{path}' defines no call(): a function without arguments that is to be profiled."
        )
    return call


def _of_model(name: str, device: str, dtype: str) -> Callable[[], Any]:
    """One decode step after a prompt."""
    from truefuse.ab.experiment import ExperimentError

    try:
        from truefuse.integrations.transformers import experiments
    except ImportError as error:
        raise Refused(
            f"'{name}' is no file; a model needs the package transformers: {error}"
        ) from error
    try:
        return experiments.decode_step(name, device=device, dtype=dtype)
    except ExperimentError as error:
        raise Refused(str(error)) from error


def to_json(target: str, found: Profile, groups: list[Group]) -> dict[str, Any]:
    from truefuse.profile_chains import worth

    return {
        "target": target,
        "device": found.device,
        "method": found.method,
        "flow": found.flow,
        "operators": len(found.ops),
        "seconds": found.seconds,
        "by_operator": [{"operator": n, "share": s, "count": c} for n, s, c in by_operator(found)],
        "chains": [group.to_json() for group in groups],
        "worth_fusing": [group.label for group in groups if worth(group)],
    }


def by_operator(found: Profile) -> list[tuple[str, float, int]]:
    """(name, share of the time, count), the dearest first."""
    times: dict[str, list[float]] = {}
    for op in found.ops:
        times.setdefault(op.name, []).append(op.seconds)
    whole = found.seconds or 1.0
    rows = [(name, sum(values) / whole, len(values)) for name, values in times.items()]
    return sorted(rows, key=lambda row: -row[1])


def show(screen: Screen, target: str, found: Profile, groups: list[Group]) -> None:
    from truefuse.profile_chains import worth

    screen.line(
        f"{target}: {len(found.ops)} operators, {found.seconds * 1e3:.4g} ms on {found.device}; "
        f"{found.method}"
    )
    for name, share, count in by_operator(found)[:SHOWN]:
        screen.line(f"{share:6.1%}  {name} × {count}", "dim", indent=2)
    if found.flow == "unknown":
        screen.line(
            "The trace names no tensors or shapes, so which operator reads what is not known and no chain "
            "is named. Record it with torch.profiler and record_shapes=True, or profile a Python file."
        )
        return
    promising = [group for group in groups if worth(group)]
    if found.flow == "by shapes":
        screen.line("Who reads what is inferred from shapes: bytes saved are at most these.", "dim")
    for group in promising[:SHOWN]:
        screen.line(group.label)
        screen.line(
            f"{'once' if group.count == 1 else f'{group.count} times'}, {group.share:.1%} of the time; moves {_bytes(group.before)}, as one "
            f"kernel {_bytes(group.after)}: saves {_bytes(group.saved)}; the whole at most "
            f"{group.bound:.3f} times as fast",
            indent=4,
        )
    if not promising:
        best = (
            f" The best chain ({groups[0].label}) could give {groups[0].bound - 1:.2%}."
            if groups
            else ""
        )
        screen.line(f"Nothing is worth fusing: no chain could gain 1 %.{best}")


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
