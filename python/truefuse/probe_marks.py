"""Which element of an argument each output position follows, where it follows just one.

An output that copies (z, the state of a convolution) or that is a function of one element says whose
element it got in a few calls, however many elements there are: every element has a number, in call t
those change whose number has bit t, in the next one all the others do. A position that follows one
element changes in just one of the two, and so spells the number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from truefuse.compare import one_thread

Tensors = Mapping[str, Tensor]
NOBODY = -1  # of a position that follows no element, or more than one
QUIET = 1e-3  # of a position's full response: what counts as none


class CannotAsk(RuntimeError):
    """What a case gives cannot be asked; the text says why."""


def spelled(
    call: Callable[[Tensor], Tensors],
    size: int,
    marked: Tensor,
    base: float,
    step: float,
    batch: int,
) -> tuple[dict[str, Tensor], bool]:
    """For each output, per position the one among the offsets `marked` that it follows, or NOBODY; and
    whether any position follows any of them. `call` takes rows [rows, size]."""
    bits = max(1, (len(marked) - 1).bit_length())
    numbers = torch.arange(len(marked))
    has = (numbers >> torch.arange(bits)[:, None]) & 1 == 1
    changes = torch.cat([torch.zeros(1, len(marked), dtype=torch.bool),
                         torch.ones(1, len(marked), dtype=torch.bool), has, ~has])  # fmt: skip
    outputs: dict[str, list[Tensor]] = defaultdict(list)
    for begin in range(0, len(changes), batch):
        chosen = changes[begin : begin + batch]
        # Always the same number of rows: some kernels are compiled for it.
        rows = torch.full((batch, size), base, dtype=torch.float64)
        for row, which in zip(rows, chosen, strict=False):
            row[marked[which]] = base + step
        for name, output in call(rows).items():
            outputs[name].append(output.detach().cpu().flatten(1)[: len(chosen)].double())
    followed, moves = {}, False
    for name, parts in outputs.items():
        followed[name], any_moves = _spell(torch.cat(parts), marked, bits)
        moves |= any_moves
    return followed, moves


@one_thread()
def _spell(output: Tensor, marked: Tensor, bits: int) -> tuple[Tensor, bool]:
    response = output[1:] - output[0]
    full = response[0]
    size = full.abs()
    alone = size > QUIET * output[0].abs().clamp(min=1e-6)
    ones, zeros = response[1 : 1 + bits], response[1 + bits :]
    as_full = lambda part: (part - full).abs() <= QUIET * size  # noqa: E731
    as_none = lambda part: part.abs() <= QUIET * size  # noqa: E731
    is_one = as_full(ones) & as_none(zeros)
    alone &= (is_one | (as_none(ones) & as_full(zeros))).all(0)
    number = (is_one.long() << torch.arange(bits)[:, None]).sum(0)
    alone &= number < len(marked)
    moves = bool((response != 0).any())
    return torch.where(alone, marked[number.clamp(max=len(marked) - 1)], NOBODY), moves


def require_same(name: str, kernel: int, reference: int) -> None:
    if kernel != reference:
        raise CannotAsk(
            f"{name} has {reference} elements per row in the reference and {kernel} in the kernel; "
            "the reference must return the same outputs"
        )


def paired(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[int, int]:
    """{offset: element} where positions that follow the offset in the one follow that element, and
    never another, in the other."""
    found: dict[int, set[int]] = defaultdict(set)
    for name, offsets in ours.items():
        require_same(name, len(offsets), len(theirs.get(name, ())))
        both = (offsets != NOBODY) & (theirs[name] != NOBODY)
        pairs = torch.stack([offsets[both], theirs[name][both]], 1).unique(dim=0)
        for offset, element in pairs.tolist():
            found[offset].add(element)
    return {offset: next(iter(fits)) for offset, fits in found.items() if len(fits) == 1}
