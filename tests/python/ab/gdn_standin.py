"""gdn_decode in plain torch, for tests of what calls it: transformers' rounding points, in its order."""

from __future__ import annotations

import re

import torch
from torch import Tensor
from torch.nn import functional as F


def segments(layout: str, sizes: dict[str, int]) -> dict[str, list[int]]:
    """Columns of every segment, in the order of its axes, of a layout `q=H K | ...` or
    `H (q=K | ...)`."""
    interleaved = re.fullmatch(r"H \((.*)\)", layout)
    repeats = sizes["H"] if interleaved else 1
    found: dict[str, list[int]] = {}
    column = 0
    for _ in range(repeats):
        for piece in (interleaved[1] if interleaved else layout).split("|"):
            name, axes = piece.strip().split("=")
            count = 1
            for axis in axes.split():
                count *= sizes[axis]
            found.setdefault(name, []).extend(range(column, column + count))
            column += count
    return found


def gdn_decode(
    qkvz: Tensor,
    ba: Tensor,
    conv_state: Tensor,
    state: Tensor,
    conv_weight: Tensor,
    conv_bias: Tensor | None,
    A_log: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    *,
    qkvz_layout: str,
    ba_layout: str,
    z: Tensor | None,
    z_layout: str | None,
    a: Tensor | None,
    a_layout: str | None,
    state_layout: str,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    rounding: str,
    norm_eps: float,
    gate_activation: str,
) -> Tensor:
    assert (state_layout, rounding, gate_activation) == ("[HV,K,V]", "transformers", "silu")
    batch = qkvz.shape[0]
    group = num_v_heads // num_k_heads
    sizes = {"H": num_k_heads, "G": group, "K": head_k_dim, "V": head_v_dim}
    rows = {}
    for tensor, layout in ((qkvz, qkvz_layout), (ba, ba_layout), (z, z_layout), (a, a_layout)):
        if tensor is not None and layout is not None:
            rows |= {name: tensor[:, columns] for name, columns in segments(layout, sizes).items()}

    mixed = torch.cat([rows["q"], rows["k"], rows["v"]], -1)
    inputs = torch.cat([conv_state, mixed[..., None]], -1)
    conv_state.copy_(inputs[..., 1:])
    taps = conv_weight.shape[1]
    mixed = F.conv1d(inputs, conv_weight[:, None], conv_bias, groups=mixed.shape[1])[..., -1]
    assert inputs.shape[-1] > taps  # one column of the cache is not read
    mixed = F.silu(mixed)

    keys = num_k_heads * head_k_dim
    q, k, v = mixed.split([keys, keys, num_v_heads * head_v_dim], -1)
    q, k = (x.view(batch, num_k_heads, head_k_dim).float() for x in (q, k))
    q, k = (x.repeat_interleave(group, 1) for x in (q, k))
    q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q = q / head_k_dim**0.5
    v = v.view(batch, num_v_heads, head_v_dim).float()
    beta = rows["b"].sigmoid().float()
    decay = (-A_log.float().exp() * F.softplus(rows["a"].float() + dt_bias)).exp()

    state.mul_(decay[..., None, None])
    delta = (v - (state * k[..., None]).sum(-2)) * beta[..., None]
    state.add_(k[..., None] * delta[..., None, :])
    core = (state * q[..., None]).sum(-2).to(qkvz.dtype).float()

    normed = core * torch.rsqrt(core.pow(2).mean(-1, keepdim=True) + norm_eps)
    normed = norm_weight * normed.to(qkvz.dtype)
    gate = rows["z"].view(batch, num_v_heads, head_v_dim).float()
    return (normed * F.silu(gate)).to(qkvz.dtype)


OTHER = {
    "H (q=K | k=K | v=G V | z=G V)": "q=H K | k=H K | v=H G V | z=H G V",
    "H (b=G | a=G)": "b=H G | a=H G",
    "q=H K | k=H K | v=H G V": "H (q=K | k=K | v=G V)",
}


def other_layout(*tensors: Tensor, **named) -> Tensor:
    """The same operator, fed with the other model's layout: every shape fits."""
    layouts = {key: OTHER.get(named[key], named[key]) for key in ("qkvz_layout", "ba_layout")}
    return gdn_decode(*tensors, **{**named, **layouts})


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def bias_gelu(x: Tensor, bias: Tensor, *, approximate: str) -> Tensor:
    """From the unrounded sum, as the operator computes it."""
    return F.gelu(x.float() + bias.float(), approximate=approximate).to(x.dtype)


IMPLEMENTATIONS = {"gdn_decode": gdn_decode, "swiglu": swiglu, "bias_gelu": bias_gelu}
