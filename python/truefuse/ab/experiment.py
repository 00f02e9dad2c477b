"""What `truefuse ab run FILE.py` reads: two sides and their requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from truefuse import source_file
from truefuse.ab.sides import Request, Side
from truefuse.ab.speed import Amdahl


class ExperimentError(Exception):
    """No experiment, or one that cannot be made; the text is for the user."""


def _unknown() -> Amdahl | None:
    return None


@dataclass(frozen=True)
class Experiment:
    """The arguments of truefuse.ab.run that belong to the model rather than to one run."""

    name: str
    baseline: Side
    candidate: Side
    requests: Sequence[Request]
    equivalent: Side | None = None
    device: str = "cpu"
    amdahl: Callable[[], Amdahl | None] = _unknown


def load(path: Path) -> Experiment:
    """The `experiment` of a Python file. Raises ExperimentError."""
    if not path.is_file():
        raise ExperimentError(f"'{path}' does not exist. Give a Python file, or --model")
    if path.suffix != ".py":
        raise ExperimentError(f"'{path}' is no Python file: its name must end in .py")
    try:
        module = source_file.run(path)
    except Exception as error:
        raise ExperimentError(f"'{path}' raised {type(error).__name__}: {error}") from error
    found = getattr(module, "experiment", None)
    if not isinstance(found, Experiment):
        raise ExperimentError(
            f"'{path}' defines no experiment: it needs "
            "`experiment = truefuse.ab.Experiment(name=..., baseline=..., candidate=..., requests=...)`"
        )
    return found
