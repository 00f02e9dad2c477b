"""The CPU path: every layout, every instruction set, every thread; and what its objects export."""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import truefuse  # noqa: F401  registers the operator

ROOT = Path(__file__).resolve().parents[3]
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FORMS = ("tanh", "none")
CASES = list(itertools.product(DTYPES, FORMS))
X86 = platform.machine() in ("x86_64", "AMD64")
FLAGS = {  # as cmake/CpuLevels.cmake compiles them
    "base": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mf16c"],
}


def bias_gelu(x: Tensor, bias: Tensor, form: str) -> Tensor:
    return torch.ops.truefuse.bias_gelu(x, bias, approximate=form)


def random(*shape: int, dtype: torch.dtype) -> Tensor:
    return (2 * torch.randn(*shape, dtype=torch.float64)).to(dtype)


def assert_right(x: Tensor, bias: Tensor, form: str) -> None:
    """Close to eager in float64, and bit by bit what one long row of the same pairs gives."""
    result = bias_gelu(x, bias, form)
    assert result.shape == x.shape and result.is_contiguous() and result.dtype == x.dtype
    flat = bias_gelu(x.reshape(1, -1).contiguous(), bias.expand(x.shape).reshape(-1), form)
    assert torch.equal(result, flat.reshape(x.shape))
    expected = F.gelu(x.double() + bias.double(), approximate=form)
    rtol = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(x.dtype, 1e-5)
    torch.testing.assert_close(result.double(), expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize(("dtype", "form"), CASES, ids=str)
def test_layouts(dtype: torch.dtype, form: str) -> None:
    torch.manual_seed(0)
    for hidden in (1, 2, 3, 7, 8, 15, 16, 17, 33, 257, 1024, 1025):
        bias = random(hidden, dtype=dtype)
        x = random(5, hidden, dtype=dtype)
        assert_right(x, bias, form)
        assert_right(random(2, 3, hidden + 5, dtype=dtype)[..., 2:-3], bias, form)
        assert_right(random(4, 7, hidden, dtype=dtype)[:, 1:].transpose(0, 1), bias, form)
        assert_right(random(3, 2, 4, hidden, dtype=dtype).permute(2, 0, 1, 3), bias, form)
        assert_right(random(6, 1, hidden, dtype=dtype).expand(6, 4, hidden), bias, form)
        assert_right(random(5 * hidden + 1, dtype=dtype)[1:].view(5, hidden), bias, form)
        assert_right(random(hidden, dtype=dtype), bias, form)
        assert_right(x, bias[:1].expand(hidden), form)
        assert_right(x, random(3 * hidden, dtype=dtype)[1::3], form)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_work_split_over_threads(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for rows, hidden in ((1, 200_003), (3, 70_001), (70_000, 1), (50_000, 3), (1000, 257)):
        bias = random(hidden, dtype=dtype)
        assert_right(random(rows, hidden, dtype=dtype), bias, "tanh")
        assert_right(random(rows, hidden + 3, dtype=dtype)[:, 1:-2], bias, "tanh")


@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (0,), (2, 0, 3)], ids=str)
def test_empty(shape: tuple[int, ...]) -> None:
    assert bias_gelu(torch.empty(shape), torch.empty(shape[-1]), "tanh").shape == shape


@pytest.mark.parametrize(("dtype", "form"), CASES, ids=str)
def test_special_values_in_vectors_and_tails(dtype: torch.dtype, form: str) -> None:
    infinity = float("inf")
    huge = torch.finfo(dtype).max
    special = torch.tensor([-infinity, infinity, float("nan"), -0.0, 0.0, huge, -huge], dtype=dtype)
    expected = torch.tensor([-0.0, infinity, float("nan"), -0.0, 0.0, huge, -0.0], dtype=dtype)
    for length in (1, 7, 8, 16, 33):
        x = special.repeat(5)[:length]
        result = bias_gelu(x, torch.full_like(x, -0.0), form)
        torch.testing.assert_close(
            result, expected.repeat(5)[:length], rtol=0, atol=0, equal_nan=True
        )
        zeros = x.ne(infinity) & x.isnan().logical_not()
        assert torch.equal(result.signbit()[zeros], x.signbit()[zeros])


PROBE = """
import json, sys, torch, truefuse
from truefuse import _native
torch.manual_seed(3)
results = {}
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    x = (3 * torch.randn(64, 1027, dtype=torch.float64)).to(dtype)
    bias = torch.randn(1027, dtype=torch.float64).to(dtype)
    for form in ("tanh", "none"):
        out = torch.ops.truefuse.bias_gelu(x, bias, approximate=form)
        grads = torch.ops.truefuse.bias_gelu_backward(
            torch.ones_like(x), x, bias, approximate=form, x_wanted=True, bias_wanted=True)
        results[f"{dtype} {form}"] = (x, bias, out, *grads)
torch.save(results, sys.argv[1])
print(json.dumps(_native.cpu()))
"""


def run_at(level: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    saved = folder / f"{level}.pt"
    environment = {**os.environ, "TRUEFUSE_CPU_LEVEL": level}
    command = [sys.executable, "-c", PROBE, str(saved)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    return run, saved


@pytest.mark.skipif(not X86, reason="levels are those of x86-64")
@pytest.mark.parametrize("level", FLAGS)
def test_every_level(level: str, tmp_path: Path) -> None:
    run, saved = run_at(level, tmp_path)
    if run.returncode and "does not run" in run.stderr:
        pytest.skip(f"this processor has no {level}")
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["level"] == level
    assert report["threads"] == torch.get_num_threads()
    for name, (x, bias, out, grad_x, grad_bias) in torch.load(saved).items():
        form = name.split()[1]
        v = x.float() + bias.float() if x.dtype != torch.float64 else x + bias
        expected = F.gelu(v.double(), approximate=form)
        ulp = torch.finfo(x.dtype).eps * expected.abs()
        middle = v.abs() < 1  # beyond, float64's own 1 + tanh(u) and 1 + erf(z) lose digits
        allowed = 16 if x.dtype == torch.float64 else 3
        assert ((out.double() - expected).abs() <= allowed * ulp)[middle].all(), name
        v = v.double().requires_grad_()
        F.gelu(v, approximate=form).sum().backward()
        eps = torch.finfo(x.dtype).eps
        assert ((grad_x.double() - v.grad).abs() <= allowed * eps)[middle].all(), name
        # A rounding of the result, and one in float32 for each of the 64 terms.
        slack = 64 * v.grad.abs().sum(0) * (eps if x.dtype == torch.float64 else 2**-23)
        error = (grad_bias.double() - v.grad.sum(0)).abs()
        assert (error <= eps * grad_bias.double().abs() + slack).all(), name


def test_an_unknown_level_is_refused(tmp_path: Path) -> None:
    run, _ = run_at("avx1024", tmp_path)
    assert run.returncode != 0
    assert 'TRUEFUSE_CPU_LEVEL is "avx1024"; it must be base, avx2 or avx512' in run.stderr


@pytest.mark.skipif(not X86, reason="levels are those of x86-64")
@pytest.mark.parametrize("level", FLAGS)
def test_a_level_exports_no_code_that_the_linker_could_share(level: str, tmp_path: Path) -> None:
    """An inline function compiled for AVX-512 must not become the one that an older CPU runs."""
    compiler, nm = shutil.which("g++"), shutil.which("nm")
    if compiler is None or nm is None:
        pytest.skip("needs g++ and nm")
    include = tmp_path / "truefuse"
    include.mkdir()
    (include / "operators").symlink_to(ROOT / "operators")
    for source in sorted(ROOT.glob("operators/*/cpu*_kernel.cpp")):
        made = tmp_path / "kernel.o"
        command = [compiler, "-std=c++20", "-O0", "-fPIC", f"-DTRUEFUSE_CPU_LEVEL={level}"]
        command += [*FLAGS[level], f"-I{tmp_path}", "-c", str(source), "-o", str(made)]
        subprocess.run(command, check=True)
        listing = subprocess.run(
            [nm, "--defined-only", "--format=posix", str(made)],
            check=True,
            capture_output=True,
            text=True,
        )
        symbols = [line.split()[:2] for line in listing.stdout.splitlines()]
        assert [name for name, kind in symbols if kind in "TWui"] == []
        assert any(kind in "DR" and level in name for name, kind in symbols)
