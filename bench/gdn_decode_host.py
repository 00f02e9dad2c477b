"""Host time of a call of gdn_decode beside an operator of the same schema and contract that does nothing.

    python bench/gdn_decode_host.py [--device cuda] [--output FILE]

Microseconds a call, median over rounds that take turns. On a CPU: calls that end before any arithmetic (an
empty batch, meta tensors, a refusal, which the other has no reason for). On a GPU: a call with one
sequence, launches and all, without waiting for the device; the queue is drained before each round. The
other one still launches nothing, so that the ratio there is an upper bound of the operator's own work.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import host_microseconds

import truefuse
from truefuse import environment

HERE = Path(__file__).resolve().parent
SIZES = {"num_k_heads": 16, "num_v_heads": 48, "head_k_dim": 128, "head_v_dim": 128}
WORDS = {
    "qkvz_layout": "q=H K | k=H K | v=H G V | z=H G V", "ba_layout": "b=H G | a=H G",
    "state_layout": "[HV,V,K]", "rounding": "fp32", "norm_eps": 1e-6, "gate_activation": "silu", **SIZES,
}  # fmt: skip


def do_nothing() -> Any:
    """torch.ops.bench.do_nothing, built with g++ against the installed library."""
    spec = importlib.util.spec_from_file_location("build", HERE.parent / "tests/outside/build.py")
    assert spec is not None and spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    folder = Path(tempfile.mkdtemp())
    torch.ops.load_library(
        str(builder.build(folder, True, str(HERE / "host_time/do_nothing"), "-O2"))
    )
    return torch.ops.bench.do_nothing


def tensors(batch: int, device: str) -> list[torch.Tensor | None]:
    H, HV, K, V = SIZES.values()
    channels = 2 * H * K + HV * V
    half = {"dtype": torch.bfloat16, "device": device}
    return [
        torch.randn(batch, channels + HV * V, **half), torch.randn(batch, 2 * HV, **half),
        torch.randn(batch, channels, 3, **half), torch.randn(batch, HV, V, K, device=device),
        torch.randn(channels, 4, **half), None, torch.randn(HV, device=device),
        torch.randn(HV, **half), torch.randn(V, **half),
    ]  # fmt: skip


def quietly(call: Callable[[], Any]) -> Callable[[], Any]:
    def refused() -> None:
        try:
            call()
        except RuntimeError:
            return
        raise AssertionError("a call that has to be refused is not")

    return refused


def cases(device: str, operators: dict[str, Any]) -> dict[str, dict[str, Callable[[], Any]]]:
    def both(*given: Any, **words: Any) -> dict[str, Callable[[], Any]]:
        return {name: lambda op=op: op(*given, **words) for name, op in operators.items()}

    if device != "cpu":
        return {"one sequence": both(*tensors(1, device), **WORDS)}
    wrong = {**WORDS, "num_k_heads": 5}
    contract = {**WORDS, "rounding": "bf16"}
    return {
        "empty batch": both(*tensors(0, "cpu"), **WORDS),
        "meta": both(*tensors(1, "meta"), **WORDS),
        "refused by the contract": {
            name: quietly(call) for name, call in both(*tensors(0, "cpu"), **contract).items()
        },
        "refused by the operator": {
            "gdn_decode": quietly(both(*tensors(0, "cpu"), **wrong)["gdn_decode"])
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    operators = {"gdn_decode": torch.ops.truefuse.gdn_decode, "do_nothing": do_nothing()}
    rows = {}
    with torch.no_grad():
        for name, calls in cases(arguments.device, operators).items():
            rows[name] = host_microseconds(calls)
            ours, least = rows[name]["gdn_decode"], rows[name].get("do_nothing")
            beside = f", doing nothing {least:.2f} µs, ratio {ours / least:.2f}" if least else ""
            print(f"{name:<26}gdn_decode {ours:.2f} µs{beside}", flush=True)
    if arguments.output:
        found = {"truefuse": truefuse.__version__, "microseconds": rows,
                 "environment": environment.describe(torch.device(arguments.device))}  # fmt: skip
        arguments.output.write_text(json.dumps(found, indent=1, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
