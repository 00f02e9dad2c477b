"""What measuring refuses to believe."""

import itertools
import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import stateful
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from truefuse import bandwidth, company, flags, measure
from truefuse.context import Context
from truefuse.measure import Refuted, amdahl
from truefuse.rotation import Sets

CPU = torch.device("cpu")


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setattr(bandwidth, "last_cache_bytes", lambda device: 1 << 18)
    return Context(stateful.case, CPU, 3, "mine")


def test_faster_than_memory(context, monkeypatch):
    monkeypatch.setattr(bandwidth, "measured", lambda context, size=None: 1.0)
    with pytest.raises(Refuted) as refuted:
        measure.measure(context)
    assert refuted.value.reason == "faster-than-memory"


def test_memory_that_was_measured_in_a_bad_moment_accuses_nobody(context, monkeypatch):
    found = iter([1.0, 1e18])
    monkeypatch.setattr(bandwidth, "measured", lambda context, size=None: next(found))
    assert measure.measure(context)["shapes"][0]["cold"]


def test_faster_than_arithmetic(context):
    """More operations than a matrix product could do in the time; a plausible number is believed."""
    more = replace(context.case, operations=lambda inputs, mode: 1e18)
    with pytest.raises(Refuted) as refuted:
        measure.measure(replace(context, case=more))
    assert refuted.value.reason == "faster-than-arithmetic"
    few = replace(context.case, operations=lambda inputs, mode: 2.0 * inputs["x"].numel())
    assert measure.measure(replace(context, case=few))["shapes"]


def test_a_baseline_that_flushes_subnormal_numbers_accuses_nobody(context):
    (name, function), *_ = context.case.baselines.items()

    def flushing(*given, **mode):
        torch.set_flush_denormal(True)
        return function(*given, **mode)

    with torch.no_grad():
        at_start = flags.snapshot(CPU)
    case = replace(context.case, baselines={name: flushing})
    try:
        assert measure.measure(replace(context, case=case, at_start=at_start))["shapes"]
        assert not flags._flushes()
    finally:
        torch.set_flush_denormal(False)


def test_clocks_that_disagree(context, monkeypatch):
    real = time.perf_counter
    monkeypatch.setattr(measure.time, "perf_counter", lambda: real() / 5)
    with pytest.raises(Refuted) as refuted:
        measure.measure(context)
    assert refuted.value.reason == "clocks-disagree"


def clocks_agree(context, pairs, *baselines):
    shape = measure.Shape.__new__(measure.Shape)
    shape.context, shape.size = context, (1,)
    shape.clocks = {measure.CANDIDATE: pairs, measure.AGAIN: pairs}
    shape.clocks |= {f"baseline {i}": pairs for i, pairs in enumerate(baselines)}
    return shape._clocks_agree(1)


def test_a_process_that_is_stopped_between_the_clocks_now_and_then_is_believed(context):
    seconds = [0.1 + 0.002 * number for number in range(30)]
    stopped = [(one + (0.08 if number % 5 < 2 else 0), one) for number, one in enumerate(seconds)]
    clocks_agree(context, stopped)
    for share in (0.96, 1.04):
        with pytest.raises(Refuted):
            clocks_agree(context, [(one * share, one) for one in seconds])


def test_a_device_that_others_use_too_accuses_nobody_but_work_that_a_clock_misses_does(context):
    """Host and device seconds of calls that wait for 5 ms until the device takes them up."""
    late = [(0.006, 0.001)] * 30
    quiet = [(0.001, 0.001)] * 30
    assert clocks_agree(context, quiet, quiet) is False
    assert clocks_agree(context, late, late) is True
    assert clocks_agree(context, quiet, late) is False
    for baselines in ([quiet], [[(0.002, 0.001)] * 30], [quiet, late], [late, quiet]):
        with pytest.raises(Refuted):
            clocks_agree(context, late, *baselines)
    # A host's clock that runs slow is no waiting, whatever the baseline's says.
    slow = [(0.001, 0.006)] * 30
    with pytest.raises(Refuted):
        clocks_agree(context, slow, slow)


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


def test_sets_hold_twice_the_cache_and_other_contents(context):
    sets = Sets(context, (64, 128))
    assert sets.cold and len(sets) * sets.bytes_moved >= 2 * (1 << 18)
    first, second = (sets.inputs[number]["x"] for number in range(2))
    assert first.data_ptr() != second.data_ptr() and not torch.equal(first, second)


def test_contents_move_on_and_the_results_with_them(context):
    sets = Sets(context, (64, 128))
    before = [one["x"].clone() for one in sets.inputs]
    where = [one["x"].data_ptr() for one in sets.inputs]
    version = sets.inputs[1]["x"]._version
    sets.move_on()
    assert [one["x"].data_ptr() for one in sets.inputs] == where
    assert sets.inputs[1]["x"]._version == version
    for number, one in enumerate(sets.inputs):
        assert torch.equal(one["x"], before[number - 1])
        sets.restore(number)
        found = context.candidate(one, {})
        assert all(torch.equal(found[k], sets.expected[number][k]) for k in found)


def test_an_expanded_input_is_read_once(context):
    from truefuse.rotation import moved

    wide = {"x": torch.ones(1).expand(1000)}
    assert moved(wide, {"out": torch.ones(1000)}, ()) == 4 + 4000


def test_a_wrong_result_among_the_timed_ones(context):
    calls = 0

    def tires(x, decay, state):
        nonlocal calls
        calls += 1
        out, mean = stateful.fused(x, decay, state)
        return out + (calls % 50 == 0), mean

    with pytest.raises(Refuted) as refuted:
        measure.measure(replace(context, case=replace(context.case, candidate=tires)))
    assert refuted.value.reason == "timed-output-wrong"


def spin(ended):
    while not ended.is_set():
        math.sqrt(2)


def test_a_thread_that_works_on_is_seen(monkeypatch):
    monkeypatch.setattr(company, "SETTLED", 0.05)
    ended = threading.Event()
    thread = threading.Thread(target=spin, args=(ended,), daemon=True)
    nothing = lambda: None  # noqa: E731
    assert company.left_working(nothing, nothing) == ""
    thread.start()
    try:
        assert "after the last call" in company.left_working(nothing, nothing)
    finally:
        ended.set()
        thread.join()


def test_compile_workers_of_pytorch_are_nobodys_work():
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile

    company.end_compile_workers()
    before = company._descendants()
    with config.patch(compile_threads=2):
        AsyncCompile.process_pool()
        started = company._descendants() - before
        company.end_compile_workers()
    assert started and not started & company._descendants()


LINE = """
import os, subprocess, sys, time
from truefuse import company
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
watch = company.Watch()
spin = "import time; end = time.time() + 3\\nwhile time.time() < end: pass"
subprocess.Popen([*{before}, sys.executable, "-c", spin])
end = time.perf_counter() + 2.5
while time.perf_counter() < end: pass
print(watch.share(), company._seconds_of_others() - watch._others)
"""


def in_line(before):
    done = subprocess.run(
        [sys.executable, "-c", "import conftest\n" + LINE.format(before=before)],
        capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])},
    )  # fmt: skip
    return map(float, done.stdout.split())


@pytest.mark.skipif(company.Watch().share() is None, reason="the system does not count it")
def test_who_stands_in_line_for_a_processor():
    """Two threads that share one processor: somebody else's, who has left us, and one that we have started."""
    share, _ = in_line(["setsid", "--fork"])
    assert 0.2 < share <= 1.0
    share, others = in_line([])
    assert share == 0.0 or others > 0.2  # others may run here too
    watch = company.Watch()
    time.sleep(0.5)
    assert watch.share() < 0.5  # who sleeps stands in no line


@pytest.mark.parametrize(
    ("others", "waits", "share"),
    [
        (2.0, {"1": 1.5, "2": 0.5}, 0.75),
        (2.0, {"1": 5.0}, 1.0),
        (0.1, {"1": 1.5}, 0.0),  # nobody else: it stood in its own way
        (None, {"1": 1.5}, None),
    ],
)
def test_share_of_the_time_in_line(monkeypatch, others, waits, share):
    clock = iter([10.0, 12.0])
    seconds = iter([100.0, others and 100.0 + others])
    found = iter([{"1": 1.0}, {"1": 1.0 + waits.pop("1"), **waits}])
    monkeypatch.setattr(company.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(company, "_seconds_of_others", lambda: next(seconds))
    monkeypatch.setattr(company, "_waited", lambda: next(found))
    assert company.Watch().share() == share


@pytest.mark.parametrize(
    ("after_baseline", "after_candidate", "later", "complaint"),
    [
        (0.0, 0.9, 0.0, "after a call of the candidate"),
        (0.9, 0.9, 0.0, ""),  # a runtime whose threads wait actively, for both
        (0.9, 0.9, 0.9, "after the last call"),
    ],
)
def test_who_is_busy_when(monkeypatch, after_baseline, after_candidate, later, complaint):
    monkeypatch.setattr(company, "SETTLED", 0)
    seen = itertools.cycle((after_baseline, after_candidate, later))
    monkeypatch.setattr(company, "busy", lambda seconds=0: next(seen))
    found = company.left_working(lambda: None, lambda: None)
    assert complaint in found and bool(found) == bool(complaint)


def test_a_setting_that_a_timed_call_changes(context, monkeypatch):
    def candidate(*tensors, **mode):
        torch.set_float32_matmul_precision("medium")
        return context.case.candidate(*tensors, **mode)

    monkeypatch.setattr(measure, "ROUND_SECONDS", 0.01)
    with torch.no_grad():
        before = flags.snapshot(CPU)
    changed = replace(context, case=replace(context.case, candidate=candidate), at_start=before)
    try:
        with pytest.raises(Refuted) as refuted:
            measure.measure(changed)
    finally:
        flags.restore(before)
    assert refuted.value.reason == "flags-changed"


def test_every_side_is_followed_by_the_same_work_and_begins_at_every_set(context, monkeypatch):
    """A sample finds what the one before left in caches and allocators: nobody may leave less."""
    looked, begun = [], {}
    shape = measure.Shape(context, (64, 64))
    real = shape._as_expected

    def as_expected(chosen, outputs):
        looked.append(len(chosen))
        return real(chosen, outputs)

    def interleaved(timers, rounds, between=lambda round: None):
        samples = {name: [] for name in timers}
        for number in range(rounds):
            between(number)
            for name, timer in timers.items():
                begun.setdefault(name, set()).add(shape.position)
                before = len(looked)
                samples[name].append(timer(number))
                if between.__module__ == measure.__name__:
                    assert len(looked) == before + 1, name
        return samples

    monkeypatch.setattr(shape, "_as_expected", as_expected)
    monkeypatch.setattr(measure.sampling, "interleaved", interleaved)
    monkeypatch.setattr(measure, "ROUND_SECONDS", 0.2)
    shape.measure(1e12)
    assert len(shape.sets) > 2
    for name in shape.functions:
        assert begun[name] == set(range(len(shape.sets))), name


@pytest.mark.parametrize(("share", "is_busy"), [(0.0, False), (None, False), (0.5, True)])
def test_no_verdict_on_speed_where_the_machine_was_busy(context, monkeypatch, share, is_busy):
    monkeypatch.setattr(company.Watch, "share", lambda watch: share)
    monkeypatch.setattr(measure.stats, "speed_verdict", lambda speedup, floor: "FASTER")
    shapes = measure.measure(context)["shapes"]
    verdicts = {one["verdict"] for shape in shapes for one in shape["baselines"]}
    assert verdicts == {"AMBIGUOUS" if is_busy else "FASTER"}


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
            same = measure._all_read(found, one)
        return same, sorted(compared)

    compared = []
    nan = {"a": torch.full((12,), torch.nan)}
    everything = [2, 12, 15]
    assert looked({k: t.clone() for k, t in one.items()}) == (True, everything)
    with Compared():
        assert measure._all_read(nan, {"a": nan["a"].clone()})
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
