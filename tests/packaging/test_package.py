"""The installed package: what it says of itself, and what it says under another PyTorch."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import torch

import truefuse

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(truefuse.__file__).resolve().parent


def test_the_metadata_name_neither_torch_nor_numpy():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = text[text.index("[project]") : text.index("[tool.")]
    code = "\n".join(line.partition("#")[0] for line in project.splitlines())
    code = re.sub(r"^description = .*$", "", code, flags=re.MULTILINE)
    assert "torch" not in code.lower()
    assert "numpy" not in code
    assert not re.search(r"^dependencies", code, flags=re.MULTILINE)


def test_importing_needs_torch_alone():
    code = (
        "import truefuse, sys; print([m for m in sys.modules if m in {'typer', 'rich', 'jinja2'}])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_under_another_torch_the_import_is_one_sentence_with_the_command(tmp_path):
    package = tmp_path / "truefuse"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (package / "lib" / "libtruefuse_torch-1.0-cxx11abi1.so").touch()
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import truefuse"],
        capture_output=True, text=True,
    )  # fmt: skip
    last = run.stderr.strip().splitlines()[-1]
    assert run.returncode == 1
    assert last.startswith("ImportError: truefuse is built for")
    assert torch.__version__ in last
    assert "--no-build-isolation" in last


def test_the_kits_installer_refuses_an_unknown_option():
    script = ROOT / "scripts" / "kit_install.sh"
    run = subprocess.run(["bash", script, "--force"], capture_output=True, text=True)
    assert run.returncode == 2
    assert "./install.sh --from-source" in run.stderr


def test_the_cpp_library_that_is_used_is_the_systems_and_no_part_of_pytorchs():
    """PyTorch's libraries export std::filesystem; of CUDA builds of 2.11 a part of it crashes."""
    code = "import truefuse; from truefuse import _native; _native.toolchains()"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={**os.environ, "LD_DEBUG": "bindings"},
    )  # fmt: skip
    libraries = re.findall(
        r"binding file .*?/libtruefuse\S+ \[\d+\] to (.+?) \[\d+\]: normal symbol `_ZNK?St10filesystem",
        run.stderr,
    )
    assert libraries  # It does use it.
    torch_libraries = Path(torch.__file__).resolve().parent / "lib"
    assert not [path for path in libraries if Path(path).resolve().is_relative_to(torch_libraries)]
