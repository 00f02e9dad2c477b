"""An outside library writes arguments in place through the public registration, typed or boxed."""

import json
import subprocess
import sys

import pytest
from build import build

PROGRAM = """
import json, sys, torch, truefuse
torch.ops.load_library(sys.argv[1])
op = torch.ops.outside.accumulate.default
x = torch.arange(4.0)
total, count = torch.ones(4), torch.zeros(1)

versions = total._version, x._version, count._version
assert torch.equal(op(total, x, count, size=3), torch.ones(4))
assert torch.equal(total, 1 + 3 * x) and count == 1
assert total._version == versions[0] + 1 and count._version == versions[2] + 1
assert x._version == versions[1]
op(total, x, None, size=1)
assert torch.equal(total, 1 + 4 * x) and count == 1

lazy = torch._lazy_clone(total)
op(lazy, x, None, size=1)
assert torch.equal(total, 1 + 4 * x) and torch.equal(lazy, 1 + 5 * x)
op(torch._lazy_clone(x), x, None, size=1)  # One storage until it is written.
assert torch.equal(x, torch.arange(4.0))

with torch.inference_mode():
    inside = torch.ones(4)
    op(inside, x, None, size=1)
    version = total._version
op(total, x, None, size=1)

torch.library.opcheck(op, (torch.ones(4), x, torch.zeros(1)), {"size": 2})
compiled = torch.compile(
    lambda t, x: op(2 * t, x, None, size=1) + op(t, x, t[:0].new_zeros(1), size=2),
    fullgraph=True, backend="aot_eager",
)
t = torch.ones(4)
assert torch.equal(compiled(t, x), torch.full((4,), 3.0)) and torch.equal(t, 1 + 2 * x)

refusals = {}
for name, call in {
    "the same": lambda: op(x, x, None, size=1),
    "overlap": lambda: op(torch.zeros(8)[2:6], torch.zeros(1).expand(4), None, size=1),
    "part": lambda: (lambda m: op(m[2:6], m[:4], None, size=1))(torch.zeros(8)),
    "expanded": lambda: op(torch.zeros(1).expand(4), x, None, size=1),
    "two": lambda: (lambda m: op(m[:4], x, m[3:4], size=1))(torch.zeros(8)),
    "gradient": lambda: op(torch.zeros(4, requires_grad=True), x, None, size=1),
    "inference": lambda: op(inside, x, None, size=1),
}.items():
    try:
        call()
        refusals[name] = "accepted"
    except RuntimeError as error:
        refusals[name] = str(error)
print(json.dumps(refusals))
"""


def run(library):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(library)], capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip


@pytest.fixture(scope="module", params=[False, True], ids=["boxed", "typed"])
def refusals(request, tmp_path_factory):
    done = run(build(tmp_path_factory.mktemp("outside"), request.param, "accumulate"))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("the same", ["total is written in place", "x is the same memory"]),
        ("overlap", ["x is not contiguous"]),
        ("part", ["total is written in place", "x overlaps it in memory"]),
        ("expanded", ["total"]),
        ("two", ["total is written in place", "count overlaps it", "Give each memory of its own"]),
        ("gradient", ["a gradient is required"]),
        ("inference", ["total is an inference tensor", "torch.inference_mode()"]),
    ],
)
def test_refusals(refusals, name, words):
    assert all(word in refusals[name] for word in words), refusals[name]


def test_schema_and_contract_must_agree_on_what_is_written(tmp_path):
    done = run(build(tmp_path, False, "accumulate", "-DWRONG_SCHEMA"))
    assert done.returncode != 0
    assert "its schema accumulate(Tensor total" in done.stderr
    assert "differ: total is mutated in the contract" in done.stderr
    assert "in the schema it must be Tensor(a!)" in done.stderr
