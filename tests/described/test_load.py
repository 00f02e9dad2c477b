"""truefuse.load: an operator from a folder or from texts, and what is refused."""

import pydoc
import re
import warnings
from pathlib import Path

import pytest
import torch
from scaled import BACKWARD, CPU, KERNEL, PLAN, PLANNED
from typer.testing import CliRunner

import truefuse
from truefuse import _native, simulate
from truefuse.cli import app

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "operators"


def names_in(namespace):
    return [o["name"] for o in _native.operators() if o["namespace"] == namespace]


def namespace_of(text):
    return re.search(r"described_\d+", text)[0]


def simulated(function, arch="sim:wave64"):
    with simulate.Simulated(simulate.Device(arch)):
        return function()


def test_a_folder_is_an_operator(folder, text):
    scale = truefuse.load(folder)
    assert scale.name == f"{namespace_of(text)}::scale"
    x = torch.randn(2, 3, 5)
    torch.testing.assert_close(scale(x, alpha=0.5, square=True), 0.5 * x * x)
    op = getattr(torch.ops, namespace_of(text)).scale
    assert torch.equal(op(x, alpha=2.0, square=False), 2 * x)
    assert op(x.to("meta"), alpha=1.0, square=False).shape == x.shape
    assert op(x[:0], alpha=1.0, square=False).shape == (0, 3, 5)
    with pytest.raises(RuntimeError, match=r"scale: alpha is 9.*\[-8, 8\]"):
        op(x, alpha=9.0, square=False)
    with pytest.raises(RuntimeError, match="x is not contiguous"):
        op(x.transpose(0, 2), alpha=1.0, square=False)
    assert torch.equal(scale.reference(x, alpha=2, square=False), 2 * x)
    assert truefuse.load(folder) is scale


def test_it_is_documented(folder, text):
    scale = truefuse.load(folder)
    schema = "scale(Tensor x, *, float alpha, bool square) -> Tensor"
    assert repr(scale) == f"<truefuse operator {namespace_of(text)}::{schema}>"
    said = pydoc.plain(pydoc.render_doc(scale))
    for line in (
        schema,
        "alpha x, or its square",
        "x: f32|f64 [rows.., hidden] contiguous; alpha: float [-8, 8]; square: bool -> out: like x",
        "gradients    x",
        "on a GPU     its kernel",
        "on the CPU   eager",
        f"described in {folder}",
    ):
        assert line in said, said
    found = CliRunner().invoke(app, ["ops", str(folder)])
    assert found.exit_code == 0 and schema in " ".join(found.output.split())
    assert "bias_gelu" not in found.output
    swish = truefuse.load(EXAMPLES / "swish", name="documented")
    assert (
        "gradients    x\non a GPU     its kernel\non the CPU   its kernel, in the simulator"
        in swish.__doc__
    )


def test_gradients_and_compile(folder):
    scale = truefuse.load(folder)
    arguments = {"alpha": 0.5, "square": True}
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: scale(x, **arguments), x)
    assert torch.autograd.gradgradcheck(lambda x: scale(x, **arguments), x)
    torch.library.opcheck(scale.overload, (x,), arguments)
    graphs = []
    model = torch.compile(
        lambda x: scale(x, **arguments) + 1, fullgraph=True, dynamic=True,
        backend=lambda module, inputs: graphs.append(module) or module.forward,
    )  # fmt: skip
    for rows in (2, 3, 5, 8):
        z = torch.randn(rows, 7)
        torch.testing.assert_close(model(z), 0.5 * z * z + 1)
    assert len(graphs) == 1


def test_without_a_derivative_a_gradient_is_refused(text, functions):
    scale = truefuse.load(text + CPU, kernel=KERNEL, functions=functions)
    with pytest.raises(RuntimeError, match="no derivative"):
        scale(torch.ones(2, requires_grad=True), alpha=1.0, square=False)


def test_the_kernel_runs_in_the_simulator_and_says_so(text, functions, capfd):
    scale = truefuse.load(text, kernel=KERNEL, functions=functions)
    x = torch.randn(3, 50)
    with warnings.catch_warnings(record=True) as caught:  # As PyTorch 2.15 says it.
        warnings.simplefilter("always")
        for _ in range(2):
            torch.testing.assert_close(scale(x, alpha=0.5, square=True), 0.5 * x * x)
    said = capfd.readouterr().err + "".join(str(one.message) for one in caught)
    assert said.count("its kernel runs in the simulator") == 1 and scale.name in said


@pytest.mark.parametrize("declared", ["__shared__ float s[64];", "extern __shared__ float s[];"])
def test_shared_memory_in_cuda_words_is_said(text, functions, declared):
    kernel = KERNEL.replace("  for (", f"  {declared}\n  for (", 1)
    kernel = f'#include "truefuse/sim/cuda.h"\n{kernel}'
    scale = truefuse.load(text, kernel=kernel, functions=functions)
    line = kernel[: kernel.index("__shared__")].count("\n") + 1
    with pytest.raises(RuntimeError, match=rf"kernel\.hip:{line}: error: write TF_SHARED\(T, name"):
        scale(torch.ones(2, 3), alpha=1.0, square=False)


def test_an_edited_kernel_is_what_runs(folder):
    scale = truefuse.load(folder)
    x = torch.randn(2, 40)
    call = lambda: simulated(lambda: scale(x, alpha=0.5, square=False))  # noqa: E731
    assert torch.equal(call(), 0.5 * x)
    edited = KERNEL.replace("T(alpha) *", "T(alpha) +")
    (folder / "kernel.hip").write_text(edited)
    assert torch.equal(call(), 0.5 + x)

    # The compiler's error, on one screen: the user's file, line and text.
    (folder / "kernel.hip").write_text(edited.replace("x[i] *", "y[i] *"))
    with pytest.raises(RuntimeError) as error:
        call()
    lines = str(error.value).splitlines()
    assert any(re.match(r"scale/kernel\.hip:7: error: .*\by\b", line) for line in lines), lines
    assert "  >   7 |     out[i] = T(alpha) + y[i] * (TF_SQUARE ? x[i] : T(1));" in lines
    assert len(lines) <= 20

    # What is wrong with it is said, and the old code never runs.
    (folder / "kernel.hip").write_text(edited.replace("tf::i64 count", "tf::i64 number"))
    with pytest.raises(
        RuntimeError, match=r"scale/kernel.hip:5: there is no number; there are rows"
    ):
        call()
    (folder / "description.txt").write_text(
        (folder / "description.txt").read_text().replace("[-8, 8]", "[-9, 8]")
    )
    (folder / "kernel.hip").write_text(edited)
    with pytest.raises(
        RuntimeError, match="the contract has changed since the operator was loaded"
    ):
        call()


def planned(text):
    for before, after in PLANNED.items():
        assert before in text
        text = text.replace(before, after)
    return text


def blocks_of(scale):
    with simulate.Simulated(
        simulate.Device("sim:wave64", ("none",), trace=True)
    ) as simulated_calls:
        x = torch.randn(10, 40)
        assert torch.equal(scale(x, alpha=0.5, square=False), 0.5 * x)
    return simulated_calls.calls[0]["launches"][0]["grid"][0]


def test_a_plan_in_cpp_is_edited_like_a_kernel(folder):
    text = folder / "description.txt"
    text.write_text(planned(text.read_text()))
    (folder / "plan.cpp").write_text(PLAN)
    before = sorted(folder.iterdir())
    scale = truefuse.load(folder)
    assert blocks_of(scale) == 3
    (folder / "plan.cpp").write_text(PLAN.replace("3)", "2)"))
    assert blocks_of(scale) == 2

    (folder / "plan.cpp").write_text(PLAN.replace("(count + 63)", "(cont + 63)"))
    with pytest.raises(RuntimeError) as error:
        blocks_of(scale)
    lines = str(error.value).splitlines()
    assert any(re.match(r"scale/plan\.cpp:7: error: .*\bcont\b", line) for line in lines), lines
    assert any(line.startswith("  >   7 |   values[") for line in lines), lines

    (folder / "plan.cpp").write_text(PLAN.replace("3)", "1)"))
    other = truefuse.load(folder, name="scale_2")
    (folder / "plan.cpp").write_text(PLAN)
    assert blocks_of(other) == blocks_of(scale) == 3
    assert sorted(folder.iterdir()) == before  # Nothing is written beside the sources.


def test_a_plan_in_cpp_may_be_a_text_and_refuse_a_call(text, functions):
    files = {"plan.cpp": PLAN.replace("values[", 'if (count > 99) throw std::runtime_error("too many");\n  values[')}  # fmt: skip
    described = planned(text) + "examples: rows = 2, hidden = 40\n"
    scale = truefuse.load(described, kernel=KERNEL, files=files, functions=functions)
    x = torch.randn(2, 40)
    assert torch.equal(simulated(lambda: scale(x, alpha=0.5, square=False)), 0.5 * x)
    with pytest.raises(RuntimeError, match=r"scale: scale/plan\.cpp: too many"):
        simulated(lambda: scale(torch.randn(3, 40), alpha=0.5, square=False))


def test_versions_side_by_side(folder, text):
    first = truefuse.load(folder)
    other = folder.parent / "other"
    other.mkdir()
    for path in folder.iterdir():
        if path.is_file():
            (other / path.name).write_text(path.read_text())
    (other / "kernel.hip").write_text(KERNEL.replace("T(alpha) *", "T(alpha) +"))
    with pytest.raises(RuntimeError, match=r"already registered; load this one under another name"):
        truefuse.load(other)
    second = truefuse.load(other, name="scale_2")
    third = truefuse.load(other, namespace="elsewhere_" + namespace_of(text))
    assert names_in(namespace_of(text)) == ["scale", "scale_2"]
    assert third.name == f"elsewhere_{namespace_of(text)}::scale"
    x = torch.randn(40, requires_grad=True)
    assert torch.equal(simulated(lambda: first(x.detach(), alpha=2.0, square=False)), 2 * x)
    assert torch.equal(simulated(lambda: second(x.detach(), alpha=2.0, square=False)), 2 + x)
    second(x, alpha=2.0, square=False).sum().backward()
    assert torch.equal(x.grad, torch.full((40,), 2.0))


def test_texts_are_replaced(text, functions):
    scale = truefuse.load(text + CPU, kernel=KERNEL, functions=functions)
    x = torch.randn(40)
    assert torch.equal(simulated(lambda: scale(x, alpha=0.5, square=False)), 0.5 * x)
    again = truefuse.load(
        text + CPU, kernel=KERNEL.replace("T(alpha) *", "T(alpha) +"), functions=functions
    )
    assert again is scale
    assert torch.equal(simulated(lambda: scale(x, alpha=0.5, square=False)), 0.5 + x)
    with pytest.raises(RuntimeError, match="the contract has changed"):
        truefuse.load(text.replace("f32|f64", "f32") + CPU, kernel=KERNEL, functions=functions)


MISTAKES = {
    "schema and contract disagree": (
        "scale(Tensor x, *,", "scale(Tensor y, *,",
        r"scale/description:3: the contract says nothing of y, an argument of the schema"),
    "an argument that the schema does not have": (
        ", bool square)", ")", r"scale/description:3: .* differ: the schema has no square"),
    "an argument that the contract does not have": (
        "bool square)", "bool square, int more)", r"scale/description:3: the contract says nothing of more"),
    "an argument of another type": (
        "float alpha", "int alpha", r"scale/description:3: .*alpha is int in the schema; .* it must be float"),
    "an optional argument in the schema alone": (
        "scale(Tensor x", "scale(Tensor? x", r"scale/description:3: .*x is not optional in the contract"),
    "an argument written in the schema alone": (
        "scale(Tensor x", "scale(Tensor(a!) x", r"scale/description:3: .*x is written in the schema"),
    "a schema that PyTorch cannot read": ("-> Tensor\n", "-> Tensr\n", r"scale/description:3: "),
    "an output that the schema does not have": ("-> Tensor\n", "-> (Tensor, Tensor)\n", r"scale/description:3: .*outputs"),
    "an unbound size": ("block = 64", "block = width", r"scale/description:\d+: there is no width"),
    "a parameter of another type": (
        "alpha: float [-8, 8]", "alpha: int [-8, 8]", r"scale/kernel.hip:5: alpha is a whole number"),
    "a plan that is not there": ("let:\n", "plan: plan.cpp -> blocks\nlet:\n", "there is no file 'plan.cpp' beside"),
    "a missing reference": ("reference: reference", "reference: mathematics", "no function mathematics"),
    "a missing function for the CPU": ("reference: reference\n", "reference: reference\ncpu: fast\n", "no function fast"),
    "a missing backward": ("reference: reference\n", "reference: reference\nbackward: slope -> x\n", "no function slope"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_registers_nothing(text, functions, mistake):
    before, after, sentence = MISTAKES[mistake]
    wrong = text.replace(before, after)
    assert wrong != text
    with pytest.raises(RuntimeError, match=sentence):
        truefuse.load(wrong, kernel=KERNEL, functions=functions)
    assert names_in(namespace_of(text)) == []
    assert not hasattr(getattr(torch.ops, namespace_of(text)), "scale")
    right = truefuse.load(text + CPU + BACKWARD, kernel=KERNEL, functions=functions)
    assert torch.equal(right(torch.ones(3), alpha=2.0, square=False), torch.full((3,), 2.0))


def test_a_backward_file_that_is_not_there_is_named(folder):
    description = folder / "description.txt"
    description.write_text(description.read_text().replace(BACKWARD, "backward: back.txt\n"))
    with pytest.raises(
        RuntimeError, match=r"no back\.txt, which the description names as its back"
    ):
        truefuse.load(folder)


def test_a_backward_whose_name_is_taken_registers_nothing(text, functions):
    namespace = namespace_of(text)
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define("scale_backward(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="scale_backward is already registered"):
        truefuse.load(text + CPU + BACKWARD, kernel=KERNEL, functions=functions)
    assert names_in(namespace) == []


def test_functions_are_held_to_the_contract(text, functions):
    for wrong, sentence in (
        (
            lambda x, **mode: x[:1],
            r"eager returns out as float32 \[1\]; the contract wants float32 \[3\]",
        ),
        (lambda x, **mode: x.double(), "eager returns out as float64"),
        (lambda x, **mode: (x, x), "returns 2 results; the contract has 1 outputs"),
    ):
        functions["eager"] = wrong
        scale = truefuse.load(text + CPU, kernel=KERNEL, functions=functions)
        with pytest.raises(RuntimeError, match=sentence):
            scale(torch.ones(3), alpha=1.0, square=False)
    functions["eager"] = lambda x, **mode: x
    scale = truefuse.load(text + CPU, kernel=KERNEL, functions=functions)
    x = torch.ones(3)
    assert scale(x, alpha=1.0, square=False).data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    ("source", "options", "sentence"),
    [
        ("nowhere", {}, "'nowhere' is no folder with a description.txt"),
        ("FOLDER", {"kernel": "x"}, "a folder has its files"),
        ("TEXT", {}, "there is no file 'kernel.hip' beside the description"),
    ],
)
def test_what_load_does_not_take(folder, text, source, options, sentence):
    source = {"FOLDER": folder, "TEXT": text}.get(source, source)
    with pytest.raises(RuntimeError, match=sentence):
        truefuse.load(source, **options)


def test_a_function_that_only_changes_its_arguments_gives_nothing():
    doubled = truefuse.load(
        """operator: described_nothing::doubled
summary:  2 x, in place
schema:   doubled(Tensor(a!) x) -> ()
contract: x: f32 [shape..] strided mutated
cpu:       change
reference: change
""",
        functions={"change": lambda x: x.mul_(2) if x.dim() == 2 else None},
    )
    assert doubled(torch.ones(0)) is None
    with pytest.raises(RuntimeError, match="change returns 1 results; the contract has 0 outputs"):
        doubled(torch.ones(2, 3))
