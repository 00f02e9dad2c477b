"""How gdn_decode is checked: one decode step against float64, beside the same step as a chain in PyTorch.

A size is (batch, H, G, K, V), or (batch, tokens, H, G, K, V) for rows [batch, tokens, columns]. What a
size leaves open goes by G: with 2 value heads for each key head the output is the core, the state is
[HV,K,V], and there is no bias; else there is a norm, gated by a sigmoid if G is 1, and the state is
[HV,V,K]. What belongs to the shapes comes with the inputs; rows in another layout have the same shapes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size, Tolerance, beside
from truefuse.layouts import BoundLayout, layout

TAPS = 4
TENSORS = ("qkvz", "ba", "conv_state", "state", "conv_weight", "conv_bias", "A_log", "dt_bias",
           "norm_weight")  # fmt: skip
SHAPES = ("state_layout", "num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "norm_eps",
          "gate_activation")  # fmt: skip
ROWS = {
    "interleaved": {"qkvz_layout": "qwen3-next/qkvz", "ba_layout": "qwen3-next/ba"},
    "flat": {"qkvz_layout": "qwen3.5/qkvz", "ba_layout": "qwen3.5/ba"},
}


maths = beside(__file__, "reference")


def candidate(*given: Any, **keywords: Any) -> Tensor:
    """The operator takes all but tensors by name."""
    shapes = dict(zip(SHAPES, given[len(TENSORS) :], strict=False))
    return torch.ops.truefuse.gdn_decode(*given[: len(TENSORS)], **shapes, **keywords)


def split(qkvz: Tensor, ba: Tensor, call: Inputs) -> Any:
    """q, k [B, T, H, K]; v, z [B, T, HV, V]; b, a [B, T, HV]: as the two models split their rows."""
    H, HV, K, V = (call[name] for name in SHAPES[1:5])
    G = HV // H
    qkvz, ba = (t if t.dim() == 3 else t[:, None] for t in (qkvz, ba))
    if call["qkvz_layout"].startswith("qwen3-next"):
        q, k, v, z = qkvz.unflatten(-1, (H, -1)).split([K, K, G * V, G * V], -1)
        v, z = (t.reshape(*t.shape[:2], HV, V) for t in (v, z))
    else:
        q, k, v, z = qkvz.split([H * K, H * K, HV * V, HV * V], -1)
        q, k, v, z = (t.unflatten(-1, (n, -1)) for t, n in ((q, H), (k, H), (v, HV), (z, HV)))
    if call["ba_layout"].startswith("qwen3-next"):
        b, a = (t.flatten(2) for t in ba.unflatten(-1, (H, 2, G)).unbind(-2))
    else:
        b, a = ba.split([HV, HV], -1)
    return maths.Rows(q, k, v, z, b, a)


def named(given: tuple[Any, ...], mode: Mode) -> Inputs:
    return dict(zip((*TENSORS, *SHAPES), given, strict=True)) | mode


def by_key(state: Tensor, call: Inputs) -> Tensor:
    """The state as a view [slots, HV, K, V], and back."""
    return state if call["state_layout"] == "[HV,K,V]" else state.transpose(-1, -2)


def eager(*given: Any, **mode: Any) -> Tensor:
    """The model's own chain, one operator after the other; in float32, and in mode "transformers"
    rounded where it rounds."""
    call = named(given, mode)
    dtype = call["qkvz"].dtype
    rounds = mode["rounding"] == "transformers"

    def rounded(x: Tensor) -> Tensor:
        return x.to(dtype).float() if rounds else x

    rows = split(call["qkvz"], call["ba"], call)
    mixed = torch.cat([x.flatten(2) for x in (rows.q, rows.k, rows.v)], -1).transpose(1, 2)
    history = torch.cat([call["conv_state"], mixed], -1)
    tokens, taps = mixed.shape[-1], call["conv_weight"].shape[-1]
    windows = history.float().unfold(-1, taps, 1)
    windows = windows[:, :, windows.shape[2] - tokens :]
    y = (windows * call["conv_weight"].float()[:, None]).sum(-1)
    if call["conv_bias"] is not None:
        y = y + call["conv_bias"].float()[:, None]
    y = rounded(F.silu(rounded(y))).transpose(1, 2)
    H, HV, K, V = (call[name] for name in SHAPES[1:5])
    q, k, v = y.split([H * K, H * K, HV * V], -1)
    q, k = (x.unflatten(-1, (H, K)).repeat_interleave(HV // H, -2) for x in (q, k))
    q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    q, v = q / math.sqrt(K), v.unflatten(-1, (HV, V))
    rate = F.softplus(rows.a.float() + call["dt_bias"].float())
    alpha = torch.exp(-call["A_log"].float().exp() * rate)[..., None, None]
    beta = rounded(torch.sigmoid(rows.b.float()))[..., None, None]
    state = by_key(call["state"], call)
    S, cores = state.float(), []
    for t in range(tokens):
        S = alpha[:, t] * S
        delta = beta[:, t] * (v[:, t, :, None] - k[:, t, :, None] @ S)
        S = S + k[:, t, ..., None] * delta
        cores.append((q[:, t, :, None] @ S).squeeze(-2))
    state.copy_(S)
    call["conv_state"].copy_(history[..., tokens:])
    out = rounded(torch.stack(cores, 1)) if cores else v
    if call["norm_weight"] is not None:
        weight = call["norm_weight"]
        mean = out.square().mean(-1, keepdim=True)
        out = rounded(out * (mean + call["norm_eps"]).rsqrt()) * weight.float()
        gate = torch.sigmoid if call["gate_activation"] == "sigmoid" else F.silu
        out = (rounded(out) if weight.dtype == dtype else out) * gate(rows.z.float())
    return out.to(dtype).view(*call["qkvz"].shape[:-1], HV, V)


def weights(call: Inputs) -> Any:
    return maths.Weights(
        conv=call["conv_weight"], A_log=call["A_log"], dt_bias=call["dt_bias"],
        conv_bias=call["conv_bias"], norm=call["norm_weight"], norm_eps=call["norm_eps"] or 0.0,
        gate=call["gate_activation"],
    )  # fmt: skip


def reference(*given: Any, **mode: Any) -> Tensor:
    """The mathematics of reference.py, without a rounding point in any mode."""
    call = named(given, mode)
    rows = split(call["qkvz"], call["ba"], call)
    conv, state = call["conv_state"], by_key(call["state"], call)
    shape = (*call["qkvz"].shape[:-1], call["num_v_heads"], call["head_v_dim"])
    if not math.prod(shape):
        return conv.new_zeros(shape)
    found = maths.decode(conv[..., 1 - TAPS :], state, rows, weights(call))
    conv.copy_(torch.cat([conv, maths.channels(rows)], -1)[..., -conv.shape[-1] :])
    state.copy_(found.after[-1])
    return found.out.view(shape)


def scale(*given: Any, **mode: Any) -> tuple[Tensor, Tensor, Tensor]:
    """How large the errors of one rounding of each number on the way are in the results, in units of
    their precision: those of a sum's terms add up in squares, those of a factor are multiplied."""
    call = named(given, mode)
    rows, w = split(call["qkvz"], call["ba"], call), weights(call)
    conv, S = call["conv_state"], by_key(call["state"], call)
    H, HV, K, V = (call[name] for name in SHAPES[1:5])
    shape = (*call["qkvz"].shape[:-1], HV, V)
    if not math.prod(shape):
        return conv.new_zeros(shape), conv.abs(), call["state"].abs()
    inputs = torch.cat([conv[..., 1 - TAPS :], maths.channels(rows)], -1)
    terms = inputs.unfold(-1, TAPS, 1) * w.conv[:, None]
    y, size = terms.sum(-1), terms.square().sum(-1)
    if w.conv_bias is not None:
        y, size = y + w.conv_bias[:, None], size + w.conv_bias.square()[:, None]
    up = torch.sigmoid(y)
    u, size = y * up, size.sqrt() * (up * (1 + y * (1 - up))).abs()
    size = size.maximum(u.abs())

    def heads(t: Tensor) -> list[Tensor]:  # [B, T, HV, K or V]
        q, k, v = t.transpose(1, 2).split([H * K, H * K, HV * V], -1)
        q, k = (x.unflatten(-1, (H, K)).repeat_interleave(HV // H, -2) for x in (q, k))
        return [q, k, v.unflatten(-1, (HV, V))]

    (q, k, v), (dq, dk, dv) = heads(u), heads(size)
    for x, dx in ((q, dq), (k, dk)):
        length = (x.square().sum(-1, keepdim=True) + maths.L2_EPS).sqrt()
        x /= length
        dx /= length
    alpha, beta = (t[..., None, None] for t in maths.gates(rows, w))
    rate = 1 - alpha.clamp(min=1e-30).log()  # of exp(x) for an x of this size
    dS, cores, sizes = S.abs(), [], []
    for t in range(v.shape[1]):
        kt, dkt, qt, dqt = (x[:, t, :, :, None] for x in (k, dk, q, dq))
        S, dS = alpha[:, t] * S, alpha[:, t] * dS * rate[:, t]
        read = (kt * S).sum(-2, keepdim=True)
        dread = ((dkt * S).square() + (kt * dS).square()).sum(-2, keepdim=True)
        delta = beta[:, t] * (v[:, t, :, None] - read)
        ddelta = beta[:, t] * (dv[:, t, :, None].square() + dread).sqrt()
        S = S + kt * delta
        dS = (dS.square() + (dkt * delta).square() + (kt * ddelta).square()).sqrt()
        cores.append((qt * S).sum(-2))
        sizes.append(((dqt * S).square() + (qt * dS).square()).sum(-2).sqrt())
    core, out = torch.stack(cores, 1) / math.sqrt(K), torch.stack(sizes, 1) / math.sqrt(K)
    if w.norm is not None:
        root = (core.square().mean(-1, keepdim=True) + w.norm_eps).sqrt()
        gate = torch.sigmoid(rows.z) if w.gate == "sigmoid" else F.silu(rows.z)
        out = out.maximum(core.abs()) / root * (w.norm * gate).abs() * rows.z.abs().clamp(min=1)
    return out.view(shape), conv.abs(), by_key(dS, call)


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    """kind: "plain"; "core", without norm and with [HV,K,V]; "slow", decay near 1 and small updates;
    "half state", kept in the dtype of the rows."""
    batch, *rest = size
    tokens = rest[:-4]
    H, G, K, V = rest[-4:]
    HV, channels = H * G, 2 * H * K + H * G * V
    has_norm = kind != "core" and G != 2
    keys_last = kind != "core" and G != 2

    def normal(*shape: int, by: float = 1.0, plus: float = 0.0) -> Tensor:
        return by * torch.randn(shape, generator=generator) + plus

    rates = normal(HV).abs() * (1e-3 if kind == "slow" else 1) + 1e-4
    tensors: Inputs = {
        "qkvz": normal(batch, *tokens, channels + HV * V),
        "ba": normal(batch, *tokens, 2 * HV, plus=-2 if kind == "slow" else 0),
        "conv_state": normal(batch, channels, TAPS if G == 2 else TAPS - 1),
        "state": normal(batch, HV, *((V, K) if keys_last else (K, V)), by=0.3),
        "conv_weight": normal(channels, TAPS, by=0.5),
        "conv_bias": normal(channels, by=0.2) if G != 2 else None,
        "A_log": rates.log(),
        "dt_bias": normal(HV),
        "norm_weight": normal(V, by=0.1, plus=1) if has_norm else None,
    }
    wide = {"A_log"} if kind == "half state" else {"A_log", "state"}
    tensors = {
        name: None if t is None else t.to(device, torch.float32 if name in wide else dtype)
        for name, t in tensors.items()
    }
    gate = "sigmoid" if G == 1 else "silu"
    return tensors | {
        "state_layout": "[HV,V,K]" if keys_last else "[HV,K,V]",
        "num_k_heads": H,
        "num_v_heads": HV,
        "head_k_dim": K,
        "head_v_dim": V,
        "norm_eps": 1e-6 if has_norm else None,
        "gate_activation": gate if has_norm else None,
    }


def changed(name: str, change: Any) -> Any:
    return lambda inputs, mode: (inputs | {name: change(inputs[name])}, mode)


def other_rows(name: str) -> Any:
    """The rows of one argument read as the other model's."""

    def fault(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
        other = next(rows[name] for rows in ROWS.values() if rows[name] != mode[name])
        return inputs, {**mode, name: other}

    return fault


def layouts_of(inputs: Inputs, mode: Mode) -> dict[str, BoundLayout]:
    heads, values = inputs["num_k_heads"], inputs["num_v_heads"]
    sizes = {"H": heads, "G": values // heads, "K": inputs["head_k_dim"], "V": inputs["head_v_dim"]}
    return {name: layout(mode[f"{name}_layout"]).bind(**sizes) for name in ("qkvz", "ba")}


SMALL, SINGLE, CORE = (2, 3, 16, 16), (2, 1, 24, 8), (1, 2, 8, 20)  # H, G, K, V
MODEL = (16, 3, 128, 128)

case = Case(
    name="gdn_decode",
    operator="truefuse::gdn_decode",
    uses_shipped_variants=False,  # They are of the models' sizes.
    candidate=candidate,
    baselines={"chain": eager},
    baseline_copies="the models repeat key heads for their value heads",
    yardstick=eager,
    reference=reference,
    scale=scale,
    make_inputs=make_inputs,
    modes=(
        {**ROWS["interleaved"], "rounding": "fp32"},
        {**ROWS["flat"], "rounding": "transformers"},
    ),
    mutates=("conv_state", "state"),
    layouts_of=layouts_of,
    dtypes=(torch.bfloat16, torch.float32, torch.float16),
    kinds=("plain", "core", "slow", "half state"),
    faults={
        "rows of the other model": other_rows("qkvz_layout"),
        "gates of the other model": other_rows("ba_layout"),
        "a transposed state": changed("state", lambda t: t.transpose(-1, -2).contiguous()),
        "a convolution that runs backwards": changed("conv_weight", lambda t: t.flip(-1)),
        "a window that is one step old": changed("conv_state", lambda t: t.roll(1, -1)),
        "no decay": changed("A_log", lambda t: torch.full_like(t, -40.0)),
    },
    # A dozen roundings one after the other: the worst of a few elements says little of the next ones'.
    tolerance={torch.float32: Tolerance(2, ulps=3)},
    small_size=(3, *SMALL),
    medium_size=(5, *SMALL),
    special_sizes=((1, *SMALL), (1, *CORE)),
    empty_sizes=((0, *SMALL), (2, 0, *SMALL)),
    rank_sizes=((2, 1, *SMALL), (2, 3, *SMALL), (1, 2, *CORE)),
    edge_sizes=((1, *SMALL), (2, *SINGLE), (3, *CORE), (7, *SMALL), (2, 3, *SMALL)),
    numeric_size=(8, *SMALL),
    timing_sizes=((1, *MODEL), (8, *MODEL)),
    timing_dtype=torch.bfloat16,
    drift_steps=1024,
)
