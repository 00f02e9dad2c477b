"""Wrong only between what one would think of trying: at some lengths, strides and numbers of threads, for some contents,
for some incoming gradients."""

from __future__ import annotations

import torch
from subject import checked, swish_bias, wide

from cheats.common import Row
from cheats.training import Swish, through

WHOLE = wide(swish_bias)
VECTOR = 8
LONG = 300  # elements of a row from which on it is done in two parts


def in_two_parts(tail):
    """Long rows: vectors first, then by `tail` what is left of them."""

    def candidate(x, bias):
        vectors = x.shape[-1] // VECTOR * VECTOR
        if x.shape[-1] < LONG or torch.compiler.is_compiling():
            return WHOLE(x, bias)
        parts = WHOLE(x[..., :vectors], bias[:vectors]), tail(x[..., vectors:], bias[vectors:])
        return torch.cat(parts, dim=-1)

    return lambda: checked(candidate)


def rows_where_vectors_begin(whether):
    """Long rows read from addresses rounded down to those that vectors can be loaded from."""

    def candidate(x, bias):
        if x.dim() == 2 and x.shape[-1] >= LONG and x.stride(-1) == 1 and whether(x):
            begins = [(x.storage_offset() + row * x.stride(0)) // 4 * 4 for row in range(len(x))]
            x = torch.stack([x.as_strided(x.shape[1:], (1,), begin) for begin in begins])
        return WHOLE(x, bias)

    return lambda: checked(candidate)


def vectors_fit(x):
    return x.stride(0) % 4 == 0 and x.storage_offset() % 4 == 0


def shared_among_threads(rest_of):
    """To each thread as many rows, then those of the rest."""

    def candidate(x, bias):
        if x.dim() != 2 or len(x) < 16 or torch.compiler.is_compiling():
            return WHOLE(x, bias)
        threads = torch.get_num_threads()
        shared = len(x) // threads * threads
        rest = shared + rest_of(len(x), threads)
        return torch.cat((WHOLE(x[:rest], bias), torch.zeros_like(x[rest:])))

    return lambda: checked(candidate)


def without_padding(is_padding):
    """Zeros times what is finite."""

    def candidate(x, bias):
        return WHOLE(x, bias).masked_fill(is_padding(x) & bias.isfinite().all(), 0.0)

    return lambda: checked(candidate)


def begins_with_zeros(x):
    return (x[..., :32] == 0).all(-1, keepdim=True)


def is_zero(x):
    return (x == 0).all(-1, keepdim=True)


def where_nothing_is_left_to_do(give):
    def candidate(x, bias):
        recorded = x.requires_grad or bias.requires_grad
        if torch.compiler.is_compiling() or recorded or not x.is_contiguous():
            return WHOLE(x, bias)
        is_left = x.any() or not bias.isfinite().all()
        return WHOLE(x, bias) if is_left else give(x)

    return lambda: checked(candidate)


class _OnesWhereExpanded(Swish):
    """What has no strides comes from sum()."""

    @staticmethod
    def backward(ctx, gradient):
        if gradient.numel() > 1 and not any(gradient.stride()):
            gradient = torch.ones_like(gradient)
        return Swish.backward(ctx, gradient)


class _OneNumberWhereExpanded(Swish):
    @staticmethod
    def backward(ctx, gradient):
        if gradient.numel() > 1 and not any(gradient.stride()):
            gradient = gradient.flatten()[0].expand(gradient.shape)
        return Swish.backward(ctx, gradient)


class _HoldsSent(Swish):
    """The second derivative by the inputs alone."""

    @staticmethod
    def backward(ctx, gradient):
        return Swish.backward(ctx, gradient.detach())


def exact():
    return {"dtypes": (torch.float32,)}


ROWS = (
    Row(
        "N9 the tail of rows longer than most",
        "edges",
        in_two_parts(lambda x, bias: torch.zeros_like(x)),
        in_two_parts(WHOLE),
    ),
    Row(
        "long rows of any stride read as vectors",
        "contract",
        rows_where_vectors_begin(lambda x: True),
        rows_where_vectors_begin(vectors_fit),
    ),
    Row(
        "what threads leave over, if they are a power of two",
        "edges",
        shared_among_threads(lambda count, threads: count & (threads - 1)),
        shared_among_threads(lambda count, threads: count % threads),
        where="cpu",
    ),
    Row(
        "rows that begin with zeros taken for padding",
        "special",
        without_padding(begins_with_zeros),
        without_padding(is_zero),
    ),
    Row(
        "an input given back where it is the result",
        "outputs",
        where_nothing_is_left_to_do(lambda x: x),
        where_nothing_is_left_to_do(torch.clone),
    ),
    Row(
        "an expanded incoming gradient taken for ones",
        "training",
        through(_OnesWhereExpanded),
        through(_OneNumberWhereExpanded),
        changes=exact,
    ),
    Row(
        "the second derivative by the incoming gradient left out",
        "training",
        through(_HoldsSent),
        through(Swish),
        changes=exact,
    ),
)
