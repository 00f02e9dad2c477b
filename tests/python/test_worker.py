"""What the child of a check does before the gates. See test_supervise.py for its end."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from truefuse import case as cases
from truefuse import worker

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def prepared(monkeypatch):
    """The operators that were compiled ahead, of a machine with 16 cores."""
    names: list[str] = []
    monkeypatch.setattr(worker, "prepare", lambda name, device: names.append(name))
    monkeypatch.setattr(worker.os, "sched_getaffinity", lambda pid: range(16))
    return names


def test_an_operator_and_its_backward_are_compiled_ahead(prepared):
    worker.compile_ahead(cases.load("bias_gelu"), DEVICE)
    assert prepared == ["bias_gelu", "bias_gelu_backward"]


@pytest.mark.parametrize("operator", [None, "mine::scale", "truefuse::unknown"])
def test_nothing_else_is(prepared, operator):
    worker.compile_ahead(replace(cases.load("bias_gelu"), operator=operator), DEVICE)
    assert prepared == []


def test_nor_what_is_of_other_sizes_than_the_case(prepared):
    worker.compile_ahead(cases.load("gdn_decode"), DEVICE)
    assert prepared == []


def test_few_cores_compile_what_is_needed_when_it_is(prepared, monkeypatch):
    monkeypatch.setattr(worker.os, "sched_getaffinity", lambda pid: range(2))
    worker.compile_ahead(cases.load("bias_gelu"), DEVICE)
    assert prepared == []


def test_what_does_not_compile_is_left_to_the_gates(prepared, monkeypatch):
    def prepare(name, device):
        prepared.append(name)
        raise RuntimeError("the compiler's words")

    monkeypatch.setattr(worker, "prepare", prepare)
    worker.compile_ahead(cases.load("bias_gelu"), DEVICE)
    assert prepared == ["bias_gelu", "bias_gelu_backward"]
