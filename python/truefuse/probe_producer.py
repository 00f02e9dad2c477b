"""Which layout a projection really writes, found out by following marked weights to its columns.

Each output feature is a row of a weight. Every row gets a number, written in digits along the hidden
dimension; rows of the unit matrix as hidden states then read the digits off the output columns. So a
checkpoint's order, a loader's merge and a projection's own order are seen as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from truefuse.layout_describe import describe
from truefuse.layouts import BoundLayout
from truefuse.probe import UNKNOWN, UNREAD, Finding, who
from truefuse.probe_marks import CannotAsk

BASE = 128  # Numbers up to it are exact in every floating type with 8 bits of precision.


@dataclass(frozen=True)
class Producer:
    """What to follow.

    Args:
        argument: name of the argument that the columns become, as in the probe of its consumer.
        declared: the layout that the columns should have.
        weights: {name: layout of its rows}, with the segments of `declared`: the checkpoint's order.
        project: ({name: weight [rows, hidden]}, hidden states [n, hidden]) -> columns
            [n, declared.size]; whatever happens between a checkpoint and the kernel's argument.
        hidden: size of the hidden dimension, one more than the digits of declared.size in base 128.
    """

    argument: str
    declared: BoundLayout
    weights: Mapping[str, BoundLayout]
    project: Callable[[dict[str, Tensor], Tensor], Tensor]
    hidden: int = 8
    dtype: torch.dtype = torch.float32
    device: str = "cpu"


@dataclass(frozen=True)
class Produced:
    argument: str
    declared: BoundLayout
    #: Per column the offset that its element has in `declared`; UNREAD where nothing arrives, UNKNOWN
    #: where no single row of a weight does.
    elements: Tensor = field(repr=False)
    found: str | None

    def who(self, element: int) -> str:
        if element < 0:
            return {UNREAD: "nothing", UNKNOWN: "no single row of a weight"}[element]
        return who(self.declared, element)

    def against(self, consumer: Finding | None) -> tuple[bool | None, list[str]]:
        """Whether what is written is what is read (None: not known), and the report. Without a
        consumer: whether it is what is declared."""
        sizes = " ".join(f"{name}={size}" for name, size in self.declared.sizes.items())
        lines = [
            f"declared  {self.argument}: {self.declared.text}   {sizes}",
            f"written   {self.argument}: {self.found or 'an order that no layout is known for'}",
        ]
        if consumer is None:
            read, verb, by = self.declared.index_map(self.declared), "should be", "declared"
        else:
            read, verb, by = consumer.elements, "the kernel reads", "kernel's"
            lines.append(f"read      {self.argument}: {consumer.found or 'UNKNOWN'}")
        if len(read) != len(self.elements):
            lines.append(f"✗ {len(self.elements)} columns are written, {len(read)} are read")
            return False, lines
        # What nobody reads may hold anything.
        wrong = (self.elements != read) & (read != UNREAD) & (read != UNKNOWN)
        if bool(wrong.any()):
            offset = int(wrong.nonzero()[0])
            wrote, wants = self.who(int(self.elements[offset])), self.who(int(read[offset]))
            lines.append(f"✗ offset {offset}: the producer wrote {wrote}, {verb} {wants}")
            return False, lines
        unknown = int((read == UNKNOWN).sum())
        if unknown:
            lines.append(f"? how {unknown} of {len(read)} columns are read is not known")
            return None, lines
        lines.append(f"✓ the columns are in the {by} order")
        return True, lines


def follow(producer: Producer) -> Produced:
    """Raises RuntimeError where names, shapes or the hidden size do not fit."""
    declared = producer.declared
    marks = _marks(torch.arange(declared.size + 1))
    digits = marks.shape[1]
    if producer.hidden < digits:
        raise CannotAsk(
            f"{declared.size} elements need {digits} digits; hidden is {producer.hidden}"
        )
    weights = {}
    for name, layout in producer.weights.items():
        weight = torch.zeros(layout.size, producer.hidden)
        # The offset in `declared` of each row of the checkpoint, counted from 1; 0 is nothing.
        weight[:, :digits] = marks[declared.index_map(layout) + 1].float()
        weights[name] = weight.to(producer.device, producer.dtype)
    hidden = torch.eye(producer.hidden)[:digits].to(producer.device, producer.dtype)
    with torch.no_grad():
        columns = producer.project(weights, hidden)
    if columns.shape != (digits, declared.size):
        raise CannotAsk(
            f"the projection gives {list(columns.shape)} for {digits} hidden states; it must "
            f"be [{digits}, {declared.size}], the columns of {producer.argument}"
        )
    read = columns.detach().cpu().double().T
    spelled = read[:, 1:].nan_to_num().round().clamp(0, BASE - 1).long()
    number = (spelled * _powers(digits - 1)).sum(1)
    is_mark = number <= declared.size
    is_mark &= (read == marks[number.clamp(max=declared.size)]).all(1)
    elements = torch.where(is_mark, number - 1, UNKNOWN)
    elements[is_mark & (number == 0)] = UNREAD
    found = describe(elements, declared) if not bool((elements == UNKNOWN).any()) else None
    return Produced(producer.argument, declared, elements, found)


def _marks(numbers: Tensor) -> Tensor:
    """[n, 1 + digits]: a check, which no sum of two marks has but by chance, and the digits."""
    count = 1
    while BASE**count <= int(numbers.max()):
        count += 1
    digits = numbers[:, None] // _powers(count) % BASE
    return torch.cat([(numbers * numbers % 127)[:, None], digits], 1)


def _powers(count: int) -> Tensor:
    return BASE ** torch.arange(count)
