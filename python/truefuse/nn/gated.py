"""Gated feed-forward blocks, with the parameter names that published models use."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from truefuse._ops import geglu, geglu_packed, swiglu, swiglu_packed
from truefuse.nn.options import require

Device = torch.device | str | None


class _Block(nn.Module):
    """Linear layers `projections`, name to (inputs, outputs), and as attributes the options of the operator
    between them, which are refused here if it does not have them."""

    def __init__(
        self,
        operator: str,
        projections: dict[str, tuple[int, int]],
        bias: bool,
        device: Device,
        dtype: torch.dtype | None,
        **options: str,
    ) -> None:
        require(operator, **options)
        super().__init__()
        for name, (inputs, outputs) in projections.items():
            setattr(self, name, nn.Linear(inputs, outputs, bias=bias, device=device, dtype=dtype))
        for name, option in options.items():
            setattr(self, name, option)
        self._options = tuple(options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._options)


def _two(hidden: int, intermediate: int) -> dict[str, tuple[int, int]]:
    """As in Llama, Mistral, Qwen and Gemma."""
    inwards = (hidden, intermediate)
    return {"gate_proj": inwards, "up_proj": inwards, "down_proj": (intermediate, hidden)}


def _packed(hidden: int, intermediate: int) -> dict[str, tuple[int, int]]:
    """As in Phi-3."""
    return {"gate_up_proj": (hidden, 2 * intermediate), "down_proj": (intermediate, hidden)}


class SwiGLU(_Block):
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
        projections = _two(hidden_size, intermediate_size)
        super().__init__("swiglu", projections, bias, device, dtype, gate_rounding=gate_rounding)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(swiglu(gate, up, gate_rounding=self.gate_rounding))


class GeGLU(_Block):
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
        projections = _two(hidden_size, intermediate_size)
        super().__init__(
            "geglu",
            projections,
            bias,
            device,
            dtype,
            approximate=approximate,
            gate_rounding=gate_rounding,
        )

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        hidden = geglu(gate, up, approximate=self.approximate, gate_rounding=self.gate_rounding)
        return self.down_proj(hidden)


class PackedSwiGLU(_Block):
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
        projections = _packed(hidden_size, intermediate_size)
        super().__init__(
            "swiglu_packed",
            projections,
            bias,
            device,
            dtype,
            packing=packing,
            gate_rounding=gate_rounding,
        )

    def forward(self, x: Tensor) -> Tensor:
        packed = self.gate_up_proj(x)
        hidden = swiglu_packed(packed, packing=self.packing, gate_rounding=self.gate_rounding)
        return self.down_proj(hidden)


class PackedGeGLU(_Block):
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
        projections = _packed(hidden_size, intermediate_size)
        super().__init__(
            "geglu_packed",
            projections,
            bias,
            device,
            dtype,
            packing=packing,
            approximate=approximate,
            gate_rounding=gate_rounding,
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden = geglu_packed(
            self.gate_up_proj(x),
            packing=self.packing,
            approximate=self.approximate,
            gate_rounding=self.gate_rounding,
        )
        return self.down_proj(hidden)
