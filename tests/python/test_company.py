"""Who else works on the machine while somebody is timed."""

import itertools
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from truefuse import company


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
