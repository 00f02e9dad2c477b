"""What is compiled before the gates of a check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from truefuse import ahead, worker
from truefuse import case as cases
from truefuse.context import Context

DEVICE = torch.device("cpu")  # Where calls can be made.


def context(name: str, **changes: Any) -> Context:
    case = replace(cases.load(name), **changes)
    return Context(case, DEVICE, 1, name, worker.contract_of(cases.load(name)))


@pytest.fixture
def prepared(monkeypatch):
    """The operators that were compiled ahead, of a machine with 16 cores."""
    names: list[str] = []
    monkeypatch.setattr(ahead, "prepare", lambda name, device: names.append(name))
    monkeypatch.setattr(ahead.os, "sched_getaffinity", lambda pid: range(16))
    return names


def test_an_operator_and_its_backward_are_compiled_ahead(prepared):
    ahead.compile_ahead(context("bias_gelu"))
    assert prepared == ["bias_gelu", "bias_gelu_backward"]


@pytest.mark.parametrize("operator", [None, "mine::scale", "truefuse::unknown"])
def test_nothing_else_is(prepared, operator):
    ahead.compile_ahead(context("bias_gelu", operator=operator))
    assert prepared == []


def noted(calls: list[tuple[Any, ...]]) -> Any:
    def candidate(*given: Any, **mode: Any) -> None:
        calls.append((*given, mode))
        raise RuntimeError("nobody looks at it")

    return candidate


def test_where_the_sizes_are_others_calls_like_those_of_the_gates_are_made(prepared):
    calls: list[tuple[Any, ...]] = []
    one = context("gdn_decode", candidate=noted(calls))
    ahead.compile_ahead(one)
    assert prepared == []
    case = one.case
    rows = {(call[0].shape, call[0].dtype, repr(call[-1])) for call in calls}
    for size in (case.small_size, case.medium_size, *case.edge_sizes, *case.special_sizes):
        for dtype in case.dtypes:
            shape = one.inputs(size, dtype, case.kinds[0], "shape")["qkvz"].shape
            for mode in case.modes:
                assert (shape, dtype, repr(mode)) in rows
    assert any(call[0].storage_offset() for call in calls)
    assert any(not call[0].is_contiguous() for call in calls)


def test_a_candidate_of_somebody_else_is_not_called(prepared):
    calls: list[tuple[Any, ...]] = []
    one = replace(context("gdn_decode", candidate=noted(calls)), target="mine/gdn_decode.py")
    ahead.compile_ahead(one)
    assert prepared == calls == []


def test_few_cores_compile_what_is_needed_when_it_is(prepared, monkeypatch):
    monkeypatch.setattr(ahead.os, "sched_getaffinity", lambda pid: range(2))
    ahead.compile_ahead(context("bias_gelu"))
    assert prepared == []


def test_what_does_not_compile_is_left_to_the_gates(prepared, monkeypatch):
    def prepare(name, device):
        prepared.append(name)
        raise RuntimeError("the compiler's words")

    monkeypatch.setattr(ahead, "prepare", prepare)
    ahead.compile_ahead(context("bias_gelu"))
    assert prepared == ["bias_gelu", "bias_gelu_backward"]
