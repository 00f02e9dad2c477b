"""A case that raises, hangs, crashes or exits is a verdict, and the report is written all the same."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
import torch

from truefuse import debugging, report, supervise
from truefuse.child import START
from truefuse.supervise import LOAD, NoCase, Request
from truefuse.verdict import INTERRUPTED, Result, Status, Verdict, exit_code

HERE = Path(__file__).resolve().parent
SCHEMA = jsonschema.Draft202012Validator(json.loads(report.SCHEMA_PATH.read_text()))
CASE = """
import ctypes, os, signal, sys, time
import torch
from truefuse.case import Case

{loading}

def candidate(x):
    {calling}
    return torch.relu(x)

case = Case(
    "mine", candidate, {{"eager": torch.relu}}, torch.relu,
    lambda size, dtype, device, generator, kind: {{
        "x": torch.randn(size, generator=generator).to(device, dtype)}},
)
"""
ENDINGS = {
    "os._exit(0)": ("exits", "exit(0)"),
    "sys.exit(3)": ("exits", "exit(3)"),
    "os.kill(os.getpid(), signal.SIGKILL)": ("died-sigkill", "SIGKILL"),
    "ctypes.string_at(0)": ("died-sigsegv", "SIGSEGV"),
    "os.abort()": ("died-sigabrt", "SIGABRT"),
}


def check(folder, loading="pass", calling="pass", limit=60.0, only=("outputs",)):
    path = folder / "mine.py"
    path.write_text(CASE.format(loading=loading, calling=calling))
    request = Request(
        str(path),
        "cpu",
        1,
        only,
        time_limit=limit,
        command=(sys.executable, str(HERE / "child.py")),
        environment={"PYTHONPATH": ":".join([str(HERE), *sys.path])},
    )
    seen = []
    found = supervise.run(request, on_result=seen.append)
    assert seen == found.results
    page_json, _ = report.write(found, folder / "report")
    SCHEMA.validate(json.loads(page_json.read_text()))
    return found


def test_a_case_that_behaves(tmp_path):
    found = check(tmp_path)
    assert [(one.gate, one.status) for one in found.results] == [("outputs", Status.PASS)]
    assert found.verdict is Verdict.UNKNOWN  # one gate alone accepts nobody


@pytest.mark.parametrize("calling", ENDINGS)
def test_a_call_that_ends_the_process(tmp_path, calling):
    found = check(tmp_path, calling=calling)
    reason, words = ENDINGS[calling]
    last = found.results[-1]
    assert (found.verdict, last.gate, last.reason) == (Verdict.REJECT, "outputs", reason), last
    assert len(found.acceptance) == 13 and not any(row["evidence"] for row in found.acceptance[:2])
    assert words in last.got and last.replay.endswith("--gate outputs")


def test_a_crash_says_where_it_was(tmp_path):
    found = check(tmp_path, calling="ctypes.string_at(0)")
    assert "candidate" in found.results[-1].traceback


def test_a_call_that_hangs(tmp_path):
    found = check(tmp_path, calling="time.sleep(1000)", limit=3.0)
    assert (found.verdict, found.results[-1].reason) == (Verdict.REJECT, "hangs")


@pytest.mark.parametrize(
    ("loading", "reason"),
    [
        ("os._exit(0)", "exits"),
        ("sys.exit(0)", "case-raises"),
        ("1 / 0", "case-raises"),
        ("os.abort()", "died-sigabrt"),
    ],
)
def test_a_case_that_cannot_be_loaded(tmp_path, loading, reason):
    found = check(tmp_path, loading=loading)
    last = found.results[-1]
    assert (found.verdict, last.gate, last.reason) == (Verdict.REJECT, LOAD, reason)


def test_a_case_that_hangs_while_it_is_loaded(tmp_path):
    found = check(tmp_path, loading="time.sleep(1000)", limit=3.0)
    assert (found.verdict, found.results[-1].gate) == (Verdict.REJECT, LOAD)


def test_a_call_that_raises_is_a_result_like_others(tmp_path):
    found = check(tmp_path, calling="raise KeyError('x')")
    assert found.results[-1].reason == "candidate-raised"


def test_flags_that_loading_changes(tmp_path):
    found = check(tmp_path, loading="torch.set_default_dtype(torch.float64)", only=("flags",))
    assert found.results[-1].reason == "flags-changed", found.results
    assert "default dtype" in found.results[-1].summary


def test_what_a_case_prints_is_no_answer(tmp_path):
    found = check(tmp_path, loading='print(\'{"kind": "report"}\', flush=True)')
    assert found.results[-1].status is Status.PASS


FORK = "import os; (os.fork() or time.sleep(100)) and None"


def test_what_a_case_forks_off_holds_nobody_up(tmp_path):
    begin = time.monotonic()
    found = check(tmp_path, loading=f"{FORK}; os._exit(0)")
    assert (found.results[-1].reason, found.verdict) == ("exits", Verdict.REJECT)
    assert time.monotonic() - begin < 50


def test_a_case_that_nothing_can_judge(tmp_path):
    path = tmp_path / "mine.py"
    text = CASE.format(loading="pass", calling="pass")
    path.write_text(text.replace("to(device, dtype)", "to(torch.complex64)"))
    request = Request(str(path), "cpu", 1, command=(sys.executable, str(HERE / "child.py")))
    request.environment = {"PYTHONPATH": ":".join([str(HERE), *sys.path])}
    found = supervise.run(request)
    assert (found.verdict, found.results[-1].reason) == (Verdict.UNKNOWN, "not-judged")


@pytest.mark.parametrize("loading", ["os._exit(0)", "ctypes.string_at(0)", "time.sleep(1000)"])
def test_debug_of_a_case_that_ends_the_process(tmp_path, loading, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text(CASE.format(loading=loading, calling="pass"))
    command = (sys.executable, str(HERE / "child.py"), "debugging")
    monkeypatch.setattr(debugging, "COMMAND", command)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(HERE), *sys.path]))
    events = list(debugging.of_child(str(path), torch.device("cpu"), 1, 3.0))
    assert events[-1] == {"kind": "end", "status": 1}
    assert any("ended in this step" in event.get("text", "") for event in events)


def test_the_command_that_shows_it_again():
    request = Request("a b/it's.py", "cpu", 1, time_limit=3.0)
    assert shlex.split(request.replay("edges")) == [
        *("truefuse", "check", "a b/it's.py", "--device", "cpu", "--seed", "1"),
        *("--time-limit", "3", "--gate", "edges"),
    ]
    # Measuring, loading and starting are no gates, and in the simulator some gates are not there.
    for step in ("measure", LOAD, START, None):
        assert "--gate" not in request.replay(step)
    simulated = Request("mine", "sim:wave64", 1)
    assert "--gate" in simulated.replay("edges") and "--gate" not in simulated.replay("compile")


KILLED = """
import sys
from truefuse import supervise
request = supervise.Request({path!r}, "cpu", 1, ("outputs",), command=(sys.executable, {child!r}))
supervise.run(request, progress=lambda text: print(text, flush=True))
"""


def test_a_parent_that_is_killed_takes_a_call_that_hangs_along(tmp_path):
    path, hanging = tmp_path / "mine.py", tmp_path / "hanging"
    calling = f"open({str(hanging)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    path.write_text(CASE.format(loading="pass", calling=calling))
    program = KILLED.format(path=str(path), child=str(HERE / "child.py"))
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import conftest\n{program}"],
        env={**os.environ, "PYTHONPATH": ":".join([str(HERE), *sys.path])},
    )
    wait_for(lambda: hanging.exists() and hanging.read_text(), seconds=120)
    parent.kill()
    parent.wait()
    child = Path("/proc", hanging.read_text())
    wait_for(lambda: not child.exists() or "\nState:\tZ" in (child / "status").read_text(), 30)


INTERRUPTED_CHECK = """
import json, signal, sys
from truefuse import supervise
from truefuse.verdict import exit_code
signal.signal(signal.SIGINT, signal.default_int_handler)
request = supervise.Request(
    {path!r}, "cpu", 1, ("outputs", "edges"), command=(sys.executable, {child!r}))
found = supervise.run(request)
print(json.dumps(found.to_json()))
sys.exit(exit_code(found.verdict, found.results))
"""
HANGS_IN_EDGES = """if any("edges.py" in one.filename for one in __import__("traceback").extract_stack()):
        open({hanging!r}, 'w').write('here')
        time.sleep(1000)"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_check_says_what_it_has_found_until_then(tmp_path, number):
    path, hanging = tmp_path / "mine.py", tmp_path / "hanging"
    calling = HANGS_IN_EDGES.format(hanging=str(hanging))
    path.write_text(CASE.format(loading="pass", calling=calling))
    program = INTERRUPTED_CHECK.format(path=str(path), child=str(HERE / "child.py"))
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import conftest\n{program}"],
        env={**os.environ, "PYTHONPATH": ":".join([str(HERE), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: hanging.exists() and hanging.read_text(), seconds=120)
    parent.send_signal(number)
    begin = time.monotonic()
    words, _ = parent.communicate()
    assert time.monotonic() - begin < 30
    assert parent.returncode == 128 + number
    found = json.loads(words)
    SCHEMA.validate(found)
    gates = [(one["gate"], one["status"], one["reason"]) for one in found["gates"]]
    assert gates[0][:2] == ("outputs", "PASS")
    assert gates[1:] == [("edges", "UNKNOWN", INTERRUPTED)]
    assert number.name in found["gates"][1]["summary"]
    assert found["verdict"] == "UNKNOWN"


def test_the_status_of_an_interrupted_check_is_that_of_its_signal():
    """Whatever was found; without it, a rejection's."""
    failed = Result("outputs", Status.FAIL, "wrong", "wrong")
    interrupted = Result("edges", Status.UNKNOWN, INTERRUPTED, "interrupted", got="SIGTERM")
    assert exit_code(Verdict.REJECT, [failed]) == 1
    assert exit_code(Verdict.REJECT, [failed, interrupted]) == 143
    assert exit_code(Verdict.UNKNOWN, iter([interrupted])) == 143


ORPHAN = """
import conftest, os, time
from truefuse import worker
worker.end_with_parent({parent})
print("goes on")
"""


@pytest.mark.parametrize("parent, words, code", [(os.getpid, "goes on\n", 0), (os.getppid, "", -9)])
def test_a_worker_whose_parent_ended_while_it_started_ends_too(parent, words, code):
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN.format(parent=parent())],
        env={**os.environ, "PYTHONPATH": ":".join([str(HERE), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert (done.stdout, done.returncode) == (words, code)


def wait_for(what, seconds):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_no_such_case(tmp_path):
    request = Request(str(tmp_path / "nothing.py"), "cpu", 1)
    request.command = (sys.executable, str(HERE / "child.py"))
    request.environment = {"PYTHONPATH": ":".join([str(HERE), *sys.path])}
    with pytest.raises(NoCase, match="does not exist"):
        supervise.run(request)


def test_a_worker_that_does_not_start_is_not_the_cases_fault():
    found = supervise.run(Request("mine", "cpu", 1, command=(sys.executable, "-c", "1 / 0")))
    assert (found.verdict, found.results[0].gate) == (Verdict.UNKNOWN, START)
    assert "ZeroDivisionError" in found.results[0].traceback


# Fresh pages of each call, as a check alternates candidate and baseline, at 3 and at 16 MiB.
PAGES = """
import resource
import torch, torch.nn.functional as F, truefuse
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for shape in (1024, 768), (4096, 1024):
    xs, bias = [torch.randn(shape) for _ in range(8)], torch.randn(shape[1])
    candidate = lambda x: truefuse.bias_gelu(x, bias, approximate="tanh")
    baseline = lambda x: F.gelu(x + bias, approximate="tanh")
    found = []
    for i in range(24):
        for call in candidate, baseline:
            before = faults()
            result = call(xs[i % 8])
            found.append(faults() - before)
            del result
    print(sum(pages > 500 for pages in found[8:]))
"""


def test_no_call_waits_for_pages_that_another_had(tmp_path):
    """As a rule in glibc 2.36 every third call of 16 MiB would, 13 of these 40. A busy system takes pages back
    now and then."""
    for name, value in supervise.KEPT_MEMORY.items():
        found = check(tmp_path, loading=f"assert os.environ[{name!r}] == {value!r}")
        assert [one.status for one in found.results] == [Status.PASS]
    run = subprocess.run(
        [sys.executable, "-c", PAGES], capture_output=True, text=True,
        env={**os.environ, **supervise.KEPT_MEMORY, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert max(int(line) for line in run.stdout.split()) <= 6
