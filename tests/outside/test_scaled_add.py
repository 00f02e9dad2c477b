"""An outside library adds an operator with the public pieces alone, typed or boxed.

Each registration runs in a process of its own, since a name can be taken only once.
"""

import json
import subprocess
import sys

import pytest
from build import build

PROGRAM = """
import json, sys, torch, truefuse
from truefuse import _native
torch.ops.load_library(sys.argv[1])
op = torch.ops.outside.scaled_add

x, y = torch.randn(3, 5), torch.randn(3, 5)
torch.testing.assert_close(op(x, y, 0.5, relu=False), 0.5 * x + y)
torch.testing.assert_close(op(x, None, -2.0, relu=True), (-2 * x).clamp(min=0))
assert op(x[:0], None, 1.0, relu=True).shape == (0, 5)

meta = op(x.to("meta"), None, 1.0, relu=False)
assert meta.shape == (3, 5) and meta.is_meta

refusals = {}
for name, arguments in {
    "range": (x, None, 9.0), "rows": (x, y[:2], 1.0), "dtype": (x.double(), None, 1.0),
    "device": (x, y.to("meta"), 1.0), "strides": (x.t(), None, 1.0), "nan": (x, None, float("nan")),
}.items():
    try:
        op(*arguments, relu=False)
        refusals[name] = "accepted"
    except RuntimeError as error:
        refusals[name] = str(error)
try:
    op(x.requires_grad_(), None, 1.0, relu=False)
    refusals["gradient"] = "accepted"
except RuntimeError as error:
    refusals["gradient"] = str(error)

with torch.no_grad():
    torch.library.opcheck(op.default, (x.detach(), y, 0.5), {"relu": True})

graphs = []
def backend(module, inputs):
    graphs.append(module)
    return module.forward
model = torch.compile(lambda x: op(x, None, 2.0, relu=True) + 1, dynamic=True, fullgraph=True, backend=backend)
for rows in (2, 3, 5, 8, 13):
    z = torch.randn(rows, 7)
    torch.testing.assert_close(model(z), (2 * z).clamp(min=0) + 1)

described = [o for o in _native.operators() if o["namespace"] == "outside"]
print(json.dumps({"refusals": refusals, "graphs": len(graphs), "described": described}))
"""


@pytest.fixture(scope="module", params=[False, True], ids=["boxed", "typed"])
def answer(request, tmp_path_factory):
    library = build(tmp_path_factory.mktemp("outside"), typed=request.param)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(library)], capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("range", ["scaled_add", "alpha", "9", "[-8, 8]"]),
        ("nan", ["scaled_add", "alpha", "nan"]),
        ("rows", ["scaled_add", "y", "[2, 5]", "[3, 5]"]),
        ("dtype", ["scaled_add", "x", "float64", "float32"]),
        ("device", ["scaled_add", "y", "meta", "cpu"]),
        ("strides", ["scaled_add", "x", "contiguous"]),
        ("gradient", ["scaled_add", "gradient"]),
    ],
)
def test_refusals_come_from_its_contract(answer, name, words):
    sentence = answer["refusals"][name]
    assert all(word in sentence for word in words), sentence


def test_row_counts_stay_symbolic(answer):
    assert answer["graphs"] == 1


def test_it_is_described_like_a_shipped_one(answer):
    (described,) = answer["described"]
    assert described["name"] == "scaled_add"
    assert [v["label"] for v in described["variants"]] == ["plain", "relu"]
    assert [a["name"] for a in described["contract"]["arguments"]] == ["x", "y", "alpha", "relu"]


def test_its_kernel_compiles_for_targets_without_a_device(tmp_path_factory):
    library = build(tmp_path_factory.mktemp("compiled"), typed=False)
    code = (
        "import sys, torch, truefuse; from truefuse import _native\n"
        "torch.ops.load_library(sys.argv[1])\n"
        "found = [t['name'] for t in _native.toolchains() if t['found']]\n"
        "arch = 'gfx906' if 'hipRTC' in found or 'hipcc' in found else 'sm_90'\n"
        "answer = _native.compile('scaled_add', arch, 'relu', cache=False)\n"
        "assert answer['ok'], answer['error']\n"
        "print(answer['resources'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(library)], capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
