"""Asks PyTorch what a C++ build against it must know.

    python torch_facts.py [--torch-dir DIR] [--cmake FILE]

Prints one KEY=VALUE line per fact; lists are separated by ';'. With --cmake the same facts are
written to FILE as set(TRUEFUSE_TORCH_<KEY> ...) commands, to be included. The interpreter that runs
this file is asked, or the torch package in --torch-dir.

Exit status: 0, or 3 if there is no torch at all, or 1 with a sentence if it is there but unusable.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

NO_TORCH = 3


class NoTorch(Exception):
    """There is no torch in this interpreter."""


def minor_of(version: str) -> str:
    """'2.13.0+cpu' and '2.13.0a0+git1' are both '2.13': the part that decides the C++ ABI."""
    return ".".join(version.split("+")[0].split(".")[:2])


def facts() -> dict[str, str]:
    """The facts about the torch that this interpreter imports.

    Raises NoTorch, or RuntimeError with a sentence if that torch cannot be built against.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise NoTorch from None
        raise RuntimeError(f"torch is installed but fails to import: {error}") from error
    except Exception as error:
        raise RuntimeError(f"torch is installed but fails to import: {error}") from error
    if getattr(torch, "__file__", None) is None:  # A mere folder named torch.
        raise NoTorch

    root = Path(torch.__file__).resolve().parent
    includes = [root / "include", root / "include/torch/csrc/api/include"]
    missing = [path for path in [*includes, root / "lib"] if not path.is_dir()]
    if missing:
        raise RuntimeError(
            f"torch {torch.__version__} has no {missing[0]}: it was installed without its C++ "
            "part; install the wheel or the development package of PyTorch"
        )
    return {
        "version": str(torch.__version__),
        "minor": minor_of(torch.__version__),
        "cxx11_abi": "1" if torch.compiled_with_cxx11_abi() else "0",
        "cuda": torch.version.cuda or "",
        "hip": torch.version.hip or "",
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "dir": str(root),
        "include_dirs": ";".join(map(str, includes)),
        "library_dirs": str(root / "lib"),
        "python": sys.executable,
        "python_version": platform.python_version(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-dir", type=Path, help="the torch package to ask, a folder")
    parser.add_argument("--cmake", type=Path, help="write the facts there, as CMake commands")
    arguments = parser.parse_args()
    if arguments.torch_dir:
        sys.path.insert(0, str(arguments.torch_dir.resolve().parent))
    try:
        found = facts()
    except NoTorch:
        print(f"{sys.executable} (Python {platform.python_version()}) has no torch: run with the "
              "Python that has it, or install PyTorch there; `pip install` of truefuse needs "
              "--no-build-isolation to see it", file=sys.stderr)  # fmt: skip
        return NO_TORCH
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.cmake:
        lines = (f"set(TRUEFUSE_TORCH_{key.upper()} [==[{text}]==])" for key, text in found.items())
        arguments.cmake.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        sys.stdout.reconfigure(encoding="utf-8")
        print("\n".join(f"{key}={value}" for key, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
