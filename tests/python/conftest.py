"""The checks are tested with operators written in Python, so that nothing need be built for them."""

from __future__ import annotations

import copy
import importlib
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def _make_importable() -> None:
    """Without a built library the package's modules are imported from the source tree."""
    try:
        importlib.import_module("truefuse")
    except ImportError:
        package = types.ModuleType("truefuse")
        package.__path__ = [str(ROOT / "python" / "truefuse")]
        sys.modules["truefuse"] = package


_make_importable()
sys.path.insert(0, str(Path(__file__).parent))

import standin  # noqa: E402
import stateful  # noqa: E402

from truefuse import bandwidth, check  # noqa: E402
from truefuse import case as cases  # noqa: E402
from truefuse.context import Context  # noqa: E402
from truefuse.verdict import Status, Verdict  # noqa: E402


def fake_the_library(monkeypatch):
    fake = standin.fake_native()
    monkeypatch.setitem(sys.modules, "truefuse._native", fake)
    monkeypatch.setattr(sys.modules["truefuse"], "_native", fake, raising=False)
    return fake


@pytest.fixture
def native(monkeypatch):
    """A `truefuse._native` whose answers a test can change."""
    return fake_the_library(monkeypatch)


@pytest.fixture(scope="session")
def bias_gelu():
    """The shipped case, with a candidate written in Python."""
    shipped = cases.load(str(ROOT / "operators" / "bias_gelu" / "case.py"))
    return replace(
        shipped,
        candidate=standin.bias_gelu,
        contract=standin.CONTRACT,
        operator="standin::bias_gelu",
        gradients=(),  # The stand-in has none.
    )


@pytest.fixture
def context(bias_gelu, native):
    return Context(bias_gelu, torch.device("cpu"), 1, "bias_gelu", standin.CONTRACT)


@pytest.fixture
def stateful_context(monkeypatch):
    """Timed on few inputs: its last cache is small."""
    monkeypatch.setattr(bandwidth, "last_cache_bytes", lambda device: 1 << 18)
    return Context(stateful.case, torch.device("cpu"), 3, "mine")


@pytest.fixture(scope="session")
def quick_case(bias_gelu):
    return replace(
        bias_gelu,
        source=None,  # It is another than that of the file.
        dtypes=(torch.float32,),
        numeric_size=(32, 128),
        edge_sizes=((2, 3),),
        timing_sizes=((16, 32),),
    )


@pytest.fixture
def quick(context, quick_case):
    return replace(context, case=quick_case)


@pytest.fixture(scope="session")
def accepted_once(quick_case):
    """A whole check that accepts; tests that change it take `accepted`."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        fake_the_library(monkeypatch)
        found = check.run(Context(quick_case, torch.device("cpu"), 1, "mine", standin.CONTRACT))
    assert found.verdict is Verdict.ACCEPT, [r for r in found.results if r.status != Status.PASS]
    return found


@pytest.fixture
def accepted(accepted_once):
    return copy.deepcopy(accepted_once)
