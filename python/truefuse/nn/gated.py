"""Gated feed-forward blocks, with the parameter names that published models use."""

from __future__ import annotations

from torch import Tensor, nn

from truefuse._ops import geglu, geglu_packed, swiglu, swiglu_packed


class _TwoProjections(nn.Module):
    """gate_proj, up_proj and down_proj, as in Llama, Mistral, Qwen and Gemma."""

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bias)


class _OneProjection(nn.Module):
    """gate_up_proj and down_proj, as in Phi-3."""

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(hidden_size, 2 * intermediate_size, bias=bias)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bias)


class SwiGLU(_TwoProjections):
    """``down_proj(swish(gate_proj(x)) * up_proj(x))``: Llama's feed-forward block.

    ``gate_rounding="storage"`` rounds as the published models do; see :func:`truefuse.swiglu`.
    """

    def __init__(
        self, hidden_size: int, intermediate_size: int, *, gate_rounding: str, bias: bool = False
    ) -> None:
        super().__init__(hidden_size, intermediate_size, bias)
        self.gate_rounding = gate_rounding

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
    ) -> None:
        super().__init__(hidden_size, intermediate_size, bias)
        self.approximate = approximate
        self.gate_rounding = gate_rounding

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
    ) -> None:
        super().__init__(hidden_size, intermediate_size, bias)
        self.packing = packing
        self.gate_rounding = gate_rounding

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
    ) -> None:
        super().__init__(hidden_size, intermediate_size, bias)
        self.packing = packing
        self.approximate = approximate
        self.gate_rounding = gate_rounding

    def forward(self, x: Tensor) -> Tensor:
        hidden = geglu_packed(
            self.gate_up_proj(x),
            packing=self.packing,
            approximate=self.approximate,
            gate_rounding=self.gate_rounding,
        )
        return self.down_proj(hidden)
