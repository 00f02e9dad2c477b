"""Whole models on the GPU, small and trained, in bfloat16: equal texts are accepted, the other model's layout
is rejected. They are trained on the CPU first, in seconds. TRUEFUSE_FULL=1: 256 tokens of each request."""

import copy
import functools
import os
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "ab"))
from misread import other_layout

from truefuse import ab
from truefuse.integrations.transformers import experiments, peers, tiny
from truefuse.verdict import Verdict

DEVICE = "cuda"
TOKENS = 256 if os.environ.get("TRUEFUSE_FULL") == "1" else 32
GDN = [name for name in tiny.MODELS if "gdn_decode" in tiny.MODELS[name].operators]

trained = functools.cache(tiny.trained)


def judged(name, ops, tokens, **options):
    model = copy.deepcopy(trained(name)).to(DEVICE, torch.bfloat16)
    requests = [
        ab.Request(f"r{i}", tiny.text(1000 + i, experiments.PROMPT_TOKENS), tokens)
        for i in range(10)
    ]
    made = experiments.of_loaded(name, model, list(ops), requests, **options)
    with peers.put_aside(model):  # rounding "transformers" is that of its own functions
        report = ab.run(**vars(made), rounds=0)
    print(*(result.summary for result in report.results), sep="\n")
    return report.verdict, report.results[-1].numbers


@pytest.mark.parametrize("name", list(tiny.MODELS))
def test_equal_texts_are_accepted(name):
    verdict, numbers = judged(name, tiny.MODELS[name].operators, TOKENS)
    assert verdict is Verdict.ACCEPT
    assert numbers["tokens"]["candidate"] == [TOKENS] * 10


@pytest.mark.parametrize("name", GDN)
def test_the_other_models_layout_is_rejected_ten_of_ten(name):
    wrong = {"gdn_decode": other_layout}
    verdict, numbers = judged(name, ["gdn_decode"], 8, implementations=wrong)
    assert verdict is Verdict.REJECT and numbers["differing"] == 10


def test_copies_decoded_together_are_accepted():
    assert judged("tiny-qwen3.5", ["gdn_decode"], 16, batch=16)[0] is Verdict.ACCEPT
