"""Gradients."""

from __future__ import annotations

import torch
from subject import checked, swish_bias, wide

from cheats.common import Row


def detached():
    return checked(lambda x, bias: wide(swish_bias)(x, bias).detach())


class Swish(torch.autograd.Function):
    """A plain backward."""

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


class _Published(Swish):
    """The backward of a public kernel, gradient * (f + s * (1 - f)): 0 for large x, where 1 is right."""

    @staticmethod
    def backward(ctx, gradient):
        x, bias = ctx.saved_tensors
        s = torch.sigmoid(x + bias)
        f = x * s
        return gradient * (f + s * (1 - f)), (gradient * f * (1 - s)).sum_to_size(bias.shape)


class _Direct(Swish):
    """sigmoid(-x) computed directly."""

    @staticmethod
    def backward(ctx, gradient):
        x, bias = ctx.saved_tensors
        s, rest = torch.sigmoid(x + bias), torch.sigmoid(-(x + bias))
        other = gradient * x * s * rest
        return gradient * s + other, other.sum_to_size(bias.shape)


class _Twice(Swish):
    @staticmethod
    def backward(ctx, gradient):
        own, other = Swish.backward(ctx, gradient)
        return own, other * 1.001


class _Contiguous(Swish):
    """A kernel that walks the incoming gradient by its own index."""

    @staticmethod
    def backward(ctx, gradient):
        flat = (
            torch.as_strided(gradient, (1,), (1,), gradient.storage_offset())
            if gradient.numel() and not gradient.is_contiguous()
            else gradient
        )
        return Swish.backward(ctx, flat.expand(gradient.shape))


class _Cut(Swish):
    @staticmethod
    def backward(ctx, gradient):
        return tuple(one.detach() for one in Swish.backward(ctx, gradient))


class _UsesUp(Swish):
    """Writes the gradient over the slope that it has saved: right once."""

    @staticmethod
    def forward(ctx, x, bias):
        s = torch.sigmoid(x + bias)
        ctx.slope = s + x * s * (1 - s)
        return Swish.forward(ctx, x, bias)

    @staticmethod
    def backward(ctx, gradient):
        own, other = Swish.backward(ctx, gradient)
        if own.requires_grad:
            return own, other
        return ctx.slope.mul_(gradient), other


class _Overwrites(Swish):
    """Writes the gradient over the one that came in, which others may be waiting for."""

    @staticmethod
    def backward(ctx, gradient):
        own, other = Swish.backward(ctx, gradient)
        dense = gradient.is_contiguous() and not gradient.requires_grad
        return gradient.copy_(own) if dense and not own.requires_grad else own, other


class _SumsInHalf(Swish):
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


EXACT = {"dtypes": (torch.float32, torch.float64)}


ROWS = (
    Row(
        "mission B: a backward that cancels for large x",
        "gradients",
        through(_Published),
        through(_Direct),
        changes=lambda: {"dtypes": (torch.float32,), "kinds": ("normal", "large")},
    ),
    Row("mission A: gradients silently missing", "training", detached),
    Row(
        "mission B: an incoming gradient read as if contiguous",
        "training",
        through(_Contiguous),
        through(Swish),
        changes=lambda: EXACT,
    ),
    Row(
        "mission B: double backward silently wrong",
        "training",
        through(_Cut),
        through(Swish),
        changes=lambda: EXACT,
    ),
    Row(
        "a backward pass uses up what was saved",
        "training",
        through(_UsesUp),
        through(Swish),
        changes=lambda: {"dtypes": (torch.float32,)},
    ),
    Row(
        "S2 the incoming gradient overwritten",
        "training",
        through(_Overwrites),
        through(Swish),
        changes=lambda: {"dtypes": (torch.float32,)},
    ),
    Row(
        "a gradient 0.1 % too large",
        "gradients",
        through(_Twice),
        through(Swish),
        changes=lambda: EXACT,
    ),
    Row(
        "bias gradient summed in half precision",
        "gradients",
        through(_SumsInHalf),
        changes=lambda: {"dtypes": (torch.bfloat16,)},
    ),
)
