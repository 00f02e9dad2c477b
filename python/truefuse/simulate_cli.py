"""The commands of the simulator: lanes, sim."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from truefuse.usage import Command, refuse

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8,
}  # fmt: skip
SCALARS = ("f64", "f32", "i64", "i32")


class Refusal(Exception):
    """A usage error, for the user."""


def lanes(
    operator: Annotated[
        str, typer.Argument(help="An operator's name, its folder, or a case file (.py).")
    ],
    size: Annotated[str, typer.Option(help="As the case counts it: 4x512.")] = "",
    dtype: Annotated[str, typer.Option(help="f32, bf16, ...")] = "",
    mode: Annotated[int, typer.Option(help="Which of the case's modes, from 0.")] = 0,
    device: Annotated[str, typer.Option(help="sim:wave32 or sim:wave64.")] = "sim:wave64",
) -> None:
    """Which lane reads and writes which logical element, and how many bytes each access moves."""
    from truefuse import case as cases
    from truefuse import lanes as report
    from truefuse.terminal import Screen

    _check_device(device)
    try:
        case = cases.load(operator)
    except cases.CaseError as error:
        raise Refusal(str(error)) from error
    chosen = _dtype(dtype) if dtype else case.dtypes[0]
    if chosen not in case.dtypes or not 0 <= mode < len(case.modes):
        raise Refusal(
            f"the case {case.name} has no such dtype or mode; it has {len(case.modes)} modes."
        )
    extents = _extents(size) if size else case.edge_sizes[-1]
    screen = Screen()
    for call, groups in report.trace(case, extents, chosen, case.modes[mode], device):
        screen.line(f"{call['operator']} · {device} · size {'x'.join(map(str, extents))}", "bold")
        for launch in call["launches"]:
            grid, block = (" × ".join(map(str, launch[key])) for key in ("grid", "block"))
            screen.line(f"{launch['kernel']}: grid {grid}, block {block}", "dim")
        for line in report.lines_of(call, groups, call["wave"]):
            screen.line(line)


def sim(
    file: Annotated[
        Path, typer.Argument(help="A file with kernels, in CUDA, HIP or tf:: dialect.")
    ],
    kernel: Annotated[str, typer.Option(help="Its name; needed if there are several.")] = "",
    grid: Annotated[str, typer.Option(help="Blocks: 4, 4x2 or 4x2x1.")] = "1",
    block: Annotated[str, typer.Option(help="Threads of a block: 128, 32x4.")] = "64",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            help="In order, repeatable: f32[1024] or f32[4x8] (read-only, random), out:f32[1024] "
            "(zeros, written), inout:f32[1024], i32=1024, f32=0.5."
        ),
    ] = None,
    shared: Annotated[int, typer.Option(help="Bytes of dynamic shared memory.")] = 0,
    device: Annotated[str, typer.Option(help="sim:wave32 or sim:wave64; default: both.")] = "",
    seed: Annotated[int, typer.Option(help="Of random inputs and orders.")] = 1,
) -> None:
    """Run a kernel file of yours under every check, in every order. Exit: 0 nothing found, 1 fault."""
    from truefuse import simulate, simulate_dialect
    from truefuse.terminal import Screen

    try:
        text = file.read_text(encoding="utf-8")
        source = simulate_dialect.translate(file.name, text)
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{file}: {error}") from error
    except simulate_dialect.NotSupported as error:
        raise Refusal(str(error)) from error
    names = simulate_dialect.kernels(text)
    if not kernel and len(names) != 1:
        raise Refusal(
            f"{file.name} has {len(names)} kernels; choose with --kernel: {', '.join(names)}."
        )
    _check_types(simulate_dialect.parameters(text, kernel or names[0]), arg or [])
    archs = [device] if device else list(simulate.ARCHS)
    for one in archs:
        _check_device(one)
    screen, faults = Screen(), 0
    again: Counter[str] = Counter()  # Runs in which a kind of fault was at one line.
    shape = (_three(grid), _three(block))
    for arch in archs:
        first: dict[int, torch.Tensor] = {}
        for sanitizers in (("address", "undefined"), ("race",)):
            for order in simulate.ORDERS:
                values = [_value(spec, seed) for spec in arg or []]
                given = [simulate.argument(*value) for value in values]
                watched = simulate.Device(arch, sanitizers, order, seed)
                try:
                    found = simulate.run_kernel(
                        file.name, source, kernel or names[0], *shape, given, watched, shared
                    )
                except RuntimeError as error:
                    raise Refusal(str(error)) from error
                label = f"{arch} {'+'.join(sanitizers)} {order}"
                if found["fault"]:
                    kind, said = found["fault"]["kind"], found["fault"]["text"]
                    place = said.partition(kind)[0] + kind
                    again[place] += 1
                    if again[place] == 1:
                        screen.line(f"{label}: {said}", "bold red")
                    faults += 1
                    if kind == "time_limit":
                        screen.line("The other runs would take as long, and are left out.")
                        raise typer.Exit(1)
                    continue
                written = {n: v[0] for n, v in enumerate(values, 1) if v[1]}
                first = first or written
                for number, value in written.items():
                    if apart := _apart(first[number], value):
                        screen.line(f"{label}: argument {number} {apart}", "bold red")
                        faults += 1
    for place, runs in again.items():
        if runs > 1:
            screen.line(f"{place}: in {runs} runs")
    if not faults:
        runs = len(archs) * 2 * len(simulate.ORDERS)
        screen.line(f"{kernel or names[0]}: nothing found in {runs} runs ({', '.join(archs)})")
    raise typer.Exit(1 if faults else 0)


def _apart(first: torch.Tensor, other: torch.Tensor) -> str:
    """How the results of two orders differ; empty if their bits are equal."""
    bits = [value.view(-1).view(torch.uint8) for value in (first, other)]
    if torch.equal(*bits):
        return ""
    one, two = first.view(-1).double(), other.view(-1).double()
    unequal = (one != two) & ~(one.isnan() & two.isnan())
    if not unequal.any():
        return "depends on the order of lanes and blocks: other bits of zeros or NaN"
    apart = (one - two).abs()[unequal].nan_to_num(nan=math.inf)
    return (
        f"depends on the order of lanes and blocks: {int(unequal.sum())} of {one.numel()} elements "
        f"differ from the first order's, by {float(apart.max()):.2g} at most"
    )


def _check_device(device: str) -> None:
    from truefuse.simulate import ARCHS

    if device not in ARCHS:
        raise Refusal(f"there is no simulated device '{device}'. Devices: {', '.join(ARCHS)}.")


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise Refusal(f"'{name}' is no dtype. Dtypes: {', '.join(DTYPES)}.")
    return DTYPES[name]


def _extents(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(x\d+)*", text):
        raise Refusal(f"'{text}' is no size; write for instance 4x512.")
    return tuple(map(int, text.split("x")))


def _three(text: str) -> tuple[int, ...]:
    extents = _extents(text)
    if len(extents) > 3:
        raise Refusal(f"'{text}' has more than three dimensions.")
    return (*extents, 1, 1)[:3]


def _check_types(parameters: list[tuple[str, str, bool]], given: list[str]) -> None:
    """Bytes of another type would be computed with as if they were of this one."""
    for number, ((written, dtype, pointer), spec) in enumerate(
        zip(parameters, given, strict=False), 1
    ):
        found = spec.rpartition(":")[2].partition("[" if pointer else "=")
        if pointer and not found[1]:
            raise Refusal(f"parameter {number} is `{written}`, a pointer; --arg '{spec}' is none.")
        if dtype and found[1] and found[0] != dtype:
            raise Refusal(
                f"parameter {number} is `{written}`: write {dtype} for it, not --arg '{spec}'."
            )


def _value(spec: str, seed: int) -> tuple[Any, bool, str]:
    """(value, whether it is written, dtype of a scalar) of one --arg."""
    if found := re.fullmatch(r"(out:|inout:)?(\w+)\[(\d+(?:x\d+)*)\]", spec):
        dtype, extents = _dtype(found[2]), _extents(found[3])
        if found[1] == "out:":
            return torch.zeros(extents, dtype=dtype), True, ""
        random = torch.Generator().manual_seed(seed)
        if dtype.is_floating_point:
            values = torch.randn(extents, generator=random).to(dtype)
        else:
            values = torch.randint(0, 100, extents, generator=random).to(dtype)
        return values, found[1] == "inout:", ""
    found = re.fullmatch(r"(\w+)=(.+)", spec)
    if not found or found[1] not in SCALARS:
        raise Refusal(
            f"--arg '{spec}' is not understood; write f32[1024], out:f32[1024], inout:f32[1024], "
            "i32=1024 or f32=0.5."
        )
    name = str(DTYPES[found[1]]).removeprefix("torch.")
    try:
        value = float(found[2]) if found[1].startswith("f") else int(found[2], 0)
    except ValueError as error:
        raise Refusal(f"--arg '{spec}': '{found[2]}' is no {found[1]}.") from error
    return value, False, name


def guarded(function: Any) -> Any:
    """`function`, whose Refusal is a usage error."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Refusal as error:
            refuse(str(error))

    return call


def register(app: typer.Typer) -> None:
    for function in (lanes, sim):
        app.command(cls=Command)(guarded(function))
