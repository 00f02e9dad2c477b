"""Marked weights are followed through projections and merges to their columns."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

layouts = pytest.importorskip("truefuse.layouts")

from truefuse import probe  # noqa: E402
from truefuse.cli import app  # noqa: E402
from truefuse.probe_producer import Producer, follow  # noqa: E402

SIZES = {"H": 2, "G": 3, "K": 4, "V": 5}
FLAT = "q=H K | k=H K | v=H G V | z=H G V"
INTERLEAVED = "H (q=K | k=K | v=G V | z=G V)"
PARTS = {"qkv": "q=H K | k=H K | v=H G V", "z": "z=H G V"}


def bound(text, **sizes):
    return layouts.layout(text).bind(**(sizes or SIZES))


def producer(project, declared=FLAT, parts=PARTS, **more):
    weights = {name: bound(text) for name, text in parts.items()}
    return Producer("qkvz", bound(declared), weights, project, **more)


def merged(weights, hidden):
    return F.linear(hidden, torch.cat([weights["qkv"], weights["z"]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_merge_in_order(dtype):
    produced = follow(producer(merged, dtype=dtype))
    assert produced.found == FLAT
    agrees, lines = produced.against(None)
    assert agrees is True and lines[-1] == "✓ the columns are in the declared order"


def test_a_merge_in_another_order_is_named():
    produced = follow(producer(lambda w, x: F.linear(x, torch.cat([w["z"], w["qkv"]]))))
    assert produced.found == "z=H G V | q=H K | k=H K | v=H G V"
    agrees, lines = produced.against(None)
    assert agrees is False
    assert lines[-1] == "✗ offset 0: the producer wrote z[0,0,0], should be q[0,0]"


def test_interleaved_weights_that_are_taken_for_flat_ones():
    """A checkpoint of the one model in a loader for the other."""
    whole = {"qkvz": INTERLEAVED}
    produced = follow(producer(lambda w, x: F.linear(x, w["qkvz"]), FLAT, whole))
    assert produced.found == INTERLEAVED
    assert "offset 4: the producer wrote k[0,0], should be q[1,0]" in produced.against(None)[1][-1]


def test_gates_cut_in_the_middle_as_if_flat():
    """Two ranks' shares of an interleaved ba, cut as [b | a] and joined again: wrong at once."""

    def project(weights, hidden):
        b, a = weights["ba"].chunk(2)
        ranks = [torch.cat([b.chunk(2)[r], a.chunk(2)[r]]) for r in range(2)]
        return F.linear(hidden, torch.cat(ranks))

    declared = bound("H (b=G | a=G)")
    produced = follow(Producer("ba", declared, {"ba": declared}, project))
    assert produced.against(None)[0] is False
    by_head = lambda w, x: F.linear(x, torch.cat(w["ba"].chunk(2)))  # noqa: E731
    assert follow(Producer("ba", declared, {"ba": declared}, by_head)).against(None)[0] is True


def test_what_is_no_single_row_is_unknown_and_what_is_missing_is_nothing():
    def mixed(weights, hidden):
        columns = merged(weights, hidden)
        columns[:, 3] += columns[:, 4]
        columns[:, 5] = 0
        return columns

    produced = follow(producer(mixed))
    assert produced.found is None
    assert produced.who(int(produced.elements[3])) == "no single row of a weight"
    assert produced.who(int(produced.elements[5])) == "nothing"
    assert "wrote no single row of a weight, should be q[0,3]" in produced.against(None)[1][-1]


def test_a_projection_of_another_shape_is_refused():
    with pytest.raises(RuntimeError, match="the columns of qkvz"):
        follow(producer(lambda w, x: F.linear(x, w["qkv"])))
    with pytest.raises(RuntimeError, match="hidden is 1"):
        follow(producer(merged, hidden=1))


@pytest.mark.parametrize("reads", [FLAT, INTERLEAVED])
def test_producer_and_consumer_are_compared(reads):
    """What is declared does not matter to the comparison: only what is written and what is read."""

    def kernel(rows):
        tensors = probe._logical(rows.double(), bound(reads))
        return {"out": torch.cat([tensors[n].flatten(1) for n in "qkvz"], 1)}

    def reference(tensors):
        return {"out": torch.cat([tensors[n].flatten(1) for n in "qkvz"], 1)}

    consumer = probe.run(probe.Probe("qkvz", bound(FLAT), kernel, reference))
    agrees, lines = follow(producer(merged)).against(consumer)
    assert agrees is (reads == FLAT)
    if not agrees:
        assert lines[-1] == ("✗ offset 4: the producer wrote q[1,0], the kernel reads k[0,0]")
    unread = replace(consumer, elements=torch.full_like(consumer.elements, probe.UNKNOWN))
    assert follow(producer(merged)).against(unread)[0] is None


CASE = """
import torch
from truefuse.layouts import layout
from truefuse.probe import Probe
from truefuse.probe_producer import Producer

declared = layout("a=D | b=D").bind(D=3)
probes = [Probe("x", declared, lambda rows: {{"out": rows[:, {reads}]}},
                lambda tensors: {{"out": torch.cat([tensors["a"], tensors["b"]], 1)}})]
producers = [Producer("x", declared, {{"w": declared}}, lambda w, x: x @ w["w"][{writes}].T)]
"""
PLAIN, SWAPPED = "[0, 1, 2, 3, 4, 5]", "[3, 4, 5, 0, 1, 2]"


@pytest.mark.parametrize(
    ("reads", "writes", "status", "wanted"),
    [
        (PLAIN, PLAIN, 0, "the columns are in the kernel's order"),
        (PLAIN, SWAPPED, 1, "offset 0: the producer wrote b[0], the kernel reads a[0]"),
        (SWAPPED, SWAPPED, 1, "the columns are in the kernel's order"),  # And not as declared.
    ],
)
def test_the_command(reads, writes, status, wanted, tmp_path):
    path = tmp_path / "case.py"
    path.write_text(CASE.format(reads=reads, writes=writes))
    found = CliRunner().invoke(app, ["probe", str(path), "--producer"])
    assert found.exit_code == status, found.output
    assert wanted in found.output
    data = json.loads(CliRunner().invoke(app, ["probe", str(path), "--producer", "--json"]).stdout)
    assert [set(one) >= {"agrees", "first_disagreement"} for one in data] == [True, True]
    if reads == PLAIN:
        assert CliRunner().invoke(app, ["probe", str(path)]).exit_code == 0


def test_a_file_without_producers_is_status_two(tmp_path):
    path = tmp_path / "case.py"
    path.write_text("probes = []")
    found = CliRunner().invoke(app, ["probe", str(path), "--producer"])
    assert found.exit_code == 2 and "producers" in found.output
