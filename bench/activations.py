"""bias_gelu, swish and the gated forms, forward and backward, beside their peers on a GPU, in one run.

    python bench/activations.py [--output FILE] [--operators REGEX] [--dtypes f32 bf16 f16]
                                [--sizes 4096x1024 ...]

Peers: torch.relu (one tensor read) or torch.mul (two) of the same bytes as "native", eager PyTorch,
torch.compile, F.silu, and Liger-Kernel where it is installed. Device time: a CUDA graph of 20 calls over
rotated inputs and outputs (together at least twice the last-level cache, or 20 sets), replayed; median over
replays of the time per call, by events. Host: time of a call of 16 x 64. Training: forward + sum + backward
of 50 M float32 elements, gradients set to None, median of 30. Every candidate's result is checked against
fp64 before it is timed; a wrong one stops the benchmark.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import graph_microseconds, host_microseconds, rotated_sets
from torch import Tensor

import truefuse
from truefuse import environment

# The first is here to show where latency, not memory, is the limit.
SIZES = ["1024x768", "4096x1024", "8192x2048", "16384x8192", "4096x11008", "4096x14336"]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
Call = Callable[..., Any]
PACKING, ROUNDING = "gate|up", {"gate_rounding": "storage"}
FORMS = ("tanh", "none")
ops = torch.ops.truefuse


@dataclass(frozen=True)
class Row:
    """One operator: the shapes of its inputs, as functions of (rows, hidden), its mathematics on float64,
    and who computes it. "native" computes something else from the same bytes."""

    shapes: Callable[[int, int], list[tuple[int, ...]]]
    mathematics: Call
    peers: dict[str, Call]


def full(count: int) -> Callable[[int, int], list[tuple[int, ...]]]:
    return lambda rows, hidden: [(rows, hidden)] * count


def compiled(function: Call) -> Call:
    return torch.compile(function, dynamic=False)


def gradients(function: Call) -> Call:
    """Of (incoming gradient, inputs...), by autograd."""

    def call(grad, *tensors):
        leaves = [t.detach().requires_grad_() for t in tensors]
        return torch.autograd.grad(function(*leaves), leaves, grad)

    return call


def bias_gelu(form: str) -> dict[str, Row]:
    def eager(x, bias):
        return F.gelu(x + bias, approximate=form)

    def slopes(grad, x, bias):
        grad_x = torch.ops.aten.gelu_backward(grad, x + bias, approximate=form)
        return grad_x, grad_x.sum(0)

    wanted = {"x_wanted": True, "bias_wanted": True}
    return {
        f"bias_gelu {form}": Row(
            lambda rows, hidden: [(rows, hidden), (hidden,)],
            eager,
            {
                "truefuse": lambda x, bias: truefuse.bias_gelu(x, bias, approximate=form),
                "native": lambda x, bias: torch.relu(x),
                "eager": eager,
                "torch.compile": compiled(eager),
            },
        ),
        f"bias_gelu {form} backward": Row(
            lambda rows, hidden: [(rows, hidden), (rows, hidden), (hidden,)],
            gradients(eager),
            {
                "truefuse": lambda g, x, b: ops.bias_gelu_backward(g, x, b, approximate=form, **wanted),
                "native": lambda g, x, b: torch.mul(g, x),
                "eager": slopes,
                "torch.compile": compiled(slopes),
            },
        ),
    }  # fmt: skip


def swish() -> dict[str, Row]:
    def eager(x):
        return x * torch.sigmoid(x)

    return {
        "swish": Row(full(1), F.silu, {
            "truefuse": truefuse.swish,
            "native": torch.relu,
            "F.silu": F.silu,
            "x * sigmoid(x)": eager,
            "torch.compile": compiled(eager),
        }),
        "swish backward": Row(full(2), gradients(F.silu), {
            "truefuse": lambda g, x: ops.swish_backward(g, x, x_wanted=True),
            "native": torch.mul,
            "F.silu": torch.ops.aten.silu_backward,
        }),
    }  # fmt: skip


def swiglu() -> dict[str, Row]:
    def eager(gate, up):
        return F.silu(gate) * up

    def packed(pair):
        return eager(*pair.chunk(2, dim=-1))

    def slopes(grad, gate, up):
        s = torch.sigmoid(gate)
        return grad * up * s * (1 + gate * (1 - s)), grad * gate * s

    wanted = {"gate_wanted": True, "up_wanted": True}
    forward: dict[str, Call] = {
        "truefuse": lambda gate, up: truefuse.swiglu(gate, up, **ROUNDING),
        "native": torch.mul,
        "eager": eager,
        "torch.compile": compiled(eager),
    }
    backward: dict[str, Call] = {
        "truefuse": lambda g, a, b: ops.swiglu_backward(g, a, b, **ROUNDING, **wanted),
        "eager": slopes,
        "torch.compile": compiled(slopes),
    }
    if module := liger():
        forward["liger"] = module.LigerSiLUMulFunction.apply
        backward["liger"] = lambda g, a, b: module.swiglu_backward(a, b, g)  # into a and b
    return {
        "swiglu": Row(full(2), eager, forward),
        "swiglu backward": Row(full(3), gradients(eager), backward),
        "swiglu packed": Row(lambda rows, hidden: [(rows, 2 * hidden)], packed, {
            "truefuse": lambda p: truefuse.swiglu_packed(p, packing=PACKING, **ROUNDING),
            "eager": packed,
            "torch.compile": compiled(packed),
        }),
    }  # fmt: skip


def geglu(form: str) -> dict[str, Row]:
    def eager(gate, up):
        return F.gelu(gate, approximate=form) * up

    return {
        f"geglu {form}": Row(full(2), eager, {
            "truefuse": lambda gate, up: truefuse.geglu(gate, up, approximate=form, **ROUNDING),
            "native": torch.mul,
            "eager": eager,
            "torch.compile": compiled(eager),
        })
    }  # fmt: skip


def liger() -> Any:
    """The module of its swiglu, or None."""
    try:
        return importlib.import_module("liger_kernel.ops.swiglu")
    except ImportError:
        return None


def rows_of_all() -> dict[str, Row]:
    found = {**swish(), **swiglu()}
    for form in FORMS:
        found |= {**bias_gelu(form), **geglu(form)}
    return found


def as_list(result: object) -> list[Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check(name: str, call: Call, mathematics: Call, tensors: Sequence[Tensor]) -> None:
    """Stops with AssertionError unless the result is the operator's, within rounding (of every summand,
    where a result is a sum). What tells the two GELUs apart is `truefuse check`."""
    if name == "native":
        return
    eps = torch.finfo(tensors[0].dtype).eps
    wide = [t.double() for t in tensors]
    results = as_list(call(*[t.clone() for t in tensors]))
    for got, want in zip(results, as_list(mathematics(*wide)), strict=True):
        summands = tensors[0].numel() / got.numel()
        room = 32 * eps * (1 + want.abs()) * max(1.0, summands**0.5)
        assert ((got.double() - want).abs() <= room).all(), name


def device_row(name: str, one: Row, dtype_name: str, rows: int, hidden: int) -> dict[str, Any]:
    def make() -> list[Tensor]:
        return [
            torch.randn(s, device="cuda").to(DTYPES[dtype_name]) for s in one.shapes(rows, hidden)
        ]

    tensors = make()
    moved = sum(t.nbytes for t in [*tensors, *as_list(one.peers["truefuse"](*tensors))])
    sets = rotated_sets(moved)
    found: dict[str, Any] = {
        "operator": name, "dtype": dtype_name, "rows": rows, "hidden": hidden, "us": {}, "spread": {},
    }  # fmt: skip
    for peer, call in one.peers.items():
        check(peer, call, one.mathematics, tensors)
        inputs = [make() for _ in range(sets)]
        calls = [partial(call, *inputs[i % sets]) for i in range(20)]
        times = sorted(graph_microseconds(calls, kept=sets))
        found["us"][peer] = statistics.median(times)
        found["spread"][peer] = [times[2], times[-3]]
        del inputs, calls
    ours = found["us"]["truefuse"]
    found["terabytes_per_second"] = moved / ours / 1e6
    found["ratios"] = {peer: us / ours for peer, us in found["us"].items()}
    print(
        f"{name:25}{dtype_name:5}{rows:6} x {hidden:5} "
        + "  ".join(f"{peer} {us:8.2f}" for peer, us in found["us"].items())
        + f"  {found['terabytes_per_second']:.2f} TB/s",
        flush=True,
    )
    return found


def host_row() -> dict[str, float]:
    x, up = torch.randn(2, 16, 64, device="cuda")
    bias = torch.randn(64, device="cuda")
    check("truefuse.swish", truefuse.swish, F.silu, [x])
    calls = {
        "F.silu": lambda: F.silu(x),
        "truefuse.swish": lambda: truefuse.swish(x),
        "truefuse.bias_gelu": lambda: truefuse.bias_gelu(x, bias, approximate="tanh"),
        "eager bias_gelu": lambda: F.gelu(x + bias, approximate="tanh"),
        "truefuse.swiglu": lambda: truefuse.swiglu(x, up, **ROUNDING),
        "eager swiglu": lambda: F.silu(x) * up,
    }
    return host_microseconds(calls)


def training_milliseconds() -> dict[str, float]:
    """Forward, sum and backward of 50 M float32 elements, gradients set to None."""
    x = torch.randn(50_000_000, device="cuda", requires_grad=True)
    calls = {
        "truefuse.swish": truefuse.swish,
        "F.silu": F.silu,
        "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
        "torch.compile": compiled(lambda x: x * torch.sigmoid(x)),
    }
    s = torch.sigmoid(x.detach().double())
    want = s * (1 + x.detach().double() * (1 - s))
    results = {}
    for name, call in calls.items():
        times = []
        for i in range(35):
            x.grad = None
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call(x).sum().backward()
            end.record()
            end.synchronize()
            if i >= 5:
                times.append(begin.elapsed_time(end))
        assert (x.grad.double() - want).abs().max() < 1e-5, name
        results[name] = statistics.median(times)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--operators", type=re.compile, default=re.compile(""))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="rows x hidden")
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "benchmark": "activations",
        "environment": environment.describe(torch.device("cuda")),
        "liger": liger() is not None,
        "call_overhead_us": host_row(),
        "training_50m_ms": training_milliseconds(),
        "device_time": [],
    }
    for key in ("call_overhead_us", "training_50m_ms"):
        print(key, "  ".join(f"{name} {value:.3f}" for name, value in result[key].items()))
    for dtype in arguments.dtypes:
        for size in arguments.sizes:
            torch._dynamo.reset()
            rows, hidden = map(int, size.split("x"))
            for name, one in rows_of_all().items():
                if arguments.operators.search(name):
                    result["device_time"].append(device_row(name, one, dtype, rows, hidden))
                    if arguments.output:  # now, in case that somebody ends us
                        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
