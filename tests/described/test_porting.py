"""examples/porting, copied out of the repository: kernels that come in another form, under the gate, and what
it says of one with a fault."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "porting"
# Of a device that is no GPU: all but those that take time or time calls.
GATES = (
    "reference",
    "contract",
    "outputs",
    "edges",
    "numerics",
    "training",
    "gradients",
    "dispatch",
)


def copied(name, tmp_path):
    return shutil.copytree(EXAMPLES / name, tmp_path / name)


def check(folder, *gates, **environment):
    """The exit status and what was said. With chosen gates a check rejects or says that it cannot tell."""
    chosen = [word for gate in gates for word in ("--gate", gate)]
    done = subprocess.run(
        [sys.executable, "-m", "truefuse", "check", folder, "--device", "cpu", *chosen],
        cwd=folder.parent, capture_output=True, text=True, timeout=600,
        env={**os.environ, "TORCH_EXTENSIONS_DIR": str(folder.parent / "extensions"), **environment},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def spoil(path, before, after):
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def test_an_extension(tmp_path):
    if shutil.which("ninja") is None:
        pytest.skip("torch.utils.cpp_extension builds with ninja, which is not here")
    if " " in torch.__file__:
        pytest.skip(
            "torch.utils.cpp_extension cannot link to a PyTorch whose folder has a space in it"
        )
    folder = copied("extension_add_relu", tmp_path)
    files = sorted(folder.iterdir())
    status, said = check(folder, *GATES, "special", "bounds", "traced")
    assert status == 3 and "✗" not in said and "?" not in said.replace("UNKNOWN", ""), said
    assert "ported::add_relu is what runs" in said
    assert sorted(folder.iterdir()) == files  # Nothing is written beside the sources.

    spoil(folder / "add_relu.cpp", "i < x.numel()", "i + 1 < x.numel()")
    status, said = check(folder, "edges")
    assert status == 1 and "✗ edges" in said, said


COPY = """
import torch, triton
import triton.language as tl

@triton.jit
def copy(x, out, n: tl.constexpr):
    tl.store(out + tl.arange(0, n), tl.load(x + tl.arange(0, n)))

x, out = torch.arange(8.0), torch.zeros(8)
copy[(1,)](x, out, 8)
assert torch.equal(x, out)
"""


def interpreter_computes(folder):
    script = folder / "copy_in_the_interpreter.py"
    script.write_text(COPY)
    variables = {**os.environ, "TRITON_INTERPRET": "1"}
    return (
        subprocess.run([sys.executable, script], env=variables, capture_output=True).returncode == 0
    )


def test_a_triton_kernel_in_the_interpreter(tmp_path):
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed here: pip install --no-deps triton, 200 MB")
    if not interpreter_computes(tmp_path):
        pytest.skip(
            "the interpreter of this Triton stores nothing with this NumPy, as 3.1 with 2.4"
        )
    folder = copied("triton_squared_relu", tmp_path)
    status, said = check(folder, *GATES, TRITON_INTERPRET="1")
    assert status == 3 and "✗" not in said and "?" not in said.replace("UNKNOWN", ""), said

    source = folder / "squared_relu.py"
    spoil(source, "tl.store(out + i, value * value, mask=i < count)",
          "tl.store(out + i, value * value, mask=i < count - 1)")  # fmt: skip
    status, said = check(folder, "edges", TRITON_INTERPRET="1")
    assert status == 1 and "✗ edges" in said, said
    shutil.copy(EXAMPLES / folder.name / source.name, source)
    spoil(source, "2 * value * incoming", "value * incoming")
    status, said = check(folder, "gradients", TRITON_INTERPRET="1")
    assert status == 1 and "✗ gradients" in said, said
