"""How geglu_packed is checked: as swiglu_packed, with geglu's modes."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from truefuse.case import load

_packed = load("swiglu_packed")
PACKINGS = tuple(mode["packing"] for mode in _packed.modes)


def candidate(*tensors: Tensor, **mode: object) -> Tensor:
    return torch.ops.truefuse.geglu_packed(*tensors, **mode)


case = dataclasses.replace(
    _packed,
    name="geglu_packed",
    operator="truefuse::geglu_packed",
    candidate=candidate,
    modes=tuple(
        {"packing": packing, **mode} for packing in PACKINGS for mode in load("geglu").modes[:1]
    ),
)
