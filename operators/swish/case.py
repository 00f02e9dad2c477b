"""How swish is checked: x sigmoid(x), against mathematics and beside torch's silu."""

from __future__ import annotations

import math

import mpmath
import torch
import torch.nn.functional as F
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size, normal, sweep


def candidate(*tensors: Tensor, **mode: object) -> Tensor:
    return torch.ops.truefuse.swish(*tensors, **mode)


def _sigmoids(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """sigmoid(|x|), sigmoid(-|x|), and exp(-|x| / 2): for x < 0 results are near exp(x), which is subnormal
    long before them, so they are multiplied by its square root twice."""
    root = torch.exp(-x.abs() / 2)
    large = 1 / (1 + root * root)
    return large, root * root * large, root


def reference(x: Tensor) -> Tensor:
    """In float64; at -inf, where inf * 0 says nothing, the limit."""
    large, _, root = _sigmoids(x)
    value = torch.where(x < 0, root * (root * large * x), large * x)
    return torch.where(x == -math.inf, -0.0, value)


def _derivative(x: Tensor) -> tuple[Tensor, Tensor]:
    """sigmoid(x) (1 + x sigmoid(-x)) without cancellation, and the size of its two summands; limits at
    the infinities."""

    def slope(x_or_size: Tensor) -> Tensor:
        falling = root * (root * large * (1 + x_or_size * large))
        return torch.where(x < 0, falling, large * (1 + x_or_size * small))

    large, small, root = _sigmoids(x)
    limit = x.isinf()
    return torch.where(limit, (x > 0).double(), slope(x)), torch.where(limit, 1.0, slope(x.abs()))


def reference_gradients(grad: Tensor, x: Tensor) -> tuple[Tensor]:
    return (grad * _derivative(x)[0],)


def gradient_scale(grad: Tensor, x: Tensor) -> tuple[Tensor]:
    return (grad.abs() * _derivative(x)[1],)


def exact(inputs: Inputs, mode: Mode) -> list[mpmath.mpf]:
    """To 30 digits."""
    with mpmath.workdps(30):
        values = [mpmath.mpf(x) for x in inputs["x"].flatten().tolist()]
        # Beyond 1000 the sigmoid is 0 or 1 in float64.
        return [
            x / (1 + mpmath.exp(-x)) if abs(x) < 1000 else max(x, mpmath.mpf(0)) for x in values
        ]


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    """kind: "normal", or "sweep": every finite value of a half type, or for wider types magnitudes
    spread evenly over binades."""
    if kind == "sweep":
        x = sweep(size, dtype, generator, -40, 20)
    else:
        x = 3 * normal(size, dtype, generator)
    return {"x": x.to(dtype).to(device)}


def other_sign(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": -inputs["x"]}, mode


def off_by_one(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    return {"x": inputs["x"].roll(1, -1)}, mode


case = Case(
    name="swish",
    operator="truefuse::swish",
    candidate=candidate,
    baselines={"eager": F.silu, "x * sigmoid(x)": lambda x: x * torch.sigmoid(x)},
    reference=reference,
    exact=exact,
    make_inputs=make_inputs,
    dtypes=(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    kinds=("normal", "sweep"),
    gradients=("x",),
    reference_gradients=reference_gradients,
    gradient_scale=gradient_scale,
    strict_kinds=("normal", "sweep"),
    faults={"the sign of x": other_sign, "off by one": off_by_one},
)
