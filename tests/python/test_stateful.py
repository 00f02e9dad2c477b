"""A case that changes an input in place and gives two outputs goes through every gate; what goes wrong
in it is caught."""

import math
from dataclasses import replace

import pytest
import stateful
import torch

from truefuse import check, gates, turns
from truefuse.case import Case
from truefuse.context import Context
from truefuse.verdict import Status


def context(**changes):
    case: Case = replace(stateful.case, drift_steps=64, **changes)
    return Context(case, torch.device("cpu"), 3, "stateful.py")


def run(gate, **changes):
    module = next(module for module in gates.GATES if module.NAME == gate)
    return gates.run_one(module, context(**changes))


def spoil(change):
    def candidate(x, decay, state):
        return change(*stateful.fused(x, decay, state), x, decay, state)

    return candidate


def on_a_copy(x, decay, state):
    return stateful.fused(x, decay, state.clone())


def forgets_a_little(out, mean, x, decay, state):
    state.mul_(0.999)
    return out, mean


def keeps_half_precision(out, mean, x, decay, state):
    state.copy_(state.bfloat16())
    return out, mean


def changes_x(out, mean, x, decay, state):
    x.add_(1)
    return out, mean


def gives_the_state(out, mean, x, decay, state):
    return state if state.dtype == x.dtype else out, mean


FAULTS = [
    ("outputs", on_a_copy),
    ("outputs", spoil(changes_x)),
    ("outputs", spoil(gives_the_state)),
    ("outputs", spoil(lambda out, mean, *rest: out)),
    ("outputs", spoil(lambda out, mean, *rest: [out, mean])),
    ("outputs", spoil(lambda out, mean, *rest: (mean, out))),
    ("edges", spoil(lambda out, mean, *rest: (out, mean * 2))),
    ("numerics", spoil(keeps_half_precision)),
    ("numerics", spoil(lambda out, mean, *rest: (out, mean.bfloat16().to(mean.dtype)))),
    ("drift", spoil(forgets_a_little)),
    ("drift", spoil(keeps_half_precision)),
    ("drift", on_a_copy),
]


@pytest.mark.parametrize(
    ("gate", "candidate"), FAULTS, ids=[f"{g}-{n}" for n, (g, _) in enumerate(FAULTS)]
)
def test_fault_is_rejected(gate, candidate):
    found = run(gate, candidate=candidate)
    assert found.status is Status.FAIL, found
    assert found.expected and found.got


GATES = [name for name in gates.names() if name not in ("contract", "compile")]


@pytest.mark.parametrize("gate", GATES)
def test_honest_twin_is_accepted(gate):
    found = run(gate)
    assert found.status in (Status.PASS, Status.SKIP), found


def test_drift_is_a_curve():
    curve = run("drift").numbers["curves"]
    assert {row["step"] for row in curve} == {2**n for n in range(7)}
    assert {row["result"] for row in curve} == {"out[0]", "out[1]", "state"}
    assert all(math.isfinite(row["ours"]) for row in curve)


def test_every_timed_call_starts_from_the_same_state(monkeypatch):
    monkeypatch.setattr("truefuse.bandwidth.last_cache_bytes", lambda device: 1 << 20)
    found, performance = check._measured(context(), lambda text: None, 0.1)
    assert found.status is Status.PASS, found
    assert performance["amdahl"]["gains"][0]["share"] == 0.1
    shape = performance["shapes"][0]
    assert shape["outputs_checked"] >= 2 * turns.LEAST_ROUNDS


def test_a_gradient_is_refused_or_recorded():
    def silent(x, decay, state):
        with torch.no_grad():
            return stateful.fused(x, decay, state)

    assert run("training", candidate=silent).reason == "gradient-error"
