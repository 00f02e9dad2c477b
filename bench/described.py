"""Described operators: from an edit to a result, and what a call costs on the host.

    python bench/described.py [--device cuda] [--output FILE]

Edit to result: the text of a loaded operator's kernel is changed, the operator is called, the device is
waited for, and the result must be that of the new text. Each edit is compiled, because its text is new.
Beside it, in the same run, torch.utils.cpp_extension builds the same operator, bias_gelu, from nothing.
Host time: microseconds a call at 16 x 64, median over rounds that take turns, without waiting for the
device; the queue is drained before each round, and the folders have not changed for some seconds. Described operators beside those of the library, which are
registered by hand, and PyTorch's own. Every result is checked before a time is shown.

The marks are those of a GPU. On a CPU the edited kernel runs in the simulator, whose time says nothing of a
GPU; and calls are those of meta tensors: dispatch and contract, without plan and launch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import host_microseconds

import truefuse
from truefuse import environment, simulate

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "operators"
MARKS = {"edit_seconds": 0.3, "extension_ratio": 100, "host_ratio": 1.3}
EDITED = "value[k] = gelu("  # A place of bias_gelu's kernel.
# Seconds after a change until the times of the files say that there was no other: until then a call also
# reads them.
SETTLED = 2.5
Call = Callable[[], Any]


def extension_seconds(gpu: bool) -> float:
    """As bench/cold_build.py measures it."""
    spec = importlib.util.spec_from_file_location("cold_build", HERE / "cold_build.py")
    assert spec is not None and spec.loader is not None
    cold_build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cold_build)
    return cold_build.extension_seconds(gpu)


def loaded(name: str, folder: Path) -> Any:
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored)
    return truefuse.load(copy, namespace="bench_described")


def edit_seconds(folder: Path, operator: Any, device: str, repeats: int) -> list[float]:
    """Of each edit; the first call of all, which loads the compiler, is not among them."""
    kernel = folder / "bias_gelu" / "kernel.hip"
    text = kernel.read_text()
    assert text.count(EDITED) == 1
    x, bias = torch.randn(64, 96, device=device), torch.randn(96, device=device)
    want = F.gelu(x.double() + bias.double(), approximate="tanh")

    def result() -> torch.Tensor:
        if device != "cpu":
            out = operator(x, bias, approximate="tanh")
            torch.cuda.synchronize()
            return out
        with simulate.Simulated(simulate.Device("sim:wave64", ("none",))):
            return operator(x, bias, approximate="tanh")

    samples = []
    for factor in range(1, repeats + 2):
        edited = text.replace(EDITED, f"value[k] = {factor} * gelu(")
        begin = time.perf_counter()
        kernel.write_text(edited)
        out = result()
        samples.append(time.perf_counter() - begin)
        torch.testing.assert_close(out.double(), factor * want, rtol=1e-5, atol=1e-5)
    kernel.write_text(text)
    return samples[1:]


def host_calls(device: str, described: dict[str, Any]) -> dict[str, dict[str, Call]]:
    """Operator -> who calls what; the first is described, the second registered by hand."""
    place = "meta" if device == "cpu" else device
    x, bias = torch.randn(16, 64, device=place), torch.randn(64, device=place)
    ours, mode = torch.ops.truefuse, {"approximate": "tanh"}
    swish, bias_gelu, row_sum = (
        described[name].overload for name in ("swish", "bias_gelu", "row_sum")
    )
    calls: dict[str, dict[str, Call]] = {
        "swish": {
            "described": lambda: swish(x),
            "by hand": lambda: ours.swish.default(x),
            "PyTorch": lambda: F.silu(x),
        },
        "bias_gelu": {
            "described": lambda: bias_gelu(x, bias, **mode),
            "by hand": lambda: ours.bias_gelu.default(x, bias, **mode),
            "PyTorch": lambda: F.gelu(x + bias, approximate="tanh"),
        },
        # With a plan in C++; the library has none like it.
        "row_sum": {"described": lambda: row_sum(x), "PyTorch": lambda: x.sum(-1)},
    }
    if device == "cpu":  # PyTorch's own functions for meta tensors are in Python.
        for group in calls.values():
            del group["PyTorch"]
    for group in calls.values():
        results = [call() for call in group.values()]
        for other in results[1:]:
            assert other.shape == results[0].shape
            if place != "meta":
                torch.testing.assert_close(results[0], other, rtol=1e-5, atol=1e-5)
    return calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    device = arguments.device
    gpu = device != "cpu"

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cache = folder / "cache"
        cache.mkdir(mode=0o700)
        os.environ["TRUEFUSE_CACHE_DIR"] = str(cache)  # Of this run alone: no edit is known.
        described = {name: loaded(name, folder) for name in ("swish", "bias_gelu", "row_sum")}
        edits = edit_seconds(folder, described["bias_gelu"], device, arguments.repeats)
        time.sleep(SETTLED)
        with torch.no_grad():
            host = {
                name: host_microseconds(calls)
                for name, calls in host_calls(device, described).items()
            }
        extension = extension_seconds(gpu)

    edit = statistics.median(edits)
    ratios = {
        name: row["described"] / row["by hand"] for name, row in host.items() if "by hand" in row
    }
    result = {
        "benchmark": "described",
        "environment": environment.describe(torch.device(device)),
        "truefuse": truefuse.__version__,
        "edit_to_result": {
            "where": device if gpu else "sim:wave64", "seconds": edits, "median": edit, "slowest": max(edits),
            "cpp_extension": {"kind": "CUDA" if gpu else "CPU", "seconds": extension},
            "ratio": extension / edit,
        },
        "host_microseconds": {"tensors": device if gpu else "meta", "rows": host, "against_by_hand": ratios},
    }  # fmt: skip
    print(f"edit to result ({'GPU' if gpu else 'simulator'}): median {edit:.3f} s, slowest {max(edits):.3f} s of {len(edits)}")  # fmt: skip
    print(f"torch.utils.cpp_extension ({'CUDA' if gpu else 'CPU'}): {extension:.1f} s, {extension / edit:.0f} times as long")  # fmt: skip
    for name, row in host.items():
        figures = ", ".join(f"{who} {time_:.2f} µs" for who, time_ in row.items())
        beside = f": {ratios[name]:.2f} times the one by hand" if name in ratios else ""
        print(f"a call of {name} with {'16 x 64' if gpu else 'meta tensors'}: {figures}{beside}")
    if gpu:
        result["marks"] = {
            "edit_seconds": max(edits) < MARKS["edit_seconds"],
            "extension_ratio": extension / edit >= MARKS["extension_ratio"],
            "host_ratio": max(ratios.values()) <= MARKS["host_ratio"],
        }
        for name, is_met in result["marks"].items():
            print(f"mark {name} {MARKS[name]}: {'met' if is_met else 'NOT met'}")
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
