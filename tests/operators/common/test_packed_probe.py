"""The probe on swiglu_packed: halves and turns, as told and otherwise."""

from itertools import permutations

import pytest

from truefuse import probe
from truefuse.case import beside, builtin_directory

case = beside(str(builtin_directory() / "swiglu_packed/case.py"), "probes")


def test_every_packing_is_read_as_declared():
    for asked in case.probes:
        found = probe.run(asked)
        assert found.agrees is True, found.lines()


@pytest.mark.parametrize(("declared", "read"), list(permutations(case.LAYOUTS, 2)))
def test_another_packing_is_found(declared, read):
    found = probe.run(case.packed(declared, read))
    assert found.agrees is False and found.found == case.LAYOUTS[read]
    assert "read as" in found.first_disagreement()
