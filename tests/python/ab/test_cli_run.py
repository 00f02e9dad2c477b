"""truefuse ab run: files, exit codes, reports, and what is said about bad ones."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from truefuse.ab.report import SCHEMA_PATH
from truefuse.cli import app

FILE = """
import ctypes, os, sys, time
sys.path.insert(0, {folder!r})
from toy import REQUESTS, Toy, sides
from truefuse import ab

calls = 0

def advance(state, token):
    global calls
    calls += 1
    return {candidate}

toy = Toy()
baseline, candidate = sides(Toy(advance))
experiment = ab.Experiment(
    "toy", baseline, candidate, REQUESTS, amdahl=lambda: ab.Amdahl(share=0.05, operator_speedup=1.3)
)
"""


def text_of(candidate: str, text: str = FILE) -> str:
    return text.format(folder=str(Path(__file__).parent), candidate=candidate)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(candidate: str, *options: str, text: str = FILE):
        path = tmp_path / "mine.py"
        path.write_text(text_of(candidate, text))
        arguments = ["ab", "run", str(path), "--rounds", "4", *options]
        monkeypatch.setattr("sys.argv", ["truefuse", *arguments])
        return CliRunner().invoke(app, arguments)

    return call


def test_accept(run):
    found = run("toy.advance(state, token)")
    assert found.exit_code == 0, found.output
    for part in ("baseline repeats itself", "5/5 requests equal", "time per token", "Amdahl"):
        assert part in found.output
    assert (
        "predicted 1.0117" in found.output and "launches per token   not measured" in found.output
    )
    data = json.loads(Path("ab.json").read_text())
    jsonschema.validate(data, json.loads(SCHEMA_PATH.read_text()))
    assert (
        data["verdict"] == "ACCEPT"
        and data["replay"] == f"truefuse ab run {Path.cwd() / 'mine.py'} --rounds 4"
    )


def test_reject_shows_no_ratio_on_the_screen_either(run):
    found = run("-toy.advance(state, token)")
    assert found.exit_code == 1, found.output
    assert "REJECT" in found.output and "No speed is reported" in found.output
    assert "gain" not in found.output.replace("again", "") and "tokens/s" not in found.output


def test_json_and_forced(run):
    found = run("toy.advance(state, token)", "--mode", "forced", "--json", "-o", "other.json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["label"] == "ACCEPT (forced)"
    assert json.loads(Path("other.json").read_text()) == json.loads(found.output)


def test_a_report_of_before_does_not_survive_a_crash(run):
    Path("ab.json").write_text("old")
    found = run("", text="1/0\n")
    assert found.exit_code == 2 and "ZeroDivisionError" in found.output
    assert not Path("ab.json").exists()


CALLS = 65  # of the candidate, in a pass
RIGHT = "toy.advance(state, token)"


@pytest.mark.parametrize(
    ("candidate", "reason", "words", "passed"),
    [
        ("os._exit(0)", "exits", "it called exit(0)", ["reproducible"]),
        (
            f"os._exit(0) if calls > {CALLS} else {RIGHT}",
            *("exits", "it called exit(0)", ["reproducible", "ran", "trajectory"]),
        ),
        ("ctypes.string_at(0)", "died-sigsegv", "killed by SIGSEGV", ["reproducible"]),
    ],
)
def test_a_side_that_ends_the_process(run, candidate, reason, words, passed):
    found = run(candidate)
    assert found.exit_code == 3, found.output
    assert words in found.output and "tokens/s" not in found.output
    data = json.loads(Path("ab.json").read_text())
    jsonschema.validate(data, json.loads(SCHEMA_PATH.read_text()))
    assert data["verdict"] == "UNKNOWN"
    assert [one["gate"] for one in data["gates"] if one["status"] == "PASS"] == passed
    last = data["gates"][-1]
    assert (last["status"], last["reason"]) == ("UNKNOWN", reason) and words in last["summary"]
    assert last["first"].startswith("round 1" if "measure" == last["gate"] else "candidate")


def test_a_file_that_ends_the_process(run):
    found = run("", text="import os\nos._exit(0)\n")
    assert found.exit_code == 3 and "it called exit(0)" in found.output
    (gate,) = json.loads(Path("ab.json").read_text())["gates"]
    assert (gate["gate"], gate["reason"]) == ("load", "exits")


def heard():
    """Whoever starts tests in the background has SIGINT ignored, and then so has every process of theirs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_found_until_it_was_interrupted(tmp_path, monkeypatch, number):
    """The candidate is right, and hangs in its first timed pass."""
    monkeypatch.chdir(tmp_path)
    hangs = "open('hanging', 'w').close() or time.sleep(1000)"
    path = tmp_path / "mine.py"
    path.write_text(text_of(f"({hangs}) if calls > {CALLS} else {RIGHT}"))
    process = subprocess.Popen(
        [sys.executable, "-m", "truefuse", "ab", "run", str(path), "--rounds", "4"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )
    end = time.monotonic() + 120
    while not Path("hanging").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    words, _ = process.communicate()
    assert process.returncode == 128 + number
    assert f"interrupted by {number.name}" in words and "round 1 of 4" in words
    assert "tokens/s" not in words
    data = json.loads(Path("ab.json").read_text())
    jsonschema.validate(data, json.loads(SCHEMA_PATH.read_text()))
    statuses = [(one["gate"], one["status"]) for one in data["gates"]]
    passed = [(name, "PASS") for name in ("reproducible", "ran", "trajectory")]
    assert statuses == [*passed, ("measure", "UNKNOWN")]
    assert data["gates"][-1]["reason"] == "interrupted" and data["verdict"] == "UNKNOWN"
    assert {one.name for one in tmp_path.iterdir()} == {"ab.json", "hanging", "mine.py"}


def test_requests_that_make_no_ab_are_wrong_usage(run):
    found = run(
        "",
        text="from truefuse import ab\nside = ab.Side('a', print)\n"
        "experiment = ab.Experiment('none', side, side, [])\n",
    )
    assert found.exit_code == 2 and "requests: none given" in found.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give a Python file or --model"),
        (("missing.py",), "does not exist"),
        (("--model", "x", "y.py"), "give a Python file or --model"),
        (("--help",), "Run both sides, in a process"),
    ],
)
def test_usage(arguments, sentence):
    found = CliRunner().invoke(app, ["ab", "run", *arguments])
    assert found.exit_code == (0 if "--help" in arguments else 2)
    assert sentence in found.output


def test_a_file_without_an_experiment(run):
    found = run("", text="experiment = 7\n")
    assert found.exit_code == 2 and "defines no experiment" in found.output
