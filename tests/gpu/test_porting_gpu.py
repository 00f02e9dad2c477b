"""examples/porting/triton_squared_relu on a real device, from a copy: values, gradients, what it refuses, a whole
check, and one of a kernel with a fault."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import truefuse

pytest.importorskip("triton", reason="the ported kernel is a Triton kernel")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "porting" / "triton_squared_relu"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(EXAMPLE, tmp_path / EXAMPLE.name)


def check(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "truefuse", "check", folder, "--device", "cuda", *arguments],
        cwd=folder.parent, capture_output=True, text=True, timeout=900,
        env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients(folder, dtype):
    squared_relu = truefuse.load(folder, namespace=f"ported_{str(dtype).removeprefix('torch.')}")
    x = torch.randn(33, 1021, device="cuda").to(dtype).requires_grad_()
    grad = torch.randn(33, 1021, device="cuda").to(dtype)
    out = squared_relu(x)
    (grad_x,) = torch.autograd.grad(out, x, grad)
    # Each is one product of numbers that float32 holds, rounded once.
    wide = x.detach().double().relu()
    torch.testing.assert_close(out, wide.square().to(dtype))
    torch.testing.assert_close(grad_x, (2 * wide * grad.double()).to(dtype))
    compiled = torch.compile(lambda x: squared_relu(x) + 1, fullgraph=True, dynamic=True)
    assert torch.equal(compiled(x.detach()), out.detach() + 1)
    with pytest.raises(RuntimeError, match=r"squared_relu: x is float64; it must be float32 or bf"):
        squared_relu(x.double())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU in this machine")
def test_the_tensors_say_which_device(folder):
    squared_relu = truefuse.load(folder, namespace="ported_elsewhere")
    x = torch.randn(5, 257, device="cuda:1").requires_grad_()
    out = squared_relu(x)
    (grad_x,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(out, x.detach().relu().square())
    torch.testing.assert_close(grad_x, 2 * x.detach().relu())


def test_a_whole_check_accepts_it(folder):
    status, said = check(folder)
    assert status == 0 and "ACCEPT" in said, said


def test_a_fault_is_rejected(folder):
    kernel = folder / "squared_relu.py"
    text = kernel.read_text()
    before = "tl.store(out + i, value * value, mask=i < count)"
    assert text.count(before) == 1
    kernel.write_text(text.replace(before, before.replace("i < count", "i < count - 1")))
    status, said = check(folder, "--gate", "edges")
    assert status == 1 and "✗ edges" in said, said
