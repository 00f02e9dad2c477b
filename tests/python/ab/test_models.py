"""Whole models, small and trained, with the real operators: equal texts are accepted, the other model's
layout is rejected. TRUEFUSE_FULL=1: 256 tokens of each request."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import os
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

from misread import other_layout
from toy import checked, gate, speaks_of_speed
from typer.testing import CliRunner

from truefuse import ab
from truefuse.ab.experiment import Experiment
from truefuse.cli import app
from truefuse.integrations.transformers import decoding, experiments, tiny

TOKENS = 256 if os.environ.get("TRUEFUSE_FULL") == "1" else 8
GDN = [name for name in tiny.MODELS if "gdn_decode" in tiny.MODELS[name].operators]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
# In half types a logit of size 16 is rounded to 1/16: margins below a few of these are ties.
ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 0.1}

trained = functools.cache(tiny.trained)


def experiment(name: str, dtype: torch.dtype, ops=None, tokens=TOKENS, **options) -> Experiment:
    model = copy.deepcopy(trained(name)).to(dtype)
    requests = [
        ab.Request(f"r{i}", tiny.text(1000 + i, experiments.PROMPT_TOKENS), tokens)
        for i in range(10)
    ]
    ops = ops or list(tiny.MODELS[name].operators)
    return experiments.of_loaded(name, model, ops, requests, **options)


def misreading(name: str, dtype: torch.dtype) -> Experiment:
    implementations = {"gdn_decode": other_layout}
    return experiment(name, dtype, ["gdn_decode"], 8, implementations=implementations)


def judged(made: Experiment, **options) -> dict:
    return checked(ab.run(**vars(made), **options))


@DTYPES
@pytest.mark.parametrize("name", list(tiny.MODELS))
def test_equal_texts_are_accepted(name, dtype, capsys):
    made = experiment(name, dtype)
    data = judged(made, rounds=0)
    assert data["verdict"] == "ACCEPT", [entry["summary"] for entry in data["gates"]]
    found = gate(data, "trajectory")
    margin = found["numbers"]["smallest_margin"]
    with capsys.disabled():
        print(f"\n{name} {dtype}: {found['summary']}")
    assert margin > ROUNDING[dtype]
    assert found["numbers"]["tokens"]["candidate"] == [TOKENS] * 10
    hits = gate(data, "ran")["numbers"]["hits"]
    if name in GDN:
        states = found["numbers"]["states"]["worst_by_layer"]
        assert set(states) == {
            f"layers.{i}.{kind}" for i in (0, 1) for kind in ("conv", "recurrent")
        }
        assert hits["gdn_decode@model.layers.0.linear_attn"] == 10 * (TOKENS - 1)
    else:
        assert len(hits) == 3 and set(hits.values()) == {10 * TOKENS}
    # What the model has learned is its text: the comparison was not one of noise.
    produced = [step.token for step in made.baseline.run(made.requests[3])]
    assert produced[:8] == tiny.text(1003, 16 + 8)[16:]


@DTYPES
@pytest.mark.parametrize("name", GDN)
def test_the_other_models_layout_is_rejected_ten_of_ten(name, dtype):
    data = judged(misreading(name, dtype))
    assert data["verdict"] == "REJECT"
    found = gate(data, "trajectory")
    assert found["numbers"]["differing"] == 10
    assert found["numbers"]["first_parted"]["layer"].startswith("layers.0.")
    assert found["numbers"]["first_parted"]["step"] == 1  # the first decode step
    assert "DIFFERENT in 10/10 requests" in found["summary"]
    assert not speaks_of_speed(data["gates"])


def test_the_other_layout_is_rejected_in_forced_mode_too():
    data = judged(misreading("tiny-qwen3.5", torch.float32), mode="forced")
    assert data["verdict"] == "REJECT" and gate(data, "log-probabilities")["status"] == "FAIL"


def test_an_accepted_model_is_timed_and_its_gain_compared_with_the_share():
    performance = judged(experiment("tiny-llama", torch.float32, tokens=4), rounds=1)["performance"]
    assert performance["metrics"]["tpot"]["baseline"]["requests"] == 20
    amdahl = performance["amdahl"]
    assert 0 < amdahl["share"] < 1 and amdahl["predicted"] <= amdahl["most"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equal_logits_a_timed_pass_chooses_the_one_that_was_judged(dtype):
    """topk and argmax do not agree on which of them is first."""
    logits = torch.zeros(1, 48, dtype=dtype)
    seen = ab.Request("r0", [1], 1, observe=True)
    for one, other in itertools.combinations(range(48), 2):
        logits.zero_()[0, [one, other]] = 9.0
        judged = decoding.chosen(logits, None, seen, 0)
        timed = decoding.chosen(logits, None, replace(seen, observe=False), 0)
        assert judged.token == judged.preferred == timed.token and judged.margin == 0


@DTYPES
@pytest.mark.parametrize("name", ["tiny-qwen3.5", "tiny-gpt2", "tiny-llama"])
def test_random_weights_in_forced_mode(name, dtype):
    torch.manual_seed(2)
    model = tiny.MODELS[name].build().to(dtype).eval().requires_grad_(False)
    requests = [ab.Request(f"r{i}", tiny.text(i, 8), 8) for i in range(3)]
    made = experiments.of_loaded(name, model, list(tiny.MODELS[name].operators), requests)
    report = ab.run(**vars(made), mode="forced", rounds=0)
    assert report.label == "ACCEPT (forced)", report.results[-1].summary
    numbers = gate(checked(report), "log-probabilities")["numbers"]
    assert numbers["candidate"]["widest_flip"] <= 3 * numbers["equivalent"]["margin"]


def test_a_model_in_a_half_type_keeps_the_frequencies_of_its_positions(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "trained", lambda name, seed: copy.deepcopy(trained(name)))
    trained("tiny-llama").save_pretrained(tmp_path)
    wanted = trained("tiny-llama").model.rotary_emb.inv_freq
    for name in ("tiny-llama", str(tmp_path)):
        model, _ = experiments._load(name, "cpu", "bfloat16", 1, 0)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
        assert torch.equal(model.model.rotary_emb.inv_freq, wanted)


def test_the_command_trains_judges_and_reports(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "trained", trained)
    report = tmp_path / "ab.json"
    few = ("--requests", "2", "--tokens", "4", "--rounds", "0", "-o", str(report))
    found = CliRunner().invoke(app, ["ab", "run", "--model", "tiny-qwen3.5", *few])
    assert found.exit_code == 0, found.output
    data = json.loads(report.read_text())
    assert data["name"] == "tiny-qwen3.5 with gdn_decode, swiglu" and data["verdict"] == "ACCEPT"
    assert data["environment"]["cpu"]["threads"] == 1
    assert "2/2 requests equal" in found.output and not speaks_of_speed(data)


def test_a_small_model_is_profiled_on_one_thread(monkeypatch):
    monkeypatch.setattr(tiny, "trained", trained)
    torch.set_num_threads(2)
    experiments.decode_step("tiny-llama", device="cpu", dtype="float32")()
    assert torch.get_num_threads() == 1


def test_copies_of_a_prompt_decoded_together_give_its_tokens():
    model = trained("tiny-qwen3.5")
    request = ab.Request("r", tiny.text(1004, 16), TOKENS)
    alone = [step.token for step in decoding.decode(model, request)]
    assert [step.token for step in decoding.decode(model, request, batch=3)] == alone


def test_no_end_comes_before_every_copy_had_its_turn(monkeypatch):
    """Of six copies, each seen once, though the first token ends the text."""
    torch.manual_seed(0)
    model = tiny.MODELS["tiny-llama"].build().eval().requires_grad_(False)
    request = ab.Request("r", tiny.text(5, 8), 9)
    tokens = [step.token for step in decoding.decode(model, request)]
    monkeypatch.setattr(decoding, "_end_tokens", lambda model: {tokens[0]})
    assert len(list(decoding.decode(model, request))) == 1
    assert [step.token for step in decoding.decode(model, request, batch=6)] == tokens[:6]


def first_row_for_all(*tensors, z, a, **named):
    """A kernel that forgets the number of the sequence: right, as long as all sequences are one."""
    first = [x[:1] for x in tensors[:4]]
    z, a = (x if x is None else x[:1] for x in (z, a))
    core = torch.ops.truefuse.gdn_decode(*first, *tensors[4:], z=z, a=a, **named)
    for state in tensors[2:4]:
        state[1:] = state[:1]
    return core.repeat(len(tensors[0]), 1, 1)


@pytest.mark.parametrize("name", ["tiny-qwen3-next", "tiny-qwen3.5"])
def test_a_kernel_that_takes_one_row_for_another_is_rejected(name):
    options = {"batch": 3, "implementations": {"gdn_decode": first_row_for_all}}
    data = judged(experiment(name, torch.float32, ["gdn_decode"], 8, **options))
    assert data["verdict"] == "REJECT"
    assert gate(data, "trajectory")["numbers"]["differing"] == 10
    data = judged(experiment(name, torch.float32, ["gdn_decode"], 8, batch=3), rounds=0)
    assert data["verdict"] == "ACCEPT"


def test_rows_are_the_prompts_that_follow_made_as_long():
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    assert decoding.rows([4, 5], 4, prompts) == [[4, 5], [6, 7], [1, 2], [4, 5]]
    assert decoding.rows([6, 7, 8, 9], 3, prompts)[1:] == [[1, 2, 3, 1], [4, 5, 4, 5]]
    assert decoding.rows([1], 3, ()) == [[1], [1], [1]]


def test_a_copy_that_goes_another_way_is_rejected():
    def first_row_alone(*tensors, **named):
        core = torch.ops.truefuse.gdn_decode(*tensors, **named)
        core[1:] = 0
        return core

    options = {"batch": 3, "implementations": {"gdn_decode": first_row_alone}}
    data = judged(experiment("tiny-qwen3.5", torch.float32, ["gdn_decode"], 8, **options))
    assert data["verdict"] == "REJECT"
    assert gate(data, "trajectory")["numbers"]["differing"] == 10


def test_copies_that_no_token_would_judge_are_refused():
    from truefuse.ab.experiment import ExperimentError

    with pytest.raises(ExperimentError, match=r"batch 9: r0 has 8 tokens.* at least 9"):
        experiment("tiny-gpt2", torch.float32, tokens=8, batch=9)


def test_disabled_operators_do_not_run_and_that_is_unknown(monkeypatch):
    monkeypatch.setenv("TRUEFUSE_DISABLE", "all")
    data = judged(experiment("tiny-gpt2", torch.float32), rounds=1)
    assert data["verdict"] == "UNKNOWN"
    assert gate(data, "ran")["reason"] == "candidate-never-ran"


def test_one_of_two_operators_that_does_not_run_is_unknown(monkeypatch):
    monkeypatch.setenv("TRUEFUSE_DISABLE", "gdn_decode")
    data = judged(experiment("tiny-qwen3.5", torch.float32), rounds=1)
    assert data["verdict"] == "UNKNOWN"
    found = gate(data, "ran")
    assert found["reason"] == "candidate-never-ran"
    assert (
        found["summary"].startswith("gdn_decode never ran")
        and "swiglu 3 layers" in found["summary"]
    )


def test_operators_left_in_the_model_make_the_baseline_unknown():
    from truefuse.integrations.transformers import use

    model = copy.deepcopy(trained("tiny-gpt2"))
    requests = [ab.Request("r0", tiny.text(1, 8), 4)]
    with use(model, ["bias_gelu"]) as left:
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


def test_a_checkpoint_that_cannot_be_read_is_a_usage_error(tmp_path):
    tiny.MODELS["tiny-llama"].build().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    found = CliRunner().invoke(app, ["ab", "run", "--model", str(tmp_path), "--op", "swiglu"])
    assert found.exit_code == 2 and "cannot be loaded" in found.output
