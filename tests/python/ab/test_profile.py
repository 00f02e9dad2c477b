"""Chains of operators, from runs and from traces, with bytes counted by hand."""

from __future__ import annotations

import gzip
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity
from typer.testing import CliRunner

from truefuse import profile_chains, profile_live, profile_trace
from truefuse.cli import app
from truefuse.profile_ops import Op, Profile, Value
from truefuse.profiling import record

X, B, W = torch.randn(64, 64), torch.randn(64), torch.randn(64, 64)
TENSOR, ROW = 64 * 64 * 4, 64 * 4


def chains_of(call):
    with torch.no_grad():
        ops = profile_live.run(call).ops
    return {chain.names: chain for chain in profile_chains.chains(ops)}


def test_a_chain_and_its_bytes():
    (chain,) = chains_of(lambda: torch.relu(X + B) * 2).values()
    assert chain.names == ("add", "relu", "mul")
    assert chain.before == (TENSOR + ROW + TENSOR) + 2 * TENSOR + 2 * TENSOR
    assert chain.after == TENSOR + ROW + TENSOR
    assert chain.seconds > 0


def test_a_value_that_is_read_elsewhere_has_to_be_written():
    def call():
        v = X + B
        return torch.relu(v) * 2, v @ W

    (chain,) = chains_of(call).values()
    assert chain.names == ("add", "relu", "mul")
    assert chain.after == TENSOR + ROW + 2 * TENSOR


def test_a_gated_product_is_found_across_the_projection_between():
    silu = torch.nn.functional.silu
    (chain,) = chains_of(lambda: silu(X @ W) * (X @ W.t())).values()
    assert chain.names == ("silu", "mul")
    assert (chain.before, chain.after) == (5 * TENSOR, 3 * TENSOR)


def test_what_would_have_to_run_in_between_splits_a_chain():
    def call():
        v = torch.relu(X)
        return v + v @ W

    assert chains_of(call) == {}


def test_two_kernels_that_would_wait_for_each_other_are_not_made():
    a, b, c, d = (Value(name, 8) for name in "abcd")
    ops = [
        Op("relu", 1.0, (Value("x", 8),), (a,)),
        Op("relu", 1.0, (Value("y", 8),), (b,)),
        Op("mul", 1.0, (a, b), (c,)),  # joins b's chain, which then waits for a's
        Op("add", 1.0, (a,), (d,)),
        Op("sub", 1.0, (d, c), (Value("e", 8),)),
    ]
    of = {i: n for n, chain in enumerate(profile_chains.chains(ops)) for i in chain.ops}
    edges = {(of.get(i), of.get(j)) for i, j in ((0, 2), (1, 2), (0, 3), (3, 4), (2, 4))}
    apart = {(one, other) for one, other in edges if one != other}
    assert not any((other, one) in apart for one, other in apart)


def test_memory_that_is_used_again_is_no_data_flow():
    """Where a freed result was, there may be something soon that no operator has made."""
    memory = bytearray(TENSOR)

    def call():
        torch.neg(X, out=torch.frombuffer(memory, dtype=torch.float32).view(64, 64))
        memory[:] = bytes(TENSOR)
        return torch.frombuffer(memory, dtype=torch.float32).view(64, 64) * 2

    assert chains_of(call) == {}


def test_views_and_in_place_operators_do_not_break_a_chain():
    def call():
        v = (X + B).t()
        return v.mul_(2).t().view(-1)[:64] + B

    (names,) = chains_of(call)
    assert names == ("add", "mul_", "add")


def test_groups_and_the_bound():
    def layer(n):
        v, w = Value((n, "v"), 100), Value((n, "w"), 100)
        matmul = Op("mm", 8.0, (Value((n, "x"), 100),), (v,))
        return [matmul, Op("relu", 1.0, (v,), (w,)), Op("mul", 1.0, (w,), (Value((n, "y"), 100),))]

    profile = Profile([*layer(0), *layer(1)], "cpu", "seen", "made up")
    (group,) = profile_chains.groups(profile)
    assert (group.count, group.share, group.before, group.saved) == (2, 0.2, 800, 400)
    # A fifth of the time, half of the bytes.
    assert group.bound == pytest.approx(1 / 0.9) and profile_chains.worth(group)


def test_a_trace_of_the_profiler(tmp_path):
    path = tmp_path / "trace.json"
    activities = [ProfilerActivity.CPU]
    recorded = record(lambda: torch.relu(X + B) * 2 @ W, activities, record_shapes=True)
    recorded.export_chrome_trace(str(path))
    found = profile_trace.read(path)
    assert (found.device, found.flow) == ("cpu", "by shapes")
    (group,) = profile_chains.groups(found)
    assert group.names == ("add", "relu", "mul") and group.saved == 4 * TENSOR
    assert any(op.name == "mm" and not op.fusible for op in found.ops)


def event(name, ts, dur, cat, **args):
    return {
        "ph": "X",
        "name": name,
        "ts": ts,
        "dur": dur,
        "cat": cat,
        "pid": 1,
        "tid": 1,
        "args": args,
    }


def gpu_trace():
    shape = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    one = {"Input Dims": [[64, 64]], "Input type": ["float"]}
    return [
        event("aten::add", 0, 5, "cpu_op", **{"External id": 1}, **shape),
        event("aten::relu", 10, 5, "cpu_op", **{"External id": 2}, **one),
        event("aten::mm", 20, 5, "cpu_op", **{"External id": 3}, **shape),
        event("add_kernel", 100, 30, "kernel", **{"External id": 1}),
        event("relu_kernel", 130, 20, "kernel", **{"External id": 2}),
        event("gemm", 150, 50, "kernel", **{"External id": 3}),
    ]


def test_device_time_belongs_to_the_operator_that_launched_it(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": gpu_trace()}).encode()))
    found = profile_trace.read(path)
    assert found.device == "gpu" and found.seconds == pytest.approx(100e-6)
    (group,) = profile_chains.groups(found)
    assert group.share == pytest.approx(0.5) and group.saved == 2 * TENSOR


def seconds_by_name(events):
    found = profile_trace.from_events(events)
    times = {}
    for op in found.ops:
        times[op.name] = times.get(op.name, 0.0) + op.seconds * 1e6
    assert found.seconds == pytest.approx(sum(times.values()) * 1e-6)
    return {name: pytest.approx(time) for name, time in times.items()}


def test_time_on_the_device_is_counted_once_and_none_is_lost():
    """As of a model part of which is a replayed graph: its kernels name no operator, or one that is not here."""
    stray = [
        event("replayed", 200, 60, "kernel"),
        event("replayed", 260, 30, "kernel", **{"External id": 0}),
        event("triton_", 290, 10, "kernel", **{"External id": 77}),
    ]
    nameless = [event("aten::sub", 40, 5, "cpu_op"), event("aten::div", 50, 5, "cpu_op")]
    again = event("aten::mul", 60, 5, "cpu_op", **{"External id": 1})
    assert seconds_by_name([*gpu_trace(), *stray, *nameless, again]) == {
        "add": 30,
        "relu": 20,
        "mm": 50,
        "replayed": 90,
        "triton_": 10,
    }


def test_events_of_another_tool_are_counted_without_what_is_within_them():
    events = [event("step", 0, 100, "api"), event("launch", 10, 80, "api")]
    events += [event("copy", 20, 30, "api"), event("late", 95, 20, "api")]
    assert seconds_by_name(events) == {"step": 15, "launch": 50, "copy": 30, "late": 20}


ODD = st.none() | st.booleans() | st.integers(-2, 4) | st.text(max_size=2)
ODD = st.recursive(ODD, lambda inner: st.lists(inner, max_size=2), max_leaves=3)


@settings(max_examples=100, deadline=None)
@given(
    fields=st.lists(
        st.fixed_dictionaries(
            {
                "args": ODD
                | st.fixed_dictionaries(
                    {},
                    optional={key: ODD for key in ("External id", "Input Dims", "Input type")},
                )
            },
            optional={key: ODD for key in ("pid", "tid", "name")},
        ),
        min_size=3,
        max_size=3,
    )
)
def test_odd_fields_of_a_trace_break_nothing(fields):
    usual = [event("aten::add", 0, 5, "cpu_op"), event("aten::relu", 1, 3, "cpu_op")]
    usual.append(event("k", 9, 5, "kernel"))
    events = [{**one, **odd} for one, odd in zip(usual, fields, strict=True)]
    for trace in (events, events[:2], events[2:]):
        found = profile_trace.from_events(trace)
        # Two threads' operators are not within one another, and one of unknown name stands for nothing.
        assert found.seconds in [pytest.approx(time * 1e-6) for time in (3, 5, 8)]
        assert all(
            group.saved > 0 and 0 < group.share <= 1 for group in profile_chains.groups(found)
        )


def invoke(*arguments):
    return CliRunner().invoke(app, ["profile", *map(str, arguments)])


def test_kernels_alone_name_no_chain(tmp_path):
    path = tmp_path / "hip.json"
    kernels = [event(f"kernel_{i % 2}", i * 10, 5, "kernel") for i in range(4)]
    path.write_text(json.dumps(kernels))
    found = invoke(path)
    assert found.exit_code == 0, found.output
    assert "kernel_0 × 2" in found.output and "is not known" in found.output


FILE = """
import torch
x, b = torch.randn(256, 256), torch.randn(256)
w = torch.randn({size}, {size})
def call():
    return {body}
"""


def test_a_file_on_the_command_line(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(size=8, body="torch.tanh(x + b) * 2"))
    found = invoke(path)
    assert found.exit_code == 0, found.output
    assert "add → tanh → mul" in found.output and "at most" in found.output
    data = json.loads(invoke(path, "--json").output)
    assert data["worth_fusing"] == ["add → tanh → mul"] and data["flow"] == "seen"
    assert sum(row["share"] for row in data["by_operator"]) == pytest.approx(1)


def test_nothing_worth_fusing_is_said(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(size=768, body="(w @ w @ w @ w, torch.relu(b[:4] + 1))"))
    found = invoke(path)
    assert found.exit_code == 0 and "Nothing is worth fusing" in found.output, found.output


DAMAGED = gzip.compress(b'{"traceEvents": []}' * 9, mtime=0)
DAMAGED = DAMAGED[:12] + bytes(8) + DAMAGED[20:]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.json", "{", "A trace is JSON"),
        ("a.json", "{}", "no Chrome trace"),
        ("a.json", '{"traceEvents": [{"ph": "X", "ts": "NaN", "dur": 1}]}', "no complete event"),
        ("a.json", '{"traceEvents": [{"ph": "X", "ts": 1, "dur": -1}]}', "no complete event"),
        ("a.json", "[" * 100_000, "A trace is JSON"),
        ("a.json.gz", "not gzip", "compressed by gzip"),
        ("a.json.gz", DAMAGED, "compressed by gzip"),
        ("a.py", "x = 1", "defines no call()"),
        ("a.py", "1/0", "ZeroDivisionError"),
        ("a.py", "exit(0)", "ends the program, with sys.exit(0)"),
        ("a.py", "def call():\n    raise SystemExit(0)", "raised SystemExit"),
        ("a.py", "def call():\n    raise ValueError('no data')", "no data"),
        ("a.py", "import os\nos._exit(0)", "ended without an answer: it called exit(0)"),
        ("a.py", "import os\ndef call():\n    os._exit(0)", "it called exit(0)"),
        ("a.py", "import os\ndef call():\n    os.abort()", "killed by SIGABRT"),
    ],
)
def test_what_cannot_be_profiled_is_said(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = invoke(path)
    assert found.exit_code == 2 and sentence in found.output, found.output
    assert invoke(tmp_path / "missing.json").exit_code == 2
