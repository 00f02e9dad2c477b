"""The gates, in the order in which they run.

A gate is a module with `NAME` and `run(context) -> Result`. It first proves itself in the same
process: something known to be bad must be caught and something known to be good accepted, otherwise
its answer is UNKNOWN (see `proof`). To add a gate, write the module and name it in GATES.
"""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from truefuse.context import CandidateRaised, Context, describe
from truefuse.gates import (
    baselines,
    bounds,
    capture,
    compiled,
    concurrent,
    contract,
    determinism,
    dispatch,
    drift,
    edges,
    global_flags,
    gradients,
    launched,
    layout,
    numerics,
    outputs,
    reference,
    remembered,
    special,
    streams,
    sync,
    traced,
    training,
    unwritten,
)
from truefuse.verdict import Result, Status

GATES: tuple[ModuleType, ...] = (
    reference,
    contract,
    outputs,
    global_flags,
    edges,
    numerics,
    special,
    determinism,
    remembered,
    layout,
    unwritten,
    bounds,
    drift,
    training,
    gradients,
    concurrent,
    streams,
    sync,
    capture,
    dispatch,
    launched,
    traced,
    baselines,
    compiled,
)


def names() -> list[str]:
    return [gate.NAME for gate in GATES]


def run_one(gate: ModuleType, context: Context) -> Result:
    """A candidate that raises fails the gate; a gate that raises does not know."""
    begin = time.perf_counter()
    try:
        with torch.no_grad():
            result = gate.run(context)
    except CandidateRaised as error:
        result = Result(
            gate.NAME,
            Status.FAIL,
            "candidate-raised",
            "raises on input that it has to accept",
            expected="a result",
            got=str(error),
            traceback=traceback.format_exc(),
        )
    except Exception as error:
        theirs = _raised_in(error, context.case.source)
        result = Result(
            gate.NAME,
            Status.UNKNOWN,
            "case-raises" if theirs else "gate-error",
            (
                "what the case gives to compare with raises: "
                if theirs
                else "the gate itself failed: "
            )
            + f"{type(error).__name__}: {error}",
            first=theirs,
            traceback=traceback.format_exc(),
        )
    result.seconds = time.perf_counter() - begin
    result.seed = context.seed
    result.replay = context.replay(gate.NAME)
    return result


def _raised_in(error: Exception, file: Path | None) -> str:
    """Where in the file, and with which tensors; "" if it was elsewhere."""
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    if file is None or frame.f_code.co_filename != str(file):
        return ""
    found = {name: value for name, value in frame.f_locals.items() if isinstance(value, Tensor)}
    where = f"{file.name}:{line}, in {frame.f_code.co_name}"
    return f"{where}: {describe(found, {})}" if found else where
