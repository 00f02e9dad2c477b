"""One decode step of a Gated DeltaNet layer in float64, stage by stage, in plain PyTorch.

Works on logical tensors: no layout, no slots, no padding. `rounding` is None for the mathematics
itself, or the dtype that transformers keeps between its operators: then every stage rounds where
transformers rounds, and computes in float64 in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

L2_EPS = 1e-6


@dataclass(frozen=True)
class Rows:
    """What the projections give: q, k [B, T, H, K]; v, z [B, T, HV, V]; b, a [B, T, HV]."""

    q: Tensor
    k: Tensor
    v: Tensor
    z: Tensor
    b: Tensor
    a: Tensor


@dataclass(frozen=True)
class Weights:
    """conv [C, W] and conv_bias [C], channels [q heads | k heads | v heads]; A_log, dt_bias [HV];
    norm [V], or None for no norm and no gate."""

    conv: Tensor
    A_log: Tensor
    dt_bias: Tensor
    conv_bias: Tensor | None = None
    norm: Tensor | None = None
    norm_eps: float = 1e-6
    gate: str = "silu"


def rounded(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return x if dtype is None else x.to(dtype).double()


def channels(rows: Rows) -> Tensor:
    """The convolution's input [B, C, T], not rounded and not converted."""
    parts = [rows.q, rows.k, rows.v]
    return torch.cat([part.flatten(2) for part in parts], dim=2).transpose(1, 2)


def convolution(window: Tensor, x: Tensor, weights: Weights, rounding=None) -> Tensor:
    """Causal depthwise convolution and SiLU: the W - 1 inputs before x [B, C, T], then x."""
    taps = weights.conv.shape[1]
    inputs = torch.cat([window, x], dim=2).double()
    y = torch.zeros_like(x, dtype=torch.float64)
    for t in range(x.shape[2]):
        y[:, :, t] = (inputs[:, :, t : t + taps] * weights.conv.double()).sum(2)
    if weights.conv_bias is not None:
        y += weights.conv_bias.double()[:, None]
    y = rounded(y, rounding)
    return rounded(y / (1 + torch.exp(-y)), rounding)


def gates(rows: Rows, weights: Weights, rounding=None) -> tuple[Tensor, Tensor]:
    """Decay alpha and update strength beta, [B, T, HV]."""
    beta = rounded(torch.sigmoid(rows.b.double()), rounding)
    x = rows.a.double() + weights.dt_bias.double()
    softplus = torch.where(x > 20, x, torch.log1p(torch.exp(x.clamp(max=20))))
    return torch.exp(-torch.exp(weights.A_log.double()) * softplus), beta


def normalised(x: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + L2_EPS)


def delta_rule(state: Tensor, q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor):
    """One token: state [B, HV, K, V], q, k [B, H, K], v [B, HV, V], alpha, beta [B, HV]. Value head n
    uses key head n // G. Returns the core [B, HV, V] and the new state."""
    groups = v.shape[1] // q.shape[1]
    head = torch.arange(v.shape[1]) // groups
    q = normalised(q)[:, head] / math.sqrt(q.shape[-1])
    k = normalised(k)[:, head]
    state = alpha[..., None, None] * state
    delta = beta[..., None] * (v - torch.einsum("bnkv,bnk->bnv", state, k))
    state.addcmul_(k[..., :, None], delta[..., None, :])
    return torch.einsum("bnkv,bnk->bnv", state, q), state


def gated_norm(core: Tensor, z: Tensor, weights: Weights, rounding=None) -> Tensor:
    """RMSNorm over V, then the gate. transformers multiplies by the weight in the dtype of both."""
    assert weights.norm is not None
    mean = (core * core).mean(-1, keepdim=True)
    y = rounded(core / torch.sqrt(mean + weights.norm_eps), rounding)
    y = y * weights.norm.double()
    if weights.norm.dtype == rounding:
        y = rounded(y, rounding)
    z = z.double()
    return y * (torch.sigmoid(z) if weights.gate == "sigmoid" else F.silu(z))


@dataclass(frozen=True)
class Result:
    out: Tensor  # [B, T, HV, V]; not rounded to the dtype of an output
    core: Tensor  # [B, T, HV, V]; what the norm gets
    after: list[Tensor]  # [B, HV, K, V], after each token
    inputs: Tensor  # [B, C, W - 1 + T]: the window and the tokens, as they came

    @property
    def states(self) -> Tensor:
        """[B, T, HV, K, V]"""
        return torch.stack(self.after, 1)


def decode(window: Tensor, state: Tensor, rows: Rows, weights: Weights, rounding=None) -> Result:
    """T tokens, one after the other, on window [B, C, W - 1] and state [B, HV, K, V]. Between tokens a state
    of 16 bits is rounded to them, as it is between calls; wider ones are not."""
    batch, tokens, heads, K = rows.q.shape
    x = channels(rows)
    y = convolution(window, x, weights, rounding).transpose(1, 2)
    q, k, v = y.split([heads * K, heads * K, y.shape[2] - 2 * heads * K], dim=2)
    alpha, beta = gates(rows, weights, rounding)
    stored = state.dtype if state.element_size() == 2 else None
    state = state.double()
    cores, states = [], []
    for t in range(tokens):
        core, after = delta_rule(
            state, q[:, t].view(batch, heads, K), k[:, t].view(batch, heads, K),
            v[:, t].view(batch, rows.v.shape[2], -1), alpha[:, t], beta[:, t],
        )  # fmt: skip
        cores.append(rounded(core, rounding))
        states.append(after)
        state = rounded(after, stored)
    core = torch.stack(cores, 1)
    out = core if weights.norm is None else gated_norm(core, rows.z, weights, rounding)
    return Result(out, core, states, torch.cat([window, x], dim=2))
