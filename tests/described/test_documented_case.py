"""The case in docs/acceptance.md is one as it stands: a plain function, and a contract in words."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from truefuse import _native, case_check, gates, worker
from truefuse import case as cases
from truefuse.accuracy import trial
from truefuse.compare import Reference
from truefuse.context import Context
from truefuse.verdict import Status

CPU = torch.device("cpu")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "acceptance.md"


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    (text,) = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    path = tmp_path_factory.mktemp("case") / "swish.py"
    path.write_text(text)
    return cases.load(str(path))


def run(case, gate):
    contract = worker.contract_of(case)
    with torch.no_grad():
        case_check.ask(case, CPU, contract)
    module = next(module for module in gates.GATES if gate == module.NAME)
    return gates.run_one(module, Context(case, CPU, 1, "swish.py", contract))


@pytest.mark.parametrize(
    "gate", ["reference", "contract", "numerics", "special", "training", "gradients", "compile"]
)
def test_it_passes(case, gate):
    found = run(case, gate)
    assert found.status is Status.PASS, found


def test_its_contract_is_asked(case):
    refused = run(case, "contract").numbers["refused"]
    assert set(refused) == {"x dtype", "x missing"}
    assert run(replace(case, candidate=torch.nn.functional.silu), "contract").status is Status.FAIL


def test_what_to_do_about_digits_that_cancel():
    """Of a - b both sides have lost most digits; whoever loses a few more is told what the case can say."""
    a, b = torch.tensor([1.0]).double() + 1e-9, torch.tensor([1.0]).double()
    difference = lambda a, b: a.double() - b.double()  # noqa: E731
    subject = cases.Case("minus", difference, {"eager": difference}, difference, lambda *given: {})
    reference = Reference(a - b, torch.float32)
    made = {"out": (a - b).float() * 1.001}
    one = trial(subject, "f32", "normal", {}, {}, {"out": reference}, lambda: made, lambda: made)
    (broken, *_) = one.violations({"out": (a - b).float() * 1.004})
    assert broken.rule == "binade" and "`gradient_scale`" in broken.bound
    exact = {"out": reference.rounded}
    one = trial(subject, "f32", "normal", {}, {}, {"out": reference}, lambda: exact, lambda: exact)
    (broken, *_) = one.violations({"out": (a - b).float() * 1.004})
    assert broken.rule == "binade" and "scale" not in broken.bound


@pytest.mark.parametrize(
    ("text", "words"), [("x: f33 [n]", "found 'f33'"), ("y: f32 [n] strided", "arguments.* are y")]
)
def test_a_contract_that_is_none(case, text, words):
    with pytest.raises((RuntimeError, cases.CaseError), match=words):
        run(replace(case, contract=text), "contract")


def test_the_text_says_what_the_operator_has():
    operator = next(one for one in _native.operators() if one["name"] == "bias_gelu")
    assert _native.contract(operator["contract"]["text"]) == operator["contract"]
