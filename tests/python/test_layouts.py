"""Layouts from Python: the same elements as PyTorch's reshape and split find, whatever the layout."""

import os
import random
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

truefuse = pytest.importorskip("truefuse")
layouts = pytest.importorskip("truefuse.layouts")
layout = layouts.layout

QWEN = {"H": 4, "G": 3, "K": 8, "V": 16}
NAMES = ("qwen3-next/qkvz", "qwen3.5/qkvz")


def split_interleaved(row, H, G, K, V):
    """Qwen3-Next's projection as its reference takes it apart: view per key head, split, reshape."""
    q, k, v, z = torch.split(row.view(H, 2 * K + 2 * G * V), [K, K, G * V, G * V], dim=-1)
    return {"q": q, "k": k, "v": v.reshape(H, G, V), "z": z.reshape(H, G, V)}


def split_flat(row, H, G, K, V):
    q, k, v, z = torch.split(row, [H * K, H * K, H * G * V, H * G * V], dim=-1)
    return {
        "q": q.view(H, K),
        "k": k.view(H, K),
        "v": v.view(H, G, V),
        "z": z.view(H, G, V),
    }


@pytest.mark.parametrize(("name", "split"), [(NAMES[0], split_interleaved), (NAMES[1], split_flat)])
@pytest.mark.parametrize("ratio", [1, 2, 3, 8])
def test_named_projections_are_what_split_and_reshape_find(name, split, ratio):
    sizes = {**QWEN, "G": ratio}
    bound = layout(name).bind(**sizes)
    for segment, offsets in split(torch.arange(bound.size), **sizes).items():
        for index in torch.cartesian_prod(*(torch.arange(n) for n in offsets.shape)).tolist()[::7]:
            assert bound.offset(segment, *index) == offsets[tuple(index)]


@pytest.mark.parametrize("ratio", [1, 3])
def test_named_ba_is_what_split_finds(ratio):
    row = torch.arange(2 * 4 * ratio)
    pair = row.view(4, 2 * ratio)
    flat = row.view(2, 4, ratio)
    interleaved = layout("qwen3-next/ba").bind(H=4, G=ratio)
    halves = layout("qwen3.5/ba").bind(H=4, G=ratio)
    for h in range(4):
        for g in range(ratio):
            assert interleaved.offset("b", h, g) == pair[h, g]
            assert interleaved.offset("a", h, g) == pair[h, ratio + g]
            assert halves.offset("b", h, g) == flat[0, h, g]
            assert halves.offset("a", h, g) == flat[1, h, g]


def test_the_swizzled_state_is_a_reshape():
    state = torch.arange(2 * 3 * 8 * 5).view(2, 3, 8, 5)  # H G K V
    swizzled = state.view(2, 3, 2, 4, 5).transpose(-1, -2).flatten()  # H G K/4 V 4
    a = layout("transformers/state").bind(H=2, G=3, K=8, V=5)
    b = layout("aiter/state-swizzled").bind(H=2, G=3, K=8, V=5)
    assert torch.equal(a.convert(state.flatten(), b), swizzled)
    assert torch.equal(b.convert(swizzled, a), state.flatten())


# ---- random layouts -----------------------------------------------------------------------------


def splits(draw, name, size):
    cuts = [1]
    for cut in range(2, size):
        if size % cut == 0 and cut % cuts[-1] == 0 and draw(st.integers(0, 2)) == 0:
            cuts.append(cut)
    if len(cuts) == 1:
        return [name]
    parts = [f"{name}%{cuts[1]}"]
    for low, high in zip(cuts[1:], [*cuts[2:], None], strict=True):
        parts.append(f"{name}/{low}" + (f"%{high // low}" if high else ""))
    return parts


def nest(draw, segments, padding):
    """A random text that holds `segments`, {name: parts still to be placed}."""
    if len(segments) == 1:
        ((name, parts),) = segments.items()
        return f"{name}={' '.join(draw(st.permutations(parts)))}"
    common = [
        part
        for part in next(iter(segments.values()))
        if all(part in parts and len(parts) > 1 for parts in segments.values())
    ]
    if common and draw(st.integers(0, 2)):
        part = draw(st.sampled_from(common))
        inner = {name: [p for p in parts if p != part] for name, parts in segments.items()}
        return f"{part} ({nest(draw, inner, padding)})"
    names = draw(st.permutations(list(segments)))
    cut = draw(st.integers(1, len(names) - 1))
    sides = [{n: segments[n] for n in side} for side in (names[:cut], names[cut:])]
    left, right = (nest(draw, side, padding) for side in sides)
    hole = f" | _={draw(st.integers(1, 3))}" if padding and draw(st.booleans()) else ""
    return f"{left}{hole} | {right}"


@st.composite
def two_layouts(draw, padding=True):
    sizes = {name: draw(st.sampled_from([1, 2, 3, 4, 6, 8])) for name in "ABC"}
    segments = {
        name: draw(st.lists(st.sampled_from("ABC"), min_size=1, max_size=3, unique=True))
        for name in "pqr"[: draw(st.integers(1, 3))]
    }
    texts = []
    for _ in range(2):
        parts = {name: splits(draw, name, size) for name, size in sizes.items()}
        whole = {name: [p for axis in axes for p in parts[axis]] for name, axes in segments.items()}
        texts.append(nest(draw, whole, padding))
    return (*(layout(text).bind(**sizes) for text in texts),)


PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@PROPERTY
@given(two_layouts())
def test_offset_and_element_are_inverse(pair):
    for bound in pair:
        for offset in range(bound.size):
            element = bound.element_at(offset)
            if element.segment != "_":
                assert bound.offset(element.segment, *element.index) == offset


@PROPERTY
@given(two_layouts())
def test_an_index_map_and_its_inverse_are_the_identity(pair):
    a, b = pair
    there, back = a.index_map(b), b.index_map(a)
    held = (there >= 0).nonzero().flatten()
    assert torch.equal(back[there[held]], held)
    assert len(held) == sum(s["elements"] for s in b.segments if not s["padding"])


@PROPERTY
@given(two_layouts(), st.integers(1, 3))
def test_the_expression_computes_what_the_index_map_says(pair, rows):
    a, b = pair
    x = torch.arange(rows * a.size).view(rows, a.size)
    conversion = a.conversion(b)
    index = a.index_map(b)
    held = index >= 0
    if conversion.expression:
        found = eval(conversion.expression, {"x": x, "torch": torch})
        assert found.shape == (rows, b.size)
        assert torch.equal(found[:, held], x[:, index[held]])
    else:
        assert conversion.kind == "gather"
    assert torch.equal(a.convert(x, b)[:, held], x[:, index[held]])


@settings(max_examples=10, deadline=None)
@given(two_layouts(padding=False))
def test_the_expression_copies_no_more_than_it_says(pair):
    a, b = pair
    conversion = a.conversion(b)
    x = torch.arange(a.size, dtype=torch.int64)
    if not conversion.expression:
        return
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        kept = eval(conversion.expression, {"x": x, "torch": torch})
    made = sum(e.self_cpu_memory_usage for e in trace.events() if e.self_cpu_memory_usage > 0)
    assert made <= conversion.expression_moves // 2 * 8
    if conversion.kind in ("nothing", "view"):
        assert kept.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize("axis", ["H", "K"])
@pytest.mark.parametrize("name", NAMES)
def test_a_share_is_the_chunk_of_each_tensor(name, axis):
    split = split_interleaved if name == NAMES[0] else split_flat
    bound = layout(name).bind(**QWEN)
    row = torch.randn(bound.size)
    for rank in range(2):
        share = bound.share(axis, rank, 2)
        local = split(row[share.index], **{**QWEN, axis: QWEN[axis] // 2})
        for segment, tensor in split(row, **QWEN).items():
            dim = {"H": 0, "K": 1 if segment in "qk" else None}[axis]
            wanted = tensor if dim is None else tensor.chunk(2, dim)[rank]
            assert torch.equal(local[segment], wanted)


def test_a_gather_takes_tensors_without_data():
    padded = layout("H (q=K | k=K | _=2)").bind(H=2, K=4)
    rows = torch.zeros(3, 16, device="meta")
    got = layout("q=H K | k=H K").bind(H=2, K=4).convert(rows, padded)
    assert got.shape == (3, 20) and got.is_meta


# ---- emitted code -------------------------------------------------------------------------------

EMITTED = ["H (q=K | k=K | v=G V | z=G V)", "H G K/4 V 4", "K/4%2 s@40 (q=K%4 K/8 | _=3)"]
SIZES = {"H": 2, "G": 3, "K": 16, "V": 2, "s": 3}


def elements(bound):
    for offset in range(bound.size):
        element = bound.element_at(offset)
        if element.segment != "_":
            yield element, offset


@pytest.mark.parametrize("text", EMITTED)
def test_emitted_python_gives_the_offsets(text):
    bound = layout(text).bind(**SIZES)
    functions: dict = {}
    exec(bound.emit("python"), functions)
    for element, offset in elements(bound):
        assert functions[f"{element.segment}_offset"](*element.index) == offset


def triton_functions(bound, monkeypatch):
    """As far as tensors of PyTorch are like Triton's."""
    triton = types.ModuleType("triton")
    triton.jit = lambda function: function
    triton.language = types.ModuleType("triton.language")
    triton.language.int64 = torch.int64
    triton.language.cast = lambda index, dtype: torch.as_tensor(index).to(dtype)
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", triton.language)
    functions: dict = {}
    exec(bound.emit("triton"), functions)
    return functions


@pytest.mark.parametrize("text", EMITTED)
def test_emitted_triton_takes_tensors(text, monkeypatch):
    bound = layout(text).bind(**SIZES)
    functions = triton_functions(bound, monkeypatch)
    for segment in {element.segment for element, _ in elements(bound)}:
        pairs = [(e.index, offset) for e, offset in elements(bound) if e.segment == segment]
        columns = torch.tensor([index for index, _ in pairs]).unbind(-1)
        found = functions[f"{segment}_offset"](*columns)
        assert found.tolist() == [offset for _, offset in pairs]


def test_emitted_triton_reaches_the_end_of_a_large_pool(monkeypatch):
    """Slots come as int32, and slot 3972 of this pool begins beyond 2^31 elements."""
    sizes = {"slot": 4000, "HV": 32, "V": 128, "K": 128}
    bound = layout("slot@540672 (state=HV V K)").bind(**sizes)
    last = [size - 1 for size in sizes.values()]
    functions = triton_functions(bound, monkeypatch)
    found = functions["state_offset"](*(torch.tensor([i], dtype=torch.int32) for i in last))
    assert found.item() == bound.offset("state", *last) > 2**31
    found = functions["state_offset"](torch.tensor([3999], dtype=torch.int32), *last[1:])
    assert found.item() == bound.offset("state", *last)
    assert "int64" not in layout("H K/4 V 4").bind(H=2, K=8, V=4).emit("triton")


@pytest.mark.parametrize("text", EMITTED)
def test_emitted_hip_is_taken_by_a_host_compiler(text, tmp_path):
    bound = layout(text).bind(**SIZES)
    calls = "".join(
        f'  std::printf("%lld\\n", {e.segment}_offset({", ".join(map(str, e.index))}));\n'
        for e, _ in elements(bound)
    )
    source = tmp_path / "offsets.cpp"
    source.write_text(f"#include <cstdio>\n{bound.emit('hip')}\nint main() {{\n{calls}}}\n")
    program = tmp_path / "offsets"
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([*compiler.split(), "-Wall", "-Werror", source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert [int(line) for line in printed.split()] == [offset for _, offset in elements(bound)]


# ---- what is refused ----------------------------------------------------------------------------


def test_errors_are_sentences():
    with pytest.raises(RuntimeError, match=r"\^$"):
        layout("H (q=K")
    with pytest.raises(RuntimeError, match="the size K is not given"):
        layout("H K").bind(H=2)
    for size in (2.5, "2", None):
        with pytest.raises(RuntimeError, match=r"the size K is .*; it must be a whole number"):
            layout("H K").bind(H=2, K=size)
    for text in ("K\0V", "K \udc80"):
        with pytest.raises(RuntimeError, match=r"found '\?'"):
            layout(text)
    with pytest.raises(RuntimeError, match=r"x\[2,0\] does not exist"):
        layout("H K").bind(H=2, K=2).offset("x", 2, 0)
    with pytest.raises(RuntimeError, match="does not fit in 64 bits"):
        layout("H").bind(H=2).element_at(2**64)
    with pytest.raises(RuntimeError, match="last dimension must be the layout's size, 4"):
        layout("H").bind(H=4).convert(torch.zeros(2, 5), layout("H").bind(H=4))
    with pytest.raises(RuntimeError, match="holds no k"):
        layout("q=H").bind(H=4).index_map(layout("q=H | k=H").bind(H=4))


def test_pairs_and_halves_are_the_same_elements():
    pairs, halves = layout("D (gate=1 | up=1)").bind(D=3), layout("gate=D | up=D").bind(D=3)
    x = torch.arange(6)
    assert pairs.convert(x, halves).tolist() == [0, 2, 4, 1, 3, 5]
    conversion = halves.conversion(pairs)
    assert eval(conversion.expression, {"x": x, "torch": torch}).tolist() == [0, 3, 1, 4, 2, 5]


def test_padding_is_zero_where_it_is_written():
    a, b = layout("q=H").bind(H=3), layout("q=H@2 i:1").bind(H=3)
    with pytest.raises(RuntimeError, match="not the same elements"):
        a.index_map(b)
    b = layout("q=H | _=2").bind(H=3)
    assert a.convert(torch.tensor([1.0, 2.0, 3.0]), b).tolist() == [1, 2, 3, 0, 0]


def test_random_texts_end_in_a_layout_or_a_sentence():
    chance = random.Random(1)
    for _ in range(500):
        text = "".join(
            chance.choice("HKqv=|()/%@*:_04 é\"'\\") for _ in range(chance.randint(0, 14))
        )
        try:
            layout(text)
        except RuntimeError as error:
            assert str(error).startswith("layout: ")


def test_the_table_in_the_documentation_is_the_one_that_ships():
    page = Path(__file__).resolve().parents[2] / "docs" / "layouts.md"
    text = page.read_text(encoding="utf-8").replace("\\|", "|")
    for entry in layouts.named():
        assert f"| `{entry['name']}` | `{entry['text']}` | {entry['provenance']} |" in text
