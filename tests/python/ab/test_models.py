"""Whole models, small and trained: equal texts are accepted, the other model's layout is rejected."""

from __future__ import annotations

import copy
import functools

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

from gdn_standin import IMPLEMENTATIONS, other_layout
from toy import checked, gate, speaks_of_speed

from truefuse import ab
from truefuse.ab.experiment import Experiment
from truefuse.integrations.transformers import experiments, tiny

TOKENS = 8
GDN = ("tiny-qwen3-next", "tiny-qwen3.5")
# In half types a logit of size 16 is rounded to 1/16: margins below a few of these are ties.
ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 0.1}


@functools.cache
def trained(name: str):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same weights on every machine, and faster at this size
    try:
        return tiny.trained(name)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def experiment(name: str, dtype: torch.dtype, ops=None, **implementations) -> Experiment:
    model = copy.deepcopy(trained(name)).to(dtype)
    requests = [
        ab.Request(f"r{i}", tiny.text(1000 + i, experiments.PROMPT_TOKENS), TOKENS)
        for i in range(10)
    ]
    ops = ops or list(tiny.MODELS[name].operators)
    options = {"implementations": {**IMPLEMENTATIONS, **implementations}}
    return experiments.of_loaded(name, model, ops, requests, **options)


def judged(made: Experiment, **options) -> dict:
    return checked(ab.run(**vars(made), **options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", list(tiny.MODELS))
def test_equal_texts_are_accepted(name, dtype, capsys):
    made = experiment(name, dtype)
    data = judged(made, rounds=1)
    assert data["verdict"] == "ACCEPT", [entry["summary"] for entry in data["gates"]]
    found = gate(data, "trajectory")
    margin = found["numbers"]["smallest_margin"]
    with capsys.disabled():
        print(f"\n{name} {dtype}: smallest margin {margin:.3g}")
    assert margin > ROUNDING[dtype]
    assert found["numbers"]["tokens"]["candidate"] == [TOKENS] * 10
    if name in GDN:
        states = found["numbers"]["states"]["worst_by_layer"]
        assert set(states) == {
            f"layers.{i}.{kind}" for i in (0, 1) for kind in ("conv", "recurrent")
        }
        hits = gate(data, "ran")["numbers"]["hits"]
        assert hits["gdn_decode@model.layers.0.linear_attn"] == 10 * (TOKENS - 1)
    # What the model has learned is its text: the comparison was not one of noise.
    produced = [step.token for step in made.baseline.run(made.requests[3])]
    assert produced == tiny.text(1003, 16 + TOKENS)[16:]
    amdahl = data["performance"]["amdahl"]
    assert 0 < amdahl["share"] < 1 and amdahl["predicted"] <= amdahl["most"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", GDN)
def test_the_other_models_layout_is_rejected_ten_of_ten(name, dtype):
    data = judged(experiment(name, dtype, ["gdn_decode"], gdn_decode=other_layout))
    assert data["verdict"] == "REJECT"
    found = gate(data, "trajectory")
    assert found["numbers"]["differing"] == 10
    assert found["numbers"]["first_parted"]["layer"].startswith("layers.0.")
    assert found["numbers"]["first_parted"]["step"] == 1  # the first decode step
    assert "DIFFERENT in 10/10 requests" in found["summary"]
    assert not speaks_of_speed(data["gates"])


def test_the_other_layout_is_rejected_in_forced_mode_too():
    made = experiment(GDN[1], torch.float32, ["gdn_decode"], gdn_decode=other_layout)
    data = judged(made, mode="forced")
    assert data["verdict"] == "REJECT" and gate(data, "log-probabilities")["status"] == "FAIL"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", ["tiny-qwen3.5", "tiny-gpt2"])
def test_random_weights_in_forced_mode(name, dtype):
    torch.manual_seed(2)
    model = tiny.MODELS[name].build().to(dtype).eval().requires_grad_(False)
    requests = [ab.Request(f"r{i}", tiny.text(i, 8), TOKENS) for i in range(3)]
    ops = [tiny.MODELS[name].operators[0]]
    made = experiments.of_loaded(name, model, ops, requests, implementations=IMPLEMENTATIONS)
    report = ab.run(**vars(made), mode="forced", rounds=1)
    assert report.label == "ACCEPT (forced)", report.results[-1].summary
    numbers = gate(checked(report), "log-probabilities")["numbers"]
    assert numbers["candidate"]["widest_flip"] <= 3 * numbers["equivalent"]["margin"]


def test_copies_of_a_prompt_decoded_together_give_its_tokens():
    from truefuse.integrations.transformers import decoding

    model = trained("tiny-qwen3.5")
    request = ab.Request("r", tiny.text(1004, 16), TOKENS)
    alone = [step.token for step in decoding.decode(model, request)]
    assert [step.token for step in decoding.decode(model, request, batch=3)] == alone


def test_disabled_operators_do_not_run_and_that_is_unknown(monkeypatch):
    monkeypatch.setenv("TRUEFUSE_DISABLE", "all")
    data = judged(experiment("tiny-gpt2", torch.float32), rounds=1)
    assert data["verdict"] == "UNKNOWN"
    assert gate(data, "ran")["reason"] == "candidate-never-ran"


def test_operators_left_in_the_model_make_the_baseline_unknown():
    from truefuse.integrations.transformers import decoding, use

    model = copy.deepcopy(trained("tiny-gpt2"))
    requests = [ab.Request("r0", tiny.text(1, 8), 4)]
    with use(model, ["bias_gelu"], IMPLEMENTATIONS) as left:
        both = [decoding.side(name, model, hits=left.hits) for name in ("baseline", "candidate")]
        data = checked(ab.run(*both, requests, rounds=1))
    assert gate(data, "ran")["reason"] == "baseline-uses-it"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "no-such"}, "no folder of that name"),
        ({"name": "no-such", "ops": []}, "needs --op"),
        ({"dtype": "int8"}, "--dtype int8"),
        ({"device": "cuda:77"}, "--device cuda:77"),
    ],
)
def test_models_that_cannot_be_made_are_said(arguments, sentence):
    from truefuse.ab.experiment import ExperimentError

    asked = {"name": "tiny-gpt2", "ops": ["bias_gelu"], "dtype": "float32", "device": "cpu"}
    with pytest.raises(ExperimentError, match=sentence):
        experiments.of_model(**{**asked, **arguments}, requests=1, tokens=1, seed=0)
