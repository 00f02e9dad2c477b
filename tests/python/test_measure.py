"""What measuring refuses to believe."""

import time
from dataclasses import replace

import pytest
import torch

from truefuse import bandwidth, company, flags, measure, turns
from truefuse.measure import amdahl
from truefuse.sampling import AGAIN, CANDIDATE
from truefuse.turns import Refuted, Shape

CPU = torch.device("cpu")


def test_faster_than_memory(stateful_context, monkeypatch):
    monkeypatch.setattr(bandwidth, "measured", lambda context, size=None: 1.0)
    with pytest.raises(Refuted) as refuted:
        measure.measure(stateful_context)
    assert refuted.value.reason == "faster-than-memory"


def test_memory_that_was_measured_in_a_bad_moment_accuses_nobody(stateful_context, monkeypatch):
    found = iter([1.0, 1e18])
    monkeypatch.setattr(bandwidth, "measured", lambda context, size=None: next(found))
    assert measure.measure(stateful_context)["shapes"][0]["cold"]


def test_faster_than_arithmetic(stateful_context):
    """More operations than a matrix product could do in the time; a plausible number is believed."""
    more = replace(stateful_context.case, operations=lambda inputs, mode: 1e18)
    with pytest.raises(Refuted) as refuted:
        measure.measure(replace(stateful_context, case=more))
    assert refuted.value.reason == "faster-than-arithmetic"
    few = replace(stateful_context.case, operations=lambda inputs, mode: 2.0 * inputs["x"].numel())
    assert measure.measure(replace(stateful_context, case=few))["shapes"]


def test_a_baseline_that_flushes_subnormal_numbers_accuses_nobody(stateful_context):
    (name, function), *_ = stateful_context.case.baselines.items()

    def flushing(*given, **mode):
        torch.set_flush_denormal(True)
        return function(*given, **mode)

    with torch.no_grad():
        at_start = flags.snapshot(CPU)
    case = replace(stateful_context.case, baselines={name: flushing})
    try:
        assert measure.measure(replace(stateful_context, case=case, at_start=at_start))["shapes"]
        assert not flags._flushes()
    finally:
        torch.set_flush_denormal(False)


def test_clocks_that_disagree(stateful_context, monkeypatch):
    real = time.perf_counter
    monkeypatch.setattr(turns.time, "perf_counter", lambda: real() / 5)
    with pytest.raises(Refuted) as refuted:
        measure.measure(stateful_context)
    assert refuted.value.reason == "clocks-disagree"


def clocks_agree(stateful_context, pairs, *baselines):
    shape = Shape.__new__(Shape)
    shape.context, shape.size = stateful_context, (1,)
    shape.clocks = {CANDIDATE: pairs, AGAIN: pairs}
    shape.clocks |= {f"baseline {i}": pairs for i, pairs in enumerate(baselines)}
    return measure._clocks_agree(shape, 1)


def test_a_process_that_is_stopped_between_the_clocks_now_and_then_is_believed(stateful_context):
    seconds = [0.1 + 0.002 * number for number in range(30)]
    stopped = [(one + (0.08 if number % 5 < 2 else 0), one) for number, one in enumerate(seconds)]
    clocks_agree(stateful_context, stopped)
    for share in (0.96, 1.04):
        with pytest.raises(Refuted):
            clocks_agree(stateful_context, [(one * share, one) for one in seconds])


def test_a_device_that_others_use_too_accuses_nobody_but_work_that_a_clock_misses_does(
    stateful_context,
):
    """Host and device seconds of calls that wait for 5 ms until the device takes them up."""
    late = [(0.006, 0.001)] * 30
    quiet = [(0.001, 0.001)] * 30
    assert clocks_agree(stateful_context, quiet, quiet) is False
    assert clocks_agree(stateful_context, late, late) is True
    assert clocks_agree(stateful_context, quiet, late) is False
    for baselines in ([quiet], [[(0.002, 0.001)] * 30], [quiet, late], [late, quiet]):
        with pytest.raises(Refuted):
            clocks_agree(stateful_context, late, *baselines)
    # A host's clock that runs slow is no waiting, whatever the baseline's says.
    slow = [(0.001, 0.006)] * 30
    with pytest.raises(Refuted):
        clocks_agree(stateful_context, slow, slow)


@pytest.mark.parametrize(
    ("share", "ratio", "gain"), [(0.05, 1.3, 1.0117), (1.0, 2.0, 2.0), (0.5, 1.0, 1.0)]
)
def test_amdahl(share, ratio, gain):
    """A share s of the time that becomes r times faster: 1 / (1 - s + s / r)."""
    shape = {
        "size": [1],
        "baselines": [
            {"name": "slow", "median_ms": 9.0, "verdict": "FASTER", "speedup": {"value": 9.0}},
            {"name": "fast", "median_ms": 2.0, "verdict": "SAME", "speedup": {"value": ratio}},
        ],
    }
    found = amdahl(shape, (share,))
    assert found["baseline"] == "fast"
    assert found["gains"][0]["gain"] == pytest.approx(gain, rel=1e-3)


def test_a_setting_that_a_timed_call_changes(stateful_context, monkeypatch):
    def candidate(*tensors, **mode):
        torch.set_float32_matmul_precision("medium")
        return stateful_context.case.candidate(*tensors, **mode)

    monkeypatch.setattr(turns, "ROUND_SECONDS", 0.01)
    with torch.no_grad():
        before = flags.snapshot(CPU)
    changed = replace(
        stateful_context, case=replace(stateful_context.case, candidate=candidate), at_start=before
    )
    try:
        with pytest.raises(Refuted) as refuted:
            measure.measure(changed)
    finally:
        flags.restore(before)
    assert refuted.value.reason == "flags-changed"


@pytest.mark.parametrize(("share", "is_busy"), [(0.0, False), (None, False), (0.5, True)])
def test_no_verdict_on_speed_where_the_machine_was_busy(
    stateful_context, monkeypatch, share, is_busy
):
    monkeypatch.setattr(company.Watch, "share", lambda watch: share)
    monkeypatch.setattr(measure.stats, "speed_verdict", lambda speedup, floor: "FASTER")
    shapes = measure.measure(stateful_context)["shapes"]
    verdicts = {one["verdict"] for shape in shapes for one in shape["baselines"]}
    assert verdicts == {"AMBIGUOUS" if is_busy else "FASTER"}
