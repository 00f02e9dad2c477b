"""Every operator on the simulated devices, over its whole list of edge sizes: minutes of compiling.

`make simulate` (TRUEFUSE_FULL=1) takes all; without it the cheapest two stand for the rest.
"""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from truefuse import case as cases
from truefuse import simulate
from truefuse.cli import app

ALWAYS = ("bias_gelu", "swish")


@pytest.mark.parametrize("arch", simulate.ARCHS)
@pytest.mark.parametrize("name", cases.builtin_names())
def test_every_operator_passes_over_its_edge_sizes(name, arch, tmp_path):
    """In every order, without an unordered access, under the sanitizers; never a figure of speed."""
    if name not in ALWAYS and os.environ.get("TRUEFUSE_FULL") != "1":
        pytest.skip(f"a minute or two each; `make simulate` takes all, else {ALWAYS}")
    gates = ["--gate", "edges", "--gate", "orders", "--gate", "outputs"]
    output = ["--output", str(tmp_path), "--json"]
    found = CliRunner().invoke(app, ["check", name, "--device", arch, *gates, *output])
    report = json.loads(found.stdout)
    assert [(r["gate"], r["status"]) for r in report["gates"]] == [
        ("outputs", "PASS"), ("edges", "PASS"), ("orders", "PASS"),
    ], report["gates"]  # fmt: skip
    assert report["device"] == arch and "performance" not in report
