"""scripts/torch_facts.py: what the build is told about PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_facts
import truefuse
import wheel_version

SCRIPT = Path(torch_facts.__file__)


def run(*arguments, python=(sys.executable,), **variables):
    return subprocess.run(
        [*python, SCRIPT, *arguments], capture_output=True, text=True, env=variables or None
    )


def test_facts_are_those_of_torch():
    facts = dict(line.split("=", 1) for line in run().stdout.splitlines())
    assert facts["version"] == torch.__version__
    assert torch.__version__.startswith(facts["minor"] + ".")
    assert facts["cxx11_abi"] == str(int(torch._C._GLIBCXX_USE_CXX11_ABI))
    assert facts["cuda"] == (torch.version.cuda or "")
    assert facts["hip"] == (torch.version.hip or "")
    found = [Path(folder) for folder in facts["include_dirs"].split(";")]
    assert (found[0] / "torch" / "library.h").is_file()
    assert (found[1] / "torch" / "torch.h").is_file()
    assert (Path(facts["library_dirs"]) / "libtorch_cpu.so").is_file()


def test_cmake_file_holds_the_same(tmp_path):
    file = tmp_path / "facts, ü.cmake"
    assert run("--cmake", file).returncode == 0
    text = file.read_text(encoding="utf-8")
    assert f"set(TRUEFUSE_TORCH_VERSION [==[{torch.__version__}]==])" in text
    assert "set(TRUEFUSE_TORCH_INCLUDE_DIRS [==[" in text


def test_without_torch_the_status_is_3_and_the_sentence_names_the_python():
    answer = run(python=(sys.executable, "-S"))
    assert answer.returncode == torch_facts.NO_TORCH
    assert sys.executable in answer.stderr
    assert "--no-build-isolation" in answer.stderr


def test_a_mere_folder_named_torch_is_no_torch(tmp_path):
    (tmp_path / "torch").mkdir()
    answer = run(python=(sys.executable, "-S"), PYTHONPATH=str(tmp_path))
    assert answer.returncode == torch_facts.NO_TORCH


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ImportError('libcudart.so.12 not found')", "fails to import: libcudart.so.12"),
        ("import a_module_that_torch_needs", "fails to import: No module named"),
        ("__version__ = '2.9.1'", "has no"),
    ],
)
def test_a_broken_torch_is_not_taken_for_none(tmp_path, source, words):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(source)
    answer = run("--torch-dir", tmp_path / "torch")
    assert answer.returncode == 1
    assert words in answer.stderr


@pytest.mark.parametrize(
    ("version", "minor"),
    [("2.13.0+cpu", "2.13"), ("2.5.1", "2.5"), ("2.14.0a0+gitabc", "2.14"), ("2.5.1+das.1", "2.5")],
)
def test_minor(version, minor):
    assert torch_facts.minor_of(version) == minor


def test_the_package_version_names_torch_and_its_abi():
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    minor = torch_facts.minor_of(torch.__version__)
    wanted = f"{truefuse.__version__}+torch{minor}.cxx11abi{abi}"
    assert wheel_version.dynamic_metadata("version", {}) == wanted
