"""Commands of the cache: verify, pack, unpack."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from truefuse.usage import Command


def _declared(name: str, *types: Any) -> Any:
    from truefuse import _native

    function = _native._declare(name, *types)
    return lambda *arguments: _native._answer(function(*arguments))


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
    operator: Annotated[list[str] | None, typer.Option(help="Only this one (repeatable).")] = None,
) -> None:
    """Compile kernels into one file for machines that shall not compile; prints how to use it."""
    from truefuse.terminal import Screen

    function = _declared(
        "truefuse_bundle_pack", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int
    )
    jobs = len(os.sched_getaffinity(0))
    names, archs = "\n".join(operator or []), "\n".join(arch)
    found = function(str(file.resolve()).encode(), names.encode(), archs.encode(), jobs)
    Screen().line(f"{found['entries']} kernels, {found['bytes'] / 2**20:.1f} MiB. To use them:")
    print(f"export TRUEFUSE_BUNDLE={found['path']}#{found['sha256']}")


def unpack(
    bundle: Annotated[str, typer.Argument(help="PATH#SHA256, as pack prints it.")],
) -> None:
    """Put a bundle's kernels into the cache of this machine."""
    from truefuse.terminal import Screen

    found = _declared("truefuse_bundle_unpack", ctypes.c_char_p)(bundle.encode())
    Screen().line(f"{found['entries']} kernels in {found['directory']}")


def register(app: typer.Typer, refuse: Any) -> None:
    """Adds the commands to `truefuse cache`; what the library refuses is a usage error."""
    import functools

    for function in (verify, pack, unpack):

        def guarded(*args: Any, _function: Any = function, **kwargs: Any) -> None:
            try:
                _function(*args, **kwargs)
            except RuntimeError as error:
                if type(error) is not RuntimeError:  # typer.Exit is one too.
                    raise
                refuse(str(error))

        app.command(cls=Command)(functools.wraps(function)(guarded))
