"""A launch policy in the user's file is the kernel that is compiled, and `truefuse tune` shows it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from truefuse import _native, tuning
from truefuse.tuning import STANDARD, Policy


def tune(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "truefuse", "tune", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}
    )


@pytest.fixture(scope="module")
def target() -> str:
    for toolchain in _native.toolchains():
        if toolchain["found"] and toolchain["works"] and toolchain["default_arch"]:
            return toolchain["default_arch"]
    pytest.skip("no compiler for GPU kernels here")


def test_a_policy_reaches_the_compiler(target: str) -> None:
    """Blocks of more threads leave room for fewer of them: another occupancy, or other registers."""
    operator = "bias_gelu_backward"
    standard, one_row, two_rows, other = (
        tuning.compiled(operator, target, policy)
        for policy in (STANDARD, Policy(256, 1), Policy(256, 2), Policy(512, 4))
    )

    def of(compiled, *dtypes):
        return [one for one in compiled.variants if one["label"].startswith(dtypes)]

    # What the plan has by itself: two rows for half types, but for the exact form of bf16.
    for label in ("f32", "f64", "bf16 none"):
        assert of(standard, label) == of(one_row, label) != []
    for label in ("bf16 tanh", "f16"):
        assert of(standard, label) == of(two_rows, label) != []
    assert of(one_row, "bf16") != of(two_rows, "bf16")
    assert [one["label"] for one in other.variants] == [one["label"] for one in standard.variants]
    assert other.variants != standard.variants


def test_operators_without_a_policy_and_a_choice_without_a_device_are_refused() -> None:
    found = tune("gdn_decode")
    assert found.returncode == 2 and "has no launch policy to choose" in found.stderr
    found = tune("swish", "--save")
    assert found.returncode == 2 and "give --device" in found.stderr
    found = tune("swish", "--device", "cuda:7")
    assert found.returncode == 5
