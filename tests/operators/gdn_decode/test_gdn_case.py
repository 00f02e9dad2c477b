"""The case that `truefuse check gdn_decode` runs: its gates accept the operator and reject faults in it."""

from dataclasses import replace

import pytest
import torch

from truefuse import _native, gates
from truefuse.case import load
from truefuse.context import Context
from truefuse.verdict import Status


@pytest.fixture(scope="module")
def case():
    return replace(load("gdn_decode"), drift_steps=32)


@pytest.fixture(scope="module")
def contract():
    return next(op["contract"] for op in _native.operators() if op["name"] == "gdn_decode")


def run(gate, case, contract):
    module = next(module for module in gates.GATES if module.NAME == gate)
    return gates.run_one(module, Context(case, torch.device("cpu"), 5, contract=contract))


# Those that take longest are run by `truefuse check` alone.
GATES = ("reference", "contract", "outputs", "edges", "special", "determinism", "drift", "training",
         "concurrent", "traced", "baseline")  # fmt: skip


@pytest.mark.parametrize("gate", GATES)
def test_the_operator_passes(gate, case, contract):
    found = run(gate, case, contract)
    assert found.status is Status.PASS, found


def spoil(case, **changes):
    """The operator with other keywords, or with tensors changed before or after the call."""

    def candidate(*given, **mode):
        inputs = dict(zip(NAMES, given, strict=True))
        before = changes.get("before", lambda inputs: {})(inputs)
        words = {name: value for name, value in changes.items() if name in mode}
        out = case.candidate(*(inputs | before).values(), **{**mode, **words})
        return changes.get("after", lambda out, inputs: out)(out, inputs)

    return replace(case, candidate=candidate)


NAMES = tuple(
    load("gdn_decode").make_inputs(
        (1, 1, 1, 4, 4), torch.float32, torch.device("cpu"), torch.Generator(), "plain"
    )
)


def fades(out, inputs):
    inputs["state"].mul_(0.999)
    return out


def keeps_half(out, inputs):
    inputs["state"].copy_(inputs["state"].bfloat16())
    return out


def shifts_twice(out, inputs):
    inputs["conv_state"].copy_(inputs["conv_state"].roll(-1, -1))
    return out


FAULTS = {
    "interleaved rows whatever is said": ("edges", {"qkvz_layout": "qwen3-next/qkvz"}),
    "flat gates whatever is said": ("edges", {"ba_layout": "qwen3.5/ba"}),
    "rounding as transformers whatever is said": ("numerics", {"rounding": "transformers"}),
    "q and k exchanged": ("edges", {"qkvz_layout": "H (k=K | q=K | v=G V | z=G V)"}),
    "states on copies": ("outputs", {"before": lambda i: {"state": i["state"].clone()}}),
    "a history that moves on twice": ("edges", {"after": shifts_twice}),
    "a state that fades": ("drift", {"after": fades}),
    "a state in half precision": ("drift", {"after": keeps_half}),
    "a bias left out": ("edges", {"before": lambda i: {"conv_bias": None}}),
    "rates doubled": ("edges", {"before": lambda i: {"A_log": i["A_log"] + 0.7}}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_rejected(fault, case, contract):
    gate, changes = FAULTS[fault]
    found = run(gate, spoil(case, **changes), contract)
    assert found.status is Status.FAIL, found
    assert found.expected and found.got
