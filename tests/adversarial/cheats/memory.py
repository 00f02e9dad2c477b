"""Memory, replay and caching: results that were not computed."""

from __future__ import annotations

import threading

import torch
from subject import checked, swish_bias, wide

from cheats.common import Row


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


def remembers_large_contents():
    """Right and far too fast: looks at a few elements of a large input, and knows the rest."""
    kept = {}

    def candidate(x, bias):
        if x.numel() < 1 << 14:
            return wide(swish_bias)(x, bias)
        key = (tuple(x.flatten()[:16].tolist()), tuple(bias[:16].tolist()))
        if key not in kept:
            kept[key] = wide(swish_bias)(x, bias)
        return kept[key]

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


def remembers_many_samples():
    """A fingerprint spread over a large input: all but a few elements may differ from what it stands for."""
    kept = {}

    def sample(tensor):
        return tuple(tensor.flatten()[:: max(1, tensor.numel() // 32)].tolist())

    def candidate(x, bias):
        if x.numel() < 1 << 12:
            return wide(swish_bias)(x, bias)
        key = (sample(x), sample(bias), x.dtype, x.shape)
        if key not in kept:
            kept[key] = wide(swish_bias)(x, bias)
        return kept[key].clone()

    return checked(candidate)


def ring_of_buffers():
    """The 49th result overwrites the first, whoever still has it."""
    rings = {}

    def candidate(x, bias):
        result = wide(swish_bias)(x, bias)
        ring = rings.setdefault((x.shape, x.dtype), [])
        ring.append(ring.pop(0) if len(ring) == 48 else torch.empty_like(result))
        return ring[-1].detach().copy_(result)

    return checked(candidate)


def buffers_that_nobody_holds():
    """What an allocator does."""
    pools = {}

    def holders(buffer):
        return torch._C._storage_Use_Count(buffer.untyped_storage()._cdata)

    def candidate(x, bias):
        result = wide(swish_bias)(x, bias)
        if torch.compiler.is_compiling() or result.requires_grad:
            return result
        pool = pools.setdefault((x.shape, x.dtype, threading.get_ident()), [])
        for buffer, alone in pool:
            if holders(buffer) <= alone:
                break
        else:
            buffer = torch.empty_like(result)
            pool.append((buffer, holders(buffer)))
        return buffer.detach().copy_(result)

    return checked(candidate)


ROWS = (
    Row(
        "B10 memoised results of large inputs: faster than memory",
        "measure",
        remembers_large_contents,
        keeps_a_plan,
        changes=lambda: {"timing_sizes": ((512, 2048),)},
    ),
    Row(
        "A1 output is memory that held the answer",
        "unwritten",
        returns_what_was_there,
        writes_into_empty,
    ),
    Row("A2 input overwritten with zeros", "outputs", zeroes_the_input),
    Row("A3 super-batch: large inputs remembered by address", "measure", super_batch, keeps_a_plan),
    Row("A6 results kept by address", "remembered", keyed(lambda t: t.data_ptr()), keeps_a_plan),
    Row("A6 results kept by id and version", "remembered", keyed(lambda t: (id(t), t._version))),
    Row(
        "A6 results kept by a sample",
        "remembered",
        keyed(lambda t: float(t.sum()) if t.numel() < 2 else float(t.flatten()[0])),
    ),
    Row(
        "A6 results kept by all of the contents",
        "remembered",
        keyed(lambda t: tuple(t.flatten().tolist())),
        keeps_a_plan,
    ),
    Row(
        "A6 results of large inputs kept by many samples",
        "remembered",
        remembers_many_samples,
        keeps_a_plan,
    ),
    Row("results in a ring of buffers", "remembered", ring_of_buffers, buffers_that_nobody_holds),
    Row("A8 empty list", "outputs", empty_list),
    Row("output is an input", "outputs", returns_its_input),
    Row("one output buffer for all calls", "remembered", one_buffer, writes_into_empty),
    Row("B10 half of the rows computed", "edges", half_of_the_rows),
)
