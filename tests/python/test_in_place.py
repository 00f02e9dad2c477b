"""Operators that give nothing but inputs that they have changed: judged by copies, timed as they are."""

from __future__ import annotations

import pytest
import torch

from truefuse import in_place
from truefuse.case import Case
from truefuse.context import Context
from truefuse.rotation import Sets

CPU = torch.device("cpu")


def inputs(size, dtype, device, generator, kind):
    x, y = torch.randn((2, *size), generator=generator).to(device, dtype)
    return {"x": x, "scale": torch.tensor(2.0), "y": y}


def both(x, scale, y):
    x.mul_(scale)
    y.add_(x)


def given_back(x, scale, y):
    return x.mul_(scale), y.add_(x)


def of_its_own(x, scale, y):
    both(x, scale, y)
    return x + y


def context(function, **changes):
    case = Case("both", function, {"eager": function}, function, inputs, mutates=("x", "y"))
    return Context(Case(**{**vars(case), **changes}), CPU, 1)


@pytest.mark.parametrize("function", [both, given_back])
def test_copies_come_first_and_the_inputs_are_results_too(function):
    judged = in_place.judged(context(function))
    given = judged.inputs((2, 3), torch.float32, "normal")
    found = judged.candidate(given, {})
    first, second = found["out[0]"], found["out[1]"]
    assert torch.equal(first, 2 * given["x"]) and torch.equal(second, given["y"] + first)
    assert torch.equal(found["x"], first) and torch.equal(found["y"], second)
    assert first.data_ptr() != found["x"].data_ptr()
    assert list(found) == list(judged.reference(given, {}))


def test_sizes_of_summands_are_those_of_the_copies_too():
    sizes = lambda x, scale, y: (x.abs(), y.abs())  # noqa: E731
    judged = in_place.judged(context(both, scale=sizes))
    given = judged.inputs((2, 3), torch.float32, "normal")
    found = judged.reference(given, {})
    assert torch.equal(found["out[1]"].scale, given["y"].abs().double())
    assert torch.equal(found["x"].scale, given["x"].abs().double())


def test_what_gives_something_of_its_own_stays_as_it_is():
    own = context(of_its_own)
    assert in_place.judged(own) is own and own.as_given is own


def test_whoever_times_it_makes_no_copies():
    plain = context(both)
    judged = in_place.judged(plain)
    assert judged.as_given.case is plain.case
    assert list(Sets(judged.as_given, (4, 8)).expected[0]) == ["x", "y"]
