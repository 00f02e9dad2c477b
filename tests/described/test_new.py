"""truefuse new, check and compile of a described operator's folder."""

import os
import shlex
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import truefuse
from truefuse import _native, simulate
from truefuse import case as cases
from truefuse.cli import app
from truefuse.context import Context

KINDS = ("elementwise", "rowwise", "reduction", "blank")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def new(tmp_path, kind, name):
    done = run("new", tmp_path / name, "--kind", kind)
    assert done.exit_code == 0, done.output
    return tmp_path / name


def test_the_next_command_is_as_a_shell_takes_it(tmp_path):
    folder = tmp_path / "my own" / "leaky"
    folder.parent.mkdir()
    done = run("new", folder)
    command = done.output[done.output.index("next: ") :].removeprefix("next: ")
    assert shlex.split(command) == ["truefuse", "check", str(folder), "--device", "sim:wave64"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_right_as_it_is(tmp_path, kind):
    folder = new(tmp_path, kind, f"new_{kind}")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "case.py",
        "description.txt",
        "kernel.hip",
    ]
    for path in folder.iterdir():
        assert "my_operator" not in path.read_text()
    case = cases.load(str(folder))
    assert case.operator == f"my_ops::new_{kind}" and case.source == folder / "case.py"
    context = Context(case, torch.device("cpu"), 1, str(folder), None)
    for size in ((3, 1024), (2, 7)):
        inputs = context.inputs(size, torch.float32, "normal", "new")
        with simulate.Simulated(simulate.Device("sim:wave32")):
            out = case.candidate(*inputs.values())
        want = case.reference(*(tensor.double() for tensor in inputs.values()))
        torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    if kind != "blank":
        x = torch.randn(2, 5, requires_grad=True)
        with simulate.Simulated(simulate.Device("sim:wave32")):
            out = case.candidate(x)
        got = torch.autograd.grad(out.sum(), x)
        torch.testing.assert_close(got, torch.autograd.grad(case.baselines["eager"](x).sum(), x))
    # Nothing was written beside the sources.
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("My-Op", [], "'My-Op' is no name for an operator"),
        ("fine", ["--namespace", "1x"], "'1x' is no namespace"),
        ("taken", [], "is there and not empty"),
        ("fine", ["--kind", "conv"], "conv"),
    ],
)
def test_what_new_refuses(tmp_path, name, options, sentence):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    done = run("new", tmp_path / name, *options)
    assert done.exit_code == 2 and sentence in " ".join(done.output.split()).replace(" │ │ ", "")
    assert not (tmp_path / "fine").exists()


def check(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "truefuse", "check", folder, *arguments], cwd=folder.parent,
        capture_output=True, text=True, timeout=600, env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip


FAULTS = {
    "blank": ("i < count", "i < count - 1"),
    "elementwise": ("i < vectors; i", "i < vectors - 1; i"),
    "rowwise": ("row < rows", "row < rows - 1"),
    "reduction": ("column < hidden", "column < hidden - 1"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_check_accepts_it_and_rejects_a_fault(tmp_path, kind):
    folder = new(tmp_path, kind, f"checked_{kind}")
    done = check(folder, "--device", "sim:wave64")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ACCEPT" in done.stdout
    kernel = folder / "kernel.hip"
    before, after = FAULTS[kind]
    assert kernel.read_text().count(before) == 1
    kernel.write_text(kernel.read_text().replace(before, after))
    done = check(folder, "--device", "sim:wave64", "--gate", "edges")
    assert done.returncode == 1 and "✗ edges" in done.stdout, done.stdout + done.stderr


def test_an_argument_with_a_default_need_not_be_given(tmp_path):
    folder = new(tmp_path, "blank", "with_default")
    for name, before, after in (
        ("description.txt", "(Tensor x)", "(Tensor x, *, float scale=2.0)"),
        ("description.txt", "contiguous\n  ->", "contiguous;\n  scale: float\n  ->"),
        ("kernel.hip", "const float* x,", "const float* x, float scale,"),
        ("kernel.hip", "= x[i]", "= scale * x[i]"),
        ("case.py", "(x: Tensor)", "(x: Tensor, scale: float)"),
        ("case.py", "return x * 1", "return x * scale"),
        ("case.py", "return x.clone()", "return x * scale"),
        ("case.py", "    dtypes=", '    modes=({"scale": 3.0},),\n    dtypes='),
    ):
        text = (folder / name).read_text()
        assert before in text, (name, before)
        (folder / name).write_text(text.replace(before, after))
    done = check(folder, "--device", "sim:wave64", "--gate", "contract", "--gate", "edges")
    assert "✓ contract" in done.stdout and "✓ edges" in done.stdout, done.stdout + done.stderr
    x = torch.randn(5)
    operator = truefuse.load(folder)
    assert torch.equal(operator(x), 2 * x) and torch.equal(operator(x, scale=0.5), x / 2)


def test_a_kernel_that_does_not_compile_is_a_verdict_with_its_line(tmp_path):
    folder = new(tmp_path, "blank", "mistyped")
    kernel = folder / "kernel.hip"
    kernel.write_text(kernel.read_text().replace("x[i]", "z[i]"))
    done = check(folder, "--device", "sim:wave64")
    said = " ".join(done.stdout.split())
    assert done.returncode == 1 and "✗ compile" in said and "out[i] = z[i];" in said
    assert "mistyped/kernel.hip:" in said and "✗ edges" not in said


BACKWARD_TEXT = """operator: my_ops::NAME_backward
summary:  the gradient
schema:   NAME_backward(Tensor grad_out, Tensor x, *, bool x_wanted) -> Tensor
contract:
  grad_out: f32 [shape..] contiguous;
  x: f32 [shape..] contiguous;
  x_wanted: bool
  -> grad_x: f32 [shape..] contiguous if x_wanted
kernel:   kernel.hip
let:      count = grad_x.elements
launch:   back
  grid  = ceil_div(count, 256)
  block = 256
reference: reference
"""
BACKWARD_KERNEL = """
TF_KERNEL(256) void back(float* grad_x, const float* grad_out, tf::i64 count) {
  const tf::i64 i = tf::i64(tf::block_x()) * 256 + tf::thread_x();
  if (i < count) grad_x[i] = FACTOR * grad_out[i];
}
"""


@pytest.mark.parametrize(("factor", "status"), [("1", 0), ("1.01f", 1)])
def test_a_backward_kernel_is_judged_on_the_simulated_device(tmp_path, factor, status):
    """Also where the CPU has a function of its own, whose gradient is right."""
    folder = new(tmp_path, "blank", f"backward_{status}")
    description, kernel, case = (
        folder / name for name in ("description.txt", "kernel.hip", "case.py")
    )
    description.write_text(description.read_text() + "backward: backward.txt\ncpu: eager\n")
    text = BACKWARD_TEXT.replace("NAME", folder.name) + "cpu: first\n"
    (folder / "backward.txt").write_text(text)
    kernel.write_text(kernel.read_text() + BACKWARD_KERNEL.replace("FACTOR", factor))
    case.write_text(
        case.read_text().replace("case = Case(", "case = Case(\n    gradients=('x',),")
        + "\n\ndef first(grad, x, **wanted):\n    return grad.clone()\n"
    )
    done = check(folder, "--device", "sim:wave64")
    assert done.returncode == status, done.stdout + done.stderr
    if status:
        assert "gradient of x is wrong" in " ".join(done.stdout.split())


def test_a_simulated_cpu_path_is_never_timed(tmp_path):
    folder = new(tmp_path, "blank", "timed")
    done = check(folder)
    assert done.returncode == 2
    assert "runs in the simulator, whose speed says nothing" in " ".join(done.stderr.split())


def test_a_description_that_is_not_right_is_a_verdict(tmp_path):
    folder = new(tmp_path, "blank", "wrong")
    text = folder / "description.txt"
    text.write_text(text.read_text().replace("block = 256", "block = width"))
    done = check(folder, "--device", "sim:wave64")
    assert done.returncode == 1 and "there is no width" in " ".join(done.stdout.split())
    done = run("compile", folder, "--arch", "sm_90a")
    assert done.exit_code == 2 and "there is no width" in " ".join(done.output.split())


def test_compile_takes_a_folder(tmp_path):
    here = [arch for arch in ("gfx906", "sm_90a") if not _native.refusal(arch)]
    if not here:
        pytest.skip("no compiler for a GPU here")
    folder = new(tmp_path, "rowwise", "compiled")
    done = run("compile", folder, "--arch", here[0], "--all")
    assert done.exit_code == 0, done.output
    for label in ("f32 hidden=4096 rows=16 aligned", "bf16 hidden=7 rows=3 aligned"):
        assert label in done.output
