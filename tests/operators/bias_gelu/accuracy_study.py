"""Worst errors of bias_gelu and of eager PyTorch on the CPU, by dtype, form and binade of the result.

    python tests/operators/bias_gelu/accuracy_study.py [--binades] [--samples 4000]

The truth is computed with mpmath at 40 digits from x + bias as the operator sees it: exact for a zero
bias. Every value of the half types is tried; float32 and float64 are sampled densely where the
function bends and over all magnitudes. Exit code 1 if a binade breaks the rule that the operator is
no worse than eager, or at most 2 ulp off where eager does better.
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


def fused(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    import truefuse  # noqa: F401  registers the operator

    return torch.ops.truefuse.bias_gelu(x, bias, approximate=approximate)


def eager(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    return F.gelu(x + bias, approximate=approximate)


def truth(v: float, approximate: str) -> mpmath.mpf:
    z = mpmath.mpf(v)
    if abs(z) > 200:  # gelu is v or, as far as any type can tell, 0
        return z if z > 0 else mpmath.mpf(0)
    if approximate == "none":
        return z * mpmath.erfc(-z / mpmath.sqrt(2)) / 2
    u = mpmath.sqrt(2 / mpmath.pi) * (z + mpmath.mpf("0.044715") * z**3)
    return z / (1 + mpmath.exp(-2 * u))


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


def errors(
    values: Tensor, results: dict[str, Tensor], approximate: str
) -> Iterator[tuple[int, str, float]]:
    """Of every value and operator: the binade of the truth, the operator, the error in ulp."""
    digits, lowest = DIGITS_AND_LOWEST[values.dtype]
    columns = {name: result.double().tolist() for name, result in results.items()}
    for i, v in enumerate(values.double().tolist()):
        exact = truth(v, approximate)
        binade = int(mpmath.floor(mpmath.log(abs(exact), 2))) if exact != 0 else lowest - digits
        ulp = mpmath.ldexp(1, max(binade, lowest) - digits + 1)
        for name, column in columns.items():
            yield max(binade, lowest - digits), name, float(abs(column[i] - exact) / ulp)


def study(
    dtype: torch.dtype, approximate: str, samples: int, show_binades: bool, op: Operator
) -> int:
    values = inputs(dtype, samples)
    zero = torch.zeros(values.numel(), dtype=dtype)
    rows = values.reshape(1, -1)
    results = {"ours": op(rows, zero, approximate)[0], "eager": eager(rows, zero, approximate)[0]}
    worst: dict[int, dict[str, float]] = defaultdict(lambda: {"ours": 0.0, "eager": 0.0})
    for binade, name, error in errors(values, results, approximate):
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
    options = parser.parse_args()
    broken = 0
    with mpmath.workdps(40):
        for dtype in DIGITS_AND_LOWEST:
            for approximate in FORMS:
                broken += study(dtype, approximate, options.samples, options.binades, op)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
