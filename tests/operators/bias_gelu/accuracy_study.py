"""Worst errors of bias_gelu and of eager PyTorch on the CPU, by dtype, form and binade of the result.

    python tests/operators/bias_gelu/accuracy_study.py [--derivative] [--binades] [--samples 4000]

The truth is computed with mpmath at 40 digits from x + bias as the operator sees it: exact for a zero
bias. Every value of the half types is tried; float32 and float64 are sampled densely where the
function bends and over all magnitudes. Exit code 1 if a binade breaks the rule that the operator is
no worse than eager, or at most 2 ulp off where eager does better. An error of the derivative counts in
ulp of the larger one of the result and the terms that it is the difference of.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator

import mpmath
import torch
import torch.nn.functional as F
from torch import Tensor

FORMS = ("tanh", "none")
DIGITS_AND_LOWEST = {
    torch.float64: (53, -1022),
    torch.float32: (24, -126),
    torch.float16: (11, -14),
    torch.bfloat16: (8, -126),
}
Operator = Callable[[Tensor, Tensor, str], Tensor]
Truth = Callable[[float, str], tuple[mpmath.mpf, mpmath.mpf]]  # the value, its largest term


def fused(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    import truefuse  # noqa: F401  registers the operator

    return torch.ops.truefuse.bias_gelu(x, bias, approximate=approximate)


def eager(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    return F.gelu(x + bias, approximate=approximate)


def gradient_of(function: Operator) -> Operator:
    """The gradient with respect to x, where the incoming one is 1."""

    def gradient(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
        x = x.clone().requires_grad_()
        result = function(x, bias, approximate)
        return torch.autograd.grad(result, x, torch.ones_like(result))[0]

    return gradient


def sigmoid(z: mpmath.mpf, approximate: str) -> mpmath.mpf:
    """gelu(z) / z"""
    if approximate == "none":
        return mpmath.erfc(-z / mpmath.sqrt(2)) / 2
    u = mpmath.sqrt(2 / mpmath.pi) * (z + mpmath.mpf("0.044715") * z**3)
    return 1 / (1 + mpmath.exp(-2 * u))


def truth(v: float, approximate: str) -> tuple[mpmath.mpf, mpmath.mpf]:
    z = mpmath.mpf(v)
    if abs(z) > 200:  # gelu is v or, as far as any type can tell, 0
        return (z if z > 0 else mpmath.mpf(0)), mpmath.mpf(0)
    return z * sigmoid(z, approximate), mpmath.mpf(0)


def derivative_truth(v: float, approximate: str) -> tuple[mpmath.mpf, mpmath.mpf]:
    z = mpmath.mpf(v)
    if abs(z) > 200:
        return mpmath.mpf(z > 0), mpmath.mpf(0)
    first = sigmoid(z, approximate)
    if approximate == "none":
        second = z * mpmath.npdf(z)
    else:
        slope = 2 * mpmath.sqrt(2 / mpmath.pi) * (1 + 3 * mpmath.mpf("0.044715") * z**2)
        second = z * first * sigmoid(-z, approximate) * slope
    return first + second, max(abs(first), abs(second))


def inputs(dtype: torch.dtype, samples: int) -> Tensor:
    if dtype.itemsize == 2:
        values = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
        return values[values.isfinite()]
    generator = torch.Generator().manual_seed(20260716)
    lowest = -39 if dtype == torch.float64 else -15
    dense = lowest + (8 - lowest) * torch.rand(samples, generator=generator, dtype=torch.float64)
    near = 2 * torch.rand(samples, generator=generator, dtype=torch.float64) - 1
    smallest = DIGITS_AND_LOWEST[dtype][1] - DIGITS_AND_LOWEST[dtype][0]
    exponents = smallest - smallest * 1.05 * torch.rand(samples, generator=generator).double()
    spread = torch.exp2(exponents) * near.sign()
    return torch.cat([dense, near, spread]).to(dtype)


def binade_of(value: mpmath.mpf, of_zero: int) -> int:
    return int(mpmath.floor(mpmath.log(abs(value), 2))) if value != 0 else of_zero


def errors(
    values: Tensor, results: dict[str, Tensor], approximate: str, true: Truth
) -> Iterator[tuple[int, str, float]]:
    """Of every value and operator: the binade of the truth, the operator, the error in ulp."""
    digits, lowest = DIGITS_AND_LOWEST[values.dtype]
    columns = {name: result.double().tolist() for name, result in results.items()}
    for i, v in enumerate(values.double().tolist()):
        exact, term = true(v, approximate)
        binade = binade_of(exact, lowest - digits)
        unit = max(binade, binade_of(term, lowest - digits), lowest)
        ulp = mpmath.ldexp(1, unit - digits + 1)
        for name, column in columns.items():
            yield max(binade, lowest - digits), name, float(abs(column[i] - exact) / ulp)


def study(
    dtype: torch.dtype,
    approximate: str,
    samples: int,
    show_binades: bool,
    operators: dict[str, Operator],
    true: Truth,
) -> int:
    values = inputs(dtype, samples)
    zero = torch.zeros(values.numel(), dtype=dtype)
    rows = values.reshape(1, -1)
    results = {name: op(rows, zero, approximate)[0] for name, op in operators.items()}
    worst: dict[int, dict[str, float]] = defaultdict(lambda: {"ours": 0.0, "eager": 0.0})
    for binade, name, error in errors(values, results, approximate, true):
        worst[binade][name] = max(worst[binade][name], error if not math.isnan(error) else math.inf)
    broken = {b: w for b, w in worst.items() if w["ours"] > max(w["eager"], 2.0)}
    most = {name: max(w[name] for w in worst.values()) for name in results}
    name = str(dtype).removeprefix("torch.")
    print(
        f"{name:9} {approximate:5} worst, ulp: ours {most['ours']:9.4g}  eager {most['eager']:9.4g}"
        f"  in {len(worst)} binades, {len(broken)} break the rule"
    )
    for binade in sorted(worst if show_binades else broken, reverse=True):
        pair = worst[binade]
        print(f"    2^{binade:<6} ours {pair['ours']:9.4g}  eager {pair['eager']:9.4g}")
    return len(broken)


def main(op: Operator = fused) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binades", action="store_true", help="show every binade")
    parser.add_argument("--samples", type=int, default=4000, help="values per kind of sample")
    parser.add_argument("--derivative", action="store_true", help="of x instead of the function")
    options = parser.parse_args()
    operators, true = {"ours": op, "eager": eager}, truth
    if options.derivative:
        operators = {name: gradient_of(operator) for name, operator in operators.items()}
        true = derivative_truth
    broken = 0
    with mpmath.workdps(40):
        for dtype in DIGITS_AND_LOWEST:
            for approximate in FORMS:
                broken += study(
                    dtype, approximate, options.samples, options.binades, operators, true
                )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
