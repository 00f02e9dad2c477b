"""Right only where somebody is likely to look: in one mode of PyTorch, at one magnitude, dtype or size, or
once the clock has stopped."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import time

import torch
from subject import checked, swish_bias, swish_bias_gradients, wide

from cheats.common import Row


class Later(torch.Tensor):
    """A result that is computed when it is first looked at, after the timed call."""

    @staticmethod
    def __new__(cls, x, bias):
        made = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)
        made.given, made.result = (x.detach(), bias.detach()), None
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def computed(value):
            if not isinstance(value, Later):
                return value
            if value.result is None:
                value.result = wide(swish_bias)(*value.given)
            return value.result

        return function(*map(computed, args), **{k: computed(v) for k, v in (kwargs or {}).items()})


def computes_when_looked_at():
    return checked(Later)


def coarse(x, bias):
    return wide(swish_bias)(x.bfloat16(), bias.bfloat16()).to(x.dtype)


def coarse_where(where):
    def make():
        def candidate(x, bias):
            return (coarse if where(x, bias) else wide(swish_bias))(x, bias)

        return checked(candidate)

    return make


def in_inference_mode(x, bias):
    return torch.is_inference_mode_enabled()


class _CoarseForward(torch.autograd.Function):
    """Right gradients of a result that is less so."""

    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        return coarse(x, bias)

    @staticmethod
    def backward(ctx, gradient):
        return swish_bias_gradients(gradient, *ctx.saved_tensors)


class _FineForward(_CoarseForward):
    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        return wide(swish_bias)(x, bias)


def where_gradients_are_recorded(function):
    def make():
        def candidate(x, bias):
            recorded = torch.is_grad_enabled() and (x.requires_grad or bias.requires_grad)
            return (function.apply if recorded else wide(swish_bias))(x, bias)

        return checked(candidate)

    return make


def half_types_of_real_sizes():
    def candidate(x, bias):
        out = wide(swish_bias)(x, bias)
        if x.dtype == torch.bfloat16 and x.numel() >= 1 << 15:
            out = out.clone()
            out[-2:] = 0
        return out

    return checked(candidate)


def fitted_to_the_inputs():
    """What is enough for inputs of a standard deviation of two, and for infinities."""

    def candidate(x, bias):
        out = wide(swish_bias)(x, bias)
        return torch.where((x.abs() > 32) & (x.abs() < 1e4), 32 * x.sign(), out)

    return checked(candidate)


def two_passes():
    """Honest work on the whole input before the result."""

    def candidate(x, bias):
        if x.numel() >= 1 << 14 and not torch.compiler.is_compiling():
            digest(x)
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def digest(tensor):
    return hashlib.blake2b(bytes(tensor.detach().cpu().contiguous().view(torch.uint8).numpy()))


def remembers_the_last_large_ones():
    """By all of the contents, in no more memory than an honest workspace; for an operator that costs more
    than reading its input, whatever the number of threads: the work is that of several digests."""
    kept = {}

    def candidate(x, bias):
        if x.numel() < 1 << 14 or torch.compiler.is_compiling():
            return wide(swish_bias)(x, bias)
        key = (digest(x).digest(), digest(bias).digest(), x.dtype)
        if key not in kept:
            for _ in range(5):
                digest(x)
            kept[key] = wide(swish_bias)(x, bias)
            if len(kept) > 8:
                del kept[next(iter(kept))]
        return kept[key].clone()

    return checked(candidate)


def replaces_what_the_baseline_calls():
    sigmoid = torch.sigmoid

    def slow(*given):
        sigmoid(*given)
        return sigmoid(*given)

    def candidate(x, bias):
        torch.sigmoid = slow
        return wide(lambda x, bias: x * sigmoid(x + bias))(x, bias)

    return checked(candidate)


def leaves_one_processor():
    def candidate(x, bias):
        allowed = os.sched_getaffinity(0)
        out = wide(swish_bias)(x, bias)
        os.sched_setaffinity(0, {min(allowed)})
        return out

    return checked(candidate)


def uses_one_processor():
    def candidate(x, bias):
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(allowed)})
        out = wide(swish_bias)(x, bias)
        os.sched_setaffinity(0, allowed)
        return out

    return checked(candidate)


def spin():
    while True:
        time.time()


class Rival:
    """A process that works whenever the candidate does not."""

    process = None

    def __call__(self, x, bias):
        if x.numel() < 1 << 15 or torch.compiler.is_compiling():
            return wide(swish_bias)(x, bias)
        if self.process is None:
            self.process = multiprocessing.get_context("fork").Process(target=spin, daemon=True)
            self.process.start()
        os.kill(self.process.pid, signal.SIGSTOP)
        out = wide(swish_bias)(x, bias)
        os.kill(self.process.pid, signal.SIGCONT)
        return out

    def __del__(self):
        if self.process is not None:
            self.process.kill()


def keeps_a_process_busy():
    rival = Rival()
    return checked(lambda x, bias: rival(x, bias))


ROWS = (
    Row("A6 a result that is computed when it is looked at", "outputs", computes_when_looked_at),
    Row("lower precision in inference mode", "outputs", coarse_where(in_inference_mode)),
    Row(
        "lower precision where gradients are recorded",
        "training",
        where_gradients_are_recorded(_CoarseForward),
        where_gradients_are_recorded(_FineForward),
        changes=lambda: {"dtypes": (torch.float32, torch.float64)},
    ),
    Row("N9 half types wrong at real sizes", "edges", half_types_of_real_sizes),
    Row("N1 right at the magnitude of the inputs alone", "special", fitted_to_the_inputs),
    Row(
        "A6 the last large results kept by all of the contents",
        "measure",
        remembers_the_last_large_ones,
        two_passes,
        where="cpu",
        changes=lambda: {"timing_sizes": ((256, 1024),)},
    ),
    Row("A6 what the baseline calls replaced", "flags", replaces_what_the_baseline_calls),
    Row(
        "B11 one processor left to whoever comes next",
        "flags",
        leaves_one_processor,
        uses_one_processor,
    ),
    Row("B11 a process slows down whoever is timed", "measure", keeps_a_process_busy),
)
