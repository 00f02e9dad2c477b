"""The command that shows the same again, as a shell takes it."""

from __future__ import annotations

import shlex


def of(verb: str, target: str, device: str, seed: int | None = None, *more: str) -> str:
    seeded = () if seed is None else ("--seed", str(seed))
    return shlex.join(("truefuse", verb, target, "--device", device, *seeded, *more))
