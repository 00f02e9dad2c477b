"""The activations whose tests are the same: what is called, on what, and the mathematics of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import truefuse

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
PACKINGS = ("gate|up", "up|gate", "gate,up interleaved", "up,gate interleaved")


def parts(packed: Tensor, packing: str) -> tuple[Tensor, Tensor]:
    """Gate and up, as views."""
    if packing.endswith("interleaved"):
        first, second = packed[..., 0::2], packed[..., 1::2]
    else:
        first, second = packed.chunk(2, dim=-1)
    return (first, second) if packing.startswith("gate") else (second, first)


def activate(gate: Tensor, mode: dict[str, Any]) -> Tensor:
    form = mode.get("approximate")
    return F.silu(gate) if form is None else F.gelu(gate, approximate=form)


@dataclass(frozen=True)
class Activation:
    name: str
    mode: dict[str, Any]
    function: Callable[..., Tensor]
    inputs: int = 1  # tensors
    width: int = 1  # of an input, for each element of the output

    def __str__(self) -> str:
        return " ".join([self.name, *map(str, self.mode.values())])

    @property
    def operator(self) -> Any:
        return getattr(torch.ops.truefuse, self.name).default

    def __call__(self, *tensors: Tensor) -> Tensor:
        return self.function(*tensors, **self.mode)

    def eager(self, *tensors: Tensor) -> Tensor:
        """In ATen; in float64 the mathematics."""
        if self.name == "swish":
            return F.silu(tensors[0])
        gate, up = tensors if self.inputs == 2 else parts(tensors[0], self.mode["packing"])
        return activate(gate, self.mode) * up

    def tensors(self, *shape: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
        shape = (*shape[:-1], shape[-1] * self.width)
        return [
            (2 * torch.randn(*shape, dtype=torch.float64, device=device)).to(dtype)
            for _ in range(self.inputs)
        ]


ROUNDING = {"gate_rounding": "none"}
ALL = (
    Activation("swish", {}, truefuse.swish),
    Activation("swiglu", ROUNDING, truefuse.swiglu, inputs=2),
    Activation("geglu", {"approximate": "tanh", **ROUNDING}, truefuse.geglu, inputs=2),
    Activation("geglu", {"approximate": "none", **ROUNDING}, truefuse.geglu, inputs=2),
    *(
        Activation(
            "swiglu_packed", {"packing": packing, **ROUNDING}, truefuse.swiglu_packed, width=2
        )
        for packing in PACKINGS
    ),
    Activation(
        "geglu_packed",
        {"packing": "up|gate", "approximate": "tanh", **ROUNDING},
        truefuse.geglu_packed,
        width=2,
    ),
)
