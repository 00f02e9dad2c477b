"""Cheats and accidents that have fooled somebody in public, as tiny candidates; each with its honest twin.

A row says which gate has to catch it. `where` is "any" device or "cuda".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import subject
import torch
from subject import checked, swish_bias, wide

honest = checked(wide(swish_bias))


@dataclass(frozen=True)
class Row:
    story: str  # which public case it re-enacts
    gate: str  # that must catch it
    make: Callable[[], Callable[..., Any]]  # the cheat, anew for each check
    twin: Callable[[], Callable[..., Any]] = lambda: honest
    where: str = "any"
    changes: Callable[[], dict[str, Any]] = dict  # to the case


def after(change):
    """A cheat that computes honestly and then spoils the result."""
    return lambda: checked(lambda x, bias: change(wide(swish_bias)(x, bias), x, bias))


def contiguous_result(x, bias):
    return wide(swish_bias)(x, bias).contiguous()


# Memory, replay and caching


def returns_what_was_there():
    """Computes nothing: its output lies in memory that has just held somebody's right answer."""
    return checked(lambda x, bias: torch.empty(x.shape, dtype=x.dtype, device=x.device))


def writes_into_empty():
    def candidate(x, bias):
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        return out.copy_(wide(swish_bias)(x, bias))

    return checked(candidate)


def zeroes_the_input():
    def candidate(x, bias):
        x.zero_()
        return torch.zeros_like(x)

    return checked(candidate)


def keyed(key_of, honest_miss=True):
    """Remembers results under a key that is not the contents."""

    def make():
        kept = {}

        def candidate(x, bias):
            key = (key_of(x), key_of(bias), x.dtype, x.shape)
            if key not in kept:
                kept[key] = wide(swish_bias)(x, bias).contiguous()
            return kept[key].clone()

        return checked(candidate)

    return make


def super_batch():
    """The first large call computes all that it has seen; the others look it up by address."""
    kept = {}

    def candidate(x, bias):
        if x.numel() < 1 << 14:
            return wide(swish_bias)(x, bias)
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = wide(swish_bias)(x, bias)
        return kept[x.data_ptr()].clone()

    return checked(candidate)


def keeps_a_plan():
    """What an honest operator may keep by shape: anything that is no result."""
    plans = {}

    def candidate(x, bias):
        plans.setdefault((x.shape, x.dtype), {"threads": 256})
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def empty_list():
    return checked(lambda x, bias: [])


def half_of_the_rows():
    def candidate(x, bias):
        out = torch.zeros_like(x)
        rows = max(1, x.shape[0] // 2) if x.dim() > 1 else None
        out[:rows] = wide(swish_bias)(x[:rows], bias)
        return out

    return checked(candidate)


def returns_its_input():
    return checked(lambda x, bias: x)


def one_buffer():
    buffers = {}

    def candidate(x, bias):
        result = wide(swish_bias)(x, bias)
        return buffers.setdefault((x.shape, x.dtype), torch.empty_like(result)).copy_(result)

    return checked(candidate)


# Numerics, references and tasks


def lower_precision():
    return checked(lambda x, bias: swish_bias(x.bfloat16(), bias.bfloat16()).to(x.dtype))


def zeros_where_small(result, x, bias):
    return torch.where(result.abs() < 0.01, 0.0, result)


def nine_tenths_of_a_percent(result, x, bias):
    return (result.double() * 1.009).to(result.dtype)


def one_wrong_row(result, x, bias):
    if result.dim() > 1 and len(result) > 2:
        result[1] = result[0]
    return result


def nan_becomes_zero(result, x, bias):
    return result.nan_to_num(0.0, torch.inf, -torch.inf)


def nan_at_the_end(result, x, bias):
    if result.numel() > 1:
        result.view(-1)[-1:] = torch.nan
    return result


def wrong_below_a_tile(result, x, bias):
    """Right from 128 columns on."""
    return result if x.shape[-1] >= 128 else result * 1.5


def last_tile_left_out(result, x, bias):
    tail = result.shape[-1] % 256
    if result.shape[-1] > 256 and tail:
        result[..., -tail:] = 0
    return result


def noisy():
    calls = 0

    def change(result, x, bias):
        nonlocal calls
        calls += 1
        # What atomics do: a last bit of a few elements, now and then.
        if calls % 5 == 0 and result.numel() > 3:
            flat = result.view(-1)
            flat[3:4] = torch.nextafter(flat[3:4], flat[3:4] + 1)
        return result

    return after(change)()


# State, mutation, aliasing


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


# Out of bounds


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


# The contract


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


# Training


def detached():
    return checked(lambda x, bias: wide(swish_bias)(x, bias).detach())


class _Swish(torch.autograd.Function):
    """The backward of a public kernel: grad * (f + s * (1 - f))."""

    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        return wide(swish_bias)(x, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, bias = ctx.saved_tensors
        s = torch.sigmoid(x + bias)
        slope = s + x * s * (1 - s)
        return gradient * slope, (gradient * x * s * (1 - s)).sum_to_size(bias.shape)


class _Twice(_Swish):
    @staticmethod
    def backward(ctx, gradient):
        own, other = _Swish.backward(ctx, gradient)
        return own, other * 1.001


class _Contiguous(_Swish):
    """A kernel that walks the incoming gradient by its own index."""

    @staticmethod
    def backward(ctx, gradient):
        flat = (
            torch.as_strided(gradient, (1,), (1,), gradient.storage_offset())
            if gradient.numel() and not gradient.is_contiguous()
            else gradient
        )
        return _Swish.backward(ctx, flat.expand(gradient.shape))


class _Cut(_Swish):
    @staticmethod
    def backward(ctx, gradient):
        return tuple(one.detach() for one in _Swish.backward(ctx, gradient))


class _SumsInHalf(_Swish):
    @staticmethod
    def backward(ctx, gradient):
        x, bias = ctx.saved_tensors
        s = torch.sigmoid(x.float() + bias.float())
        own = (gradient.float() * (s + x.float() * s * (1 - s))).to(x.dtype)
        each = (gradient.float() * x.float() * s * (1 - s)).to(torch.bfloat16)
        rows = each.reshape(-1, bias.shape[0])
        total = torch.zeros_like(bias, dtype=torch.bfloat16)
        for row in rows:
            total = total + row
        return own, total.to(bias.dtype)


def through(function):
    return lambda: checked(function.apply)


# On a GPU


def on_the_default_stream():
    """A kernel launched on stream 0, whatever PyTorch's current stream is."""

    def candidate(x, bias):
        with torch.cuda.stream(torch.cuda.default_stream(x.device)):
            return wide(swish_bias)(x, bias)

    return checked(candidate)


def on_the_first_stream():
    """A stream that is baked into cached launch arguments."""
    streams = {}

    def candidate(x, bias):
        if x.device.type != "cuda":
            return wide(swish_bias)(x, bias)
        stream = streams.setdefault(x.device, torch.cuda.current_stream(x.device))
        with torch.cuda.stream(stream):
            return wide(swish_bias)(x, bias)

    return checked(candidate)


def on_a_stream_that_is_joined():
    """Honest use of a second stream."""
    streams = {}

    def candidate(x, bias):
        if x.device.type != "cuda":
            return wide(swish_bias)(x, bias)
        side = streams.setdefault(x.device, torch.cuda.Stream(x.device))
        current = torch.cuda.current_stream(x.device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            out = wide(swish_bias)(x, bias)
        out.record_stream(current)
        current.wait_stream(side)
        return out

    return checked(candidate)


def synchronises():
    def candidate(x, bias):
        out = wide(swish_bias)(x, bias)
        if x.device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(x.device)
        return out

    return checked(candidate)


def reads_a_value_back():
    def candidate(x, bias):
        out = wide(swish_bias)(x, bias)
        if out.numel() and not bool(out.flatten()[0].isnan()):
            return out
        return out + 0

    return checked(candidate)


def launches_nothing_after_the_first():
    kept = {}

    def candidate(x, bias):
        key = (x.shape, x.dtype)
        if key not in kept:
            kept[key] = wide(swish_bias)(x, bias)
        return kept[key]

    return checked(candidate)


EXACT = {"dtypes": (torch.float32, torch.float64)}


ROWS: tuple[Row, ...] = (
    Row("A1 output is memory that held the answer", "unwritten", returns_what_was_there, writes_into_empty),
    Row("A2 input overwritten with zeros", "outputs", zeroes_the_input),
    Row("A3 super-batch: large inputs remembered by address", "measure", super_batch, keeps_a_plan),
    Row("A6 results kept by address", "remembered", keyed(lambda t: t.data_ptr()), keeps_a_plan),
    Row("A6 results kept by id and version", "remembered", keyed(lambda t: (id(t), t._version))),
    Row("A6 results kept by a sample", "remembered",
        keyed(lambda t: (float(t.sum()) if t.numel() < 2 else float(t.flatten()[0])))),
    Row(
        "A6 results kept by all of the contents",
        "remembered",
        keyed(lambda t: tuple(t.flatten().tolist())),
        keeps_a_plan,
    ),
    Row("A6 patched clock", "flags", patches_the_clock),
    Row("A6 patched comparison", "flags", patches_the_comparison),
    Row("A8 empty list", "outputs", empty_list),
    Row("A10 computed in lower precision", "numerics", lower_precision),
    Row("N1 returns its input, inputs not negative", "reference", lambda: torch.relu,
        changes=lambda: {
            "reference": lambda x, bias: torch.relu(x), "baselines": {"eager": lambda x, bias: torch.relu(x)},
            "make_inputs": lambda *a: {k: v.abs() for k, v in subject.swish_bias_inputs(*a).items()}},
        twin=lambda: honest),
    Row("N2 reference identically zero", "reference", lambda: checked(lambda x, bias: torch.zeros_like(x)),
        changes=lambda: {"reference": lambda x, bias: 0 * x * bias}),
    Row("N3 zeros where values are small", "numerics", after(zeros_where_small)),
    Row("N3 NaN turned into a number", "special", after(nan_becomes_zero)),
    Row("N4/N7 0.9 % error", "numerics", after(nine_tenths_of_a_percent)),
    Row("N8 one wrong row", "numerics", after(one_wrong_row)),
    Row("N9 wrong below 128 columns", "edges", after(wrong_below_a_tile)),
    Row("N9 last partial tile left out", "edges", after(last_tile_left_out)),
    Row("pygpubench NaN as a wildcard", "edges", after(nan_at_the_end)),
    Row("S1 in-place result compared with itself", "outputs", writes_into_its_input),
    Row("S4 undeclared mutation of an argument", "outputs", rounds_the_bias_in_place),
    Row("S6 workspace shared between calls", "concurrent", shared_workspace),
    Row("S7 static accumulator", "edges", static_accumulator),
    Row("S8 a last bit at random", "determinism", noisy),
    Row("S9 a global flag set", "flags", sets_a_flag),
    Row("output is an input", "outputs", returns_its_input),
    Row("one output buffer for all calls", "remembered", one_buffer, writes_into_empty),
    Row("O1 one element written beyond the end", "bounds", writes_one_beyond),
    Row("O1 one element read beyond the end", "bounds", reads_one_beyond),
    Row("B10 half of the rows computed", "edges", half_of_the_rows),
    Row("mission A: dtype mismatch promoted silently", "contract", promotes_silently),
    Row("mission A: error without words", "contract", error_without_words),
    Row("mission A: strides read as if contiguous", "contract", reads_strides_as_if_contiguous),
    Row("mission A/B: empty input launches 0 blocks", "contract", fails_when_empty),
    Row("mission A: gradients silently missing", "training", detached),
    Row("mission B: an incoming gradient read as if contiguous", "training", through(_Contiguous),
        through(_Swish), changes=lambda: EXACT),
    Row("mission B: double backward silently wrong", "training", through(_Cut), through(_Swish),
        changes=lambda: EXACT),
    Row("a gradient 0.1 % too large", "gradients", through(_Twice), through(_Swish),
        changes=lambda: EXACT),
    Row("bias gradient summed in half precision", "gradients", through(_SumsInHalf),
        changes=lambda: {"dtypes": (torch.bfloat16,)}),
    Row("A4 mission A/B: work on the default stream", "streams", on_the_default_stream,
        on_a_stream_that_is_joined, where="cuda"),
    Row("A5 a stream remembered from the first call", "streams", on_the_first_stream, where="cuda"),
    Row("A4 absent from the graph", "capture", launches_nothing_after_the_first, where="cuda"),
    Row("the device synchronised in the call", "sync", synchronises, where="cuda"),
    Row("a value read back in the call", "sync", reads_a_value_back, where="cuda"),
    Row("a value read back under capture", "capture", reads_a_value_back, where="cuda"),
    Row("nothing launched after the first call", "launches", launches_nothing_after_the_first, where="cuda"),
)  # fmt: skip


# Rows of the collection of public cases that have no candidate here.
LEFT_OUT: dict[str, str] = {
    "A7": "a lint that turned away honest graph replays: no lint is used here",
    "N5": "TF32 in matmul: only on a GPU with tensor cores; A10 is the same fault on any device",
    "N6": "a tolerance keyed on the wrong dtype: the rule here has one table, tested in N4 and N7",
    "N11": "32-bit offsets: needs more than 2^31 elements; the GPU tests of each operator have them",
    "N12": "experts with unequal load: no such operator",
    "N14": "a reference that does not repeat itself: a planted fault of the reference gate's check",
    "N15, M1-M4": "whole models: the comparison of models has its own tests",
    "N16": "timing on zeros: both sides get the same inputs by construction",
    "S2": "a shared gradient changed in place: the incoming gradient is checked as an input is (S1)",
    "U2-U4": "the same fault as A1",
    "O2": "memory freed while a kernel uses it: needs a second stream; see A4 on a GPU",
    "F1": "wrong fake strides: planted in the traced gate, which needs a registered operator",
    "B1-B3": "caches that survive a flush: no flush is relied on, inputs rotate",
    "B4, B5, B6, B12": "timers that miss work: no profiler is a clock here; two clocks are compared",
    "B8, B9": "bimodal and A/A runs: tested with synthetic timers",
    "B11": "baselines with other settings: flags are compared before and after each side",
}
