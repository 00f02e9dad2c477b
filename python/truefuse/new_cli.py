"""`truefuse new`: the folder of a described operator, to begin with."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from truefuse import command_line
from truefuse.usage import Command, refuse

TEMPLATES = Path(__file__).parent / "templates" / "new"


class Kind(str, Enum):
    elementwise = "elementwise"
    rowwise = "rowwise"
    reduction = "reduction"
    blank = "blank"


def write(folder: Path, kind: Kind, namespace: str) -> list[Path]:
    """Writes the files of a working operator of that kind, named as the folder is. Raises ValueError
    for a name that no operator can have, FileExistsError if something is there."""
    name = folder.resolve().name
    for what, word in (("name", name), ("namespace", namespace)):
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", word):
            raise ValueError(
                f"'{word}' is no {what} for an operator: small letters, digits and underscores."
            )
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"'{folder}' is there and not empty; give a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for template in sorted([*(TEMPLATES / kind.value).iterdir(), TEMPLATES / "README.md"]):
        if template.suffix not in (".txt", ".hip", ".py", ".md"):
            continue
        text = template.read_text(encoding="utf-8")
        text = text.replace("my_operator", name).replace("my_ops", namespace)
        path = folder / template.name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def register(app: typer.Typer) -> None:

    @app.command(cls=Command)
    def new(
        folder: Annotated[Path, typer.Argument(help="A new folder; its name is the operator's.")],
        kind: Annotated[Kind, typer.Option(help="What it begins as.")] = Kind.blank,
        namespace: Annotated[str, typer.Option(help="Of torch.ops.")] = "my_ops",
    ) -> None:
        """Write the folder of an operator of your own: kernel, description, case, README."""
        from truefuse.terminal import Screen

        try:
            written = write(folder, kind, namespace)
        except (ValueError, OSError) as error:
            refuse(str(error))
        screen = Screen()
        screen.line(
            f"{namespace}::{folder.resolve().name}, {kind.value}: it works as it is", "bold"
        )
        for path in written:
            screen.line(str(path), indent=2)
        screen.line(f"next: {command_line.of('check', str(folder), 'sim:wave64')}")
