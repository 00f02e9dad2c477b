"""Python files that users hand over: cases, probes, experiments, what is to be profiled."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType


def raised(path: Path, error: Exception) -> str:
    """What a file raised, with the line of the file where it did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path.resolve())]
    where = f" in line {lines[-1]}" if lines else ""
    return f"'{path}' raised {type(error).__name__}{where}: {error}"


def run(path: Path) -> ModuleType:
    """Runs a Python file as a module of its own. Raises what the file raises, and RuntimeError if it ends the
    program: the exit status of sys.exit(0) is that of an acceptance.

    Not as an import, which writes a file of bytecode beside the source."""
    path = path.resolve()
    module = ModuleType(f"_truefuse_file_{path}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    except BaseException as error:
        del sys.modules[module.__name__]
        if isinstance(error, SystemExit):
            raise RuntimeError(
                f"the file ends the program, with sys.exit({error.code!r})"
            ) from error
        raise
    return module
