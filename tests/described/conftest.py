"""A small described operator, whose text and kernel tests change."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from scaled import BACKWARD, CASE, CPU, KERNEL, TEXT

_numbers = itertools.count()


@pytest.fixture
def text():
    """The description, with a namespace that nobody else has."""
    return TEXT.replace("NUMBER", str(next(_numbers)))


@pytest.fixture
def functions():
    found = {}
    exec(CASE, found)
    return {name: value for name, value in found.items() if callable(value)}


@pytest.fixture
def folder(tmp_path, text):
    path = tmp_path / "scale"
    path.mkdir()
    (path / "description.txt").write_text(text + CPU + BACKWARD)
    (path / "kernel.hip").write_text(KERNEL)
    (path / "case.py").write_text(CASE)
    return path
