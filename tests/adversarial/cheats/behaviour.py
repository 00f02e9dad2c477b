"""State, aliasing, bounds and the contract."""

from __future__ import annotations

import time

import torch
from subject import checked, swish_bias, wide

from cheats.common import Row, honest


def static_accumulator():
    total = 0.0

    def candidate(x, bias):
        nonlocal total
        result = wide(swish_bias)(x, bias) + total
        if x.numel() > 8:
            total += 1e-2
        return result

    return checked(candidate)


def writes_into_its_input():
    return checked(lambda x, bias: x.copy_(wide(swish_bias)(x, bias)))


def rounds_the_bias_in_place():
    def candidate(x, bias):
        bias.copy_(bias.bfloat16())
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def shared_workspace():
    space = {}

    def candidate(x, bias):
        work = space.setdefault((x.shape, x.dtype), torch.empty_like(x))
        work.copy_(x)
        time.sleep(0.001)  # where a kernel would run
        return wide(swish_bias)(work.clone(), bias)

    return checked(candidate)


def sets_a_flag():
    def candidate(x, bias):
        torch.set_float32_matmul_precision("medium")
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def patches_the_clock():
    def candidate(x, bias):
        real = time.perf_counter
        if real.__name__ == "perf_counter":
            time.perf_counter = lambda: real() / 10
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def patches_the_comparison():
    def candidate(x, bias):
        torch.equal = lambda *given: True
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def reads_one_beyond():
    def candidate(x, bias):
        result = wide(swish_bias)(x, bias)
        end = bias.storage_offset() + (bias.numel() - 1) * bias.stride(0) + 1 if bias.numel() else 0
        room = bias.untyped_storage().nbytes() // bias.element_size()
        if 0 < end < room and result.numel():
            beyond = torch.as_strided(bias, (1,), (1,), end)
            result = result.clone()
            result.view(-1)[-1:] += 0 * beyond  # harmless unless it is NaN
        return result

    return checked(candidate)


def writes_one_beyond():
    def candidate(x, bias):
        result = wide(swish_bias)(x, bias)
        end = (
            x.storage_offset()
            + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
            + 1
        )
        room = x.untyped_storage().nbytes() // x.element_size()
        if x.numel() and end < room:
            torch.as_strided(x, (1,), (1,), end).fill_(0.25)
        return result

    return checked(candidate)


def promotes_silently():
    """Takes a bias of any dtype and converts it."""
    return lambda x, bias: wide(swish_bias)(x, bias.to(x.dtype))


def error_without_words():
    def candidate(x=None, bias=None):
        try:
            return honest(x, bias)
        except RuntimeError:
            raise RuntimeError("invalid argument") from None

    return candidate


def reads_strides_as_if_contiguous():
    def candidate(x, bias):
        dense = torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride())
        return wide(swish_bias)(dense if x.numel() and x.storage_offset() == 0 else x, bias)

    return checked(candidate)


def fails_when_empty():
    def candidate(x, bias):
        if not x.numel():
            raise RuntimeError("swish_bias: 0 blocks")
        return wide(swish_bias)(x, bias)

    return checked(candidate)


ROWS = (
    Row("A6 patched clock", "flags", patches_the_clock),
    Row("A6 patched comparison", "flags", patches_the_comparison),
    Row("S1 in-place result compared with itself", "outputs", writes_into_its_input),
    Row("S4 undeclared mutation of an argument", "outputs", rounds_the_bias_in_place),
    Row("S6 workspace shared between calls", "concurrent", shared_workspace),
    Row("S7 static accumulator", "edges", static_accumulator),
    Row("S9 a global flag set", "flags", sets_a_flag),
    Row("O1 one element written beyond the end", "bounds", writes_one_beyond),
    Row("O1 one element read beyond the end", "bounds", reads_one_beyond),
    Row("mission A: dtype mismatch promoted silently", "contract", promotes_silently),
    Row("mission A: error without words", "contract", error_without_words),
    Row("mission A: strides read as if contiguous", "contract", reads_strides_as_if_contiguous),
    Row("mission A/B: empty input launches 0 blocks", "contract", fails_when_empty),
)
