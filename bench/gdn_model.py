"""gdn_decode in whole decode steps: a model with the dimensions of Qwen3.5-27B and random weights.

    python bench/gdn_model.py [--output FILE] [--seconds 200] [--batches 1 4 16] [--layers N]
    python bench/gdn_model.py --device cpu --small          # a look at whether it runs

H16 HV48 K128 V128, hidden 5120, three Gated DeltaNet layers to one of attention, bf16; as many layers as the
time and the memory allow. For every batch the A/B of `truefuse ab --mode forced`: both sides decode the same
tokens, and no time is shown unless the log-probabilities are the baseline's. Baselines are transformers'
torch path and, where flash-linear-attention or causal-conv1d can be imported, its fast path; each eager, as
transformers runs it, and replayed from a CUDA graph with a static cache (on a CPU: the static cache alone).
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from truefuse import ab, environment
from truefuse.ab.screen import side_text

try:
    from transformers import StaticCache
    from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    from truefuse.integrations.transformers import decoding, experiments, peers
except ImportError as error:
    sys.exit(f"gdn_model.py needs transformers, which cannot be imported: {error}")

PROMPT, PERIOD, MOST_LAYERS = 16, 4, 64
PEERS = {"flash-linear-attention": "fla", "causal-conv1d": "causal_conv1d"}


def build(layers: int, small: bool, device: torch.device) -> nn.Module:
    big = {
        "vocab_size": 248320, "hidden_size": 5120, "intermediate_size": 17408, "head_dim": 256,
        "num_attention_heads": 24, "num_key_value_heads": 4, "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    }  # fmt: skip
    tiny = {
        "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "head_dim": 32,
        "num_attention_heads": 2, "num_key_value_heads": 1, "linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
    }  # fmt: skip
    kinds = ["linear_attention"] * (PERIOD - 1) + ["full_attention"]
    config = Qwen3_5TextConfig(
        **(tiny if small else big),
        num_hidden_layers=layers,
        layer_types=[kinds[i % PERIOD] for i in range(layers)],
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            return Qwen3_5ForCausalLM(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)


def importable() -> dict[str, str]:
    """Version of each peer that transformers' fast path may use, or why there is none."""
    found = {}
    for name, module in PEERS.items():
        try:
            found[name] = str(getattr(importlib.import_module(module), "__version__", "present"))
        except Exception as error:  # whatever a package raises that does not fit this machine
            found[name] = f"not importable: {type(error).__name__}: {error}"[:200]
    return found


def captured(call: Callable[[], Tensor], device: torch.device) -> tuple[Callable[[], None], Tensor]:
    """(replay, result): a call in a CUDA graph. On a CPU replay() calls again."""
    if device.type != "cuda":
        result = call().clone()

        def again() -> None:
            result.copy_(call())

        return again, result
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = call()
    return graph.replay, result


class Static:
    """A model with a static cache, its decode step captured."""

    def __init__(self, model: nn.Module, batch: int, length: int) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.cache = StaticCache(config=model.config, max_cache_len=length)
        self.token = torch.ones((batch, 1), dtype=torch.long, device=self.device)
        self.prefill([[1] * PROMPT] * batch)
        self.replay, self.logits = captured(lambda: self.logits_of(self.token), self.device)

    def logits_of(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            found = self.model(input_ids=ids, use_cache=True, **{decoding.CACHE: self.cache})
        return found.logits[:, -1]

    def prefill(self, rows: list[list[int]]) -> Tensor:
        self.cache.reset()
        return self.logits_of(torch.tensor(rows, device=self.device))

    def decode(self, request: ab.Request, prompts: list[list[int]]) -> Iterator[ab.Step]:
        """Rows are those of decoding.decode; all go on with the token of the row whose turn it is."""
        logits = self.prefill(decoding.rows(request.prompt, len(self.token), prompts))
        for position in range(request.max_tokens):
            step = decoding.chosen(logits, self.cache, request, position)
            yield step
            if position + 1 < request.max_tokens:
                self.token.fill_(step.token)
                self.replay()
                logits = self.logits
        return "length"


def static_decode(
    model: nn.Module, batch: int, prompts: list[list[int]], request: ab.Request
) -> Iterator[ab.Step]:
    """Captured anew for each request, before its first token: not in the time per token."""
    held = Static(model, batch, len(request.prompt) + request.max_tokens + 4)
    return (yield from held.decode(request, prompts))


def static_share(made: ab.Experiment, model: nn.Module, batch: int) -> ab.Amdahl | None:
    """The share of the Gated DeltaNet layers: a graph of these alone against the graph of the step."""
    layers = [layer.linear_attn for layer in model.model.layers if hasattr(layer, "linear_attn")]
    inside, whole = [], []
    for side in (made.baseline, made.candidate):
        with side.active(), torch.no_grad():
            held = Static(model, batch, PROMPT + 64)
            weight = next(model.parameters())
            x = torch.randn(batch, 1, model.config.hidden_size).to(weight.device, weight.dtype)

            def of_layers(held: Static = held, x: Tensor = x) -> Tensor:
                return torch.stack([layer(x, held.cache) for layer in layers])

            whole.append(seconds(held.replay, held.device))
            inside.append(seconds(captured(of_layers, held.device)[0], held.device))
    if inside[0] >= whole[0]:
        return None
    return ab.Amdahl(inside[0] / whole[0], inside[0] / inside[1])


def seconds(call: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(15):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def experiment(
    model: nn.Module, requests: list[ab.Request], batch: int, static: bool
) -> ab.Experiment:
    made = experiments.of_loaded("Qwen3.5-27B's dimensions", model, ["gdn_decode"], requests, batch)
    if not static:
        return made
    run = partial(static_decode, model, batch, [request.prompt for request in requests])
    sides = (made.baseline, made.candidate, made.equivalent)
    names = ("baseline", "candidate", "equivalent")
    changed = {
        name: dataclasses.replace(side, run=run) for name, side in zip(names, sides, strict=True)
    }
    made = dataclasses.replace(made, **changed)
    return dataclasses.replace(made, amdahl=lambda: static_share(made, model, batch))


def layers_for(arguments: argparse.Namespace, device: torch.device, parts: int) -> int:
    """As many as the time allows, by the time of one period of layers, and the memory."""
    model = build(PERIOD, arguments.small, device)
    size = sum(p.numel() * p.element_size() for p in model.model.layers.parameters())
    request = ab.Request("r", [1] * PROMPT, arguments.tokens)
    with peers.put_aside(model):
        for _ in range(2):
            begin = time.perf_counter()
            for _ in decoding.decode(model, request, max(arguments.batches)):
                pass
            once = time.perf_counter() - begin
    passes = 7 + 4 * arguments.rounds  # judged, timed, and about one for memory and share
    by_time = 0.8 * arguments.seconds / (parts * passes * arguments.requests * once)
    by_memory = float("inf")
    if device.type == "cuda":
        by_memory = 0.8 * torch.cuda.mem_get_info(device)[0] / size
    del model
    return PERIOD * max(1, int(min(by_time, by_memory, MOST_LAYERS / PERIOD)))


def entry(report: Any) -> dict[str, Any]:
    """What is kept of a report. No time where it is no ACCEPT: the report has none then."""
    data = report.to_json()
    return {
        "label": data["label"],
        "gates": {gate["gate"]: gate["summary"] for gate in data["gates"]},
        "performance": data.get("performance"),
    }


def show(title: str, found: dict[str, Any]) -> None:
    print(f"{title}: {found['label']}")
    performance = found["performance"]
    if performance is None:
        print("  " + "; ".join(found["gates"].values()))
        return
    tpot, amdahl = performance["metrics"]["tpot"], performance["amdahl"]
    gain = tpot["gain"]
    print(f"  {found['gates']['log-probabilities']}")
    print(
        f"  time per token {side_text(tpot, 'baseline')} → {side_text(tpot, 'candidate')}, gain "
        f"{gain['value']:.3f} [{gain['low']:.3f}, {gain['high']:.3f}] {tpot['verdict']}"
    )
    if amdahl is None:
        print("  share of the Gated DeltaNet layers: not measured")
        return
    print(
        f"  Gated DeltaNet layers {amdahl['share']:.1%} of a step, there {amdahl['operator_speedup']:.2f} "
        f"times as fast: predicted {amdahl['predicted']:.3f}; {amdahl['finding']}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="small dimensions: no figure counts")
    parser.add_argument("--layers", type=int, help="instead of what fits; a multiple of 4")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=24, help="of each request")
    parser.add_argument("--rounds", type=int, default=4, help="of A B B A")
    parser.add_argument("--seconds", type=float, default=200, help="for everything, about")
    arguments = parser.parse_args()
    device, begin = torch.device(arguments.device), time.perf_counter()
    found_peers = importable()
    print("; ".join(f"{name}: {found}" for name, found in found_peers.items()))
    paths: dict[str, Any] = {"torch path": peers.put_aside}
    if not all(found.startswith("not importable") for found in found_peers.values()):
        paths["fast path"] = nullcontext
    forms = {"eager": False, ("CUDA graph" if device.type == "cuda" else "static cache"): True}
    parts = len(arguments.batches) * len(paths) * len(forms)
    layers = arguments.layers or layers_for(arguments, device, parts)
    model = build(layers, arguments.small, device)
    print(f"{layers} layers, {sum(p.numel() for p in model.parameters()) / 1e9:.2f} G parameters")
    vocabulary = model.config.vocab_size
    prompts = torch.randint(vocabulary, (arguments.requests, PROMPT)).tolist()
    requests = [ab.Request(f"r{i}", p, arguments.tokens) for i, p in enumerate(prompts)]
    result: dict[str, Any] = {
        "benchmark": "gdn_model",
        "layers": layers,
        "small": arguments.small,
        "peers": found_peers,
        "environment": environment.describe(device),
        "found": [],
    }
    longest = 0.0
    for batch, path, form in itertools.product(arguments.batches, paths, forms):
        title, started = f"B={batch} {path}, {form}", time.perf_counter()
        row: dict[str, Any] = {"batch": batch, "baseline": path, "form": form}
        if longest and arguments.seconds - (started - begin) < longest:
            row["not run"] = f"no time left of {arguments.seconds:g} s"
            print(f"{title}: {row['not run']}")
        else:
            with paths[path](model):
                made = experiment(model, requests, batch, forms[form])
                row |= entry(ab.run(**vars(made), mode="forced", rounds=arguments.rounds))
            show(title, row)
        longest = max(longest, time.perf_counter() - started)
        result["found"].append(row)
        if arguments.output:  # now, in case that somebody ends us
            arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
