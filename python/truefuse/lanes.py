"""Which lane reads which logical element, and how many bytes each access moves: from a simulated run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Case
from truefuse.layouts import BoundLayout, Element
from truefuse.simulate import Device, Simulated


@dataclass(frozen=True)
class Access:
    """One lane's part in one access of its wave."""

    block: int
    thread: int
    address: int


@dataclass(frozen=True)
class Group:
    """The accesses of one line of a kernel to one tensor, all of the same size and direction."""

    kernel: str
    line: int
    tensor: str
    writes: bool
    bytes: int
    accesses: tuple[Access, ...]


def trace(case: Case, size: tuple[int, ...], dtype: torch.dtype, mode: dict[str, Any], arch: str):
    """[(call, groups)] of one call of the case's candidate, one entry per operator that it calls."""
    generator = torch.Generator().manual_seed(0)
    inputs = case.make_inputs(size, dtype, torch.device("cpu"), generator, case.kinds[0])
    with torch.no_grad(), Simulated(Device(arch, sanitizers=("none",), trace=True)) as simulated:
        case.candidate(*inputs.values(), **mode)
    layouts = case.layouts_of(inputs, mode) if case.layouts_of else case.layouts
    return [({**call, "layouts": layouts}, groups_of(call)) for call in simulated.calls]


def groups_of(call: dict[str, Any]) -> list[Group]:
    found: dict[tuple[Any, ...], list[Access]] = defaultdict(list)
    for launch in call["launches"]:
        for line, writes, size, address, block, thread in launch["accesses"]:
            name = tensor_at(call["tensors"], address)
            key = (launch["kernel"], line, name, bool(writes), size)
            found[key].append(Access(block, thread, address))
    return [Group(*key, tuple(accesses)) for key, accesses in found.items()]


def tensor_at(tensors: dict[str, Tensor], address: int) -> str:
    """The name of the tensor between whose first and last byte the address lies; "?" if there is
    none, such as scratch memory."""
    for name, tensor in tensors.items():
        if not tensor.numel():
            continue
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        begin = tensor.data_ptr()
        if begin <= address < begin + (reach + 1) * tensor.element_size():
            return name
    return "?"


def index_of(tensor: Tensor, address: int) -> tuple[int, ...] | None:
    """The logical index of the element at an address; None if none lies there. Where several do
    (stride 0), the first."""
    offset = (address - tensor.data_ptr()) // tensor.element_size()
    index = [0] * tensor.dim()
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))
    for d in order:
        if tensor.stride(d) > 0 and tensor.shape[d] > 1:
            index[d] = min(offset // tensor.stride(d), tensor.shape[d] - 1)
            offset -= index[d] * tensor.stride(d)
    return tuple(index) if offset == 0 else None


def elements(
    name: str, tensor: Tensor | None, address: int, size: int, layout: BoundLayout | None = None
) -> str:
    """ "x[0, 8…15]": what an access of `size` bytes moves. With a layout of the last dimension
    "x[0, q H=1 K=8…15]"."""
    if tensor is None:
        return name
    first = index_of(tensor, address)
    last = index_of(tensor, address + size - tensor.element_size())
    if first is None or last is None:
        return f"{name}[between elements]"
    if layout and first[:-1] == last[:-1] and tensor.shape[-1:] == (layout.size,):
        head = "".join(f"{i}, " for i in first[:-1])
        return f"{name}[{head}{stretch(layout, first[-1], last[-1])}]"
    if first[:-1] == last[:-1] and first[-1:] != last[-1:]:
        head = "".join(f"{i}, " for i in first[:-1])
        return f"{name}[{head}{first[-1]}…{last[-1]}]"
    text = ", ".join(map(str, first))
    return f"{name}[{text}]" + (f" … [{', '.join(map(str, last))}]" if first != last else "")


def stretch(layout: BoundLayout, first: int, last: int) -> str:
    """ "q H=1 K=8…15": who the elements at two offsets are, and those between them."""
    axes = {one["name"]: [axis["name"] for axis in one["axes"]] for one in layout.segments}
    one, other = layout.element_at(first), layout.element_at(last)
    alike = one.segment == other.segment and one.index[:-1] == other.index[:-1]

    def said(element: Element, until: str = "") -> str:
        words = [f"{a}={i}" for a, i in zip(axes[element.segment], element.index, strict=True)]
        return " ".join([element.segment, *words]) + until

    if first == last or not alike:
        return said(one) + ("" if first == last else f" … {said(other)}")
    return said(one, f"…{other.index[-1]}")


def waves(group: Group, wave: int) -> dict[tuple[int, int], list[Access]]:
    """A group's accesses by (block, wave of the block), each in the order of the lanes."""
    found: dict[tuple[int, int], list[Access]] = defaultdict(list)
    for access in group.accesses:
        found[access.block, access.thread // wave].append(access)
    return {key: sorted(found[key], key=lambda a: (a.thread, a.address)) for key in sorted(found)}


def lines_of(call: dict[str, Any], groups: list[Group], wave: int) -> list[str]:
    """The report: a line per group, then the lanes of its first wave, those alike taken together."""
    lines = []
    for group in sorted(groups, key=lambda g: (g.kernel, g.line, g.tensor, g.writes, -g.bytes)):
        tensor = call["tensors"].get(group.tensor)
        by_wave = waves(group, wave)
        verb = "writes" if group.writes else "reads"
        lines.append(
            f"{group.kernel} line {group.line or '?'}: {verb} {group.tensor}, "
            f"{len(group.accesses)} accesses of {group.bytes} bytes by {len(by_wave)} waves"
        )
        (block, number), first = next(iter(by_wave.items()))
        layout = call.get("layouts", {}).get(group.tensor)
        for text in runs(first, group, tensor, wave, layout):
            lines.append(f"  block {block} wave {number} {text}")
    return lines


def runs(
    accesses: list[Access],
    group: Group,
    tensor: Tensor | None,
    wave: int,
    layout: BoundLayout | None = None,
) -> list[str]:
    """ "lane 0…31: x[0, 0…7], then 16 bytes further per lane": consecutive lanes with one stride."""
    by_lane: dict[int, list[int]] = defaultdict(list)
    for access in accesses:
        by_lane[access.thread % wave].append(access.address)
    found: list[str] = []
    lanes = sorted(by_lane)
    begin = 0
    while begin < len(lanes):
        end, step = begin, None
        while end + 1 < len(lanes):
            change = by_lane[lanes[end + 1]][0] - by_lane[lanes[end]][0]
            is_alike = len(by_lane[lanes[end + 1]]) == len(by_lane[lanes[begin]])
            if not is_alike or (step is not None and change != step):
                break
            end, step = end + 1, change
        addresses = by_lane[lanes[begin]]
        text = ", ".join(
            elements(group.tensor, tensor, a, group.bytes, layout) for a in addresses[:4]
        )
        text += f", and {len(addresses) - 4} more" if len(addresses) > 4 else ""
        if end == begin:
            found.append(f"lane {lanes[begin]}: {text}")
        else:
            last = elements(group.tensor, tensor, by_lane[lanes[end]][0], group.bytes, layout)
            found.append(
                f"lanes {lanes[begin]}…{lanes[end]}: {text} in the first, {last} in the last, "
                f"{step} bytes apart"
            )
        begin = end + 1
    return found
