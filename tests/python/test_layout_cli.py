"""truefuse layout: statuses, messages, JSON and the picture."""

import json
import xml.etree.ElementTree as xml

import pytest
from typer.testing import CliRunner

pytest.importorskip("truefuse.layouts")

from truefuse import layout_picture
from truefuse.cli import app
from truefuse.layouts import layout

SIZES = ["H=16", "G=3", "K=128", "V=128"]
PAIR = ["qwen3-next/qkvz", "qwen3.5/qkvz"]


def run(*arguments):
    return CliRunner().invoke(app, ["layout", *map(str, arguments)])


def test_show_names_who_is_where():
    found = run("show", "H (q=K | k=K | v=G V | z=G V)", *SIZES)
    assert found.exit_code == 0, found.output
    assert "16,384 elements" in found.output
    assert "base 256" in found.output and "H=16 stride 1024" in found.output
    assert "128…255    k[0,0…127]" in found.output
    data = json.loads(run("show", PAIR[0], *SIZES, "--json").stdout)
    assert data["size"] == 16384 and data["runs"][1]["who"] == "k[0,0…127]"


def test_diff_names_the_first_difference():
    found = run("diff", *PAIR, *SIZES)
    assert found.exit_code == 1, found.output
    assert "15,488 of 16,384 elements are somebody else" in found.output
    assert "offset 128: the producer wrote k[0,0], the reader takes it for q[1,0]" in found.output
    data = json.loads(run("diff", *PAIR, *SIZES, "--json").stdout)
    assert data["first"] == 128 and data["same"] == 896 and not data["more"]


def test_diff_of_the_same_is_status_zero():
    found = run("diff", PAIR[1], "q=H K | k=H K | (v=H G V | z=H*G V)", *SIZES)
    assert found.exit_code == 0, found.output
    assert "every element is at the same offset" in found.output


def test_convert_says_what_it_costs():
    found = run("convert", PAIR[1], PAIR[0], *SIZES, "--rows", 4)
    assert found.exit_code == 0, found.output
    assert "one copy: 256 KiB read and written for 4 rows" in found.output
    assert "torch.cat(" in found.output
    data = json.loads(run("convert", *PAIR, *SIZES, "--rows", 64, "--json").stdout)
    assert data["cheapest"] == "gather" and data["bytes"] == 64 * 2 * 16384 * 2 + 8 * 16384
    assert "a view, no memory is read" in run("convert", PAIR[1], "k=H K", *SIZES).output


def test_emit_and_share_and_list():
    assert (
        "LAYOUT_FUNCTION long long q_offset" in run("emit", PAIR[0], *SIZES, "--lang", "hip").output
    )
    shared = run("share", "qwen3-next/ba", "H=16", "G=3", "--axis", "H", "--world", 4, "--rank", 1)
    assert "24…47 of the whole → 0…23" in shared.output
    names = [entry["name"] for entry in json.loads(run("list", "--json").stdout)]
    assert set(PAIR) <= set(names)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["show", "H (q=K", "H=1"], "found the end"),
        (["show", "H K", "H=1"], "the size K is not given. Sizes: H=... K=..."),
        (["show", "H K", "H=1", "K=2", "T=3"], "no layout here has a size T. Sizes: H=... K=..."),
        (["show", "H K", "H=1", "K=two"], "'K=two' is no size. Sizes: H=... K=..."),
        (["show", "H K", "H=1", "H=1"], "H is given twice"),
        (["show", "H", "H=0"], "at least 1"),
        (["show", "H", "H=" + 20 * "9"], "does not fit in 64 bits"),
        (["show", "H", "H=" + 5000 * "9"], "is no size. Sizes: H=..."),
        (["show", "qwen/qkvz"], "there are qwen3-next/qkvz"),
        (["show", "H", "H=2", "--picture", "x.bmp"], "written as .svg"),
        (["show", "H", "H=2", "--picture", "/no/such/folder/x.svg"], "Name a file"),
        (["diff", "v=H G", "v=H K", "H=1", "G=2", "K=2"], "the same names and sizes"),
        (["convert", "q=H", "k=H", "H=1"], "holds no k"),
        (["emit", "H", "H=1", "--lang", "perl"], "there are triton, hip, python"),
        (["share", "H", "H=4", "--axis", "K", "--world", "2"], "the axes are H"),
        (["share", "H", "H=4", "--axis", "H", "--world", "3"], "cannot be shared"),
        (["wrong"], "diff"),
    ],
)
def test_bad_input_is_status_two(arguments, wanted):
    found = run(*arguments)
    assert found.exit_code == 2, found.output
    assert wanted in " ".join(found.output.split())


def test_a_share_of_a_large_pool_takes_no_memory():
    pool = ("slot H G V K", "slot=100000", "H=16", "G=3", "V=128", "K=128")
    shared = run("share", *pool, "--axis", "H", "--world", 4, "--rank", 1)
    assert shared.exit_code == 0, shared.output
    assert "196608…393215 of the whole → 0…196607" in shared.output


def test_the_caret_stands_under_its_place():
    lines = run("show", "H missing").output.splitlines()
    assert "missing" in lines[0]
    caret = run("show", "H K/4 V", "H=1", "K=4", "V=1").output.splitlines()
    assert caret[-1] == " " * (2 + len("H ")) + "^"


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", PAIR[0], *SIZES],
        ["show", "s@S (q=K | _=3)", "s=2", "S=50", "K=4"],
        ["show", "a b c", "a=100000", "b=100000", "c=3"],
        ["diff", *PAIR, *SIZES],
        ["diff", "H V K", "H K V", "H=2", "K=64", "V=64"],
        ["diff", "q=K | k=K", "q=K | z=V", "K=4", "V=8"],
    ],
)
def test_the_picture_is_self_contained_and_whole(arguments, tmp_path):
    path = tmp_path / "layout.svg"
    found = run(*arguments, "--picture", path)
    assert found.exit_code in (0, 1), found.output
    text = path.read_text(encoding="utf-8")
    assert "href" not in text and "url(" not in text and "<script" not in text
    root = xml.fromstring(text)
    width, height = float(root.get("width")), float(root.get("height"))
    for rectangle in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = float(rectangle.get("x", 0)), float(rectangle.get("y", 0))
        assert 0 <= x <= x + float(rectangle.get("width")) <= width + 0.5
        assert 0 <= y <= y + float(rectangle.get("height")) <= height


def fills(drawn):
    found = xml.fromstring(drawn).iter("{http://www.w3.org/2000/svg}rect")
    return [one.get("fill") for one in found if (one.get("fill") or "none") != "none"]


def test_a_name_has_one_colour_in_pictures_beside_one_another():
    pair = [layout(text).bind(D=4) for text in ("gate=D | up=D", "up=D | gate=D")]
    first, second = (fills(layout_picture.show(one, beside=pair)) for one in pair)
    assert first[-2:] == second[-2:][::-1]
    assert fills(layout_picture.show(pair[1]))[-2:] == first[-2:]  # alone, by its own order


def test_what_is_too_fine_to_draw_is_shown_as_shares():
    drawn = layout_picture.show(layout("D (gate=1 | up=1)").bind(D=1000))
    assert "share of each" in drawn and len(fills(drawn)) < 20
    assert "share of each" not in layout_picture.show(layout("D (gate=1 | up=1)").bind(D=100))


def test_the_picture_gives_every_segment_its_colour(tmp_path):
    path = tmp_path / "layout.svg"
    run("diff", *PAIR, *SIZES, "--picture", path)
    fills = {
        element.get("fill") for element in xml.parse(path).iter("{http://www.w3.org/2000/svg}rect")
    }
    assert len(fills - {None, "none"}) == 4
