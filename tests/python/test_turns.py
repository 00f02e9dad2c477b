"""Turns of a candidate and its baselines: who is followed by what, and that all results are looked at."""

from dataclasses import replace

import pytest
import stateful
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from truefuse import turns
from truefuse.turns import Refuted, Shape


def test_a_wrong_result_among_the_timed_ones(stateful_context):
    calls = 0

    def tires(x, decay, state):
        nonlocal calls
        calls += 1
        out, mean = stateful.fused(x, decay, state)
        return out + (calls % 50 == 0), mean

    tiring = replace(stateful_context, case=replace(stateful_context.case, candidate=tires))
    with pytest.raises(Refuted) as refuted:
        Shape(tiring, (64, 64)).turns()
    assert refuted.value.reason == "timed-output-wrong"


def test_every_side_is_followed_by_the_same_work_and_begins_at_every_set(
    stateful_context, monkeypatch
):
    """A sample finds what the one before left in caches and allocators: nobody may leave less."""
    looked, begun = [], {}
    shape = Shape(stateful_context, (64, 64))
    real = shape._as_expected

    def as_expected(chosen, outputs):
        looked.append(len(chosen))
        return real(chosen, outputs)

    def interleaved(timers, rounds, between):
        samples = {name: [] for name in timers}
        for number in range(rounds):
            between(number)
            for name, timer in timers.items():
                begun.setdefault(name, set()).add(shape.position)
                before = len(looked)
                samples[name].append(timer(number))
                assert len(looked) == before + 1, name
        return samples

    monkeypatch.setattr(shape, "_as_expected", as_expected)
    monkeypatch.setattr(turns.sampling, "interleaved", interleaved)
    monkeypatch.setattr(turns, "ROUND_SECONDS", 0.2)
    shape.turns()
    assert len(shape.sets) > 2
    for name in shape.functions:
        assert begun[name] == set(range(len(shape.sets))), name


def test_what_is_looked_at_is_all_read_whatever_the_answer_is():
    """As many elements compared for results with other bits, another dtype or another name as for the same."""
    one = {
        "a": torch.arange(12.0),
        "b": torch.ones(3, 5, dtype=torch.bfloat16),
        "c": torch.ones(2) > 0,
    }

    class Compared(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, given=(), options=None):
            if function is torch.ops.aten.ne.Tensor:
                compared.append(given[0].numel())
            return function(*given, **(options or {}))

    def looked(found):
        compared.clear()
        with Compared():
            same = turns._all_read(found, one)
        return same, sorted(compared)

    compared = []
    nan = {"a": torch.full((12,), torch.nan)}
    everything = [2, 12, 15]
    assert looked({k: t.clone() for k, t in one.items()}) == (True, everything)
    with Compared():
        assert turns._all_read(nan, {"a": nan["a"].clone()})
    others = (
        one | {"a": -one["a"]},  # -0 and 0 differ too
        one | {"a": one["a"].double()},
        one | {"b": one["b"][:2]},
        {"b": one["b"], "a": one["a"], "c": one["c"]},
        {"a": one["a"]},
        one | {"c": ~one["c"]},
    )
    for other in others:
        assert looked(other) == (False, everything)
