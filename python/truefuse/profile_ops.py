"""The operators of one run, with the values that they read and write."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

# Beside PyTorch's pointwise operators: what a fused kernel takes in or ends with.
_ALSO_FUSIBLE = {
    "_fused_rms_norm",
    "_log_softmax",
    "_softmax",
    "_to_copy",
    "amax",
    "amin",
    "cat",
    "clone",
    "copy_",
    "mean",
    "native_group_norm",
    "native_layer_norm",
    "sum",
    "var_mean",
}


@dataclass(frozen=True)
class Value:
    """One version of the contents of a tensor. `name` tells versions apart; `bytes` is what one access
    moves."""

    name: object
    bytes: int


@dataclass
class Op:
    """`name` without namespace and overload; views are not ops here."""

    name: str
    seconds: float
    reads: tuple[Value, ...] = ()
    writes: tuple[Value, ...] = ()
    fusible: bool = field(init=False)

    def __post_init__(self) -> None:
        self.fusible = is_fusible(self.name)


@dataclass(frozen=True)
class Profile:
    """`flow` says how it is known which operator reads what: "seen" in a run, "by shapes" in a trace
    that has them, "unknown" in one that has not."""

    ops: list[Op]
    device: str
    flow: str
    method: str

    @property
    def seconds(self) -> float:
        return sum(op.seconds for op in self.ops)


_known: dict[str, bool] = {}


def is_fusible(name: str) -> bool:
    """Whether an aten operator is pointwise, or one that a fused kernel commonly takes in."""
    if name not in _known:
        packet = getattr(torch.ops.aten, name, None)
        overloads = [getattr(packet, each) for each in packet.overloads()] if packet else []
        pointwise = any(torch.Tag.pointwise in overload.tags for overload in overloads)
        _known[name] = pointwise or name in _ALSO_FUSIBLE
    return _known[name]
