"""The installed headers and CMake package: the example programs are built as a user would, and run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import truefuse

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(truefuse.__file__).resolve().parent


def run(*command: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)


def build(example: str, folder: Path) -> Path:
    """Returns the program."""
    cmake = shutil.which("cmake") or pytest.fail("the examples need CMake 3.22 or later")
    config = PACKAGE / "lib" / "cmake" / "truefuse"
    configured = run(
        cmake, "-S", ROOT / "examples" / example, "-B", folder,
        f"-Dtruefuse_DIR={config}", f"-DTRUEFUSE_PYTHON={sys.executable}",
    )  # fmt: skip
    assert configured.returncode == 0, configured.stdout + configured.stderr
    built = run(cmake, "--build", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / f"{example}_example"


def test_a_libtorch_program(tmp_path):
    done = run(build("libtorch", tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gradient of swiglu" in done.stdout
    assert "refused: swiglu_packed: the last dimension of packed is 255" in done.stdout


def test_a_program_without_pytorch(tmp_path):
    program = build("raw", tmp_path)
    # Names alone: a build's folder is named after its PyTorch.
    names = [Path(line.split()[0]).name for line in run("ldd", program).stdout.splitlines()]
    assert any(name.startswith("libtruefuse-") for name in names), names
    assert not any("torch" in name or "c10" in name for name in names), names
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused: swish: out is bfloat16; it must be float32" in done.stdout
    assert "refused: swish: out is NULL" in done.stdout
    assert 'refused: swiglu: gate_rounding is "sometimes"' in done.stdout
    if torch.cuda.is_available():
        assert "swiglu on " in done.stdout
    else:
        assert "without a GPU: " in done.stdout
