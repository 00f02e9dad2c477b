"""The gate of equal bits: what a candidate does in one of many calls."""

from __future__ import annotations

from dataclasses import replace

import torch

from truefuse import gates
from truefuse.gates import determinism
from truefuse.verdict import Status


def test_an_error_in_one_of_many_calls_is_the_candidates(quick):
    calls = 0

    def candidate(*given, **mode):
        nonlocal calls
        calls += 1
        if calls == 150:
            raise RuntimeError("the 150th call")
        return quick.case.candidate(*given, **mode)

    with torch.no_grad():
        found = gates.run_one(
            determinism, replace(quick, case=replace(quick.case, candidate=candidate))
        )
    assert (found.status, found.reason) == (Status.FAIL, "candidate-raised")
    assert "the 150th call" in f"{found.summary} {found.got}"
