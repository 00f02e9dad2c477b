"""gdn_decode on the CPU against the float64 reference: shapes, layouts, dtypes, strides, gates."""

import contextlib

import pytest
import torch
from gdn import LAYOUTS, Problem, bits, distance, only_decaying, worst_ulp

import truefuse
from truefuse import simulate

HALF = 2.5e-3  # rounding the output to bfloat16
TRANSPOSED = "[HV,K,V]"


def on(device):
    """The context in which calls run on a simulated device, or on the CPU."""
    if device == "cpu":
        return contextlib.nullcontext()
    return simulate.Simulated(simulate.Device(device, ("none",)))


def assert_right(
    problem, layout="interleaved", rounding="fp32", state_layout="[HV,V,K]", **changes
):
    out, conv, state = problem.call(layout, rounding=rounding, state_layout=state_layout, **changes)
    want = problem.expected(rounding)
    if state_layout == "[HV,V,K]":
        state = state.transpose(-1, -2)
    limit = 2e-6 if problem.dtype == torch.float32 else HALF
    if problem.state_dtype != torch.float32 and problem.tokens > 1:
        limit = max(
            limit, 1e-4
        )  # an element that is stored the other way; all of them: 2e-4 and more
    assert distance(out.view(want.out.shape), want.out) < limit
    limit = 2e-6 if problem.state_dtype == torch.float32 else 4e-3
    if rounding == "transformers":
        limit = max(limit, 1e-3)  # in so few elements one that is rounded the other way counts
    assert distance(state, want.states[:, -1]) < limit
    assert torch.equal(conv, want.inputs[..., -conv.shape[2] :])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("rounding", ["fp32", "transformers"])
def test_head_ratios(layout, groups, rounding):
    for heads in (1, 3):
        assert_right(Problem(H=heads, G=groups), layout, rounding)


@pytest.mark.parametrize("state_layout", ["[HV,V,K]", TRANSPOSED])
@pytest.mark.parametrize(
    ("K", "V"), [(1, 1), (5, 3), (12, 40), (17, 130), (64, 33), (256, 8), (128, 128)]
)
def test_head_sizes(state_layout, K, V):
    assert_right(Problem(K=K, V=V, dtype=torch.float32), state_layout=state_layout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 3])
def test_dtypes(dtype, state_dtype, tokens):
    for state_layout in ("[HV,V,K]", TRANSPOSED):
        assert_right(
            Problem(K=40, V=24, dtype=dtype, state_dtype=state_dtype, tokens=tokens),
            state_layout=state_layout,
        )


@pytest.mark.parametrize("device", ["cpu", "sim:wave64"])
@pytest.mark.parametrize("state_layout", ["[HV,V,K]", TRANSPOSED])
def test_a_slow_decay_is_as_exact_as_what_it_takes_away(device, state_layout):
    """Rounding the state is half a unit; a decay that is rounded near 1 would be as much again, and the
    same in every step."""
    problem = only_decaying(H=1, G=2, K=32, V=32)
    with on(device):
        _, _, state = problem.call(state_layout=state_layout)
    if state_layout == "[HV,V,K]":
        state = state.transpose(-1, -2)
    assert worst_ulp(state, problem.expected().states[:, -1]) < 0.6


@pytest.mark.parametrize("other", [torch.float32, torch.float16, torch.bfloat16])
def test_gate_parameters_in_any_dtype(other):
    problem = Problem()
    w = problem.weights
    object.__setattr__(w, "A_log", w.A_log.to(other))
    object.__setattr__(w, "dt_bias", w.dt_bias.to(other))
    object.__setattr__(w, "norm", w.norm.to(other))
    for rounding in ("fp32", "transformers"):
        assert_right(problem, rounding=rounding)


@pytest.mark.parametrize("taps", [2, 3, 4, 8])
def test_taps_and_bias(taps):
    problem = Problem(W=taps, dtype=torch.float32)
    assert_right(problem)
    object.__setattr__(problem.weights, "conv_bias", problem.normal(problem.channels).float())
    assert_right(problem)


def test_sigmoid_gate_and_no_norm():
    assert_right(Problem(gate="sigmoid"))
    assert_right(Problem(norm=False))


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_several_tokens_are_several_calls(tokens):
    problem = Problem(tokens=tokens, state_dtype=torch.bfloat16)
    out, conv, state = problem.call()
    assert_right(Problem(tokens=tokens, dtype=torch.float32))
    one_conv, one_state = problem.window.clone(), problem.state.transpose(-1, -2).contiguous()
    qkvz, ba = problem.packed("interleaved")
    for t in range(tokens):
        one, _, _ = problem.call(conv_state=one_conv, state=one_state, qkvz=qkvz[:, t], ba=ba[:, t])
        assert torch.equal(one, out[:, t])
    assert torch.equal(bits(conv), bits(one_conv)) and torch.equal(bits(state), bits(one_state))


def test_flat_and_interleaved_rows_give_the_same_bits():
    problem = Problem(H=2, G=3, K=4, V=8)
    for one, other in zip(problem.call("interleaved"), problem.call("flat"), strict=True):
        assert torch.equal(bits(one), bits(other))


def test_rows_apart_or_all_in_one():
    problem = Problem()
    want = problem.call("flat")
    r = problem.rows
    qkv = torch.cat([t.flatten(2) for t in (r.q, r.k, r.v)], 2)
    words = problem.keywords("flat") | {
        "qkvz_layout": "q=H K | k=H K | v=HV V",
        "ba_layout": "b=HV",
    }
    words |= {"z": r.z.flatten(2), "z_layout": "z=HV V", "a": r.a, "a_layout": "a=H G"}
    apart = problem.call("flat", qkvz=qkv, ba=r.b, **words)
    everything = torch.cat([qkv, r.z.flatten(2), r.b, r.a, r.a], 2)
    layout = "q=H K | k=H K | v=H G V | z=H G V | b=H G | a=H G | _=HV"
    w = problem.weights
    conv, state = problem.window.clone(), problem.state.transpose(-1, -2).contiguous()
    out = torch.ops.truefuse.gdn_decode(
        everything, None, conv, state, w.conv, None, w.A_log, w.dt_bias, w.norm,
        **(problem.keywords("flat") | {"qkvz_layout": layout, "ba_layout": None}),
    )  # fmt: skip
    for got in (apart, (out, conv, state)):
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("layout", ["b=HV | a=HV | z=HV V", "z=V HV | a=HV | b=HV"])
def test_z_beside_gates_whose_columns_lie_apart(layout):
    problem = Problem()
    want = problem.call("flat")
    r = problem.rows
    qkv = torch.cat([t.flatten(2) for t in (r.q, r.k, r.v)], 2)
    if layout.startswith("b"):
        gates = torch.cat([r.b, r.a, r.z.flatten(2)], 2)
    else:
        gates = torch.cat([r.z.transpose(2, 3).flatten(2), r.a, r.b], 2)
    words = {"qkvz_layout": "q=H K | k=H K | v=HV V", "ba_layout": layout}
    apart = torch.stack([gates, torch.full_like(gates, 9), gates], -1)
    for ba in (gates, apart[..., 0], apart[..., 2]):
        got = problem.call("flat", qkvz=qkv, ba=ba, **words)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("device", ["cpu", "sim:wave64"])
@pytest.mark.parametrize("V", [1, 5, 16])
@pytest.mark.parametrize(
    "row",
    [
        "q=H K | k=H K | H G (v=V | z=V)",
        "H (q=K | G (v=V | _=3) | k=K) | z=H G V",
        "_=2 | z=V H G | v=V G H | k=H K | q=K H",
    ],
)
def test_value_heads_that_do_not_lie_together(row, V, device):
    problem = Problem(V=V, tokens=3)
    sizes = {"H": problem.H, "G": problem.G, "K": problem.K, "V": V}
    flat = truefuse.layout(LAYOUTS["flat"]["qkvz_layout"]).bind(**sizes)
    qkvz = flat.convert(problem.packed("flat")[0], truefuse.layout(row).bind(**sizes))
    with on(device):
        got = problem.call("flat", qkvz=qkvz, qkvz_layout=row)
        want = problem.call("flat")
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gates_with_a_stride_of_two(layout):
    """With one value head for each key head, b and a alternate or lie apart."""
    problem = Problem(H=2, G=1)
    words = {"ba_layout": "b=HV", "a_layout": "a=HV"}
    ba = torch.stack([problem.rows.b, problem.rows.a], -1).flatten(2)
    want = problem.call(layout)
    paired = problem.call(layout, ba=ba, ba_layout="H (b=G | a=G)")
    views = ba.view(2, 1, 2, 2)
    strided = problem.call(layout, ba=views[..., 0], a=views[..., 1], **words)
    for got in (paired, strided):
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_rows_are_views_of_wider_rows():
    problem = Problem(tokens=2)
    qkvz, ba = problem.packed("flat")
    wide = torch.cat([torch.ones_like(ba), qkvz, ba, qkvz], 2)
    at = ba.shape[2]
    views = {
        "qkvz": wide[..., at : at + qkvz.shape[2]],
        "ba": wide[..., at + qkvz.shape[2] :][..., :at],
    }
    by_token = {"qkvz": qkvz.transpose(0, 1).contiguous().transpose(0, 1)}
    want = problem.call("flat")
    for rows in (views, by_token):
        assert all(
            torch.equal(a, b) for a, b in zip(problem.call("flat", **rows), want, strict=True)
        )


@pytest.mark.parametrize("history", [3, 4, 7])
@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_conv_buffers_of_any_length_and_strides(history, tokens):
    """The newest input is last, as in transformers, which keeps four columns where three are used."""
    problem = Problem(tokens=tokens)
    before = problem.normal(2, problem.channels, history).to(problem.dtype)
    before[:, :, -3:] = problem.window
    want, _, want_state = problem.call()
    longer = torch.cat([before, problem.expected().inputs[..., 3:]], 2)[:, :, -history:]
    for conv in (before.clone(), before.transpose(1, 2).contiguous().transpose(1, 2)):
        out, after, state = problem.call(conv_state=conv)
        assert torch.equal(out, want) and torch.equal(state, want_state)
        assert torch.equal(after, longer)


def test_the_window_at_the_front_of_a_buffer_is_a_slice():
    problem = Problem()
    buffer = torch.full((2, problem.channels, 6), 7.0).to(problem.dtype)
    buffer[..., :3] = problem.window
    out, _, _ = problem.call(conv_state=buffer[..., :3])
    assert torch.equal(out, problem.call()[0])
    assert torch.equal(buffer[..., :3], problem.expected().inputs[..., -3:])
    assert (buffer[..., 3:] == 7).all()


def test_tensor_parallel_ranks_join_to_the_whole():
    """Each rank gets whole key-head groups of every part; ba is never cut in the middle."""
    problem = Problem(H=4, G=2)
    want, _, want_state = problem.call()
    r, w, outs, states = problem.rows, problem.weights, [], []
    for rank in range(2):
        part = Problem(H=2, G=2)
        heads, values = slice(2 * rank, 2 * rank + 2), slice(4 * rank, 4 * rank + 4)
        part.rows = type(r)(
            r.q[:, :, heads], r.k[:, :, heads], r.v[:, :, values], r.z[:, :, values],
            r.b[:, :, values], r.a[:, :, values],
        )  # fmt: skip
        keys, vals = torch.arange(32).view(2, 32 // 2) + 32 * rank, torch.arange(32) + 32 * rank
        channels = torch.cat([keys.flatten(), 64 + keys.flatten(), 128 + vals])
        part.weights = type(w)(
            w.conv[channels], w.A_log[values], w.dt_bias[values], None, w.norm, w.norm_eps, w.gate
        )
        part.window, part.state = problem.window[:, channels], problem.state[:, values]
        for layout in LAYOUTS:
            out, _, state = part.call(layout)
        outs.append(out)
        states.append(state)
    assert torch.equal(torch.cat(outs, 2), want) and torch.equal(torch.cat(states, 1), want_state)


def test_which_value_heads_answer_to_a_key_head():
    """Value head n belongs to key head n // G, not n % H."""
    problem = Problem(H=2, G=3, norm=False, dtype=torch.float32)
    before = problem.call()[0]
    problem.rows.q[:, :, 1] += 1
    changed = (problem.call()[0] != before).any(-1).any(0)[0]
    assert changed.tolist() == [False] * 3 + [True] * 3


def test_an_asymmetric_state_tells_the_orders_apart():
    problem = Problem(K=8, V=8, norm=False, dtype=torch.float32)
    problem.state.zero_()
    problem.state[:, :, 2, 5] = 1
    right, wrong = problem.call()[0], problem.call(state=problem.state.clone())[0]
    assert distance(right.view(2, 1, 6, 8), problem.expected().out) < 2e-6
    assert distance(wrong, right) > 0.1


@pytest.mark.parametrize(
    ("A_log", "dt_bias"), [(-100.0, 0.0), (0.0, 20.5), (3.0, 100.0), (-6.0, 100.0), (-20.0, -30.0)]
)
def test_gates_at_their_ends(A_log, dt_bias):
    """No decay at all, g = -20 and beyond, and softplus where e^x overflows or vanishes."""
    problem = Problem(dtype=torch.float32)
    w = problem.weights
    w.A_log.fill_(A_log)
    w.dt_bias.fill_(dt_bias)
    assert_right(problem)
    problem.rows.b.fill_(-1e30)
    assert_right(problem)
    problem.rows.b.fill_(1e30)
    assert_right(problem)


def test_zero_keys_and_queries_are_no_nan():
    problem = Problem(dtype=torch.float32)
    problem.rows.q.zero_()
    problem.rows.k.zero_()
    problem.window.zero_()
    out, _, _ = problem.call()
    assert out.isfinite().all()
    state = problem.call()[2].transpose(-1, -2)
    assert distance(state, problem.expected().states[:, -1]) < 2e-6


@pytest.mark.parametrize("layout", LAYOUTS)
def test_empty_batches(layout):
    out, _, _ = Problem(batch=0).call(layout)
    assert out.shape == (0, 1, 6, 8)
    out, _, _ = Problem(tokens=0).call(layout)
    assert out.shape == (2, 0, 6, 8)


def test_runs_repeat_bit_by_bit_and_the_first_is_not_special():
    problem = Problem(H=3, G=2, K=32, V=32, batch=5)
    first = problem.call()
    for _ in range(3):
        assert all(
            torch.equal(bits(a), bits(b)) for a, b in zip(problem.call(), first, strict=True)
        )
