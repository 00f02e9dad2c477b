"""What PyTorch has to know about an operator that writes its arguments."""

import json
import os
import subprocess
import sys

import pytest
import torch
from gdn import Problem, bits

import truefuse

OP = torch.ops.truefuse.gdn_decode.default


def arguments(problem, **changes):
    qkvz, ba = problem.packed("flat")
    w = problem.weights
    state = problem.state.transpose(-1, -2).contiguous()
    tensors = (qkvz, ba, problem.window.clone(), state, w.conv, None, w.A_log, w.dt_bias, w.norm)
    return tensors, problem.keywords("flat", **changes)


def test_versions_are_counted():
    tensors, words = arguments(Problem())
    versions = [None if t is None else t._version for t in tensors]
    with torch.no_grad():
        OP(*tensors, **words)
    bumped = [
        i for i, t in enumerate(tensors) if t is not None and t._version != versions[i]
    ]  # fmt: skip
    assert bumped == [2, 3]
    versions = tensors[3]._version
    with pytest.raises(RuntimeError), torch.no_grad():
        OP(*tensors, **(words | {"num_k_heads": 5}))
    assert tensors[3]._version == versions  # A refused call has written nothing.


def test_autograd_notices_that_a_saved_state_has_changed():
    tensors, words = arguments(Problem())
    x = torch.ones((), requires_grad=True)
    y = x * tensors[3]  # Saves the state.
    with torch.no_grad():
        OP(*tensors, **words)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_lazy_copies_are_made_before_they_are_written():
    tensors, words = arguments(Problem())
    before = tensors[3].clone()
    lazy = torch._lazy_clone(tensors[3])
    OP(*tensors[:3], lazy, *tensors[4:], **words)
    assert torch.equal(tensors[3], before) and not torch.equal(lazy, before)


def test_inference_tensors():
    with torch.inference_mode():
        tensors, words = arguments(Problem())
        out = OP(*tensors, **words)
        assert out.is_inference()
        state = tensors[3]
    before = state.clone()
    rest = arguments(Problem())[0]
    with pytest.raises(RuntimeError, match="state is an inference tensor and is written in place"):
        OP(*rest[:3], state, *rest[4:], **words)
    assert torch.equal(state, before)
    normal, words = arguments(Problem())
    version = normal[3]._version
    with torch.inference_mode():
        assert torch.equal(OP(*normal, **words), out)
    assert normal[3]._version > version


@pytest.mark.parametrize("speculative", [False, True])
def test_opcheck(speculative):
    problem = Problem(tokens=2)
    tensors, words = arguments(problem)
    if speculative:
        conv = torch.zeros(4, problem.channels, 4).to(problem.dtype)
        state = torch.zeros(4, problem.HV, problem.V, problem.K)
        tensors = (*tensors[:2], conv, state, *tensors[4:])
        words |= {
            "state_indices": torch.tensor([[0, 1], [2, 3]]), "padding": "negative",
            "num_accepted": torch.tensor([1, 2]),
        }  # fmt: skip
    with torch.no_grad():
        torch.library.opcheck(OP, tensors, words)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_models_see_the_written_states(backend, request):
    if backend == "inductor":
        request.getfixturevalue("inductor")
    problem = Problem()
    tensors, words = arguments(problem)
    eager = [None if t is None else t.clone() for t in tensors]

    def step(qkvz, ba, conv, state, *rest):
        out = OP(2 * qkvz, ba, conv, state, *rest, **words)
        again = OP(qkvz, ba, conv, state, *rest, **words)
        return out + again, state.sum()

    with torch.no_grad():
        want, total = step(*eager)
        compiled = torch.compile(step, fullgraph=True, backend=backend)
        got, compiled_total = compiled(*tensors)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(compiled_total, total)
    assert torch.equal(bits(tensors[2]), bits(eager[2]))
    torch.testing.assert_close(tensors[3], eager[3])


def test_batches_stay_symbolic():
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module.forward

    words = arguments(Problem())[1]
    step = torch.compile(lambda *t: OP(*t, **words), fullgraph=True, dynamic=True, backend=backend)
    for batch in (2, 3, 5, 7):
        tensors = arguments(Problem(batch=batch))[0]
        want = OP(*[None if t is None else t.clone() for t in tensors], **words)
        with torch.no_grad():
            assert torch.equal(step(*tensors), want)
    assert len(graphs) == 1


def test_a_call_that_will_fail_is_not_traced():
    graphs = []
    tensors, words = arguments(Problem(), qkvz_layout="H (q=K | k=K | v=G V | _=G V)")
    step = torch.compile(lambda *t: OP(*t, **words), fullgraph=True, backend=graphs.append)
    with pytest.raises(Exception, match="no layout names z, which gates the norm"):
        step(*tensors)
    assert not graphs


def test_symbolic_sizes_that_fit_nothing_are_left_to_the_call():
    """To hold them against layouts would make a graph for each batch."""
    words = arguments(Problem())[1]
    step = torch.compile(
        lambda *t: OP(*t, **words), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for batch in (2, 3):
        tensors = arguments(Problem(batch=batch, W=5))[0]
        window = tensors[2][..., 1:].contiguous()
        with pytest.raises(RuntimeError, match="conv_state holds 3 inputs of each channel; 5 taps"):
            step(*tensors[:2], window, *tensors[3:])


def test_the_python_function_is_the_operator():
    problem = Problem()
    tensors, words = arguments(problem)
    assert torch.equal(truefuse.gdn_decode(*tensors, **words), problem.call("flat")[0])


def test_meta_tensors():
    tensors, words = arguments(Problem(tokens=3))
    out = OP(*(None if t is None else t.to("meta") for t in tensors), **words)
    assert out.shape == (2, 3, 6, 8) and out.is_meta and out.dtype == torch.bfloat16


PROGRAM = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
from gdn import Problem, distance
from truefuse import _native
worst = {}
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for order in ("[HV,V,K]", "[HV,K,V]"):
        p = Problem(H=3, K=40, V=52, batch=3, tokens=2, dtype=dtype)
        out, conv, state = p.call(state_layout=order)
        want = p.expected()
        state = state.transpose(-1, -2) if order == "[HV,V,K]" else state
        worst[f"{dtype} {order}"] = (distance(out, want.out), distance(state, want.states[:, -1]))
print(json.dumps({"cpu": _native.cpu(), "worst": worst}))
"""


@pytest.mark.parametrize("level", ["base", "avx2", "avx512"])
def test_every_instruction_set(level):
    here = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, here], capture_output=True, text=True, check=False,
        env={**os.environ, "TRUEFUSE_CPU_LEVEL": level},
    )  # fmt: skip
    if done.returncode and "does not run" in done.stderr:
        pytest.skip(f"this processor has no {level}")
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["cpu"]["level"] == level
    assert answer["cpu"]["threads"] == torch.get_num_threads()
    for name, (out, state) in answer["worst"].items():
        limit = {"float32": 2e-6, "float16": 4e-4, "bfloat16": 3e-3}[name.split()[0].split(".")[1]]
        assert out < limit and state < 2e-6, name
