"""Every cheat is caught by the gate that is named for it; every honest twin passes all gates."""

from __future__ import annotations

import os
from dataclasses import replace

import cheats
import pytest
import subject
import torch

from truefuse import check, flags, gates, turns
from truefuse.context import Context
from truefuse.verdict import Result, Status

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Whether a cheat beats memory depends on what else the machine does while memory is measured.
IS_QUIET = os.environ.get("TRUEFUSE_FULL") == "1"
ROWS = [
    row
    for row in cheats.ROWS
    if row.where in ("any", DEVICE) and (IS_QUIET or "faster than memory" not in row.story)
]
NAMES = [row.story for row in ROWS]
# By row, every time if it is repeated.
caught: dict[str, bool] = {}
accepted: dict[str, bool] = {}


def context(candidate, changes=None):
    case = replace(subject.SWISH_BIAS, candidate=candidate, **(changes or {}))
    device = torch.device(DEVICE)
    with torch.no_grad():
        at_start = flags.snapshot(device)
    target = str(case.source or "cheat.py")
    return Context(case, device, 7, target, subject.CONTRACT, at_start=at_start)


def run_gate(name: str, subject_of: Context) -> Result:
    if name == check.MEASURE:
        found, performance = check._measured(subject_of, lambda text: None, None)
        assert (performance is None) == (found.status is not Status.PASS)
        return found
    module = next(module for module in gates.GATES if module.NAME == name)
    return gates.run_one(module, subject_of)


@pytest.fixture(autouse=True)
def as_before():
    """Whatever a cheat has changed is put back."""
    before = flags.snapshot(torch.device(DEVICE))
    yield
    flags.restore(before)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A little is enough to see a cached result."""
    monkeypatch.setattr(turns, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr("truefuse.company.SETTLED", 0.05)
    monkeypatch.setattr("truefuse.bandwidth.last_cache_bytes", lambda device: 1 << 20)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_cheat_is_caught_by_its_gate(row):
    found = run_gate(row.gate, context(row.make(), row.changes()))
    caught[row.story] = caught.get(row.story, True) and found.status is row.status
    assert found.status is row.status, found
    assert found.reason and found.expected and found.got, found


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_honest_twin_passes_the_same_gate(row):
    changes = {} if row.gate in ("reference", "baseline") else row.changes()
    found = run_gate(row.gate, context(row.twin(), changes))
    accepted[row.story] = accepted.get(row.story, True) and found.status is Status.PASS
    assert found.status is Status.PASS, found


TWINS = {id(row.twin): row for row in ROWS if not row.changes()}


@pytest.mark.parametrize("row", TWINS.values(), ids=lambda row: row.story)
def test_honest_twin_passes_every_gate(row):
    """Each different twin once."""
    subject_of = context(row.twin())
    for module in gates.GATES:
        found = gates.run_one(module, subject_of)
        assert found.status in (Status.PASS, Status.SKIP), found


def test_both_counts(capsys):
    """Printed last, so that a run says how much it has seen."""
    with capsys.disabled():
        print(
            f"\ncheats caught {sum(caught.values())} of {len(caught)} · "
            f"honest twins turned away {len(accepted) - sum(accepted.values())} of {len(accepted)} "
            f"on {DEVICE}"
        )
        if not IS_QUIET:
            print("  left out B10 by speed: needs a quiet machine; TRUEFUSE_FULL=1 takes it")
        elsewhere = [row.story for row in cheats.ROWS if row.where not in ("any", DEVICE)]
        print(f"  for another device than {DEVICE}: {' · '.join(elsewhere)}")
        for row, reason in cheats.LEFT_OUT.items():
            print(f"  left out {row}: {reason}")
    assert all(caught.values()) and all(accepted.values())
