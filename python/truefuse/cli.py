"""The command line: check, debug, compare, compile, cache, doctor, ops; others join from modules
of their own."""

from __future__ import annotations

import json
import math
import re
import sys
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from truefuse import cache_cli, new_cli, simulate_cli, tuning_cli
from truefuse.ab.cli import app as ab_app
from truefuse.layout_cli import app as layout_app
from truefuse.probe_cli import probe
from truefuse.profile_cli import profile
from truefuse.usage import DEFAULT_SEED, Command, Commands, refuse

ARCH = re.compile(r"gfx[0-9a-f]+(:[a-z]+[+-])*|sm_\d+[a-z]?|sim:wave(32|64)")

app = typer.Typer(
    cls=Commands,
    help="Fused PyTorch operators that are accepted before they are called fast.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache_app = typer.Typer(
    cls=Commands, help="The cache of compiled kernels.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(cache_app, name="cache")
app.add_typer(layout_app, name="layout")
app.add_typer(ab_app, name="ab")
app.command(cls=Command)(profile)
app.command(cls=Command)(probe)


@app.command(cls=Command)
def check(
    operator: Annotated[
        str, typer.Argument(help="An operator's name, its folder, or a case file (.py).")
    ],
    device: Annotated[
        str, typer.Option(help="cpu, cuda, cuda:N (also for ROCm, DCU), sim:wave32, sim:wave64.")
    ] = "cpu",
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of every random input.")
    ] = DEFAULT_SEED,
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    gate: Annotated[
        list[str] | None, typer.Option(help="Run only this gate (repeatable); never accepts.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="The operator's part of a model's time, 0 to 1.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for loading the case and for each gate.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json instead.")] = False,
) -> None:
    """Run every gate, then measure if all passed, in a process of its own.

    Exit: 0 accept, 1 reject, 2 usage, 3 unknown, 4 a gate could not prove itself, 5 device,
    130 or 143 interrupted."""
    from truefuse import environment, report, supervise, terminal
    from truefuse.verdict import exit_code

    chosen_device = torch.device("cpu")
    if device.startswith("sim:"):
        from truefuse import simulate_check

        try:
            simulate_check.require_device(device)
        except ValueError as error:
            refuse(str(error))
    else:
        chosen_device = _device(device)
        device = str(chosen_device)
    request = supervise.Request(operator, device, seed, tuple(gate or ()), share, time_limit)
    gate_names = request.gates()
    unknown = [name for name in request.only if name not in gate_names]
    if unknown:
        refuse(f"unknown gate '{unknown[0]}'. Gates: {', '.join(gate_names)}.")
    if share is not None and not 0 < share <= 1:
        refuse(f"--share is {share}; it is a part of the time, more than 0 and at most 1.")
    _time_limit(time_limit)
    try:
        output.mkdir(parents=True, exist_ok=True)
        report.remove(output)  # A crash must not leave an older verdict in its place.
    except OSError as error:
        refuse(f"--output {output}: {error.strerror}. Name a folder that can be written.")
    screen = terminal.Screen()
    on_result, progress = _observers(screen, as_json)
    if not as_json:
        screen.line(environment.one_line(environment.describe(chosen_device)), "dim")
        screen.line(f"truefuse check {operator} · device {device} · seed {seed}")
    try:
        found = supervise.run(request, on_result, progress)
    except supervise.NoCase as error:
        progress("")
        refuse(str(error))
    except supervise.NoDevice as error:
        progress("")
        text = f"device '{device}' does not work: {error}. See `truefuse doctor --device`."
        refuse(text, code=5)
    progress("")
    try:
        paths = report.write(found, output)
    except OSError as error:
        refuse(f"--output {output}: {error.strerror}. Name a folder that can be written.")
    try:
        if junit is not None:
            junit.parent.mkdir(parents=True, exist_ok=True)
            report.write_junit(found, junit)
    except OSError as error:
        refuse(f"--junit {junit}: {error.strerror}. Name a file that can be written.")
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        data = found.to_json()
        if "performance" in data:
            terminal.show_timing(screen, data["performance"])
        terminal.show_verdict(screen, found, str(paths[1]))
    raise typer.Exit(exit_code(found.verdict, found.results))


@app.command(cls=Command)
def debug(
    operator: Annotated[
        str, typer.Argument(help="An operator's name, its folder, or a case file (.py).")
    ],
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N (also for ROCm, DCU).")] = "cpu",
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of every random input.")
    ] = DEFAULT_SEED,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for loading the case and for each step.")
    ] = None,
) -> None:
    """Six steps from the environment to the model; stops at the first that fails.

    Exit: 0 every step holds, 1 one does not, 2 usage, 5 device."""
    from truefuse import debugging
    from truefuse.terminal import Screen

    _time_limit(time_limit)
    events = debugging.of_child(operator, _device(device), seed, time_limit)
    raise typer.Exit(debugging.walk(events, Screen()))


@app.command(cls=Command)
def compare(
    old: Annotated[Path, typer.Argument(help="An earlier report.json.")],
    new: Annotated[Path, typer.Argument(help="A later one.")],
    threshold: Annotated[
        float, typer.Option(help="Slower by more than this is a regression.")
    ] = 0.03,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compare two reports. Exit: 0 no regression, 1 regression, 2 usage, 3 not comparable."""
    from truefuse import regression
    from truefuse.terminal import Screen

    if not 0 <= threshold < math.inf:
        refuse(
            f"--threshold is {threshold}; it is a part of the time, 0.03 for 3 %, and not negative."
        )
    try:
        found = regression.compare(regression.read(old), regression.read(new), threshold)
    except regression.Unreadable as error:
        refuse(str(error))
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        regression.show(found, Screen())
    raise typer.Exit({"OK": 0, "REGRESSION": 1, "UNKNOWN": 3}[found["verdict"]])


@app.command(cls=Command)
def compile(
    operator: Annotated[
        str, typer.Argument(help="An operator's name or folder; none with --table.")
    ] = "",
    arch: Annotated[
        list[str] | None, typer.Option(help="gfx906, gfx936:xnack-, sm_90a, ... (repeatable)")
    ] = None,
    compiler: Annotated[str | None, typer.Option(help="Only this compiler.")] = None,
    all_variants: Annotated[bool, typer.Option("--all", help="Every variant.")] = False,
    cache: Annotated[bool, typer.Option(help="Use the kernel cache.")] = True,
    table: Annotated[
        bool, typer.Option("--table", help="Every operator; with --all and no OPERATOR.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option(help="With --table: also write it to this page.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compile an operator's kernel for targets; no GPU is needed."""
    from truefuse import _native
    from truefuse.terminal import Screen

    arch = arch or []
    if table != (not operator) or (table and not all_variants):
        refuse("give an operator, or --all --table for every kernel.")
    if table:
        raise typer.Exit(_compile_table(arch, write, as_json))
    if not arch:
        refuse("give --arch, for instance --arch gfx906 --arch sm_90a.")
    description = operator_named(operator)
    qualified = f"{description['namespace']}::{description['name']}"
    if not description["variants"]:
        refuse(f"{qualified} has no kernel to compile: its description names Python functions.")
    toolchains = _native.toolchains()
    targets = sorted({t["default_arch"] for t in toolchains if t["default_arch"]})
    for name in arch:
        if not ARCH.fullmatch(name):
            refuse(f"'{name}' is no architecture. For instance: {', '.join(targets)}.")
    compilers = [toolchain["name"] for toolchain in toolchains]
    if compiler is not None and compiler not in compilers:
        refuse(f"unknown compiler '{compiler}'. Compilers: {', '.join(compilers)}.")
    for name in arch:
        if refusal := _native.refusal(name, compiler):
            refuse(f"{refusal} Targets that work here: {', '.join(targets)} and others.")
    variants = [v for v in description["variants"] if v["shown"] or all_variants]
    screen, rows, failed = Screen(), [], False
    for name in arch:
        for variant in variants:
            if variant["only_for"] and not name.startswith(tuple(variant["only_for"])):
                continue
            row = _native.compile(qualified, name, variant["label"], compiler, cache)
            rows.append({"arch": name, "label": variant["label"], **row})
            failed |= not row["ok"]
            if not as_json:
                _show_compiled(screen, rows[-1])
            if not row["ok"]:
                break  # the same again for every other variant
    if as_json:
        print(json.dumps(rows, indent=1))
    raise typer.Exit(1 if failed else 0)


def _compile_table(arch: list[str], page: Path | None, as_json: bool) -> int:
    """Every variant of every operator; status 1 if one breaks a rule."""
    from truefuse import compile_table
    from truefuse.terminal import Screen

    rows = [
        row for name in arch or compile_table.TARGETS for row in compile_table.compile_all(name)
    ]
    complaints = compile_table.complaints(rows)
    if page is not None:
        page.write_text(compile_table.markdown(rows), encoding="utf-8")
    if as_json:
        print(json.dumps({"rows": rows, "complaints": complaints}, indent=1))
        return 1 if complaints else 0
    screen = Screen()
    for line in compile_table.text(rows):
        screen.line(line)
    for complaint in complaints:
        screen.line(complaint, "bold red")
    return 1 if complaints else 0


def _show_compiled(screen: Any, row: dict[str, Any]) -> None:
    from truefuse.gates.compiled import occupancy_text, resources_text

    if not row["ok"]:
        screen.line(f"{row['arch']:<9} {row['label']}: {row['error']}", "bold red")
        return
    screen.line(
        f"{row['target']:<9} {row['label']:<20} {row['compiler']} {row['compiler_version']}  "
        f"{row['source']} {row['seconds']:.3g} s · {row['code_bytes']} B · "
        f"{resources_text(row['resources'])} · {occupancy_text(row['occupancy'])} · "
        f"key {row['key'][:12]}"
    )


@cache_app.command("list", cls=Command)
def cache_list(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """The cache folder and its entries."""
    from truefuse import _native
    from truefuse.terminal import Screen

    found = _native.cache()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    screen = Screen()
    entries = found["entries"]
    screen.line(f"{found['directory'] or 'no folder: memory only'} · {len(entries)} entries")
    for reason in found["reasons"]:
        screen.line(reason, "dim", indent=2)
    for entry in entries:
        when = datetime.fromtimestamp(entry["modified"], timezone.utc)
        state = "" if entry["valid"] else "  damaged: will be compiled again"
        screen.line(
            f"{entry['digest'][:12]}  {entry['label']} {entry.get('target', '')}  "
            f"{entry['bytes']} B  "
            f"{when:%Y-%m-%d %H:%M}Z{state}"
        )


@cache_app.command("why", cls=Command)
def cache_why(
    operator: Annotated[str, typer.Argument(help="An operator's name.")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """For each cache entry of an operator: is it current, and if not, what differs."""
    from truefuse import _native
    from truefuse.terminal import Screen

    name = operator_named(operator)["name"]
    found = _native.cache_why(name)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    screen = Screen()
    if not found:
        screen.line(f"{name}: no entry in the cache; the first call compiles.")
    for entry in found:
        label = f"{entry['digest'][:12]}  {entry['label']} {entry.get('target', '')}".rstrip()
        if entry["current"]:
            screen.line(f"{label}: current")
            continue
        screen.line(f"{label}: not used any more")
        for difference in entry["differences"]:
            screen.line(difference, indent=4)


@cache_app.command("clear", cls=Command)
def cache_clear() -> None:
    """Remove every entry."""
    from truefuse import _native
    from truefuse.terminal import Screen

    removed = _native.cache_clear()
    Screen().line(f"removed {removed} {'entry' if removed == 1 else 'entries'}")


@app.command(cls=Command)
def doctor(
    device: Annotated[bool, typer.Option("--device", help="Also test each device.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """What is installed, what works, and the remedy for what does not."""
    from truefuse import doctor as self_check
    from truefuse.terminal import Screen

    found = self_check.report(device=device)
    if as_json:
        print(json.dumps(found, indent=1))
        raise typer.Exit(1 if found["problems"] else 0)
    raise typer.Exit(self_check.show(found, Screen().console))


@app.command(cls=Command)
def ops(
    operator: Annotated[
        str | None, typer.Argument(help="A name, or the folder of a described operator.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """The operators, with what each accepts."""
    from truefuse import _native
    from truefuse.terminal import Screen

    found = _native.operators() if operator is None else [operator_named(operator)]
    if as_json:
        print(json.dumps(found, indent=1))
        return
    screen = Screen()
    for one in found:
        screen.line(f"{one['namespace']}::{one['name']}", "bold")
        screen.line(one["summary"], indent=2)
        screen.line(one["schema"], indent=2)
        screen.line(one["contract"]["text"], indent=2)


def _device(name: str) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    choices = ["cpu", *(["cuda"] if count else []), *(f"cuda:{i}" for i in range(count))]
    if name not in choices:
        hint = "" if count else "; torch sees no GPU"
        text = f"device '{name}' is not here. Devices: {', '.join(choices)}{hint}."
        refuse(text, code=5 if name.startswith("cuda") else 2)
    return torch.device("cuda:0" if name == "cuda" else name)


def _time_limit(seconds: float | None) -> None:
    if seconds is not None and not seconds > 0:
        refuse(f"--time-limit is {seconds}; it is seconds, more than 0.")


def operator_named(name: str) -> dict[str, Any]:
    from truefuse import _native

    if Path(name).is_dir():
        from truefuse import describe

        try:
            name = describe.load(Path(name)).name
        except RuntimeError as error:
            refuse(str(error))
    operators = _native.operators()
    for operator in operators:
        if name in (operator["name"], f"{operator['namespace']}::{operator['name']}"):
            return operator
    names = ", ".join(operator["name"] for operator in operators)
    refuse(f"unknown operator '{name}'. Operators: {names}; or the folder of a described one.")


def _observers(screen: Any, quiet: bool) -> tuple[Any, Any]:
    """(on_result, progress) for a check. Progress is a line that is overwritten, in a terminal."""
    from truefuse.terminal import show_result

    live = screen.console.is_terminal and not quiet

    def progress(text: str) -> None:
        if live:
            screen.console.file.write(f"\r\x1b[K{screen.text(text)}")
            screen.console.file.flush()

    def on_result(result: Any) -> None:
        progress("")
        if not quiet:
            show_result(screen, result)

    return on_result, progress


cache_cli.register(cache_app)
simulate_cli.register(app)
new_cli.register(app)
tuning_cli.register(app)


def main() -> None:
    """Runs the command line. An error of the tool itself is no verdict: status 3, as for unknown."""
    try:
        app(prog_name="truefuse")
    except Exception:
        traceback.print_exc()
        sys.exit(3)
