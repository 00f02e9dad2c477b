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

from truefuse.context import CandidateRaised, Context
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
        is_theirs = context.case.source is not None and _raised_in(error, context.case.source)
        result = Result(
            gate.NAME,
            Status.UNKNOWN,
            "case-raises" if is_theirs else "gate-error",
            (
                "what the case gives to compare with raises: "
                if is_theirs
                else "the gate itself failed: "
            )
            + f"{type(error).__name__}: {error}",
            traceback=traceback.format_exc(),
        )
    result.seconds = time.perf_counter() - begin
    result.seed = context.seed
    result.replay = context.replay(gate.NAME)
    return result


def _raised_in(error: Exception, file: Path) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == str(file)
