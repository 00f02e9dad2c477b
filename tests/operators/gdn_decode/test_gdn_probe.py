"""`truefuse probe` on the operator: it finds out what is read, as declared and otherwise."""

from dataclasses import replace

import pytest
import torch
from gdn import FLAT, INTERLEAVED

from truefuse import probe, probe_producer
from truefuse.case import beside, builtin_directory

case = beside(str(builtin_directory() / "gdn_decode/case.py"), "probes")
SIZES = {"H": 2, "G": 3, "K": 16, "V": 8}
QKVZ = {"qwen3-next/qkvz": INTERLEAVED["qkvz_layout"], "qwen3.5/qkvz": FLAT["qkvz_layout"]}
BA = {"qwen3-next/ba": INTERLEAVED["ba_layout"], "qwen3.5/ba": FLAT["ba_layout"]}


@pytest.fixture(scope="module", params=[True, False], ids=["norm", "core"])
def layer(request):
    return case.Layer(SIZES, norm=request.param)


def rows(layer, declared, read=None, **more):
    return probe.run(case.rows_probe(layer, declared, read, **more))


@pytest.mark.parametrize("name", QKVZ)
def test_rows_are_read_as_declared(layer, name):
    found = rows(layer, name)
    if layer.norm:
        assert found.agrees is True and found.found == QKVZ[name]
    else:  # Without a norm nobody reads z.
        assert found.agrees is False and "declared z[0,0,0], not read" in found.first_disagreement()


@pytest.mark.parametrize("name", BA)
def test_gates_are_read_as_declared(layer, name):
    exact = case.Layer(SIZES, norm=layer.norm, dtype=torch.float32)
    found = rows(exact, name, argument="ba")
    assert found.agrees is True and found.found == BA[name]


def test_rows_read_as_the_other_models_are_found():
    layer = case.Layer(SIZES)
    found = rows(layer, "qwen3.5/qkvz", "qwen3-next/qkvz")
    assert found.agrees is False and found.found == INTERLEAVED["qkvz_layout"]
    assert found.first_disagreement() == "offset 16: declared q[1,0], read as k[0,0]"
    exact = case.Layer(SIZES, dtype=torch.float32)
    found = rows(exact, "qwen3-next/ba", "qwen3.5/ba", argument="ba")
    assert found.agrees is False and found.found == FLAT["ba_layout"]


@pytest.mark.parametrize(
    ("sizes", "declared", "read"),
    [
        (SIZES, "q=H K | k=H K | v=H G V | z=H G V", "k=H K | q=H K | v=H G V | z=H G V"),
        (SIZES, "q=H K | k=H K | v=H G V | z=H G V", "q=H K | k=H K | z=H G V | v=H G V"),
        # With one value head for each key head and K = V, q and z have the same shape.
        ({"H": 3, "G": 1, "K": 8, "V": 8}, "H (q=K | k=K | v=G V | z=G V)",
         "H (z=G V | k=K | v=G V | q=K)"),
    ],
    ids=["q and k", "v and z", "q and z"],
)  # fmt: skip
def test_swapped_segments_are_found(sizes, declared, read):
    found = rows(case.Layer(sizes), declared, read)
    assert found.agrees is False
    assert layer_order(found.found, sizes) == layer_order(read, sizes)
    assert "read as" in found.first_disagreement()


def layer_order(text, sizes):
    bound = case.layout(text).bind(**sizes)
    return [bound.element_at(offset).segment for offset in range(bound.size)]


class Tiled:
    """A layer in which value head n uses key head n modulo H: the same with its value heads, weights and
    states in the order [h, g] -> g H + h, and its outputs back in that of the heads."""

    def __init__(self, layer):
        H, G, K, V = (layer.sizes[name] for name in "HGKV")
        self.layer = case.Layer(layer.sizes)
        self.head = torch.arange(H * G).view(G, H).T.flatten()
        values = (self.head[:, None] * V + torch.arange(V)).flatten()
        keys = 2 * H * K
        self.channels = torch.cat([torch.arange(keys), keys + values])
        self.columns = torch.cat([self.channels, keys + H * G * V + values])  # Of a flat row.
        w = layer.weights
        self.layer.weights = replace(
            w, A_log=w.A_log[self.head], dt_bias=w.dt_bias[self.head], conv=w.conv[self.channels]
        )
        self.layer.window, self.layer.state = layer.window[self.channels], layer.state[self.head]
        for name in "ba":
            self.layer.rows[name] = layer.rows[name].flatten()[self.head].view(H, G)

    def back(self, found):
        index = {"out": self.head.argsort(), "inputs": self.channels.argsort()}
        return {name: found[name][:, index[name]] for name in found}

    def kernel(self, rows):
        rows = rows[:, self.columns].contiguous()
        return self.back(self.layer.kernel("qwen3.5/qkvz", "qwen3.5/ba", qkvz=rows))

    def reference(self, tensors):
        order = lambda t: t.flatten(1, 2)[:, self.head].view_as(t)  # noqa: E731
        tensors = {name: order(t) if name in "vz" else t for name, t in tensors.items()}
        return self.back(self.layer.reference(tensors))


@pytest.mark.parametrize("few", [True, False])
def test_tiled_heads_are_no_layout_but_a_named_alternative(few, monkeypatch):
    """`few`: asked about one by one; else as a large argument is."""
    if not few:
        monkeypatch.setattr(probe, "FEW", 0)
    layer = case.Layer(SIZES)
    kernel = Tiled(layer).kernel
    asked = replace(case.rows_probe(layer, "qwen3.5/qkvz"), kernel=kernel)
    found = probe.run(asked)
    assert found.agrees is False
    if few:
        assert "no single element's" in found.first_disagreement()
    else:
        assert "'out' is something else" in found.lines()[-1]
    found = probe.run(replace(asked, alternatives={"key heads tiled": Tiled(layer).reference}))
    assert found.agrees is False and found.alternative == "key heads tiled"
    assert found.found == FLAT["qkvz_layout"]


@pytest.mark.parametrize(
    ("declared", "order", "agrees"),
    [
        ("state=H G V K", "[HV,V,K]", True),
        ("state=H G K V", "[HV,K,V]", True),
        ("state=H G V K", "[HV,K,V]", False),
        ("state=H G K V", "[HV,V,K]", False),
    ],
)
def test_a_transposed_state_is_found(declared, order, agrees):
    layer = case.Layer(case.SMALL, norm=False, dtype=torch.float32)
    found = probe.run(case.state_probe(layer, declared, order))
    assert found.agrees is agrees
    assert found.found == f"state=H G {'V K' if order == '[HV,V,K]' else 'K V'}"


@pytest.mark.parametrize("read", [None, "qwen3-next/qkvz"])
def test_a_row_of_a_models_size_takes_few_calls(read):
    """16,384 elements, 3 MiB of state: less than a hundred sequences are asked."""
    layer = case.Layer(case.MODEL)
    asked = case.rows_probe(layer, "qwen3.5/qkvz", read)
    sequences = []

    def counted(function):
        def call(rows):
            sequences.append(len(rows) if isinstance(rows, torch.Tensor) else len(rows["q"]))
            return function(rows)

        return call

    kernel, reference = counted(asked.kernel), counted(asked.reference)
    found = probe.run(replace(asked, kernel=kernel, reference=reference))
    assert found.agrees is (read is None)
    assert found.found == (INTERLEAVED if read else FLAT)["qkvz_layout"]
    assert sum(sequences) < 400


@pytest.mark.parametrize("model", case.MODELS)
def test_what_the_models_projections_write_is_what_is_read(model):
    layer = case.Layer(SIZES, dtype=torch.float32)
    for argument in ("qkvz", "ba"):
        name = f"{model}/{argument}"
        produced = probe_producer.follow(case.merged(model, argument, layer))
        consumer = rows(layer, name, argument=argument)
        assert produced.against(consumer)[0] is True
        other = f"{next(m for m in case.MODELS if m != model)}/{argument}"
        agrees, lines = produced.against(rows(layer, name, other, argument=argument))
        assert agrees is False and "the producer wrote" in lines[-1]
