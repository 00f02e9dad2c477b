"""swish and the gated forms, forward and backward, beside their peers on a GPU, in one run.

    python bench/activations.py [--output FILE]

Peers: torch.relu (one input) or torch.mul (two) of the same bytes, eager PyTorch, torch.compile,
F.silu, and Liger-Kernel where it is installed. Device time: a CUDA graph of 20 calls over rotated
inputs (together at least twice the last-level cache), replayed; median over replays of the time per
call, by events. End to end: host clock over 1,000 calls of 16 x 64 and a synchronize, median of 15
rounds; and forward + sum + backward of 50 M float32 elements, gradients set to None, median of 30.
Every candidate's result is checked against fp64 before it is timed; a wrong one stops the benchmark.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import truefuse
from truefuse import environment

SIZES = [(4096, 1024), (8192, 2048), (16384, 8192), (4096, 11008), (4096, 14336)]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
Call = Callable[..., object]
PACKING, ROUNDING = "gate|up", {"gate_rounding": "storage"}
ops = torch.ops.truefuse


def liger() -> Callable[[Tensor, Tensor], Tensor] | None:
    """Its swiglu, as an autograd function of gate and up."""
    try:
        return importlib.import_module("liger_kernel.ops.swiglu").LigerSiLUMulFunction.apply
    except ImportError:
        return None


def gelu(form: str) -> Call:
    return lambda gate: F.gelu(gate, approximate=form)


# Per operator: number of inputs of the forward kernel, columns of each for one of the output, the
# mathematics (of float64), and the candidates by name. The one that moves the same bytes is "native".
def forward_candidates() -> dict[str, tuple[int, int, Call, dict[str, Call]]]:
    def packed_eager(packed):
        gate, up = packed.chunk(2, dim=-1)
        return F.silu(gate) * up

    def eager_of(activation: Call) -> Call:
        return lambda gate, up: activation(gate) * up

    swish = {
        "truefuse": truefuse.swish,
        "native": torch.relu,
        "F.silu": F.silu,
        "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
        "torch.compile": torch.compile(lambda x: x * torch.sigmoid(x), dynamic=False),
    }
    rows = {"swish": (1, 1, F.silu, swish)}
    for name, activation, call in (
        ("swiglu", F.silu, lambda g, u: truefuse.swiglu(g, u, **ROUNDING)),
        ("geglu tanh", gelu("tanh"), lambda g, u: truefuse.geglu(g, u, approximate="tanh", **ROUNDING)),
        ("geglu none", gelu("none"), lambda g, u: truefuse.geglu(g, u, approximate="none", **ROUNDING)),
    ):  # fmt: skip
        eager = eager_of(activation)
        peers = {
            "truefuse": call,
            "native": torch.mul,
            "eager": eager,
            "torch.compile": torch.compile(eager, dynamic=False),
        }
        if name == "swiglu" and liger():
            peers["liger"] = liger()
        rows[name] = (2, 1, eager, peers)
    rows["swiglu packed"] = (1, 2, packed_eager, {
        "truefuse": lambda p: truefuse.swiglu_packed(p, packing=PACKING, **ROUNDING),
        "eager": packed_eager,
        "torch.compile": torch.compile(packed_eager, dynamic=False),
    })  # fmt: skip
    return rows


def backward_candidates() -> dict[str, tuple[int, int, Call, dict[str, Call]]]:
    """Inputs: the incoming gradient, then those of the forward operator."""
    wanted = {"gate_wanted": True, "up_wanted": True}

    def gradients(function: Call) -> Call:
        def call(grad, *tensors):
            leaves = [t.detach().requires_grad_() for t in tensors]
            return torch.autograd.grad(function(*leaves), leaves, grad)

        return call

    def swiglu_slope(grad, gate, up):
        s = torch.sigmoid(gate)
        return grad * up * s * (1 + gate * (1 - s)), grad * gate * s

    peers = {
        "truefuse": lambda g, a, b: ops.swiglu_backward(g, a, b, **ROUNDING, **wanted),
        "eager": swiglu_slope,
        "torch.compile": torch.compile(swiglu_slope, dynamic=False),
    }
    return {
        "swish backward": (2, 1, gradients(F.silu), {
            "truefuse": lambda g, x: ops.swish_backward(g, x, x_wanted=True),
            "native": torch.mul,
            "F.silu": torch.ops.aten.silu_backward,
        }),
        "swiglu backward": (3, 1, gradients(lambda a, b: F.silu(a) * b), peers),
    }  # fmt: skip


def as_list(result: object) -> list[Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check(name: str, call: Call, mathematics: Call, tensors: Sequence[Tensor]) -> None:
    """Stops with AssertionError unless the result is the operator's, within rounding; native kernels
    are PyTorch's own and compute something else."""
    if name == "native":
        return
    eps = torch.finfo(tensors[0].dtype).eps
    wide = [t.double() for t in tensors]
    for got, want in zip(as_list(call(*tensors)), as_list(mathematics(*wide)), strict=True):
        assert ((got.double() - want).abs() <= 8 * eps * (1 + want.abs())).all(), name


def device_microseconds(
    call: Call, make: Callable[[], list[Tensor]], bytes_each: int
) -> list[float]:
    """Time per call of each replay, in µs."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    sets = max(2, min(20, math.ceil(2 * cache / bytes_each) + 1))
    inputs = [make() for _ in range(sets)]
    calls = 20
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for tensors in inputs:
            call(*tensors)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    # The results are kept, so that rotated outputs are written as well as rotated inputs read.
    outputs: list[object] = []
    with torch.cuda.graph(graph):
        for i in range(calls):
            outputs.append(call(*inputs[i % sets]))
            if len(outputs) > sets:
                outputs.pop(0)
    for _ in range(5):
        graph.replay()
    times = []
    for _ in range(40):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return times


def device_rows() -> list[dict[str, object]]:
    rows = []
    for dtype_name, dtype in DTYPES.items():
        for shape in SIZES:
            torch._dynamo.reset()
            for name, (inputs, width, mathematics, peers) in {
                **forward_candidates(),
                **backward_candidates(),
            }.items():
                wide = (shape[0], shape[1] * width)

                def make(name=name, inputs=inputs, wide=wide, shape=shape, dtype=dtype):
                    shapes = [
                        shape if i == 0 and "backward" in name else wide for i in range(inputs)
                    ]
                    return [torch.randn(s, device="cuda").to(dtype) for s in shapes]

                tensors = make()
                results = as_list(peers["truefuse"](*tensors))
                moved = sum(t.nbytes for t in [*tensors, *results])
                row = {"operator": name, "dtype": dtype_name, "rows": shape[0], "hidden": shape[1], "us": {}}  # fmt: skip
                for peer, call in peers.items():
                    check(peer, call, mathematics, tensors)
                    times = sorted(device_microseconds(call, make, moved))
                    row["us"][peer] = statistics.median(times)
                    row.setdefault("spread", {})[peer] = [times[2], times[-3]]
                row["terabytes_per_second"] = moved / row["us"]["truefuse"] / 1e6
                row["ratios"] = {p: us / row["us"]["truefuse"] for p, us in row["us"].items()}
                rows.append(row)
                print(
                    f"{name:16}{dtype_name:5}{shape[0]:6} x {shape[1]:5} "
                    + "  ".join(f"{peer} {us:8.2f}" for peer, us in row["us"].items())
                    + f"  {row['terabytes_per_second']:.2f} TB/s",
                    flush=True,
                )
    return rows


def call_microseconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Host time per call with a synchronize at the end of each round, rounds interleaved."""
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for function in calls.values():
        for _ in range(200):
            function()
    for _ in range(15):
        for name, function in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(1000):
                function()
            torch.cuda.synchronize()
            rounds[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(times) for name, times in rounds.items()}


def training_milliseconds() -> dict[str, float]:
    """Forward, sum and backward of 50 M float32 elements, gradients set to None."""
    x = torch.randn(50_000_000, device="cuda", requires_grad=True)
    calls = {
        "truefuse.swish": truefuse.swish,
        "F.silu": F.silu,
        "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
        "torch.compile": torch.compile(lambda x: x * torch.sigmoid(x), dynamic=False),
    }
    s = torch.sigmoid(x.detach().double())
    want = s * (1 + x.detach().double() * (1 - s))
    results = {}
    for name, call in calls.items():
        times = []
        for i in range(35):
            x.grad = None
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
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
    arguments = parser.parse_args()

    rows = device_rows()
    x, up = torch.randn(2, 16, 64, device="cuda")
    check("truefuse.swish", truefuse.swish, F.silu, [x])
    overhead = call_microseconds(
        {
            "truefuse.swish": lambda: truefuse.swish(x),
            "F.silu": lambda: F.silu(x),
            "truefuse.swiglu": lambda: truefuse.swiglu(x, up, **ROUNDING),
            "eager swiglu": lambda: F.silu(x) * up,
        }
    )
    print("end to end, 16 x 64, us per call: " + "  ".join(f"{n} {v:.2f}" for n, v in overhead.items()))  # fmt: skip
    training = training_milliseconds()
    print("50 M f32, forward + sum + backward, ms: " + "  ".join(f"{n} {v:.3f}" for n, v in training.items()))  # fmt: skip
    result = {
        "benchmark": "activations",
        "environment": environment.describe(torch.device("cuda")),
        "liger": liger() is not None,
        "device_time": rows,
        "call_overhead_us": overhead,
        "training_50m_ms": training,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
