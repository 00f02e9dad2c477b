"""What a row says, and the honest form that most cheats are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subject import checked, swish_bias, wide

from truefuse.verdict import Status

honest = checked(wide(swish_bias))


@dataclass(frozen=True)
class Row:
    story: str  # which public case it re-enacts
    gate: str  # that must catch it
    make: Callable[[], Callable[..., Any]]  # the cheat, anew for each check
    twin: Callable[[], Callable[..., Any]] = lambda: honest
    # "cpu": also where the honest twin works on the host, which a captured graph on a GPU cannot hold.
    where: str = "any"
    changes: Callable[[], dict[str, Any]] = dict  # to the case
    status: Status = (
        Status.FAIL
    )  # UNKNOWN, which keeps back the figure too, where the case may say why


def after(change):
    """A cheat that computes honestly and then spoils the result."""
    return lambda: checked(lambda x, bias: change(wide(swish_bias)(x, bias), x, bias))
