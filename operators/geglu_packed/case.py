"""How geglu_packed is checked: geglu of one tensor that holds gate and up, in every packing."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Inputs, Mode, Size, load

PACKINGS = ("gate|up", "up|gate", "gate,up interleaved", "up,gate interleaved")
_apart = load("geglu")


def candidate(*tensors: Tensor, **mode: object) -> Tensor:
    return torch.ops.truefuse.geglu_packed(*tensors, **mode)


def parts(packed: Tensor, packing: str) -> tuple[Tensor, Tensor]:
    """Gate and up."""
    if packing.endswith("interleaved"):
        first, second = packed[..., 0::2], packed[..., 1::2]
    else:
        first, second = packed.chunk(2, dim=-1)
    return (first, second) if packing.startswith("gate") else (second, first)


def eager(packed: Tensor, *, packing: str, **mode: Any) -> Tensor:
    return _apart.baselines["eager"](*parts(packed, packing), **mode).contiguous()


def reference(packed: Tensor, *, packing: str, **mode: Any) -> Tensor:
    return _apart.reference(*parts(packed, packing), **mode)


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    """`size` is that of the output."""
    inputs = _apart.make_inputs(size, dtype, device, generator, kind)
    return {"packed": torch.cat((inputs["gate"], inputs["up"]), dim=-1)}


def other_half(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    at = PACKINGS.index(mode["packing"])
    return inputs, {**mode, "packing": PACKINGS[at ^ 1]}


def other_packing(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    halves = mode["packing"].endswith("interleaved")
    return inputs, {**mode, "packing": "gate|up" if halves else "gate,up interleaved"}


case = dataclasses.replace(
    _apart,
    name="geglu_packed",
    operator="truefuse::geglu_packed",
    candidate=candidate,
    baselines={"eager": eager},
    reference=reference,
    make_inputs=make_inputs,
    modes=tuple({"packing": packing, **mode} for packing in PACKINGS for mode in _apart.modes[:1]),
    kinds=("normal",),
    gradients=("packed",),
    strict_kinds=(),
    faults={"the other one is the gate": other_half, "halves for turns": other_packing},
)
