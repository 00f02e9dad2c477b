"""The probe finds out which layout a kernel reads; the kernels are written in PyTorch."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

layouts = pytest.importorskip("truefuse.layouts")

from truefuse import probe  # noqa: E402
from truefuse.cli import app  # noqa: E402
from truefuse.layout_describe import describe  # noqa: E402

SIZES = {"H": 2, "G": 3, "K": 4, "V": 5}
H, G, K, V = SIZES.values()
INTERLEAVED = "H (q=K | k=K | v=G V | z=G V)"
FLAT = "q=H K | k=H K | v=H G V | z=H G V"
STATE = torch.randn(H, G, K, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def bound(text, **sizes):
    return layouts.layout(text).bind(**(sizes or SIZES))


def delta_rule(q, k, v, z, state=STATE, group=lambda x: x[:, :, None]):
    """One step of a gated delta rule with a gated norm, small; z is also copied out."""
    q, k = (group(x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()) for x in (q, k))
    state = 0.9 * state
    read = torch.einsum("rhgk,hgkv->rhgv", k.expand(-1, H, G, K), state)
    new = state + torch.einsum("rhgk,rhgv->rhgkv", k.expand(-1, H, G, K), 0.7 * (v - read))
    core = torch.einsum("rhgk,rhgkv->rhgv", q.expand(-1, H, G, K), new)
    normed = core * (core.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    return {"out": normed * torch.nn.functional.silu(z), "state": new}


def reference(tensors):
    return delta_rule(**tensors)


def tiled(x):
    """Value head n takes key head n modulo H."""
    heads = torch.arange(H * G) % H
    return x[:, heads].view(-1, H, G, K)


def reading(text, step=delta_rule, swap=None):
    """A kernel that reads a row in a layout, whatever is declared."""
    mine = bound(text)

    def kernel(rows):
        tensors = probe._logical(rows.double(), mine)
        for segment in mine.segments:  # Axes in the order H, G, V or H, K.
            names = ["row", *(axis["name"] for axis in segment["axes"])]
            order = sorted(range(len(names)), key=lambda i: ("row", *SIZES).index(names[i]))
            tensors[segment["name"]] = tensors[segment["name"]].permute(order)
        for a, b in swap or ():
            tensors[a], tensors[b] = tensors[b], tensors[a]
        return step(**tensors)

    return kernel


def asked(declared, kernel, **more):
    return probe.run(probe.Probe("qkvz", bound(declared), kernel, reference, batch=32, **more))


@pytest.mark.parametrize("text", [INTERLEAVED, FLAT])
def test_an_honest_kernel_agrees(text):
    found = asked(text, reading(text))
    assert found.agrees is True
    assert bound(found.found).compare(bound(text))["first"] is None
    assert found.lines()[-1].startswith("✓")


def test_another_layout_is_found_and_named():
    found = asked(FLAT, reading(INTERLEAVED))
    assert found.agrees is False
    assert found.found == INTERLEAVED
    assert found.first_disagreement() == "offset 4: declared q[1,0], read as k[0,0]"


def test_half_precision_is_enough():
    found = asked(FLAT, reading(INTERLEAVED), dtype=torch.bfloat16)
    assert found.found == INTERLEAVED


@pytest.mark.parametrize(("pair", "wanted"), [(("q", "k"), "k=H K | q=H K | v=H G V | z=H G V"),
                                               (("v", "z"), "q=H K | k=H K | z=H G V | v=H G V")])  # fmt: skip
def test_swapped_segments_are_found(pair, wanted):
    found = asked(FLAT, reading(FLAT, swap=[pair]))
    assert found.agrees is False and found.found == wanted


def test_value_heads_in_another_order_are_found():
    found = asked(FLAT, reading("q=H K | k=H K | v=G H V | z=H G V"))
    assert found.found == "q=H K | k=H K | v=G H V | z=H G V"


def test_tiled_heads_are_no_layout_but_a_named_alternative():
    def step(**tensors):
        return delta_rule(**tensors, group=tiled)

    found = asked(FLAT, reading(FLAT, step))
    assert found.agrees is False and found.found is None
    assert "no single element's" in found.first_disagreement()
    alternatives = {"key heads tiled (n modulo H)": lambda tensors: step(**tensors)}
    found = asked(FLAT, reading(FLAT, step), alternatives=alternatives)
    assert found.agrees is False
    assert found.alternative == "key heads tiled (n modulo H)" and found.found == FLAT


def test_a_transposed_state_is_found():
    sizes = {"H": 2, "G": 1, "K": 4, "V": 4}
    query = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def read(tensors):
        state = tensors["state"]
        return {"out": torch.einsum("hgk,rhgkv->rhgv", query, state)}

    def kernel(rows):
        return {"out": torch.einsum("hgk,rhgvk->rhgv", query, rows.double().view(-1, 2, 1, 4, 4))}

    found = probe.run(probe.Probe("state", bound("state=H G K V", **sizes), kernel, read, batch=16))
    assert found.agrees is False and found.found == "state=H G V K"
    honest = replace(
        probe.Probe("state", bound("state=H G V K", **sizes), kernel, read, batch=16),
        reference=lambda t: read({"state": t["state"].transpose(-1, -2)}),
    )
    assert probe.run(honest).agrees is True


def swiglu(gate, up):
    return {"out": torch.nn.functional.silu(gate) * up}


def test_interleaved_swiglu_is_found():
    found = probe.run(
        probe.Probe(
            "x",
            bound("gate=D | up=D", D=7),
            lambda rows: swiglu(rows[:, 0::2], rows[:, 1::2]),
            lambda tensors: swiglu(**tensors),
            batch=5,
        )
    )
    assert found.found == "D (gate=1 | up=1)"
    assert found.first_disagreement() == "offset 1: declared gate[1], read as up[0]"


def test_what_cannot_be_told_apart_is_unknown():
    probing = probe.Probe(
        "x",
        bound("a=D | b=D", D=3),
        lambda rows: {"out": rows[:, :3] + rows[:, 3:]},
        lambda tensors: {"out": tensors["a"] + tensors["b"]},
    )
    found = probe.run(probing)
    assert found.agrees is None and found.found is None
    assert found.candidates[0] == [0, 3]
    assert "offset 0 may be a[0], b[0]" in found.lines()[2]
    # Unknown is not everything: an element of the wrong column is still found.
    wrong = replace(probing, kernel=lambda rows: {"out": rows[:, [1, 0, 2]] + rows[:, 3:]})
    assert probe.run(wrong).agrees is False


def test_padding_is_what_nobody_reads():
    def kernel(rows):
        return swiglu(rows[:, 0:4], rows[:, 6:10])

    probing = probe.Probe(
        "x", bound("gate=D | _=2 | up=D", D=4), kernel, lambda tensors: swiglu(**tensors)
    )
    assert probe.run(probing).agrees is True
    unread = replace(probing, kernel=lambda rows: swiglu(rows[:, 0:4], 0.25 + 0 * rows[:, 6:10]))
    assert probe.run(unread).first_disagreement() == "offset 6: declared up[0], not read at all"


@pytest.mark.parametrize("copies", [True, False])
def test_padding_that_is_read_is_a_disagreement(copies):
    """With `copies` everything else is found from marks alone."""

    def kernel(rows):
        gate, up = rows[:, 0:4], rows[:, 6:10]
        told = {"gate": gate, "up": up} if copies else {}
        return {"out": swiglu(gate, up)["out"] + rows[:, 4:5] / 2, **told}

    def wanted(tensors):
        return {**swiglu(**tensors), **(tensors if copies else {})}

    found = probe.run(probe.Probe("x", bound("gate=D | _=2 | up=D", D=4), kernel, wanted))
    assert found.agrees is False
    assert found.first_disagreement().startswith("offset 4: declared padding, read ")


def test_marks_of_a_sum_are_nobodys():
    def call(rows):
        return {"sum": rows[:, :2] + rows[:, 2:], "copy": rows[:, [3, 0]]}

    followed, moves = probe.probe_marks.spelled(call, 4, torch.arange(4), 0.25, 1.0, 3)
    assert followed["sum"].tolist() == [probe.probe_marks.NOBODY] * 2
    assert followed["copy"].tolist() == [3, 0] and moves


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ('{"out": rows[:, :2]}', "must return the same outputs"),
        ('{"out": rows * float("nan")}', "an output is not finite"),
        ("rows", "returns a Tensor; it must return its outputs by name"),
    ],
)
def test_kernels_that_cannot_be_asked_are_status_two(kernel, wanted, tmp_path):
    path = tmp_path / "case.py"
    path.write_text(
        "from truefuse.layouts import layout\nfrom truefuse.probe import Probe\n"
        f'probes = [Probe("x", layout("a=D").bind(D=3), lambda rows: {kernel},\n'
        '                lambda tensors: {"out": tensors["a"]})]\n'
    )
    found = CliRunner().invoke(app, ["probe", str(path)])
    assert found.exit_code == 2, found.output
    assert wanted in " ".join(found.output.split()) and "probe of x" in found.output


def test_a_kernel_that_reads_nothing():
    deaf = probe.Probe("x", bound("a=D | b=D", D=3), lambda rows: {"out": 0 * rows[:, :3]},
                       lambda tensors: {"out": tensors["a"] + 2 * tensors["b"]})  # fmt: skip
    lines = probe.run(deaf).lines()
    assert lines[1:] == [
        "found     x: 6 of 6 elements are not read",
        "✗ offset 0: declared a[0], not read at all",
    ]


@pytest.mark.parametrize(
    "text", ["D (a=T | _=1) | b=D", "_=2 | b=D | D (_=1 | a=T)", "b=D | a=T D", "D (a=T | b=1)"]
)
def test_describe_writes_a_layout_back(text):
    sizes = {"D": 3, "T": 2}
    wanted = bound(text, **sizes)
    hole = f" | _={wanted.size - 9}" if wanted.size > 9 else ""
    declared = bound(f"a=D T | b=D{hole}", **sizes)
    assert describe(declared.index_map(wanted), declared) == text


@pytest.mark.parametrize(
    "text",
    [
        "D/3 (a=D%3 T | b=D%3)",
        "a=D/6 D%3 T D/3%2 | b=D",
        "a=D%3 T D/3 | b=D",
        "b=D | D/6 (_=1 | a=T D%6)",
    ],
)
@pytest.mark.parametrize("declared", ["a=D T | b=D", "a=D/4 T 4 | b=D"])
def test_describe_finds_where_an_axis_is_split(declared, text):
    wanted = bound(text, D=12, T=2)
    hole = f" | _={wanted.size - 36}" if wanted.size > 36 else ""
    as_declared = bound(declared + hole, D=12, T=2)
    assert describe(as_declared.index_map(wanted), as_declared) == text


def test_describe_knows_what_is_no_layout():
    declared = bound("a=D", D=8)
    for order in ([0, 1, 2, 4, 3, 5, 6, 7], [1, 0, 2, 3, 4, 5, 6, 7], [0, 3, 6, 1, 4, 7, 2, 5]):
        assert describe(torch.tensor(order), declared) is None


CASE = """
from truefuse.layouts import layout
from truefuse.probe import Probe

def f(a, b):
    return {{"out": a * 2 + b}}

probes = [Probe("x", layout("a=D | b=D").bind(D=3), lambda rows: f(rows[:, {a}], rows[:, {b}]),
                lambda tensors: f(**tensors))]
"""


@pytest.mark.parametrize(
    ("a", "b", "status", "wanted"),
    [
        ("0:3", "3:6", 0, "the kernel reads the declared layout"),
        ("3:6", "0:3", 1, "found     x: b=D | a=D"),
    ],
)
def test_the_command(a, b, status, wanted, tmp_path):
    path = tmp_path / "case.py"
    path.write_text(CASE.format(a=a, b=b))
    found = CliRunner().invoke(app, ["probe", str(path)])
    assert found.exit_code == status, found.output
    assert wanted in found.output
    data = json.loads(CliRunner().invoke(app, ["probe", str(path), "--json"]).stdout)
    assert data[0]["agrees"] is (status == 0)


@pytest.mark.parametrize(
    ("loading", "calling", "words"),
    [
        ("os._exit(0)", "pass", "it called exit(0)"),
        ("pass", "os._exit(0)", "it called exit(0)"),
        ("pass", "os.abort()", "killed by SIGABRT"),
        ("pass", "print('about', 1 / 0)", "ZeroDivisionError"),
    ],
)
def test_a_case_that_ends_the_process_is_not_known(loading, calling, words, tmp_path):
    path = tmp_path / "case.py"
    text = CASE.format(a="0:3", b="3:6").replace("def f(a, b):", f"def f(a, b):\n    {calling}")
    path.write_text(f"import os\n{loading}\n{text}")
    found = CliRunner().invoke(app, ["probe", str(path)])
    assert found.exit_code == 3, found.output
    assert words in found.output and "ended without an answer" in found.output


def test_what_a_case_prints_is_shown_and_is_no_answer(tmp_path):
    path = tmp_path / "case.py"
    path.write_text("print('loaded')\n" + CASE.format(a="0:3", b="3:6"))
    found = CliRunner().invoke(app, ["probe", str(path), "--json"])
    assert found.exit_code == 0 and "loaded" in found.stderr
    assert json.loads(found.stdout)[0]["agrees"] is True


@pytest.mark.parametrize("text", [None, "probes = 3", "probes = []", "1 / 0"])
def test_a_bad_case_is_status_two(text, tmp_path):
    path = tmp_path / "case.py"
    if text is not None:
        path.write_text(text)
    found = CliRunner().invoke(app, ["probe", str(path)])
    assert found.exit_code == 2, found.output
    assert ("ZeroDivisionError" if text == "1 / 0" else "probes") in found.output
