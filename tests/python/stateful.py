"""A small operator that changes an input in place and gives two outputs, for the checks: a leaky sum."""

from __future__ import annotations

import torch

from truefuse.case import Case


def leaky_sum(x, decay, state):
    """state <- decay * state + x; gives the new state in x's dtype, and its mean over hidden."""
    state.copy_(torch.sigmoid(decay).to(state.dtype) * state + x.to(state.dtype))
    return state.to(x.dtype, copy=True), state.mean(dim=-1).to(x.dtype)


def fused(x, decay, state):
    """The same in other words: in float64 inside, rounded once."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, decay, state)):
        raise RuntimeError("leaky_sum has no gradient: call it under torch.no_grad()")
    new = torch.sigmoid(decay.double()) * state.double() + x.double()
    state.copy_(new)
    return state.to(x.dtype, copy=True), new.mean(dim=-1).to(x.dtype)


def reference(x, decay, state):
    state.copy_(state / (1 + torch.exp(-decay)) + x)
    return state.clone(), state.sum(dim=-1) / state.shape[-1]


def scale(x, decay, state):
    new = state.abs() / (1 + torch.exp(-decay)) + x.abs()
    return new, new.mean(dim=-1), new


def make_inputs(size, dtype, device, generator, kind):
    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device)

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return {
        "x": normal(*size).to(dtype),
        "decay": normal(size[-1]).to(dtype),
        "state": normal(*size).to(wide),
    }


def without_decay(inputs, mode):
    return {**inputs, "decay": torch.full_like(inputs["decay"], 40.0)}, mode


case = Case(
    name="leaky_sum",
    candidate=fused,
    baselines={"eager": leaky_sum},
    reference=reference,
    make_inputs=make_inputs,
    mutates=("state",),
    scale=scale,
    dtypes=(torch.float32, torch.bfloat16),
    faults={"no decay": without_decay},
    numeric_size=(64, 128),
    timing_sizes=((64, 128),),
    empty_sizes=(),
    rank_sizes=(),
)
