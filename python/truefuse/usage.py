"""What commands share: errors of usage, which name the valid choices, and the default seed."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

DEFAULT_SEED = 20260716

# typer brings its own copy of click in some versions and depends on it in others: the exceptions are
# told by name.


def refuse(sentence: str, code: int = 2) -> NoReturn:
    """Ends a command with a sentence on standard error. The exit status of wrong usage is 2, of a device that does
    not work 5."""
    from truefuse.terminal import Screen

    Screen(sys.stderr).line(f"truefuse: {sentence}")
    raise typer.Exit(code)


class Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ == "NoSuchOption":
                options = [name for parameter in self.params for name in parameter.opts]
                error.possibilities = [name for name in options if name.startswith("--")]
            raise


class Commands(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            commands = ", ".join(self.list_commands(ctx))
            ctx.fail(f"No such command '{args[0]}'. Commands: {commands}.")
        return super().resolve_command(ctx, args)
