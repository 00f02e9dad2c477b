"""The reference's stages, and the operator, against transformers' own functions; and drift.

`pip install transformers==5.24.0`: the reference has the rounding points of these versions.
"""

import importlib.metadata
import os

import pytest
import torch
import torch.nn.functional as F
from gdn import LAYOUTS, Problem, distance, reference

PINNED = ("5.23.0", "5.24.0")
FULL = os.environ.get("TRUEFUSE_FULL") == "1"


@pytest.fixture(scope="module")
def qwen():
    try:
        found = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(
            f"transformers is not installed; these tests compare with {' or '.join(PINNED)}"
        )
    if found not in PINNED:
        pytest.skip(f"transformers is {found}; its rounding points are known for {PINNED}")
    import transformers.models.qwen3_next.modeling_qwen3_next as module

    return module


@pytest.fixture
def problem():
    return Problem(H=2, G=3, K=32, V=16, batch=3)


def one_ulp(got, want, dtype=torch.bfloat16):
    """Few elements differ from what is rounded, and those by one unit in the last place."""
    got, want = got.double(), want.double()
    differs = got != want
    assert differs.double().mean() < 0.02
    assert ((got - want).abs() <= 1.01 * torch.finfo(dtype).eps * want.abs())[differs].all()


def test_convolution(qwen, problem):
    x = reference.channels(problem.rows)
    state = torch.cat([torch.full_like(x, 5.0), problem.window], 2)  # transformers keeps four.
    theirs = qwen.causal_conv1d_update(x, state, problem.weights.conv, None, "silu")
    ours = reference.convolution(problem.window, x, problem.weights, problem.dtype)
    one_ulp(ours, theirs)
    assert torch.equal(state, torch.cat([problem.window, x], 2))


def test_gates(qwen, problem):
    w, rows = problem.weights, problem.rows
    alpha, beta = reference.gates(rows, w, problem.dtype)
    one_ulp(beta, rows.b.sigmoid())
    g = -w.A_log.float().exp() * F.softplus(rows.a.float() + w.dt_bias)
    torch.testing.assert_close(alpha.float(), g.exp(), rtol=1e-6, atol=1e-7)


def test_delta_rule(qwen, problem):
    q, k, v = problem.rows.q, problem.rows.k, problem.rows.v
    alpha, beta = reference.gates(problem.rows, problem.weights)
    theirs, state = qwen.torch_recurrent_gated_delta_rule(
        q.float(), k.float(), v.float(), g=alpha.log().float(), beta=beta.float(),
        initial_state=problem.state, output_final_state=True, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    core, ours = reference.delta_rule(
        problem.state.double(), q[:, 0].double(), k[:, 0].double(), v[:, 0].double(), alpha[:, 0], beta[:, 0]
    )  # fmt: skip
    assert distance(theirs[:, 0], core) < 1e-6 and distance(state, ours) < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32 weight"])
def test_gated_norm(qwen, problem, dtype):
    norm = qwen.Qwen3NextRMSNormGated(problem.V)
    norm.weight.data = problem.weights.norm.to(dtype)
    object.__setattr__(problem.weights, "norm", norm.weight.data)
    core = problem.rows.v
    with torch.no_grad():
        theirs = norm(core.flatten(0, 2), problem.rows.z.flatten(0, 2)).view(core.shape)
    ours = reference.gated_norm(core.double(), problem.rows.z, problem.weights, problem.dtype)
    one_ulp(ours.to(problem.dtype), theirs)


def layer_step(qwen, problem, qkvz, ba, conv, state):
    """What the layer's decode branch does between its projections."""
    w, batch = problem.weights, problem.batch
    layer = type("Layer", (), problem.sizes())
    split = qwen.Qwen3NextGatedDeltaNet.fix_query_key_value_ordering
    q, k, v, z, b, a = split(layer, qkvz, ba)
    mixed = torch.cat([x.flatten(2) for x in (q, k, v)], -1).transpose(1, 2)
    mixed = qwen.causal_conv1d_update(mixed, conv, w.conv, None, "silu").transpose(1, 2)
    keys = problem.H * problem.K
    q, k, v = (x.reshape(batch, 1, -1, d) for x, d in zip(
        mixed.split([keys, keys, problem.HV * problem.V], -1), (problem.K, problem.K, problem.V), strict=True
    ))  # fmt: skip
    g = -w.A_log.float().exp() * F.softplus(a.float() + w.dt_bias)
    core, last = qwen.torch_recurrent_gated_delta_rule(
        q, k, v, g=g, beta=b.sigmoid(), initial_state=state, output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    norm = qwen.Qwen3NextRMSNormGated(problem.V)
    norm.weight.data = w.norm
    with torch.no_grad():
        return norm(core.reshape(-1, problem.V), z.reshape(-1, problem.V)).view(core.shape), last


def test_whole_steps_one_after_the_other(qwen):
    """Eight steps of one layer: the operator in mode "transformers", on transformers' own states."""
    problem = Problem(H=4, G=2, K=64, V=32, batch=2)
    conv = torch.cat([torch.zeros_like(problem.window[..., :1]), problem.window], 2)
    theirs = {"conv": conv.clone(), "state": problem.state.clone()}
    ours = {"conv": conv.clone(), "state": problem.state.clone()}
    for _ in range(8):
        qkvz, ba = problem.packed("interleaved", problem.new_rows())
        want, last = layer_step(qwen, problem, qkvz, ba, theirs["conv"], theirs["state"])
        theirs["state"].copy_(last)
        out, _, _ = problem.call(
            conv_state=ours["conv"], state=ours["state"], qkvz=qkvz, ba=ba,
            rounding="transformers", state_layout="[HV,K,V]",
        )  # fmt: skip
        assert torch.equal(ours["conv"], theirs["conv"])
        assert distance(ours["state"], theirs["state"]) < 4e-4
        assert distance(out, want) < 1e-3


@pytest.mark.parametrize("rounding", ["transformers", "fp32"])
@pytest.mark.parametrize("slow", [False, True], ids=["decay as in checkpoints", "slow decay"])
def test_drift_over_successive_steps(rounding, slow):
    """Against float64 that steps on by itself; TRUEFUSE_FULL=1: 1024 steps of real size. The core's
    errors of all steps are taken together; in each step they are those of storing it."""
    problem = Problem(
        H=16 if FULL else 1, G=3, K=128, V=128, batch=1, norm=False, slow=slow, seed=3
    )
    dtype = problem.dtype if rounding == "transformers" else None
    window, want = problem.window.clone(), problem.state.double()
    layouts = [("interleaved", "[HV,V,K]"), ("flat", "[HV,K,V]")]
    states = [
        (window.clone(), want.float().transpose(-1, -2).contiguous()), (window.clone(), want.float())
    ]  # fmt: skip
    cores: list[list[float]] = [[], []]
    for _ in range(1024 if FULL else 96):
        rows = problem.new_rows()
        step = reference.decode(window, want, rows, problem.weights, dtype)
        window, want = step.inputs[..., -3:], step.states[:, -1]
        for i, (layout, order) in enumerate(layouts):
            qkvz, ba = problem.packed(layout, rows)
            out, conv, _ = problem.call(
                layout, *states[i], qkvz=qkvz, ba=ba, rounding=rounding, state_layout=order
            )
            assert out.isfinite().all() and torch.equal(conv, window)
            error = distance(out, step.core)
            stored = distance(step.core.to(problem.dtype), step.core)
            assert error <= 1.02 * stored + 1e-3 * (rounding == "transformers")
            cores[i].append(error)
    assert set(LAYOUTS) == {layout for layout, _ in layouts}
    core = max((sum(x * x for x in c) / len(c)) ** 0.5 for c in cores)
    state_limit = 3.7e-5 if rounding == "transformers" else 1e-5
    drift = [distance(states[0][1].transpose(-1, -2), want), distance(states[1][1], want)]
    print(f"core {core:.3g}, state {max(drift):.3g}")
    assert core <= 1.8e-3 and max(drift) <= state_limit
