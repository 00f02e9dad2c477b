"""The command line: exit codes, messages, and output that survives any terminal."""

import io
import json
import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import in_process
import pytest
import torch
from typer.testing import CliRunner

from truefuse import debugging, supervise, terminal
from truefuse.cli import app
from truefuse.verdict import Result, Status

CASE = """
import sys
from dataclasses import replace
import torch
import standin
from truefuse import case as cases

shipped = cases.load({shipped!r})
case = replace(
    shipped,
    gradients=(),
    candidate=lambda *t, **m: standin.bias_gelu(*t, **m) {change},
    contract=standin.CONTRACT,
    operator={operator!r},
    dtypes=(torch.float32,),
    numeric_size=(32, 128),
    timing_sizes=((16, 32),),
)
"""
SHIPPED = str(Path(__file__).resolve().parents[2] / "operators" / "bias_gelu" / "case.py")


def case_file(folder, change="", operator="standin::bias_gelu"):
    path = folder / "mine.py"
    path.write_text(CASE.format(shipped=SHIPPED, change=change, operator=operator))
    return str(path)


@pytest.fixture
def run(native, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervise, "run", in_process.check_in_process)
    monkeypatch.setattr(debugging, "of_child", debugging.events)
    # What a case imports here, another process can import.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def text_of(found):
    return " ".join(found.output.split())


def test_check_accepts(run, tmp_path):
    found = run("check", case_file(tmp_path))
    assert found.exit_code == 0, found.output
    assert "ACCEPT on cpu" in found.output and "speed-up" in found.output
    assert "bias has 7 elements; hidden is 8" in found.output
    assert json.loads((tmp_path / "report" / "report.json").read_text())["verdict"] == "ACCEPT"
    assert (tmp_path / "report" / "index.html").is_file()


def test_check_rejects_without_a_figure(run, tmp_path):
    found = run("check", case_file(tmp_path, "+ 1"), "--output", "here", "--seed", "5")
    assert found.exit_code == 1
    assert "REJECT on cpu" in found.output
    assert "speed-up" not in found.output and " ms" not in found.output.split("REJECT")[1]
    assert "--device cpu --seed 5" in text_of(found)
    assert json.loads((tmp_path / "here" / "report.json").read_text())["seed"] == 5


def test_check_of_one_gate_is_unknown(run, tmp_path):
    found = run("check", case_file(tmp_path), "--gate", "edges")
    assert found.exit_code == 3
    assert "UNKNOWN on cpu (not all gates ran)" in text_of(found)


def test_check_as_json(run, tmp_path):
    found = run("check", case_file(tmp_path), "--gate", "edges", "--json")
    assert found.exit_code == 3
    assert json.loads(found.stdout)["verdict"] == "UNKNOWN"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["check", "no_such"], ["unknown operator 'no_such'", "Operators:"]),
        (["check", "nothing.py"], ["does not exist"]),
        (["check", "{case}", "--device", "tpu"], ["'tpu' is not here", "Devices: cpu"]),
        (["check", "{case}", "--gate", "luck"], ["unknown gate 'luck'", "numerics"]),
        (["check", "{case}", "--sede", "1"], ["No such option", "--sede", "--seed", "--output"]),
        (["check", "{case}", "--seed", "x"], ["--seed", "integer"]),
        (["check", "{case}", "--seed", "-1"], ["--seed", "0"]),
        (["check"], ["Missing argument", "operator"]),
        (["chek"], ["No such command 'chek'", "check", "compile", "cache", "doctor", "ops"]),
        (["check", "{case}", "--share", "2"], ["--share is 2.0", "at most 1"]),
        (["check", "{case}", "--time-limit", "0"], ["--time-limit is 0.0"]),
        (["debug", "{case}", "--time-limit", "0"], ["--time-limit is 0.0"]),
        (["compare", "a.json", "b.json", "--threshold", "-2"], ["--threshold is -2.0"]),
        (["compare", "a.json", "b.json", "--threshold", "nan"], ["--threshold is nan"]),
        (["cache", "lost"], ["No such command 'lost'", "list", "why", "clear"]),
        (["cache", "why", "no_such"], ["unknown operator 'no_such'", "Operators: bias_gelu"]),
        (["compile", "no_such", "--arch", "sm_90a"], ["Operators: bias_gelu"]),
        (["compile", "bias_gelu", "--arch", "avx2"], ["no architecture", "gfx90a", "sm_90a"]),
        (["compile", "bias_gelu", "--arch", "sm_90a", "--compiler", "icc"], ["hipRTC", "NVRTC"]),
        (["check", "{case}", "--output", "/dev/null/x"], ["--output /dev/null/x"]),
    ],
)
def test_usage_errors(run, tmp_path, arguments, parts):
    path = case_file(tmp_path)
    found = run(*[argument.replace("{case}", path) for argument in arguments])
    assert found.exit_code == 2, found.output
    shown = text_of(found).lower()  # names of arguments are in capitals in some versions of typer
    assert all(part.lower() in shown for part in parts), found.output


def test_check_of_an_operator_that_is_not_registered(run, tmp_path):
    case = case_file(tmp_path, operator="standin::gone")
    Path(case).write_text(
        Path(case).read_text().replace("contract=standin.CONTRACT", "contract=None")
    )
    found = run("check", case)
    assert "standin::gone" in str(found.exception)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_device_without_a_gpu(run, tmp_path):
    found = run("check", case_file(tmp_path), "--device", "cuda")
    assert found.exit_code == 5 and "torch sees no GPU" in text_of(found)


def test_check_writes_junit(run, tmp_path):
    found = run("check", case_file(tmp_path), "--gate", "edges", "--junit", "tests.xml")
    assert found.exit_code == 3
    suite = ElementTree.parse(tmp_path / "tests.xml").getroot()
    assert [case.get("name") for case in suite] == ["edges"]
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")


def test_debug_stops_at_the_first_step_that_fails(run, tmp_path):
    found = run("debug", case_file(tmp_path, "+ 1"))
    assert found.exit_code == 1
    assert "3 a tiny input" in found.output and "4 random" not in found.output
    assert "again: truefuse debug" in found.output


def test_debug_takes_every_step(run, tmp_path):
    found = run("debug", case_file(tmp_path))
    assert found.exit_code == 0, found.output
    assert "reference" in found.output and "6 the model" in found.output


def test_compare(run, tmp_path):
    assert run("check", case_file(tmp_path), "--output", "a").exit_code == 0
    found = run("compare", "a/report.json", "a/report.json")
    assert found.exit_code == 0 and "OK" in found.output
    assert run("compare", "a/report.json", "nothing.json").exit_code == 2


def test_compile(run):
    found = run("compile", "bias_gelu", "--arch", "gfx906", "--arch", "sm_90a")
    assert found.exit_code == 0
    lines = found.output.splitlines()
    assert [line.split()[0] for line in lines] == ["gfx906", "sm_90a"]
    assert "16 registers" in lines[0] and "occupancy 8/8 waves" in lines[0]
    assert "scalar" not in lines[0]  # -1: not stated


def test_compile_every_variant(run):
    found = run("compile", "bias_gelu", "--arch", "gfx906", "--all")
    assert [line.split()[1] for line in found.output.splitlines()] == ["f32", "f64"]


def test_compile_failure(run):
    found = run("compile", "bias_gelu", "--arch", "gfx999")
    assert found.exit_code == 2
    assert "no compiler here can compile for gfx999" in text_of(found)


def test_compile_as_json(run):
    rows = json.loads(run("compile", "bias_gelu", "--arch", "gfx906", "--json").stdout)
    assert rows[0]["resources"]["registers"] == 16


def test_cache(run):
    listed = text_of(run("cache", "list"))
    assert "/home/someone/.cache/truefuse" in listed and "network file system" in listed
    why = text_of(run("cache", "why", "bias_gelu"))
    assert "not used any more" in why and "build-id 91ab -> 4d07" in why
    assert "removed 1 entry" in run("cache", "clear").output


def test_ops(run):
    assert 'approximate: "tanh"|"none"' in text_of(run("ops"))


def test_everything_without_utf8():
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    screen = terminal.Screen(file)
    terminal.show_result(screen, Result("numerics", Status.FAIL, "r", "a · b ≤ c × 日", got="→"))
    file.flush()
    shown = raw.getvalue().decode("ascii")
    assert "FAIL numerics" in shown and "a | b <= c x ?" in shown and "->" in shown


def test_narrow_terminal_loses_nothing(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = terminal.Screen(io.StringIO())
    words = [f"word{i}" for i in range(40)]
    screen.line(" ".join(words), indent=4)
    shown = screen.console.file.getvalue()
    assert [word for word in words if word not in shown] == []
    assert max(map(len, shown.splitlines())) <= 30


def test_no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = terminal.Screen(io.StringIO())
    screen.line("text", "bold red")
    assert "\x1b" not in screen.console.file.getvalue()


def test_brackets_are_not_markup():
    screen = terminal.Screen(io.StringIO())
    screen.line("x is [red] [2, 8] [/]")
    assert screen.console.file.getvalue() == "x is [red] [2, 8] [/]\n"


def test_the_page_names_every_command_and_every_variable():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "python.md").read_text(encoding="utf-8")
    commands = {c.name or c.callback.__name__ for c in app.registered_commands}
    commands |= {group.name for group in app.registered_groups}
    assert {c for c in commands if f"`truefuse {c}" not in page} == set()
    sources = [
        p
        for folder in ("engine", "binding", "operators", "python")
        for p in (root / folder).rglob("*")
    ]
    text = "".join(
        p.read_text(encoding="utf-8") for p in sources if p.suffix in (".h", ".cpp", ".py")
    )
    variables = set(re.findall(r'(?:getenv|environment|environ\.get)\("(TRUEFUSE_[A-Z_]+)"', text))
    assert "TRUEFUSE_CACHE_DIR" in variables and len(variables) > 10
    assert {v for v in variables if f"`{v}" not in page} == set()
