"""Commands of the cache: stats, verify, pack, unpack."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

from truefuse.usage import Command, refuse


def _declared(name: str, *types: Any) -> Any:
    from truefuse import _native

    function = _native._declare(name, *types)
    return lambda *arguments: _native._answer(function(*arguments))


def _spread(seconds: list[float]) -> str:
    least, middle, most = min(seconds), statistics.median(seconds), max(seconds)
    return f"{1e3 * middle:.3g} ms each ({1e3 * least:.3g} … {1e3 * most:.3g})"


def stats(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """What the entries cost to compile, and what it costs now to look them up."""
    from truefuse import _native
    from truefuse.terminal import Screen

    found = _native.cache_costs()
    if as_json:
        print(json.dumps(found))
        return
    cold, disk = found["compile_seconds"], found["read_seconds"]
    screen = Screen()
    screen.line(
        f"{found['directory'] or 'no folder: memory only'} · {len(cold)} kernels · "
        f"{found['bytes'] / 2**20:.1f} MiB"
    )
    if cold:
        screen.line(f"cold  {_spread(cold)}, {sum(cold):.3g} s together, when they were compiled")
        screen.line(f"disk  {_spread(disk)}, {sum(disk):.3g} s together, looked up now")
    screen.line("What a process counts, and its warm look-ups: truefuse.cache_statistics() in it.")


def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Remove damaged entries.")] = False,
) -> None:
    """Read every entry whole. Exit: 1 if one is damaged (the next call compiles it again)."""
    from truefuse.terminal import Screen

    found = _declared("truefuse_cache_verify", ctypes.c_int)(int(repair))
    screen = Screen()
    limit = f"{found['limit'] >> 20} MiB" if found["limit"] else "none"
    screen.line(
        f"{found['directory'] or 'no folder: memory only'} · {found['entries']} entries · "
        f"{found['bytes'] / 2**20:.1f} MiB · limit {limit}"
    )
    for path in found["damaged"]:
        screen.line(f"damaged: {path}", "bold red")
    if repair:
        screen.line(f"removed {found['removed']}")
    raise typer.Exit(1 if len(found["damaged"]) > found["removed"] else 0)


def pack(
    file: Annotated[Path, typer.Argument(help="The bundle to write.")],
    arch: Annotated[list[str], typer.Option(help="gfx936, gfx90a:xnack-, sm_90a (repeatable)")],
    operator: Annotated[
        list[str] | None,
        typer.Option(help="Only this one, or a described one's folder (repeatable)."),
    ] = None,
) -> None:
    """Compile kernels into one file for machines that shall not compile; prints how to use it."""
    from truefuse.terminal import Screen

    function = _declared(
        "truefuse_bundle_pack", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int
    )
    from truefuse.cli import operator_named

    jobs = len(os.sched_getaffinity(0))
    operators = [operator_named(name) for name in operator or []]
    names = "\n".join(f"{one['namespace']}::{one['name']}" for one in operators)
    packed = function(str(file.resolve()).encode(), names.encode(), "\n".join(arch).encode(), jobs)
    Screen().line(f"{packed['entries']} kernels, {packed['bytes'] / 2**20:.1f} MiB. To use them:")
    print(f"export TRUEFUSE_BUNDLE={shlex.quote(packed['path'])}#{packed['sha256']}")


def unpack(
    bundle: Annotated[str, typer.Argument(help="PATH#SHA256, as pack prints it.")],
) -> None:
    """Put a bundle's kernels into the cache of this machine."""
    from truefuse.terminal import Screen

    found = _declared("truefuse_bundle_unpack", ctypes.c_char_p)(bundle.encode())
    Screen().line(f"{found['entries']} kernels in {found['directory']}")


def register(app: typer.Typer) -> None:
    """Adds the commands to `truefuse cache`; what the library refuses is a usage error."""
    import functools

    for function in (stats, verify, pack, unpack):

        def guarded(*args: Any, _function: Any = function, **kwargs: Any) -> None:
            try:
                _function(*args, **kwargs)
            except RuntimeError as error:
                if type(error) is not RuntimeError:  # typer.Exit is one too.
                    raise
                refuse(str(error))

        app.command(cls=Command)(functools.wraps(function)(guarded))
