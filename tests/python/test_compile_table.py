"""Every kernel for every target: the rules catch what they are for, and the shipped kernels keep them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("truefuse._native", reason="the library is not built", exc_type=ImportError)

from typer.testing import CliRunner

from truefuse import _native, compile_table
from truefuse.cli import app

ALWAYS = ("gfx906", "sm_90a")
FULL = os.environ.get("TRUEFUSE_FULL") == "1"
# Newer than the ROCm that a distribution has: clang in hipcc's place.
BY_CLANG = ("gfx942", "gfx1100")
CLANG = Path(__file__).parents[2] / "scripts" / "hipcc_clang.sh"
GOOD = {
    "arch": "gfx906", "operator": "op", "label": "f32 vector", "compiler": "hipRTC",
    "target": "gfx906", "registers": 20, "shared_bytes": 64, "scratch_bytes": 0, "spills": 0,
    "max_threads": 256, "wave": 64, "occupancy": 10, "occupancy_maximum": 10,
    "occupancy_unit": "waves per SIMD", "wide_loads": 2, "wide_stores": 1, "code_bytes": 1000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spills": 257}, "257 spills"),
        ({"scratch_bytes": 36, "spills": 4}, "36 bytes of scratch memory, 4 spills"),
        ({"wave": 32}, "a wave of 32 in the object; the target has 64"),
        ({"occupancy": 1}, "occupancy 10% is below 20%"),
        ({"wide_loads": 0}, "no 16-byte load"),
        ({"error": "no\nmore"}, "does not compile: no"),
    ],
)
def test_each_rule_catches_what_it_is_for(change, words):
    assert compile_table.complaints([GOOD]) == []
    [complaint] = compile_table.complaints([GOOD | change])
    assert words in complaint and complaint.startswith("gfx906 op f32 vector")


def test_shared_memory_that_no_kernel_declares_is_caught():
    narrow = GOOD | {"arch": "gfx1030", "wave": 32, "shared_bytes": 128}
    nvidia = narrow | {"arch": "sm_80"}
    assert compile_table.complaints([GOOD, narrow, nvidia]) == []
    [complaint] = compile_table.complaints([GOOD, narrow | {"shared_bytes": 4096}, nvidia])
    assert complaint == "gfx1030 op f32 vector: 4096 bytes of shared memory, 128 elsewhere"
    [complaint] = compile_table.complaints([GOOD | {"shared_bytes": 256}, narrow, nvidia])
    assert complaint.startswith("gfx906")


def test_what_an_object_does_not_say_breaks_no_rule():
    unknown = {"spills": -1, "scratch_bytes": -1, "wave": -1, "wide_loads": -1, "occupancy": -1}
    assert compile_table.complaints([GOOD | unknown | {"occupancy_maximum": -1}]) == []


def compiled(arch, **variables):
    """In a process of its own, which knows the shipped operators alone and finds its compilers anew."""
    command = [sys.executable, "-m", "truefuse", "compile", "--all", "--table", "--json"]
    found = subprocess.run(
        [*command, "--arch", arch], env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert found.stdout, found.stderr
    return json.loads(found.stdout)


@pytest.mark.parametrize("arch", compile_table.TARGETS)
def test_every_kernel_keeps_the_rules(arch):
    if arch not in ALWAYS and not FULL:
        pytest.skip(f"a minute and a half for each target; `make targets` takes all, else {ALWAYS}")
    if refusal := _native.refusal(arch):
        pytest.skip(refusal)
    answer = compiled(arch)
    shipped = [one for one in _native.operators() if one["namespace"] == "truefuse"]
    variants = [v for operator in shipped for v in operator["variants"]]
    is_for = [not v["only_for"] or arch.startswith(tuple(v["only_for"])) for v in variants]
    assert len(answer["rows"]) == sum(is_for)
    assert answer["complaints"] == []


@pytest.mark.parametrize("arch", BY_CLANG)
def test_every_kernel_keeps_the_rules_on_newer_chips(arch):
    if not FULL:
        pytest.skip("minutes for each target; `make targets` takes them")
    if not (shutil.which("clang-19") and shutil.which("ld.lld-19")):
        pytest.skip("needs clang-19 and lld-19")
    answer = compiled(arch, TRUEFUSE_HIPCC=str(CLANG), TRUEFUSE_RTC="0")
    assert answer["complaints"] == []
    assert {row["compiler"] for row in answer["rows"]} == {"hipcc"}
    assert {row["wave"] for row in answer["rows"]} == {compile_table.wave_of(arch)}


def test_the_page_has_a_line_per_operator_and_target():
    other = GOOD | {"arch": "gfx908", "label": "f32 element", "registers": 30}
    lines = compile_table.markdown([GOOD, other, GOOD | {"label": "f64 vector"}]).splitlines()
    assert [line for line in lines if line.startswith("| op ")] == [
        "| op | gfx906 | 2 of 2 | hipRTC | 20 | 64 | 0 | 0 | 10/10 waves per SIMD | 2 |",
        "| op | gfx908 | 1 of 1 | hipRTC | 30 | 64 | 0 | 0 | 10/10 waves per SIMD | - |",
    ]


@pytest.mark.parametrize(
    "arguments",
    [["compile"], ["compile", "--table"], ["compile", "bias_gelu", "--all", "--table"], ["compile", "bias_gelu"]],
)  # fmt: skip
def test_usage(arguments):
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 2 and "--" in found.output
