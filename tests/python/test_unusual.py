"""Honest operators of uncommon form are judged as others are; what cannot be judged is said in words, once."""

from __future__ import annotations

import re

import pytest
import torch

from truefuse import case as cases
from truefuse import case_check, gates, sampling
from truefuse.case import Case, Tolerance
from truefuse.context import Context
from truefuse.verdict import Status

CPU = torch.device("cpu")
SMALL = {
    "numeric_size": (16, 64),
    "medium_size": (9, 33),
    "edge_sizes": ((1, 1), (2, 3), (5, 65)),
    "special_sizes": ((1, 1), (1, 7)),
    "timing_sizes": ((32, 128),),
    "empty_sizes": (),
}
# Without a contract, a GPU or kernels of ours.
NAMES = [name for name in gates.names() if name not in ("contract", "compile")]


def normal(size, dtype, device, generator, kind):
    x = 2 * torch.randn(size, generator=generator, dtype=torch.float64)
    return {"x": x.to(device, dtype)}


def made(function, candidate=None, reference=None, **changes):
    return Case(
        "unusual",
        candidate or function,
        {"eager": function},
        reference or function,
        normal,
        **{**SMALL, **changes},
    )


def quantised(x):
    return (16 * x).round().clamp(-127, 127).to(torch.int8)


def largest(x):
    return x.max(-1).values, x.argmax(-1)


def in_a_larger_block(x):
    block = torch.empty(x.numel() + 7, dtype=x.dtype, device=x.device)
    return block[: x.numel()].view(x.shape).copy_(torch.tanh(x))


def subnormals_flushed(x):
    """A baseline as torch.compile makes it in PyTorch 2.5, with a GCC before 13."""
    torch.set_flush_denormal(True)
    return torch.tanh(x)


HONEST = {
    "a list": made(lambda x: [torch.tanh(x), torch.sigmoid(x)]),
    "int8": made(quantised),
    "bool": made(lambda x: x > 0.25),
    "numbers and indices": made(largest),
    "a sum of each row": made(lambda x: torch.tanh(x).sum(-1)),
    "a single number": made(lambda x: torch.tanh(x).square().sum()),
    "a view of fresh memory": made(torch.tanh, in_a_larger_block),
    "subnormal numbers": made(subnormals_flushed, torch.tanh, torch.tanh),
}


def status_of(case, name):
    gate = next(gate for gate in gates.GATES if name == gate.NAME)
    return gates.run_one(gate, Context(case, CPU, 3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", HONEST.values(), ids=HONEST)
def test_an_honest_operator_passes(case, name):
    found = status_of(case, name)
    assert found.status in (Status.PASS, Status.SKIP), found


def one_off(function):
    def candidate(x):
        out = function(x)
        flat = out.view(-1)
        flat[flat.numel() // 2 :][:1] ^= 1
        return out

    return candidate


@pytest.mark.parametrize("gate", ["edges", "numerics", "special", "remembered"])
def test_an_integer_that_is_off_by_one(gate):
    found = status_of(made(quantised, one_off(quantised)), gate)
    assert found.status is Status.FAIL, found


def test_a_case_may_allow_integers_to_be_off_by_one():
    case = made(quantised, one_off(quantised), tolerance={torch.int8: Tolerance(2, ulps=1)})
    assert status_of(case, "numerics").status is Status.PASS
    assert status_of(case, "edges").status is Status.PASS


def test_a_list_is_no_tuple():
    found = status_of(made(lambda x: (x.sin(), x.cos()), lambda x: [x.sin(), x.cos()]), "outputs")
    assert (found.status, found.expected, found.got) == (Status.FAIL, "a tuple", "a list")


def complex_input(size, dtype, device, generator, kind):
    return {"x": torch.randn(size, generator=generator, dtype=torch.complex64)}


def in_place(x, out):
    return out.copy_(x.tanh())


def with_out(*given):
    inputs = normal(*given)
    return inputs | {"out": torch.zeros_like(inputs["x"])}


def case_of(make_inputs, function=torch.tanh, **changes):
    return Case("odd", function, {"eager": function}, function, make_inputs, **changes)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (case_of(complex_input), "view_as_real"),
        (case_of(lambda *a: {"n": 3}, lambda n: torch.arange(n)), "no input is a tensor"),
        (
            case_of(lambda *a: {"xs": [torch.ones(2)]}, torch.stack),
            r"'xs' is a list of tensors.*f\(x, ",
        ),
    ],
)
def test_what_cannot_be_judged_is_said_in_words(case, words):
    with pytest.raises(cases.NotJudged, match=words):
        case_check.ask(case, CPU, None)


def raises(*given):
    raise IndexError("oh")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (case_of(raises), "make_inputs raised IndexError for size .*: oh"),
        (case_of(lambda *a: [torch.ones(2)]), "make_inputs gives .*; it must give a dict"),
        (case_of(normal, raises), "baseline 'eager' raised IndexError: oh"),
        (case_of(normal, lambda x: "no"), "baseline 'eager' gives str"),
        (
            case_of(normal, gradients=("y",)),
            "gradients names y, which is no tensor; make_inputs gives x",
        ),
        (
            Case("odd", torch.tanh, {"eager": torch.tanh}, lambda x: x.sum(), normal),
            "the reference gives",
        ),
    ],
)
def test_what_is_wrong_with_a_case_is_said_once(case, words):
    with pytest.raises(cases.CaseError, match=words):
        case_check.ask(case, CPU, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"y": False}, "make_inputs gives x; the arguments of its contract are y"),
        (
            {"x": False, "eps": False},
            "neither make_inputs nor modes give eps, which its contract has",
        ),
        ({"x": False, "eps": True}, ""),
    ],
)
def test_a_contract_of_other_arguments(arguments, words):
    named = [{"name": name, "optional": optional} for name, optional in arguments.items()]
    case = case_of(normal, contract={"text": "", "arguments": named})
    if not words:
        case_check.ask(case, CPU, case.contract)
        return
    with pytest.raises(cases.CaseError, match=words):
        case_check.ask(case, CPU, case.contract)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidate": None}, "candidate is None; it must be a function"),
        ({"baselines": {}}, "baselines is empty"),
        ({"baselines": {"eager": 3}}, "baselines is {'eager': 3}; it must be a dict of functions"),
        (
            {"baselines": {"eager": torch.tanh, "candidate": torch.tanh}},
            "baselines has a 'candidate', which in the figures is the candidate; give it another name",
        ),
        (
            {"baselines": {sampling.AGAIN: torch.tanh}},
            "baselines has a 'candidate again', which in the figures is the candidate",
        ),
        ({"dtypes": ("float32",)}, r"dtypes is .*such as \(torch.float32,\)"),
        ({"dtypes": ()}, r"dtypes is \(\)"),
        ({"contract": {"x": "f32"}}, "contract is {'x': 'f32'}; it must be a text such as"),
    ],
)
def test_a_case_of_the_wrong_kind(changes, words):
    fields = {
        "name": "odd",
        "candidate": torch.tanh,
        "baselines": {"eager": torch.tanh},
        "reference": torch.tanh,
        "make_inputs": normal,
    }
    assert re.search(words, case_check.complaint(Case(**{**fields, **changes})) or "")
    with pytest.raises(ValueError, match="contract is Ellipsis; it must be a text such as"):
        Case(**{**fields, "contract": ...})


def test_a_baseline_that_raises_is_named_as_the_cases_affair(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\nfrom truefuse.case import Case\n"
        "def eager(x):\n    if x.shape[0] == 7:\n        raise IndexError('oh')\n    return torch.tanh(x)\n"
        "def inputs(size, dtype, device, generator, kind):\n"
        "    return {'x': torch.randn(size, generator=generator).to(device, dtype)}\n"
        "case = Case('mine', torch.tanh, {'eager': torch.tanh}, eager, inputs, edge_sizes=((7, 5),))\n"
    )
    found = status_of(cases.load(str(path)), "edges")
    assert (found.status, found.reason) == (Status.UNKNOWN, "case-raises"), found
    assert re.fullmatch(r"mine\.py:5, in eager: x f\d\d \[7, 5\]", found.first)
    assert "IndexError: oh" in found.summary
