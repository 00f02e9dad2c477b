"""The probe on a GPU: on gdn_decode at the size of a model, and on a Triton kernel with many arguments."""

from dataclasses import replace

import pytest
import torch

from truefuse import probe
from truefuse.case import beside, builtin_directory
from truefuse.layouts import layout

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

CASE = beside(str(builtin_directory() / "gdn_decode/case.py"), "probes")
INTERLEAVED = "H (q=K | k=K | v=G V | z=G V)"
FLAT = "q=H K | k=H K | v=H G V | z=H G V"
SIZES = {"H": 4, "G": 3, "K": 32, "V": 16}


@triton.jit
def split_kernel(
    rows, mixed, z, scale, row_stride, mixed_stride, z_stride,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Reads interleaved rows: q, k and v go to `mixed`, in the order of the convolution, times `scale`;
    z apart."""
    row, h = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, BLOCK)
    width: tl.constexpr = 2 * K + 2 * G * V
    x = tl.load(rows + row * row_stride + h * width + i, mask=i < width)
    channel = tl.where(i < K, h * K + i,
                       tl.where(i < 2 * K, H * K + h * K + i - K,
                                2 * H * K + h * G * V + i - 2 * K))  # fmt: skip
    factor = tl.load(scale + channel, mask=i < 2 * K + G * V)
    tl.store(mixed + row * mixed_stride + channel, x * factor, mask=i < 2 * K + G * V)
    at = h * G * V + i - 2 * K - G * V
    tl.store(z + row * z_stride + at, x, mask=(i >= 2 * K + G * V) & (i < width))


def split(rows):
    H, G, K, V = SIZES.values()
    mixed = rows.new_empty(len(rows), 2 * H * K + H * G * V)
    z = rows.new_empty(len(rows), H * G * V)
    block = triton.next_power_of_2(2 * K + 2 * G * V)
    split_kernel[len(rows), H](
        rows, mixed, z, scale().to(rows.device), rows.stride(0), mixed.stride(0), z.stride(0), H, G, K, V,
        block,
    )  # fmt: skip
    return {"mixed": mixed, "z": z}


def scale():
    H, G, K, V = SIZES.values()
    return torch.linspace(0.5, 2, 2 * H * K + H * G * V)


def reference(tensors):
    mixed = torch.cat([tensors[name].flatten(1) for name in "qkv"], 1)
    return {"mixed": mixed * scale().double(), "z": tensors["z"].flatten(1)}


@pytest.mark.parametrize(("declared", "agrees"), [(INTERLEAVED, True), (FLAT, False)])
def test_a_triton_kernel_is_asked(declared, agrees):
    bound = layout(declared).bind(**SIZES)
    found = probe.run(probe.Probe("rows", bound, split, reference, device="cuda", batch=64))
    assert found.agrees is agrees and found.found == INTERLEAVED
    if not agrees:
        assert found.first_disagreement() == "offset 32: declared q[1,0], read as k[0,0]"


def test_the_operator_reads_what_is_declared():
    for asked in CASE.probes:
        found = probe.run(replace(asked, device="cuda"))
        assert found.agrees is True, found.lines()


def test_the_operator_with_the_other_models_text_is_found():
    layer = CASE.Layer(CASE.MODEL)
    asked = CASE.rows_probe(layer, "qwen3.5/qkvz", "qwen3-next/qkvz")
    found = probe.run(replace(asked, device="cuda"))
    assert found.agrees is False and found.found == INTERLEAVED
