"""A model on a CPU never calls packages that are for GPUs, though transformers would."""

import functools
import sys
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

from truefuse import ab
from truefuse.integrations.transformers import decoding, experiments, peers, tiny

NAME = "tiny-qwen3-next"


@pytest.fixture
def gpu_only(monkeypatch):
    """As where flash-linear-attention is installed: each function's wrapper chooses what cannot run here."""
    module = sys.modules[type(tiny.MODELS[NAME].build()).__module__]
    found = [name for name in peers.FUNCTIONS if hasattr(module, name)]

    def refuses(name):
        @functools.wraps(getattr(module, name))
        def function(*given, **options):
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")

        return function

    for name in found:
        monkeypatch.setattr(module, name, refuses(name))
    return {name: getattr(module, name) for name in found}, module


def model_with_peers():
    torch.manual_seed(0)
    return tiny.MODELS[NAME].build().eval().requires_grad_(False)


def test_without_care_it_fails(gpu_only):
    with pytest.raises(ValueError, match="Triton"):
        list(decoding.decode(model_with_peers(), ab.Request("r", [3] * 16, 4)))


def test_training_and_judging_on_the_cpu(gpu_only, monkeypatch):
    wrappers, module = gpu_only
    assert len(wrappers) >= 2
    monkeypatch.setitem(tiny.MODELS, NAME, replace(tiny.MODELS[NAME], steps=1))
    model = tiny.trained(NAME)
    made = experiments.of_loaded(NAME, model, ["gdn_decode"], [ab.Request("r", [3] * 16, 4)])
    assert ab.run(**vars(made), rounds=0).verdict.name == "ACCEPT"
    assert {name: getattr(module, name) for name in wrappers} == wrappers


def test_profiling_on_the_cpu(gpu_only, monkeypatch):
    monkeypatch.setitem(tiny.MODELS, NAME, replace(tiny.MODELS[NAME], steps=1))
    experiments.decode_step(NAME, device="cpu", dtype="float32")()


def test_what_is_put_aside_comes_back_after_an_error(gpu_only):
    wrappers, module = gpu_only
    with pytest.raises(KeyError), peers.put_aside(model_with_peers()):
        assert all(getattr(module, name) is not function for name, function in wrappers.items())
        raise KeyError
    assert {name: getattr(module, name) for name in wrappers} == wrappers
