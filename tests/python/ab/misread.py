"""gdn_decode with a mistake that no shape can show."""

from __future__ import annotations

import torch
from torch import Tensor

import truefuse  # noqa: F401  (registers torch.ops.truefuse)

# Either model's rows in the order of the other: as many columns, other elements.
OTHER = {
    "H (q=K | k=K | v=G V | z=G V)": "q=H K | k=H K | v=H G V | z=H G V",
    "H (b=G | a=G)": "b=H G | a=H G",
    "q=H K | k=H K | v=H G V": "H (q=K | k=K | v=G V)",
}


def other_layout(*tensors: Tensor, **named) -> Tensor:
    """The operator, told that the rows are the other model's."""
    layouts = {key: OTHER.get(named[key], named[key]) for key in ("qkvz_layout", "ba_layout")}
    return torch.ops.truefuse.gdn_decode(*tensors, **{**named, **layouts})
