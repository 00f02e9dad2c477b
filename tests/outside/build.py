"""Builds an outside operator against an installed truefuse, with g++ alone, as a user would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch

import truefuse
from truefuse import _native

HERE = Path(__file__).resolve().parent


def build(folder: Path, typed: bool, name: str = "scaled_add", *options: str) -> Path:
    """Compiles ``name``.cpp into ``folder`` and returns the library's path."""
    package = Path(truefuse.__file__).resolve().parent
    torch_package = Path(torch.__file__).resolve().parent
    library = _native.library_path()
    engine = next(library.parent.glob("libtruefuse-cxx11abi*.so"))
    out = folder / f"outside_{'typed' if typed else 'boxed'}.so"
    command = [
        os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-fPIC", "-shared", str(HERE / f"{name}.cpp"), "-o", str(out),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *(["-DTYPED"] if typed else []), *options,
        f"-I{package / 'include'}",
        "-isystem", str(torch_package / "include"),
        "-isystem", str(torch_package / "include/torch/csrc/api/include"),
        str(library), str(engine), f"-L{torch_package / 'lib'}", "-ltorch_cpu", "-lc10",
        f"-Wl,-rpath,{library.parent}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out
