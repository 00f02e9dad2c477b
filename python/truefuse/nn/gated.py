"""Gated feed-forward blocks, with the parameter names that published models use."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from truefuse._ops import geglu, geglu_packed, swiglu, swiglu_packed
from truefuse.nn.options import require

Device = torch.device | str | None


class _TwoProjections(nn.Module):
    """gate_proj, up_proj and down_proj, as in Llama, Mistral, Qwen and Gemma."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        bias: bool,
        device: Device,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, **made)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, **made)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, **made)


class _OneProjection(nn.Module):
    """gate_up_proj and down_proj, as in Phi-3."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        bias: bool,
        device: Device,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_up_proj = nn.Linear(hidden_size, 2 * intermediate_size, **made)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, **made)


def _said(module: nn.Module, *names: str) -> str:
    return ", ".join(f"{name}={getattr(module, name)!r}" for name in names)


class SwiGLU(_TwoProjections):
    """``down_proj(swish(gate_proj(x)) * up_proj(x))``: Llama's feed-forward block.

    ``gate_rounding="storage"`` rounds as the published models do; see :func:`truefuse.swiglu`.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        gate_rounding: str,
        bias: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require("swiglu", gate_rounding=gate_rounding)
        super().__init__(hidden_size, intermediate_size, bias, device, dtype)
        self.gate_rounding = gate_rounding

    def extra_repr(self) -> str:
        return _said(self, "gate_rounding")

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(swiglu(gate, up, gate_rounding=self.gate_rounding))


class GeGLU(_TwoProjections):
    """``down_proj(gelu(gate_proj(x)) * up_proj(x))``: Gemma's feed-forward block, which has
    ``approximate="tanh"``."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        approximate: str,
        gate_rounding: str,
        bias: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require("geglu", approximate=approximate, gate_rounding=gate_rounding)
        super().__init__(hidden_size, intermediate_size, bias, device, dtype)
        self.approximate = approximate
        self.gate_rounding = gate_rounding

    def extra_repr(self) -> str:
        return _said(self, "approximate", "gate_rounding")

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        hidden = geglu(gate, up, approximate=self.approximate, gate_rounding=self.gate_rounding)
        return self.down_proj(hidden)


class PackedSwiGLU(_OneProjection):
    """SwiGLU on one projection; Phi-3 has ``packing="gate|up"``. See
    :func:`truefuse.swiglu_packed`."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        packing: str,
        gate_rounding: str,
        bias: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require("swiglu_packed", packing=packing, gate_rounding=gate_rounding)
        super().__init__(hidden_size, intermediate_size, bias, device, dtype)
        self.packing = packing
        self.gate_rounding = gate_rounding

    def extra_repr(self) -> str:
        return _said(self, "packing", "gate_rounding")

    def forward(self, x: Tensor) -> Tensor:
        packed = self.gate_up_proj(x)
        hidden = swiglu_packed(packed, packing=self.packing, gate_rounding=self.gate_rounding)
        return self.down_proj(hidden)


class PackedGeGLU(_OneProjection):
    """GeGLU on one projection. See :func:`truefuse.geglu_packed`."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        packing: str,
        approximate: str,
        gate_rounding: str,
        bias: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require(
            "geglu_packed", packing=packing, approximate=approximate, gate_rounding=gate_rounding
        )
        super().__init__(hidden_size, intermediate_size, bias, device, dtype)
        self.packing = packing
        self.approximate = approximate
        self.gate_rounding = gate_rounding

    def extra_repr(self) -> str:
        return _said(self, "packing", "approximate", "gate_rounding")

    def forward(self, x: Tensor) -> Tensor:
        hidden = geglu_packed(
            self.gate_up_proj(x),
            packing=self.packing,
            approximate=self.approximate,
            gate_rounding=self.gate_rounding,
        )
        return self.down_proj(hidden)
