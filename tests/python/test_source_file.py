"""Files that users hand over are run, and nothing is left beside them."""

from __future__ import annotations

import sys

import pytest

from truefuse import case as cases
from truefuse import source_file

TEXT = """
from dataclasses import dataclass

@dataclass
class Pair:
    one: int
    other: "int" = 2

found = Pair(1)
annotated: 1 + 1 = 3
"""


def test_a_file_runs_as_a_module_and_leaves_no_bytecode(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    module = source_file.run(path)
    assert (module.found.one, module.found.other) == (1, 2) and module.__file__ == str(path)
    assert module.__annotations__["annotated"] == 2, "no future statement of ours is inherited"
    assert [one.name for one in tmp_path.iterdir()] == ["mine.py"]


def test_a_file_that_raises_leaves_no_module(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("1 / 0")
    before = set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        source_file.run(path)
    assert set(sys.modules) == before


def test_a_file_beside_runs_once(tmp_path):
    (tmp_path / "other.py").write_text("things = []")
    beside = [cases.beside(str(tmp_path / "case.py"), "other") for _ in range(2)]
    assert beside[0] is beside[1] and beside[0].things == []
    assert [one.name for one in tmp_path.iterdir()] == ["other.py"]
