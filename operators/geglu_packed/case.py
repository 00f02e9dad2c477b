"""How geglu_packed is checked: as swiglu_packed, with geglu's modes."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from truefuse.case import load

_packed = load("swiglu_packed")


def candidate(*tensors: Tensor, **mode: object) -> Tensor:
    return torch.ops.truefuse.geglu_packed(*tensors, **mode)


case = dataclasses.replace(
    _packed,
    name="geglu_packed",
    operator="truefuse::geglu_packed",
    candidate=candidate,
    modes=tuple(
        {"packing": packed["packing"], **mode}
        for packed, mode in zip(_packed.modes, load("geglu").modes, strict=True)
    ),
)
