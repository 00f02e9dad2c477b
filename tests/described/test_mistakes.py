"""Mistakes of somebody's first operator, in a folder of `truefuse new`: each is one sentence with its place."""

import itertools
import os
import re

import pytest
import torch

import truefuse
from truefuse import _native, case_check, new_cli
from truefuse import case as cases

_numbers = itertools.count()
TEXT, KERNEL, CASE = "description.txt", "kernel.hip", "case.py"
DTYPES = "dtypes=(torch.float32, torch.bfloat16, torch.float16)"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / f"mistake_{next(_numbers)}"
    new_cli.write(path, new_cli.Kind.rowwise, "mistakes")
    return path


def edit(folder, *changes):
    """Of (file, before, after); `NAME` is the operator's."""
    for file, before, after in changes:
        path = folder / file
        text = path.read_text()
        before = before.replace("NAME", folder.name)
        assert text.count(before) >= 1, before
        path.write_text(text.replace(before, after.replace("NAME", folder.name), 1))


def registered(folder):
    return any(operator["name"] == folder.name for operator in _native.operators())


# What is changed, and the sentence about it.
AT_LOAD = {
    "a key misspelt": ([(TEXT, "launch:", "lanch:")], r"txt:15: there is no entry 'lanch'"),
    "a key in capitals": ([(TEXT, "operator:", "Operator:")], r"txt:1: there is no entry 'Operator'"),
    "a key twice": ([(TEXT, "kernel:", "kernel: kernel.hip\nkernel:")], r"txt:9: kernel is given twice"),
    "no kernel": ([(TEXT, "kernel: kernel.hip\n", "")], r"txt:14: launch is about a kernel, and the entry 'kernel:'"),
    "a dtype's other name": ([(TEXT, "f32|f16", "float32|f16")], r"txt:4: contract: expected f64, f32.*found 'float32'"),
    "no layout": ([(TEXT, "hidden] contiguous\n  ->", "hidden]\n  ->")], r"txt:4: contract: expected a layout"),
    "a comma for a semicolon": ([(TEXT, "contiguous\n  ->", "contiguous, y: f32 [hidden] contiguous\n  ->")],
                                r"txt:4: contract: expected .*';'.*found ','"),
    "an argument that the contract forgot": (
        [(TEXT, "(Tensor x)", "(Tensor x, Tensor w)"), (KERNEL, "const T* x", "const T* x, const T* w")],
        r"txt:3: the contract says nothing of w, an argument of the schema"),
    "an argument that the schema forgot": (
        [(TEXT, "contiguous\n  ->", "contiguous; w: f32 [hidden] contiguous\n  ->")], r"txt:3: .*differ: the schema has no w"),
    "a parameter that nothing knows": ([(KERNEL, "const T* x", "const T* x, const T* w")], r"hip:10: there is no w"),
    "a schema without a result": ([(TEXT, "(Tensor x) -> Tensor", "(Tensor x)")],
                                  r"txt:3: PyTorch cannot read this schema, which has the form"),
    "no namespace": ([(TEXT, "mistakes::", "")], r"txt:1: expected '::' and a name"),
    "a size that is not bound": ([(TEXT, "hidden == 0", "width == 0")], r"txt:16: there is no width"),
    "a kernel of another name": ([(TEXT, "launch: NAME", "launch: main")], r"txt:15: .*defines no kernel main"),
    "a kernel of C++": ([(KERNEL, "TF_KERNEL(256)", "__global__")], r"hip:10: .*write extern \"C\" in front"),
    "a kernel in a template": ([(KERNEL, "TF_KERNEL", "template <int n> TF_KERNEL")],
                               r"hip:10: .*which a template does not have"),
    "a colon for an equals sign": ([(TEXT, "block = 256", "block: 256")], r"txt:17: expected '=', found ':'"),
    "a bracket left open": ([(TEXT, "multiprocessors)", "multiprocessors")], r"txt:17: expected '\)'"),
    "a backward without names": ([(TEXT, "gradients -> x", "gradients")], r"txt:21: expected '->'"),
    "a reference misspelt": ([(TEXT, "reference: reference", "reference: refernce")], r"case.py has no function refernce"),
    "a field that is missing": ([(CASE, "    make_inputs=make_inputs,\n", "")], r"TypeError in line 47: .*'make_inputs'"),
    "a file that raises": ([(CASE, "case = Case(", "1 / 0\ncase = Case(")], r"case.py' raised ZeroDivisionError in line 47"),
    "one mode": ([(CASE, DTYPES, DTYPES + ", modes={'eps': 1e-5}")], r"modes is \{'eps': 1e-05\}; it must be a tuple"),
    "one dtype": ([(CASE, DTYPES, "dtypes=(torch.float32)")], r"dtypes is torch.float32; it must be a tuple"),
    "dtypes as words": ([(CASE, DTYPES, "dtypes=('float32',)")], r"dtypes is \('float32',\); it must be a tuple"),
    "no dtypes": ([(CASE, DTYPES, "dtypes=()")], r"dtypes is \(\); it must be a tuple"),
    "one baseline": ([(CASE, '{"eager": eager}', "eager")], r"baselines is a function; it must be a dict"),
    "no baseline": ([(CASE, '{"eager": eager}', "{}")], r"baselines is empty"),
    "faults without names": ([(CASE, '{"a slope left in": without_mean}', "[without_mean]")], r"faults is \[.*a dict of functions"),
    "sizes that are numbers": ([(CASE, DTYPES, DTYPES + ", edge_sizes=(3, 8)")], r"edge_sizes is \(3, 8\); it must be a tuple of sizes"),
    "a name for a function": ([(CASE, "reference=reference", "reference='reference'")], r"reference is 'reference'; it must be a function"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", AT_LOAD)
def test_at_load(folder, mistake):
    changes, sentence = AT_LOAD[mistake]
    edit(folder, *changes)
    with pytest.raises(cases.CaseError) as error:
        cases.load(str(folder))
    assert re.search(sentence, str(error.value)), error.value
    assert folder.name in str(error.value)


EPS = [(TEXT, "(Tensor x)", "(Tensor x, *, float eps)"), (TEXT, "contiguous\n  ->", "contiguous; eps: float [0, 1]\n  ->")]  # fmt: skip
TAKES_EPS = [
    (CASE, f"def {name}(x: Tensor)", f"def {name}(x: Tensor, *, eps: float)")
    for name in ("reference", "eager")
]
IN_CALLS = {
    "modes forgotten": (EPS, r"neither make_inputs nor modes give eps, which .* needs: modes=\(\{'eps': \.\.\.\},\)"),
    "modes forgotten, the functions not": (TAKES_EPS, r"reference\(x.* cannot be called with \(x\): missing .*'eps'"),
    "a mode misspelt": ([*EPS, (CASE, DTYPES, DTYPES + ", modes=({'epsilon': 0.1},)")],
                        r"reference\(x.* cannot be called with \(x, epsilon=0\.1\): got an unexpected .*'epsilon'"),
    "a mode out of range": ([*EPS, *TAKES_EPS, (CASE, DTYPES, DTYPES + ", modes=({'eps': 3.0},)")],
                            r"breaks the contract of its operator: .*eps is 3.*\[0, 1\]"),
    "an input misspelt": ([(CASE, 'return {"x": x.to(dtype)', 'return {"input": x.to(dtype)')],
                          r"gradients names x, which is no tensor; make_inputs gives input"),
    "an input misspelt, without gradients": (
        [(CASE, 'return {"x": x.to(dtype)', 'return {"input": x.to(dtype)'), (CASE, 'gradients=("x",),', "")],
        r"make_inputs gives input; the arguments of mistakes::\w+ are x"),
    "an input for a dict": ([(CASE, 'return {"x": x.to(dtype).to(device)}', "return x.to(dtype).to(device)")],
                            r"make_inputs gives a Tensor; it must give a dict"),
    "inputs that raise": ([(CASE, "torch.randn(size", "torch.randn(size, 1")], r"make_inputs raised TypeError for size \(5, 24\)"),
    "a dtype that the contract has not": ([(CASE, DTYPES, "dtypes=(torch.float32, torch.float64)")],
                                          r"breaks the contract of its operator: .*x is float64"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", IN_CALLS)
def test_in_the_calls_of_a_case(folder, mistake):
    changes, sentence = IN_CALLS[mistake]
    edit(folder, *changes)
    case = cases.load(str(folder))
    contract = next(o["contract"] for o in _native.operators() if o["name"] == folder.name)
    with pytest.raises(cases.CaseError) as error:
        case_check.ask(case, torch.device("cpu"), contract)
    assert re.search(sentence, str(error.value)), error.value


def test_what_new_writes_has_no_mistake(tmp_path):
    for kind in new_cli.Kind:
        folder = tmp_path / f"right_{kind.value}"
        new_cli.write(folder, kind, "mistakes")
        case = cases.load(str(folder))
        contract = next(o["contract"] for o in _native.operators() if o["name"] == folder.name)
        with torch.no_grad():
            case_check.ask(case, torch.device("cpu"), contract)


@pytest.mark.parametrize("change", ["CRLF", "byte order mark", "tabs", "blanks in front of colons"])
def test_what_editors_do_is_no_mistake(folder, change):
    for name in (TEXT, KERNEL):
        text = (folder / name).read_text()
        if change == "tabs":
            text = text.replace("  ", "\t")
        if change == "blanks in front of colons" and name == TEXT:
            text = re.sub(r"^(\w+):", r"\1 :", text, flags=re.MULTILINE)
        # A kernel with a mark is refused in words: NVRTC does not take it.
        is_marked = change == "byte order mark" and name == TEXT
        data = text.encode("utf-8-sig" if is_marked else "utf-8")
        (folder / name).write_bytes(data.replace(b"\n", b"\r\n") if change == "CRLF" else data)
    operator = truefuse.load(folder)
    x = torch.randn(2, 9)
    torch.testing.assert_close(operator(x), x - x.mean(-1, keepdim=True))


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda folder: (folder / TEXT).write_text(""), "description.txt: the entry 'operator:' is missing"),
    (lambda folder: (folder / KERNEL).write_text(""), "kernel.hip defines no kernel .*; it defines none"),
    (lambda folder: (folder / CASE).write_text(""), "case.py has no function reference"),
    (lambda folder: (folder / TEXT).write_text((folder / TEXT).read_text(), encoding="utf-16"), "description.txt' is no text in UTF-8"),
    (lambda folder: (folder / TEXT).unlink(), "is no folder with a description.txt"),
    (lambda folder: (folder / KERNEL).unlink(), "txt:8: there is no file 'kernel.hip' beside the description"),
    (lambda folder: (folder / CASE).unlink(), "case.py, which is not there, has no function reference"),
], ids=["no text", "no kernel text", "no case text", "UTF-16", "no description", "no kernel", "no case"])  # fmt: skip
def test_files_that_are_not_right(folder, change, sentence):
    change(folder)
    with pytest.raises(RuntimeError, match=sentence):
        truefuse.load(folder)
    assert not registered(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("name", [TEXT, KERNEL])
def test_a_file_that_may_not_be_read(folder, name):
    (folder / name).chmod(0)
    with pytest.raises(
        RuntimeError, match=f"{folder.name}/{name}' cannot be read: Permission denied"
    ):
        truefuse.load(folder)
