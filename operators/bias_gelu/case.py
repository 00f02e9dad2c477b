"""How bias_gelu is checked: gelu(x + bias), against mathematics and beside eager PyTorch."""

from __future__ import annotations

import math

import mpmath
import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size, normal, sweep

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def candidate(*tensors: Tensor, **mode: object) -> Tensor:
    return torch.ops.truefuse.bias_gelu(*tensors, **mode)


def eager(x: Tensor, bias: Tensor, *, approximate: str) -> Tensor:
    return F.gelu(x + bias, approximate=approximate)


def reference(x: Tensor, bias: Tensor, *, approximate: str) -> Tensor:
    """In float64 and without cancellation: 1 + erf and 1 + tanh lose every digit below -6."""
    v = x + bias
    cut = v.clamp(-100, 100)  # beyond, the factor is 0 or 1, and its derivative would be inf * 0
    if approximate == "tanh":
        factor = _sigmoid(2 * SQRT_2_OVER_PI * (cut + 0.044715 * cut**3))
    else:
        factor = 0.5 * torch.special.erfc(-cut * SQRT_HALF)
    return torch.where(v == -math.inf, -0.0, v * factor)  # the limit, where inf * 0 says nothing


def _sigmoid(u: Tensor) -> Tensor:
    """1 / (1 + exp(-u)), where exp(-u) may overflow."""
    return torch.exp(-torch.logaddexp(-u, torch.zeros_like(u)))


def _derivative(v: Tensor, approximate: str) -> tuple[Tensor, Tensor]:
    """gelu'(v) without cancellation, and the size of its two summands. Beyond the cut it is 0 or 1."""
    v = v.clamp(-100, 100)
    if approximate == "tanh":
        u = 2 * SQRT_2_OVER_PI * (v + 0.044715 * v**3)
        rising = _sigmoid(u)
        slope = 2 * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * v * v)
        bump = v * rising * (1 / (1 + torch.exp(u))) * slope
    else:
        rising = 0.5 * torch.special.erfc(-v * SQRT_HALF)
        bump = v * torch.exp(-v * v / 2) / math.sqrt(2 * math.pi)
    return rising + bump, rising + bump.abs()


def reference_gradients(
    grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str
) -> tuple[Tensor, Tensor]:
    """Autograd of the reference has inf * 0 in its tails."""
    grad_x = grad * _derivative(x + bias, approximate)[0]
    return grad_x, grad_x.flatten(0, -2).sum(0) if x.dim() > 1 else grad_x


def gradient_scale(
    grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str
) -> tuple[Tensor, Tensor]:
    size = grad.abs() * _derivative(x + bias, approximate)[1]
    return size, size.flatten(0, -2).sum(0) if x.dim() > 1 else size


def exact(inputs: Inputs, mode: Mode) -> list[mpmath.mpf]:
    """To 30 digits: x + bias is not rounded either."""
    x, bias = inputs["x"], inputs["bias"].expand_as(inputs["x"])
    with mpmath.workdps(30):
        sums = [
            mpmath.mpf(a) + mpmath.mpf(b)
            for a, b in zip(x.flatten().tolist(), bias.flatten().tolist(), strict=True)
        ]
        if mode["approximate"] == "tanh":
            minus_2k, cubic = -2 * mpmath.sqrt(2 / mpmath.pi), mpmath.mpf("0.044715")
            sigmoid = lambda v: 1 / (1 + mpmath.exp(minus_2k * (v + cubic * v**3)))  # noqa: E731
        else:
            minus_root = -mpmath.sqrt(mpmath.mpf(1) / 2)
            sigmoid = lambda v: mpmath.erfc(minus_root * v) / 2  # noqa: E731
        # Beyond 200 both are 0 or 1 in float64.
        return [v * sigmoid(v) if abs(v) < 200 else max(v, mpmath.mpf(0)) for v in sums]


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    """kind: "normal"; "zero_bias", where x + bias is exact; "sweep", which is zero_bias with every
    finite value of a half type, or for wider types magnitudes spread evenly over binades."""
    hidden = size[-1]
    bias = torch.zeros(hidden)
    if kind == "sweep":
        x = sweep(size, dtype, generator, -15, 15)
    else:
        x = 3 * normal(size, dtype, generator)
        if kind == "normal":
            bias = normal((hidden,), dtype, generator)
    return {"x": x.to(dtype).to(device), "bias": bias.to(dtype).to(device)}


def other_approximation(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return inputs, {"approximate": "none" if mode["approximate"] == "tanh" else "tanh"}


def bias_off_by_one(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": inputs["x"], "bias": inputs["bias"].roll(1)}, mode


case = Case(
    name="bias_gelu",
    operator="truefuse::bias_gelu",
    candidate=candidate,
    baselines={"eager": eager},
    reference=reference,
    exact=exact,
    make_inputs=make_inputs,
    modes=({"approximate": "tanh"}, {"approximate": "none"}),
    dtypes=(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    kinds=("normal", "zero_bias", "sweep"),
    gradients=("x", "bias"),
    reference_gradients=reference_gradients,
    gradient_scale=gradient_scale,
    strict_kinds=("zero_bias", "sweep"),
    faults={"the other approximation": other_approximation, "bias off by one": bias_off_by_one},
)
