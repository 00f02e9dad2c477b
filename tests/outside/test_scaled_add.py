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

torch.library.opcheck(op.default, (x, y, 0.5), {"relu": True})
torch.library.opcheck(op.default, (x.clone().requires_grad_(), y.clone().requires_grad_(), 0.5), {"relu": True})

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


GRADIENTS = """
import ctypes, sys, warnings, torch, truefuse
import torch.autograd.forward_ad as forward_ad
torch.ops.load_library(sys.argv[1])
op = torch.ops.outside.scaled_add
backward = torch.ops.outside.scaled_add_backward
calls = ctypes.CDLL(sys.argv[1]).outside_backward_calls
torch.manual_seed(0)

def eager(x, y, alpha, relu):
    out = alpha * x if y is None else alpha * x + y
    return out.clamp(min=0) if relu else out

def leaves(*wanted, shape=(3, 5)):
    return [torch.randn(shape, requires_grad=w) for w in wanted]

def raises(words, function, *arguments):
    try:
        function(*arguments)
    except RuntimeError as error:
        assert all(word in str(error) for word in words), str(error)
    else:
        raise AssertionError(f"no error with {words}")

# Which gradients are wanted, and incoming ones of any layout; one call of the backward operator each.
for wants in ((True, True), (True, False), (False, True)):
    for relu in (False, True):
        for reduce in (torch.sum, lambda t: (t.t().contiguous() ** 2).sum(), lambda t: torch.cat([t, t], 1)[:, :3].sum()):
            x, y = leaves(*wants)
            inputs = [t for t in (x, y) if t.requires_grad]
            out = op(x, y, 0.5, relu=relu)
            before = calls()
            got = torch.autograd.grad(reduce(out), inputs)
            assert calls() == before + 1
            want = torch.autograd.grad(reduce(eager(x, y, 0.5, relu)), inputs)
            torch.testing.assert_close(got, want)
x, = leaves(True)
op(x, None, -2.0, relu=True).sum().backward()
torch.testing.assert_close(x.grad, -2.0 * (x < 0).float())

# Only a part of what requires a gradient is asked for.
x, y = leaves(True, True)
got, = torch.autograd.grad(op(x, y, 0.5, relu=False).sum(), [y])
assert torch.equal(got, torch.ones(3, 5))
direct = backward(torch.ones(3, 5), x.detach(), None, 0.5, relu=False, x_wanted=False, y_wanted=True)
assert direct[0].shape == (0,) and torch.equal(direct[1], torch.ones(3, 5))

# Higher derivatives go through the composite.
x, y = leaves(True, True)
weights = torch.randn(3, 5, requires_grad=True)
def twice(f):
    first = torch.autograd.grad((f(x, y, 0.5, True) * weights).sum(), [x, y], create_graph=True)
    return torch.autograd.grad(sum((g ** 3).sum() for g in first), [weights], create_graph=True)[0]
before = calls()
second = twice(lambda x, y, a, relu: op(x, y, a, relu=relu))
assert calls() == before
torch.testing.assert_close(second, twice(eager))
torch.testing.assert_close(torch.autograd.grad(second.sum(), weights), torch.autograd.grad(twice(eager).sum(), weights))

# PyTorch's own errors: a saved tensor changed, a graph used twice.
x, y = leaves(True, True)
held = x * 1
out = op(held, y, 0.5, relu=True)
held.add_(1)
raises(["modified by an inplace operation"], out.sum().backward)
out = op(x, y, 0.5, relu=True)
out.sum().backward()
raises(["second time"], out.sum().backward)

# Hooks see and may replace what is saved.
packed = []
with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t * 0 - 1):
    out = op(x, None, 1.0, relu=True)
assert len(packed) == 1
assert torch.autograd.grad(out.sum(), x)[0].count_nonzero() == 0

# No gradient is recorded where none is wanted; forward mode is refused.
with torch.no_grad():
    assert not op(x, y, 1.0, relu=False).requires_grad
with torch.inference_mode():
    inference = op(x, y, 1.0, relu=False)
raises(["nference"], lambda: op(inference, y, 1.0, relu=False))
with forward_ad.dual_level():
    raises(["scaled_add", "forward-mode"], lambda: op(forward_ad.make_dual(x, x), y, 1.0, relu=False))
    with torch.no_grad():
        raises(["scaled_add", "forward-mode"], lambda: op(forward_ad.make_dual(x, x), y, 1.0, relu=False))

# torch.func
f = lambda x: (op(x, None, 0.5, relu=True) ** 3).sum()
g = lambda x: (eager(x, None, 0.5, True) ** 3).sum()
z = torch.randn(3, 5)
torch.testing.assert_close(torch.func.grad(f)(z), torch.func.grad(g)(z))
torch.testing.assert_close(torch.func.grad(lambda x: torch.func.grad(f)(x).sum())(z), torch.func.grad(lambda x: torch.func.grad(g)(x).sum())(z))
raises(["scaled_add", "forward-mode"], lambda: torch.func.jvp(f, (z,), (z,)))

# Compiled: one graph, forward and backward.
graphs = []
from torch._dynamo.backends.common import aot_autograd
compiler = lambda module, inputs: graphs.append(module) or module.forward
@torch.compile(dynamic=True, fullgraph=True, backend=aot_autograd(fw_compiler=compiler))
def model(x, y):
    return op(x, y, 2.0, relu=True) * 3
for rows in (2, 3, 5, 8, 13):
    x, y = leaves(True, True, shape=(rows, 7))
    got = torch.autograd.grad(model(x, y).sum(), [x, y])
    torch.testing.assert_close(got, torch.autograd.grad((eager(x, y, 2.0, True) * 3).sum(), [x, y]))
assert len(graphs) == 2, len(graphs)

# Under autocast y follows x: float32 here, because the contract has nothing else.
with torch.autocast("cpu", dtype=torch.bfloat16):
    x, y = leaves(True, False)
    assert op(x, y.bfloat16(), 1.0, relu=False).dtype == torch.float32
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
    ],
)
def test_refusals_come_from_its_contract(answer, name, words):
    sentence = answer["refusals"][name]
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize("typed", [False, True], ids=["boxed", "typed"])
def test_gradients(typed, tmp_path_factory):
    library = build(tmp_path_factory.mktemp("gradients"), typed)
    done = subprocess.run(
        [sys.executable, "-c", GRADIENTS, str(library)], capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def test_row_counts_stay_symbolic(answer):
    assert answer["graphs"] == 1


def test_it_is_described_like_a_shipped_one(answer):
    described, backward = answer["described"]
    assert backward["name"] == "scaled_add_backward"
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
