"""The baseline here beside the same baseline in a process that never calls the candidate."""

from __future__ import annotations

import pytest
import torch

from truefuse import case as cases
from truefuse import elsewhere
from truefuse.context import Context

CASE = """
import os
import time

import torch
from truefuse.case import Case

factor, pause = 1.0, 0.0


def baseline(x):
    time.sleep(pause)
    return x * factor


if os.environ.get("TRUEFUSE_TEST_ENDS"):
    os._exit(0)

case = Case(
    name="times",
    candidate=lambda x: x * 1.0,
    baselines={"eager": baseline},
    reference=lambda x: x,
    make_inputs=lambda size, dtype, device, generator, kind: {
        "x": torch.randn(size, generator=generator, dtype=torch.float64).to(device, dtype)
    },
    timing_sizes=((64, 64), (128, 64)),
)
"""


@pytest.fixture
def context(tmp_path):
    path = tmp_path / "times.py"
    path.write_text(CASE)
    return Context(cases.load(str(path)), torch.device("cpu"), 7, str(path))


def module_of(context):
    return next(iter(context.case.baselines.values())).__globals__


def test_a_baseline_that_is_as_it_was_differs_in_nothing(context):
    with elsewhere.beside(context) as complaint:
        assert complaint() == ""


def test_one_that_gives_something_else_is_noticed(context):
    module_of(context)["factor"] = 1.5
    with elsewhere.beside(context) as complaint:
        assert (
            complaint() == "[64, 64]: the baseline gives another 'out' than where the "
            "candidate was never called"
        )


def test_one_that_takes_longer_is_noticed(context):
    module_of(context)["pause"] = 0.002
    with elsewhere.beside(context) as complaint:
        assert "takes" in complaint()


def test_a_process_that_ends_is_no_verdict(context, monkeypatch):
    monkeypatch.setenv("TRUEFUSE_TEST_ENDS", "1")
    with elsewhere.beside(context) as complaint, pytest.raises(RuntimeError, match="has ended"):
        complaint()
