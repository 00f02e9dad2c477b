"""What `truefuse probe swiglu_packed` asks: which half, or which turn, is the gate in each packing."""

from __future__ import annotations

import torch
from torch import Tensor

from truefuse.case import load
from truefuse.layouts import layout
from truefuse.probe import Probe

WIDTH = 512
MODE = load("swiglu").modes[0]
LAYOUTS = {
    "gate|up": "gate=D | up=D",
    "up|gate": "up=D | gate=D",
    "gate,up interleaved": "D (gate=1 | up=1)",
    "up,gate interleaved": "D (up=1 | gate=1)",
}


def reference(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    gate = tensors["gate"]
    return {"out": gate / (1 + torch.exp(-gate)) * tensors["up"]}


def packed(declared: str, packing: str) -> Probe:
    """Of the operator told `packing`, where rows are declared to be in that of `declared`."""
    return Probe(
        f"packed ({declared})",
        layout(LAYOUTS[declared]).bind(D=WIDTH),
        kernel=lambda rows: {
            "out": torch.ops.truefuse.swiglu_packed(rows, packing=packing, **MODE)
        },
        reference=reference,
    )


probes = [packed(packing, packing) for packing in LAYOUTS]
