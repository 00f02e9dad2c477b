"""bench/gdn_model.py at small dimensions on the CPU: it runs, judges, and its step could be captured."""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("transformers", reason="transformers is not installed")

from misread import other_layout

from truefuse import ab
from truefuse.integrations.transformers import decoding, peers, swap, use

PATH = Path(__file__).resolve().parents[3] / "bench/gdn_model.py"
SMALL = ("--device", "cpu", "--small", "--tokens", "3", "--requests", "2", "--rounds", "1")


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_gdn_model", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(bench, monkeypatch, output, *more):
    monkeypatch.setattr(sys, "argv", ["gdn_model.py", *SMALL, *more, "--output", str(output)])
    bench.main()
    return json.loads(output.read_text())["found"]


def test_both_forms_are_judged_and_timed(bench, monkeypatch, tmp_path):
    found = run(bench, monkeypatch, tmp_path / "out.json", "--batches", "2", "--layers", "4")
    assert [row["form"] for row in found if row["baseline"] == "torch path"] == [
        "eager",
        "static cache",
    ]
    for row in found:
        assert row["label"] == "ACCEPT (forced)", row["gates"]
        assert row["performance"]["metrics"]["tpot"]["gain"]["value"] > 0


def test_a_wrong_operator_shows_no_time(bench, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(swap, "_of_library", lambda name: other_layout)
    found = run(bench, monkeypatch, tmp_path / "out.json", "--batches", "1", "--layers", "4")
    assert {row["label"] for row in found} == {"REJECT (forced)"}
    assert all(row["performance"] is None for row in found)
    assert "time per token" not in capsys.readouterr().out


def test_without_time_left_nothing_runs_and_layers_are_few(bench, monkeypatch, tmp_path):
    path = tmp_path / "out.json"
    found = run(bench, monkeypatch, path, "--batches", "1", "2", "--seconds", "0.01")
    assert json.loads(path.read_text())["layers"] == 4
    assert found[0]["label"] == "ACCEPT (forced)"
    assert all("no time left" in row["not run"] for row in found[1:])


class NoHost(TorchDispatchMode):
    """Raises where the host would wait for the device, or bring a value of its own: no capture allows
    that."""

    REFUSED = ("_local_scalar_dense", "nonzero", "lift_fresh")

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if function.overloadpacket.__name__ in self.REFUSED:
            raise RuntimeError(f"{function} is between host and device")
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize("swapped", [False, True])
def test_the_static_step_needs_no_host_and_gives_the_tokens(bench, swapped):
    model = bench.build(4, True, torch.device("cpu"))
    request = ab.Request("r", [3] * bench.PROMPT, 4)
    with peers.put_aside(model):
        wanted = [step.token for step in decoding.decode(model, request)]
        with use(model, ["gdn_decode"]) if swapped else nullcontext():
            found = [step.token for step in bench.static_decode(model, 1, [], request)]
            assert found == wanted
            held = bench.Static(model, 1, 32)
            with NoHost():
                held.logits_of(held.token)
            for between in (lambda: held.token.sum().item(), lambda: torch.tensor([1])):
                with NoHost(), pytest.raises(RuntimeError, match="between host and device"):
                    between()
