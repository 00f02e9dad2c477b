"""truefuse ab run: files, exit codes, reports, and what is said about bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from truefuse.ab.report import SCHEMA_PATH
from truefuse.cli import app

FILE = """
import sys
sys.path.insert(0, {folder!r})
from toy import REQUESTS, Toy, sides
from truefuse import ab

def advance(state, token):
    return {candidate}

toy = Toy()
baseline, candidate = sides(Toy(advance))
experiment = ab.Experiment(
    "toy", baseline, candidate, REQUESTS, amdahl=lambda: ab.Amdahl(share=0.05, operator_speedup=1.3)
)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(candidate: str, *options: str, text: str = FILE):
        path = tmp_path / "mine.py"
        path.write_text(text.format(folder=str(Path(__file__).parent), candidate=candidate))
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give a Python file or --model"),
        (("missing.py",), "does not exist"),
        (("--model", "x", "y.py"), "give a Python file or --model"),
        (("--help",), "Run both sides here"),
    ],
)
def test_usage(arguments, sentence):
    found = CliRunner().invoke(app, ["ab", "run", *arguments])
    assert found.exit_code == (0 if "--help" in arguments else 2)
    assert sentence in found.output


def test_a_file_without_an_experiment(run):
    found = run("", text="experiment = 7\n")
    assert found.exit_code == 2 and "defines no experiment" in found.output
