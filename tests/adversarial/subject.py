"""The subjects of the cheats: small operators with a reference, inputs of both signs, and honest forms.

`swish_bias`: x * sigmoid(x + bias) over rows. `row_softmax`: long sums, masked tails. `leaky_sum`: state
that is changed in place. Each honest form is a candidate that every gate has to let pass.
"""

from __future__ import annotations

import functools

import torch

from truefuse.case import Case


def wide(function):
    """Half types computed in float32 and rounded once."""

    @functools.wraps(function)
    def call(*given, **mode):
        if given[0].dtype in (torch.float16, torch.bfloat16):
            outputs = function(*(t.float() for t in given), **mode)
            return outputs.to(given[0].dtype)
        return function(*given, **mode)

    return call


def swish_bias(x, bias):
    return x * torch.sigmoid(x + bias)


def swish_bias_reference(x, bias):
    return x / (1 + torch.exp(-(x + bias)))


def swish_bias_gradients(sent, x, bias):
    """Without cancellation, for any x."""
    s, rest = torch.sigmoid(x + bias), torch.sigmoid(-(x + bias))
    other = sent * x * s * rest
    return sent * s + other, other.sum_to_size(bias.shape)


def swish_bias_sizes(sent, x, bias):
    s, rest = torch.sigmoid(x + bias), torch.sigmoid(-(x + bias))
    own, other = (sent * s).abs().maximum((sent * x * s * rest).abs()), sent * x * s * rest
    return own, other.square().sum_to_size(bias.shape).sqrt()


def swish_bias_inputs(size, dtype, device, generator, kind):
    """kind: "normal"; "large", where 1 + x and x are one number in float32."""
    x = 2 * torch.randn(size, generator=generator, dtype=torch.float64)
    if kind == "large":
        x = x * 2.0**26
    bias = torch.randn(size[-1], generator=generator, dtype=torch.float64)
    return {"x": x.to(device, dtype), "bias": bias.to(device, dtype)}


def bias_shifted(inputs, mode):
    return {**inputs, "bias": inputs["bias"].roll(1)}, mode


SWISH_BIAS = Case(
    name="swish_bias",
    candidate=wide(swish_bias),
    baselines={"eager": swish_bias},
    reference=swish_bias_reference,
    make_inputs=swish_bias_inputs,
    gradients=("x", "bias"),
    reference_gradients=swish_bias_gradients,
    gradient_scale=swish_bias_sizes,
    dtypes=(torch.float32, torch.float64, torch.bfloat16),
    faults={"bias off by one": bias_shifted},
    numeric_size=(64, 128),
    medium_size=(33, 65),
    edge_sizes=((1, 1), (2, 3), (5, 257), (129, 31)),
    special_sizes=((1, 1), (1, 7), (1, 33)),
    timing_sizes=((64, 512),),
)


case = SWISH_BIAS  # for a process that is to load this file


def argument(name, pack=None, dtypes=(), like=None):
    return {
        "name": name,
        "optional": False,
        "kind": "tensor",
        "dtypes": list(dtypes),
        "torch_dtypes": [
            {"f32": "float32", "f64": "float64", "bf16": "bfloat16"}[name] for name in dtypes
        ],
        "like": like,
        "pack": pack,
        "dims": [{"text": "hidden", "factor": 1, "symbols": ["hidden"]}],
        "layout": "strided",
        "mutated": False,
        "alignment": 1,
    }


CONTRACT = {
    "text": "x: f32|f64|bf16 [rows.., hidden] strided; bias: like x [hidden] strided",
    "symbols": [{"name": "rows", "pack": True}, {"name": "hidden", "pack": False}],
    "arguments": [
        argument("x", pack="rows", dtypes=("f32", "f64", "bf16")),
        argument("bias", like="x"),
    ],
    "outputs": [argument("out", pack="rows", like="x")],
}


def checked(function):
    """With the sentences that the contract promises."""

    def unless(holds, sentence):
        if not holds:
            raise RuntimeError(f"swish_bias: {sentence}")

    @functools.wraps(function)
    def call(x=None, bias=None):
        unless(x is not None, "x is missing")
        unless(bias is not None, "bias is missing")
        allowed = (torch.float32, torch.float64, torch.bfloat16)
        unless(x.dtype in allowed, f"x is {name(x.dtype)}; it must be float32, float64 or bfloat16")
        unless(x.dim() > 0, "x is []; it must be [rows.., hidden]")
        unless(
            bias.dtype == x.dtype, f"bias is {name(bias.dtype)}; x is {name(x.dtype)}: convert it"
        )
        unless(bias.device == x.device, f"bias is on {bias.device}; x is on {x.device}: move it")
        unless(bias.dim() == 1, f"bias is {list(bias.shape)}; it must be [hidden]")
        unless(
            bias.shape[0] == x.shape[-1],
            f"bias has {bias.shape[0]} elements; hidden is {x.shape[-1]}",
        )
        return function(x, bias)

    return call


def name(dtype):
    return str(dtype).removeprefix("torch.")
