"""gdn_decode on a real device: values, pools, streams, graphs, late checks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parents[1] / "operators/gdn_decode"
sys.path.insert(0, str(HERE))
from gdn import LAYOUTS, Problem, bits, distance, only_decaying, worst_ulp  # noqa: E402

OP = torch.ops.truefuse.gdn_decode.default


class OnGpu:
    """A problem's tensors on the device, and what the float64 reference says."""

    def __init__(self, problem, layout="interleaved", **words):
        self.problem = problem
        self.words = problem.keywords(layout, **words)
        self.words = {
            k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in self.words.items()
        }
        w = problem.weights
        state = problem.state
        if self.words["state_layout"] == "[HV,V,K]":
            state = state.transpose(-1, -2)
        self.rows = [t.cuda() for t in problem.packed(layout)]
        self.conv = problem.window.cuda()
        self.state = state.contiguous().cuda()
        self.weights = [
            None if t is None else t.cuda()
            for t in (w.conv, w.conv_bias, w.A_log, w.dt_bias, w.norm)
        ]

    def __call__(self, **more):
        return OP(*self.rows, self.conv, self.state, *self.weights, **(self.words | more))


def assert_right(problem, layout="interleaved", **words):
    gpu = OnGpu(problem, layout, **words)
    out = gpu()
    want = problem.expected(gpu.words["rounding"])
    state = gpu.state.cpu()
    if gpu.words["state_layout"] == "[HV,V,K]":
        state = state.transpose(-1, -2)
    limit = 5e-6 if problem.dtype == torch.float32 else 2.5e-3
    if problem.state_dtype != torch.float32 and problem.tokens > 1:
        limit = max(
            limit, 1e-4
        )  # an element that is stored the other way; all of them: 2e-4 and more
    assert distance(out.cpu().view(want.out.shape), want.out) < limit
    limit = 5e-6 if problem.state_dtype == torch.float32 else 4e-3
    if gpu.words["rounding"] == "transformers":
        limit = max(limit, 1e-3)
    assert distance(state, want.states[:, -1]) < limit
    assert torch.equal(gpu.conv.cpu(), want.inputs[..., -3:])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [1, 2, 3, 4, 8])
def test_head_ratios(layout, groups):
    assert_right(Problem(H=3, G=groups, K=128, V=128), layout)


@pytest.mark.parametrize("rounding", ["fp32", "transformers"])
@pytest.mark.parametrize("order", ["[HV,V,K]", "[HV,K,V]"])
@pytest.mark.parametrize(("K", "V"), [(128, 128), (64, 128), (256, 64), (24, 40), (5, 3)])
def test_head_sizes_and_orders(rounding, order, K, V):
    assert_right(Problem(K=K, V=V), rounding=rounding, state_layout=order)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(dtype, state_dtype):
    assert_right(Problem(K=64, V=64, dtype=dtype, state_dtype=state_dtype, tokens=3))


@pytest.mark.parametrize("order", ["[HV,V,K]", "[HV,K,V]"])
@pytest.mark.parametrize("batch", [1, 40])
def test_a_slow_decay_is_as_exact_as_what_it_takes_away(order, batch):
    problem = only_decaying(H=16, K=128, V=128, batch=batch)
    gpu = OnGpu(problem, state_layout=order)
    gpu()
    state = gpu.state.cpu()
    state = state.transpose(-1, -2) if order == "[HV,V,K]" else state
    assert worst_ulp(state, problem.expected().states[:, -1]) < 0.6


def test_tokens_in_one_call_or_in_several():
    problem = Problem(K=64, V=64, tokens=3, state_dtype=torch.bfloat16)
    together, apart = OnGpu(problem), OnGpu(problem)
    out = together()
    for t in range(3):
        apart_out = OP(
            *(r[:, t] for r in apart.rows), apart.conv, apart.state, *apart.weights, **apart.words
        )
        assert torch.equal(bits(apart_out), bits(out[:, t]))
    assert torch.equal(bits(together.state), bits(apart.state))
    assert torch.equal(bits(together.conv), bits(apart.conv))


def pool(gpu, slots, size):
    """The sequences' states in `slots` of a pool, the rest filled with NaN."""
    conv = torch.full((size, *gpu.conv.shape[1:]), torch.nan, device="cuda", dtype=gpu.conv.dtype)
    state = torch.full(
        (size, *gpu.state.shape[1:]), torch.nan, device="cuda", dtype=gpu.state.dtype
    )
    conv[slots], state[slots] = gpu.conv, gpu.state
    return conv, state


def test_padding_and_indices_outside_the_pool():
    problem = Problem(batch=4, K=64, V=64)
    plain = OnGpu(problem)
    gpu = OnGpu(problem)
    gpu.conv, gpu.state = pool(plain, [1, 3, 4, 5], 8)
    before = gpu.conv.clone(), gpu.state.clone()
    want = plain()
    for dtype in (torch.int32, torch.int64):
        gpu.conv.copy_(before[0])
        gpu.state.copy_(before[1])
        indices = torch.tensor([1, -1, 8, 2**31 - 1], dtype=dtype, device="cuda")
        out = gpu(state_indices=indices, padding="negative")
        assert torch.equal(out[0], want[0]) and (bits(out[1:]) == 0).all()
        rest = [0, 2, 3, 4, 5, 6, 7]
        assert torch.equal(bits(gpu.state[rest]), bits(before[1][rest]))
        assert torch.equal(bits(gpu.conv[rest]), bits(before[0][rest]))
        assert torch.equal(gpu.state[1], plain.state[0])


def test_slots_beyond_two_to_the_31_elements():
    problem = Problem(H=16, G=2, K=128, V=128, batch=2, state_dtype=torch.bfloat16)
    plain, gpu = OnGpu(problem), OnGpu(problem)
    slots = 4098
    gpu.state = torch.empty(slots, *plain.state.shape[1:], device="cuda", dtype=torch.bfloat16)
    gpu.conv = torch.empty(slots, *plain.conv.shape[1:], device="cuda", dtype=torch.bfloat16)
    gpu.state[[0, slots - 1]], gpu.conv[[0, slots - 1]] = plain.state, plain.conv
    out = gpu(state_indices=torch.tensor([0, slots - 1], device="cuda"), padding="negative")
    assert torch.equal(out, plain())
    assert torch.equal(gpu.state[slots - 1], plain.state[1])


def test_runs_repeat_bit_by_bit():
    problem = Problem(H=16, G=3, K=128, V=128, batch=8)
    first = OnGpu(problem)
    out = first()
    for _ in range(5):
        again = OnGpu(problem)
        assert torch.equal(bits(again()), bits(out))
        assert torch.equal(bits(again.state), bits(first.state))


def test_two_streams_at_once():
    """Calls that overlap share no hidden memory."""
    problems = [Problem(H=16, G=3, K=128, V=128, batch=4, seed=s) for s in range(2)]
    want, got = [OnGpu(p) for p in problems], [OnGpu(p) for p in problems]
    steps = 50
    outs = [[w() for _ in range(steps)][-1] for w in want]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in problems]
    last = [None, None]
    for _ in range(steps):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                last[i] = got[i]()
    torch.cuda.synchronize()
    for i in range(2):
        assert torch.equal(bits(last[i]), bits(outs[i]))
        assert torch.equal(bits(got[i].state), bits(want[i].state))
        assert torch.equal(bits(got[i].conv), bits(want[i].conv))


def test_overlapping_graph_replays():
    problems = [Problem(H=16, G=3, K=128, V=128, batch=4, seed=s) for s in range(2)]
    want, got = [OnGpu(p) for p in problems], [OnGpu(p) for p in problems]
    graphs, outs = [], []
    for g in got:
        saved = g.conv.clone(), g.state.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs.append(g())
        g.conv.copy_(saved[0])
        g.state.copy_(saved[1])
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    torch.cuda.synchronize()
    for _ in range(20):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for i in range(2):
        for _ in range(20):
            out = want[i]()
        assert torch.equal(bits(outs[i]), bits(out))
        assert torch.equal(bits(got[i].state), bits(want[i].state))


def test_what_was_aborted_leaves_nothing_behind():
    """A capture that is given up, and a call that is refused."""
    want, got = (OnGpu(Problem(H=16, G=3, K=128, V=128, batch=4)) for _ in range(2))
    saved = got.conv.clone(), got.state.clone()
    with pytest.raises(KeyError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        got()
        raise KeyError
    with pytest.raises(RuntimeError, match="num_v_heads"):
        got(num_v_heads=17)
    torch.cuda.synchronize()
    assert torch.equal(got.conv, saved[0]) and torch.equal(got.state, saved[1])
    for _ in range(3):
        assert torch.equal(bits(got()), bits(want()))
        assert torch.equal(got.conv, want.conv) and torch.equal(got.state, want.state)


FIRST_CALL_IN_CAPTURE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from test_gdn_decode_gpu import OnGpu, Problem
captured, plain = OnGpu(Problem(K=64, V=64)), OnGpu(Problem(K=64, V=64))
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = captured()
graph.replay()
torch.cuda.synchronize()
assert torch.equal(out, plain()) and torch.equal(captured.state, plain.state)
"""


def test_the_first_call_of_a_process_may_be_captured(tmp_path):
    environment = {**os.environ, "TRUEFUSE_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FIRST_CALL_IN_CAPTURE, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_late_check_reads_the_indices(monkeypatch):
    monkeypatch.setenv("TRUEFUSE_CHECK", "1")
    gpu = OnGpu(Problem(batch=2, K=64, V=64))
    before = gpu.state.clone()
    for indices, words in [
        ([0, 5], r"state_indices\[1\] is 5; the pool has 2"),
        ([1, 1], "written twice"),
    ]:
        tensor = torch.tensor(indices, device="cuda")
        with pytest.raises(RuntimeError, match=words):
            gpu(state_indices=tensor, padding="negative")
    assert torch.equal(gpu.state, before)
    gpu(state_indices=torch.tensor([1, -1], device="cuda"), padding="negative")


@pytest.mark.parametrize("accepted", [1, 3])
def test_speculation(accepted):
    problem = Problem(tokens=4, K=64, V=64)
    spec = OnGpu(problem)
    conv = torch.zeros(10, problem.channels, 6, device="cuda", dtype=problem.dtype)
    state = torch.zeros(10, *spec.state.shape[1:], device="cuda")
    conv[[1, 5], :, :3], state[[1, 5]] = spec.conv, spec.state
    spec.conv, spec.state = conv, state
    indices = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]], device="cuda", dtype=torch.int32)
    words = {"state_indices": indices, "padding": "negative"}
    spec(**words, num_accepted=torch.ones(2, device="cuda", dtype=torch.int32))
    second = spec(**words, num_accepted=torch.full((2,), accepted, device="cuda"))
    plain = OnGpu(problem)
    rows = plain.rows
    plain.rows = [r[:, :accepted].contiguous() for r in rows]
    plain()
    plain.rows = rows
    assert torch.equal(bits(second), bits(plain()))
    for b in range(2):
        assert torch.equal(bits(spec.state[indices[b, 3].item()]), bits(plain.state[b]))


def test_compiled_models():
    gpu, plain = OnGpu(Problem(K=64, V=64)), OnGpu(Problem(K=64, V=64))
    step = torch.compile(lambda *t: OP(*t, **gpu.words), fullgraph=True)
    with torch.no_grad():
        out = step(*gpu.rows, gpu.conv, gpu.state, *gpu.weights)
    assert torch.equal(out, plain()) and torch.equal(gpu.state, plain.state)
