"""`truefuse tune`: launch policies of an operator side by side."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from truefuse.usage import DEFAULT_SEED, Command, refuse

SHOWN_TARGETS = ("gfx90a", "sm_90a")


def register(app: typer.Typer) -> None:
    @app.command(cls=Command)
    def tune(
        operator: Annotated[str, typer.Argument(help="A registered operator; also X_backward.")],
        device: Annotated[
            str | None, typer.Option(help="cuda or cuda:N. None: nothing is run or timed.")
        ] = None,
        arch: Annotated[
            list[str] | None,
            typer.Option(help="Without a device: gfx90a, sm_90a, ... (repeatable)"),
        ] = None,
        threads: Annotated[
            list[int] | None, typer.Option(help="Of a block: 128, 256, 512. None: all.")
        ] = None,
        rows: Annotated[
            list[int] | None,
            typer.Option(help="Vectors a thread loads at once: 1, 2, 4. None: all."),
        ] = None,
        vector_bytes: Annotated[
            list[int] | None, typer.Option("--bytes", help="Of a vector: 16, 8. None: both.")
        ] = None,
        seed: Annotated[int, typer.Option(help="Of every random input.")] = DEFAULT_SEED,
        save: Annotated[
            bool, typer.Option("--save", help="Keep the fastest in the tuning file.")
        ] = False,
        as_json: Annotated[bool, typer.Option("--json")] = False,
    ) -> None:
        """Block sizes, rows per thread and vector widths of an operator's kernels: registers, spills, occupancy, and on a
        device the time of what passed the gates.

        Exit: 0 done, 1 a policy does not compile or computes something else, 2 usage, 5 device."""
        from truefuse import _native, tuning
        from truefuse.terminal import Screen

        known = {one["name"]: one for one in _native.operators()}
        tunable = ", ".join(name for name, one in known.items() if one["tunable"])
        if operator not in known or not known[operator]["tunable"]:
            refuse(f"'{operator}' has no launch policy to choose. Operators: {tunable}.")
        if save and device is None:
            refuse("--save keeps what was fastest: give --device.")
        if device is not None and arch:
            refuse("give --device, whose architecture is known, or --arch.")
        targets = arch or list(SHOWN_TARGETS)
        if device is not None:
            targets = [_architecture(device)]
        for target in targets:
            if refusal := _native.refusal(target):
                refuse(refusal)
        asked = []
        for name, given, known_values in (
            ("--threads", threads, tuning.THREADS),
            ("--rows", rows, tuning.ROWS),
            ("--bytes", vector_bytes, tuning.BYTES),
        ):
            if wrong := sorted(set(given or ()) - set(known_values)):
                refuse(f"{name} {wrong[0]} is not among {', '.join(map(str, known_values))}.")
            asked.append(given or known_values)
        screen, found = Screen(), []
        try:
            for row in tuning.sweep(operator, targets, device, seed, tuning.policies(*asked)):
                found.append(row)
                if not as_json:
                    for line in text(row):
                        screen.line(line)
        except RuntimeError as error:
            refuse(str(error), code=1)
        if as_json:
            print(json.dumps([row.to_json() for row in found], indent=1))
        elif device is None:
            screen.line("no time is shown: nothing ran. With a GPU, give --device cuda.")
        if save:
            chosen = tuning.choices(found)
            tuning.save(tuning.user_file(), targets[0], operator, chosen)
            what = ", ".join(f"{dtype} {policy}" for dtype, policy in chosen.items())
            screen.line(f"{tuning.user_file()}: {what or 'the standard is as fast as any'}")
        raise typer.Exit(1 if any(row.refused for row in found) else 0)


def text(row: Any) -> list[str]:
    """A line for the policy, with its time if it has one, and one for each kernel."""
    times = " · ".join(f"{dtype} {us:.4g} µs" for dtype, us in row.microseconds.items())
    found = [f"{row.target}  {row.policy}  {times or row.refused}".rstrip()]
    for one in row.variants:
        value, maximum, unit = one["occupancy"]
        occupancy = (
            f"occupancy {value:g}/{maximum:g} {unit}" if value >= 0 else "occupancy not known"
        )
        spills = f"{one['spills']} spills · " if one["spills"] >= 0 else ""
        found.append(f"    {one['label']:<24} {one['registers']} registers · {spills}{occupancy}")
    return found


def _architecture(device: str) -> str:
    import torch

    from truefuse import _native

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ["cuda", *(f"cuda:{i}" for i in range(count))] if count else []
    if device not in names:
        here = f" Here are {', '.join(names)}." if names else ""
        refuse(f"device '{device}' is not here: tuning needs cuda, cuda:N.{here}", code=5)
    return _native.devices()["devices"][max(names.index(device) - 1, 0)]["arch"]
