"""Right by itself: not in autocast, once compiled, for whoever else looks at its memory, or beside a baseline that it
leaves alone."""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from pathlib import Path

import subject
import torch
from subject import checked, swish_bias, wide

from cheats.common import Row
from cheats.memory import buffers_that_nobody_holds
from cheats.selective import coarse_where
from cheats.training import Swish, through

WHOLE = wide(swish_bias)
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1  # <malloc.h>
KEPT = 32 << 20  # the most that it can be told
OF_A_GRID = (1 << 16) - 1  # blocks in its second dimension


def is_plain(x, bias):
    """Neither traced nor to be differentiated."""
    return not (torch.compiler.is_compiling() or x.requires_grad or bias.requires_grad)


def in_autocast(x, bias):
    return torch.is_autocast_enabled(x.device.type)


def out_of_autocast():
    def candidate(x, bias):
        with torch.autocast(x.device.type, enabled=False):
            return WHOLE(x, bias)

    return checked(candidate)


class _CoarseFromAutocast(Swish):
    """Gradients of half precision for a call that was made in autocast."""

    @staticmethod
    def forward(ctx, x, bias):
        ctx.coarse = in_autocast(x, bias)
        return Swish.forward(ctx, x, bias)

    @staticmethod
    def backward(ctx, gradient):
        made = Swish.backward(ctx, gradient)
        return tuple(one.bfloat16().to(one.dtype) for one in made) if ctx.coarse else made


def loses_its_slope_once_compiled():
    def candidate(x, bias):
        if torch.compiler.is_compiling():
            return wide(lambda x, bias: x * torch.sigmoid(x.detach() + bias))(x, bias)
        return WHOLE(x, bias)

    return checked(candidate)


def another_formula_once_compiled():
    def candidate(x, bias):
        if torch.compiler.is_compiling():
            return wide(lambda x, bias: torch.sigmoid(x + bias) * x)(x, bias)
        return WHOLE(x, bias)

    return checked(candidate)


class _SavedUnseen(Swish):
    """Beside what autograd watches."""

    @staticmethod
    def forward(ctx, x, bias):
        ctx.given = x, bias
        return WHOLE(x, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, bias = ctx.given
        s = torch.sigmoid(x + bias)
        other = gradient * x * s * (1 - s)
        return gradient * s + other, other.sum_to_size(bias.shape)


class _SavedResult(Swish):
    """The result in place of a product, unwatched; not where the gradient is to be derived again."""

    @staticmethod
    def forward(ctx, x, bias):
        out = Swish.forward(ctx, x, bias)
        ctx.out = out.detach()
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, bias = ctx.saved_tensors
        s = torch.sigmoid(x + bias)
        out = x * s if torch.is_grad_enabled() else ctx.out
        other = gradient * out * (1 - s)
        return gradient * s + other, other.sum_to_size(bias.shape)


def memory_of_tensors_that_are_gone():
    """As soon as the tensor that was given back is, though a view of it may be there."""
    free = {}

    def candidate(x, bias):
        result = WHOLE(x, bias)
        if not is_plain(x, bias):
            return result
        pool = free.setdefault((x.shape, x.dtype, threading.get_ident()), [])
        kept = pool.pop() if pool else torch.empty_like(result)
        out = kept.detach().copy_(result)
        weakref.finalize(out, pool.append, kept)
        return out

    return checked(candidate)


def long_ring_of_buffers():
    rings = {}

    def candidate(x, bias):
        result = WHOLE(x, bias)
        if not is_plain(x, bias):
            return result
        ring = rings.setdefault((x.shape, x.dtype, threading.get_ident()), [])
        ring.append(ring.pop(0) if len(ring) == 400 else torch.empty_like(result))
        return ring[-1].detach().copy_(result)

    return checked(candidate)


def writes_into_what_it_alone_holds():
    """Into x, where the count of its tensor says that nobody else has that: here, in `checked`, and the count's own."""

    def candidate(x, bias):
        if sys.getrefcount(x) <= 3 and x.is_contiguous() and is_plain(x, bias):
            return x.copy_(WHOLE(x, bias))
        return WHOLE(x, bias)

    return checked(candidate)


def rows_of_one_grid():
    def candidate(x, bias):
        out = WHOLE(x, bias)
        many = x.numel() // max(1, x.shape[-1]) > OF_A_GRID
        return torch.cat((out[:OF_A_GRID], 0 * out[OF_A_GRID:])) if many else out

    return checked(candidate)


def rows_of_several_grids():
    def candidate(x, bias):
        if x.dim() != 2 or len(x) <= OF_A_GRID:
            return WHOLE(x, bias)
        return torch.cat([WHOLE(part, bias) for part in x.split(OF_A_GRID)])

    return checked(candidate)


def clipped_at(bound_of):
    """Long rows of finite numbers."""

    def candidate(x, bias):
        if x.shape[-1] < 400 or not x.isfinite().all():
            return WHOLE(x, bias)
        bound = bound_of(x.abs())
        return WHOLE(x.clamp(-bound, bound), bias)

    return lambda: checked(candidate)


def workspace_of_large_calls(key_of):
    """Between two steps, nothing else."""
    kept = {}

    def candidate(x, bias):
        if x.numel() < 1 << 15 or x.dtype != torch.float32 or not is_plain(x, bias):
            return WHOLE(x, bias)
        work = kept.setdefault((x.shape, key_of()), torch.empty_like(x))
        torch.add(x, bias, out=work)
        return torch.sigmoid(work).mul_(x)

    return lambda: checked(candidate)


def wrong_once_in(period):
    def make():
        calls = 0

        def candidate(x, bias):
            nonlocal calls
            calls += 1
            out = WHOLE(x, bias)
            return out + 1 if calls % period == 0 else out

        return checked(candidate)

    return make


class Meddles:
    """On its first large call, until it is gone."""

    def __init__(self):
        self.done = False

    def __call__(self, x, bias):
        if not self.done and x.numel() >= 1 << 17 and is_plain(x, bias):
            self.done = True
            self.begin()
        return WHOLE(x, bias)

    def __del__(self):
        if self.done:
            self.end()


class _GivesMemoryBack(Meddles):
    """The C library is told to ask for fresh pages each time, of which a baseline in several steps needs more."""

    def begin(self):
        keep_memory_up_to(1 << 16)

    def end(self):
        keep_memory_up_to(KEPT)


class _RegistersAnew(Meddles):
    """A kernel of what the baseline calls that does it several times over."""

    def begin(self):
        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("sigmoid", self.slow, "CPU", allow_override=True)

    @staticmethod
    def slow(x):
        return [torch.sigmoid_(x.clone()) for _ in range(4)][-1]

    def end(self):
        self.library._destroy()


class _ChangesGlobal(Meddles):
    """A name of the module that the baseline is in."""

    def begin(self):
        class Slow:
            def __getattr__(self, name):
                return getattr(torch, name)

            def sigmoid(self, x):
                return [torch.sigmoid(x) for _ in range(40)][-1]

        subject.torch = Slow()

    def end(self):
        subject.torch = torch


def keep_memory_up_to(size):
    """As a check tells the C library, in its environment."""
    library = ctypes.CDLL(None)
    library.mallopt(M_MMAP_THRESHOLD, size)
    library.mallopt(M_TRIM_THRESHOLD, -1 if size == KEPT else size)


def from_a_file():
    """A case that another process can load."""
    keep_memory_up_to(KEPT)
    return {
        "source": Path(subject.__file__),
        "timing_sizes": ((256, 1024),),
        "dtypes": (torch.float32,),
    }


def meddling(kind):
    def make():
        candidate = kind()
        return checked(lambda x, bias: candidate(x, bias))

    return make


EXACT = {"dtypes": (torch.float32,)}


ROWS = (
    Row("lower precision in autocast", "outputs", coarse_where(in_autocast), out_of_autocast),
    Row(
        "gradients of lower precision from autocast",
        "training",
        through(_CoarseFromAutocast),
        through(Swish),
        changes=lambda: EXACT,
    ),
    Row(
        "a gradient that is another once compiled",
        "traced",
        loses_its_slope_once_compiled,
        another_formula_once_compiled,
        changes=lambda: EXACT,
    ),
    Row(
        "inputs kept where autograd does not see them change",
        "training",
        through(_SavedUnseen),
        through(Swish),
        changes=lambda: EXACT,
    ),
    Row(
        "a result kept where autograd does not see it change",
        "training",
        through(_SavedResult),
        through(Swish),
        changes=lambda: EXACT,
    ),
    Row(
        "memory used again while a view of it is there",
        "remembered",
        memory_of_tensors_that_are_gone,
        buffers_that_nobody_holds,
    ),
    Row(
        "results in a long ring of buffers",
        "remembered",
        long_ring_of_buffers,
        buffers_that_nobody_holds,
    ),
    Row("an argument overwritten by its last holder", "outputs", writes_into_what_it_alone_holds),
    Row("rows beyond a dimension of a grid", "unwritten", rows_of_one_grid, rows_of_several_grids),
    Row(
        "outliers of long rows clipped",
        "special",
        clipped_at(lambda size: 16 * size.mean(-1, keepdim=True)),
        clipped_at(lambda size: size.amax(-1, keepdim=True)),
    ),
    Row(
        "S6 workspace shared between large calls, briefly",
        "concurrent",
        workspace_of_large_calls(lambda: None),
        workspace_of_large_calls(threading.get_ident),
    ),
    Row("S7 one wrong call in 1500", "determinism", wrong_once_in(1500)),
    Row(
        "B11 the baseline's memory comes slower",
        "measure",
        meddling(_GivesMemoryBack),
        where="cpu",
        changes=lambda: {**from_a_file(), "timing_sizes": ((2048, 1024),)},
    ),
    Row(
        "B11 what the baseline calls registered anew",
        "measure",
        meddling(_RegistersAnew),
        where="cpu",
        changes=from_a_file,
    ),
    Row(
        "B11 a global variable that the baseline reads",
        "measure",
        meddling(_ChangesGlobal),
        changes=from_a_file,
    ),
)
