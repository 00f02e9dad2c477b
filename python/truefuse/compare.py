"""Errors of a result against mathematics, in units in the last place and per binade.

A reference is a pair (high, low) of float64 tensors whose exact sum is the true value: there is no `low`
where float64 is precise enough (every dtype but float64 itself). NaN never passes a comparison here:
every rule is written so that a comparison with NaN counts as a violation. Of integers and booleans the unit
is one; where mathematics has no number, nothing is asked of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MOST_UNDECIDED = 0.01  # of the integers or booleans of a result


@dataclass(frozen=True)
class Reference:
    """True values for a result of `dtype`. `scale`: the size of the summands that each is a sum of, if
    they may cancel; errors count in ulps of the larger of value and scale."""

    high: Tensor
    dtype: torch.dtype
    scale: Tensor | None = None
    low: Tensor | None = None
    slack: float = 0.0  # how far off an integer may be, because the case says so
    # What an integer or boolean is for inputs that differ from these by a rounding.
    nearby: Callable[[], list[Tensor]] | None = None

    @cached_property
    def rounded(self) -> Tensor:
        """The true value rounded once to `dtype`: the best result there can be."""
        return self.high.to(self.dtype)

    @cached_property
    def undecided(self) -> tuple[Tensor, Tensor] | None:
        """(where a rounding of the inputs decides, what it may give there). None where it decides too much: then
        either the operator is no function of numbers, or nothing could be judged."""
        if self.nearby is None:
            return None
        others = torch.stack(self.nearby())
        where = (others != self.high).any(dim=0) & self.high.isfinite()
        if int(where.sum()) > max(1, MOST_UNDECIDED * where.numel()):
            return None
        return where, others

    @cached_property
    def size(self) -> Tensor:
        """The larger of |value| and scale. A value that is no number stays: a scale says nothing of
        it."""
        size = self.high.abs()
        if self.scale is not None:
            size = torch.where(size.isfinite(), size.maximum(self.scale), size)
        return size

    @cached_property
    def binade(self) -> Tensor:
        return binade(self.size, self.dtype)

    @cached_property
    def ulp(self) -> Tensor:
        return power_of_two(self.binade - (precision(self.dtype) - 1))


@contextmanager
def one_thread() -> Iterator[None]:
    """For many operations on small tensors: threads that wait for each other cost more than they
    save, and on a busy machine ten times as much. Never around a candidate; and around as much as
    possible, because some versions of PyTorch take 20 ms to change the number.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def precision(dtype: torch.dtype) -> int:
    """Significant bits: 24 for float32, 8 for bfloat16."""
    if not dtype.is_floating_point:
        return 1
    return 1 - round(math.log2(torch.finfo(dtype).eps))


def minimum_exponent(dtype: torch.dtype) -> int:
    if not dtype.is_floating_point:
        return 0
    return round(math.log2(torch.finfo(dtype).smallest_normal))


def binade(values: Tensor, dtype: torch.dtype) -> Tensor:
    """floor(log2 |value|) of float64 values; zero and subnormals of `dtype` share its lowest binade.

    Infinities and NaN get the lowest binade too; callers mask them. Integers have one.
    """
    if not dtype.is_floating_point:
        return torch.zeros(values.shape, dtype=torch.int64)
    finite = torch.where(values.isfinite(), values, 0.0)
    exponent = torch.frexp(finite).exponent.to(torch.int64) - 1
    lowest = minimum_exponent(dtype)
    exponent = exponent.masked_fill(finite == 0, lowest)
    return exponent.clamp(lowest, lowest + binades(dtype) - 1)


def binades(dtype: torch.dtype) -> int:
    if not dtype.is_floating_point:
        return 1
    return round(math.log2(torch.finfo(dtype).max)) - minimum_exponent(dtype)


def another(values: Tensor) -> Tensor:
    """Numbers that are wrong in every element."""
    if values.dtype == torch.bool:
        return ~values
    return -values - 1 if values.is_floating_point() else values ^ 64


def ulp(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Spacing of `dtype` at float64 values, as float64."""
    return power_of_two(binade(values, dtype) - (precision(dtype) - 1))


def power_of_two(exponent: Tensor) -> Tensor:
    """Exact, down to float64's smallest subnormal (torch.ldexp goes through float32)."""
    half = exponent.div(2, rounding_mode="floor")
    factors = (((part + 1023) << 52).view(torch.float64) for part in (half, exponent - half))
    return next(factors) * next(factors)


@dataclass(frozen=True)
class Errors:
    """Element errors of one result. `wrong_class`: NaN, or an infinity, on one side only."""

    absolute: Tensor
    wrong_class: Tensor
    reference: Reference

    @cached_property
    def ulps(self) -> Tensor:
        return torch.where(self.absolute == 0, 0.0, self.absolute / self.reference.ulp)


def errors(result: Tensor, reference: Reference) -> Errors:
    """Errors of `result` (on any device) against `reference`; shapes must be equal."""
    got = result.detach().to("cpu", torch.float64)
    if got.shape != reference.high.shape:
        raise ValueError(f"result has shape {list(got.shape)}, not {list(reference.high.shape)}")
    want = reference.high
    absolute = got - want if reference.low is None else (got - want) - reference.low
    absolute = absolute.abs()
    if not reference.dtype.is_floating_point:
        absolute = torch.where(want.isfinite(), absolute, 0.0)
        if bool(absolute.any()) and reference.undecided is not None:
            where, others = reference.undecided
            nearest = (got - others).abs().amin(dim=0)
            absolute = torch.where(where, absolute.minimum(nearest), absolute)
    if not absolute.numel() or bool(absolute.max() < math.inf):  # all are numbers on both sides
        return Errors(absolute, torch.zeros_like(absolute, dtype=torch.bool), reference)
    rounded = reference.rounded.to(torch.float64)
    same = (got.isnan() & want.isnan()) | (got.isinf() & (got == rounded))
    # A value that rounds to infinity may also be answered by a finite neighbour: that is an error
    # in ulps, not of class.
    comparable = got.isfinite() & want.isfinite()
    wrong_class = ~(same | comparable)
    absolute = torch.where(comparable, absolute, torch.where(wrong_class, math.inf, 0.0))
    return Errors(absolute, wrong_class, reference)


@dataclass(frozen=True)
class Summary:
    """Aggregates of Errors: over the whole tensor, per row (last axis) and per binade of the truth."""

    rmse: float
    row_max: Tensor
    binade_max: Tensor  # index 0 is the dtype's lowest binade; -1 where no element lies
    binade_count: Tensor  # float64
    worst_ulps: float
    wrong_class: int


def summarise(found: Errors) -> Summary:
    """Aggregate over every element, errors of class as infinite errors."""
    reference = found.reference
    lowest = minimum_exponent(reference.dtype)
    where = reference.binade - lowest
    count = binades(reference.dtype)
    worst = torch.full((count,), -1.0, dtype=torch.float64)
    if found.ulps.numel():
        worst.scatter_reduce_(0, where.flatten(), found.ulps.flatten(), "amax")
    elements = torch.bincount(where.flatten(), minlength=count).double()
    rows = as_rows(found.absolute)
    row_max = rows.amax(dim=1) if rows.numel() else torch.zeros(rows.shape[0]).double()
    return Summary(
        rmse=root_mean_square(found.absolute),
        row_max=row_max,
        binade_max=worst,
        binade_count=elements,
        worst_ulps=max(float(worst.max()), 0.0),
        wrong_class=int(found.wrong_class.sum()),
    )


def forgiving(found: Errors) -> Errors:
    """For a yardstick: its own errors of class must not widen the bound for everybody else."""
    return Errors(
        found.absolute.masked_fill(found.wrong_class, 0.0),
        torch.zeros_like(found.wrong_class),
        found.reference,
    )


def root_mean_square(values: Tensor) -> float:
    """Without overflow: values are scaled by the largest first."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(float((values / largest).square().mean()))


def as_rows(values: Tensor) -> Tensor:
    if values.dim() == 0:
        return values.reshape(1, 1)
    last = values.shape[-1]
    return values.reshape(values.numel() // last if last else 0, last)


def index_of(position: int, shape: torch.Size) -> list[int]:
    """Multi-dimensional index of a flat position."""
    index = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return index[::-1]
