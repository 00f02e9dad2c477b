"""A transformers model with and without operators, as an experiment of `truefuse ab`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truefuse.ab.experiment import Experiment, ExperimentError
from truefuse.ab.sides import Request
from truefuse.integrations.transformers import decoding, tiny
from truefuse.integrations.transformers.decoding import CACHE
from truefuse.integrations.transformers.peers import put_aside_on_cpu
from truefuse.integrations.transformers.swap import use

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PROMPT_TOKENS = 16
PROMPTS = (
    "Explain why a tensor's shape does not say who each element is.",
    "Write a short poem about a river that forgets its source.",
    "List five uses of a hash function.",
    "Translate into French: the train leaves at nine, so hurry.",
    "What is 17 times 23? Show the steps.",
)


def of_model(
    name: str,
    ops: list[str],
    *,
    device: str,
    dtype: str,
    requests: int,
    tokens: int,
    seed: int,
    batch: int = 1,
    threads: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Experiment:
    """`name` is a folder with a model, or a tiny configuration (tiny.MODELS), which is trained first.

    Sets this process's number of PyTorch's `threads`; None: one for a tiny model, else as it is. Raises
    ExperimentError for what cannot be made.
    """
    _set_threads(name, threads)
    if name in tiny.MODELS:
        ops = ops or list(tiny.MODELS[name].operators)
    elif not ops:
        raise ExperimentError("--model FOLDER needs --op: what is swapped in")
    model, prompts = _load(name, device, dtype, requests, seed, progress)
    made = [Request(f"r{i}", prompt, tokens, seed) for i, prompt in enumerate(prompts)]
    return of_loaded(name, model, ops, made, batch)


def of_loaded(
    name: str,
    model: nn.Module,
    ops: list[str],
    requests: list[Request],
    batch: int = 1,
    **options: Any,
) -> Experiment:
    """Of a model that is at hand; each request is decoded together with the `batch` - 1 after it; `options`
    go to `use`.
    Raises ExperimentError."""
    short = [request for request in requests if request.max_tokens < batch]
    if short:
        raise ExperimentError(
            f"batch {batch}: {short[0].name} has {short[0].max_tokens} tokens, and each judges one row in "
            f"turn, so some would go unseen. Decode at least {batch} tokens"
        )
    try:
        with use(model, ops, **options) as swap:
            layers = [layer for names in swap.layers.values() for layer in names]
    except RuntimeError as error:
        raise ExperimentError(str(error)) from error
    swapped = decoding.Swapped(model, ops, **options)
    rows = {"batch": batch, "prompts": [request.prompt for request in requests]}
    baseline = decoding.side("baseline", model, hits=swapped.hits, **rows)
    candidate = decoding.side("candidate", model, swapped.active, swapped.hits, **rows)
    candidate = replace(candidate, operators=ops)

    def rounded() -> Any:
        return decoding.rounded_otherwise(model, layers)

    equivalent = decoding.side("equivalent", model, rounded, **rows)
    return Experiment(
        name=f"{name} with {', '.join(ops)}",
        baseline=baseline,
        candidate=candidate,
        requests=requests,
        equivalent=equivalent,
        device=str(next(model.parameters()).device),
        amdahl=lambda: decoding.amdahl(model, layers, (baseline, candidate), requests[0]),
    )


def decode_step(name: str, *, device: str, dtype: str) -> Callable[[], Any]:
    """A call that decodes one token after a prompt, for profiling. As of_model with threads None."""
    _set_threads(name, None)
    model, prompts = _load(name, device, dtype, 1, 0)
    where = next(model.parameters()).device
    with torch.no_grad(), put_aside_on_cpu(model):
        found = model(input_ids=torch.tensor(prompts, device=where), use_cache=True)
    token = found.logits[:, -1:].argmax(-1)

    def call() -> Any:
        with torch.no_grad(), put_aside_on_cpu(model):
            return model(input_ids=token, use_cache=True, **{CACHE: found[CACHE]})

    return call


def _set_threads(name: str, threads: int | None) -> None:
    if threads is None and name in tiny.MODELS:
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)


def _load(
    name: str,
    device: str,
    dtype: str,
    requests: int,
    seed: int,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[nn.Module, list[list[int]]]:
    """A model, ready to decode, and prompts for it."""
    if dtype not in DTYPES:
        raise ExperimentError(f"--dtype {dtype}: it must be {', '.join(DTYPES)}")
    where = _device(device)
    try:
        model, prompts = _on_cpu(name, DTYPES[dtype], requests, seed, progress)
        return model.to(where).eval().requires_grad_(False), prompts
    except ExperimentError:
        raise
    except Exception as error:  # of every library that reads a checkpoint; or too little memory
        raise ExperimentError(
            f"--model {name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def _on_cpu(
    name: str, dtype: torch.dtype, requests: int, seed: int, progress: Callable[[str], None]
) -> tuple[nn.Module, list[list[int]]]:
    if name in tiny.MODELS:
        progress(f"training {name}")
        prompts = [tiny.text(1000 + number, PROMPT_TOKENS) for number in range(requests)]
        return _of_dtype(tiny.trained(name, seed), dtype), prompts
    if Path(name).is_dir():
        return _from_folder(Path(name), dtype, requests, seed)
    names = ", ".join(tiny.MODELS)
    raise ExperimentError(f"model {name}: no folder of that name, and none of {names}")


def _of_dtype(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """As a checkpoint is loaded in a dtype: parameters alone. In a half type the rotary frequencies, which are
    buffers, would turn late positions by other angles."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def _device(name: str) -> torch.device:
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError) as error:
        raise ExperimentError(f"--device {name}: {str(error).splitlines()[0]}") from error
    return found


def _from_folder(
    folder: Path, dtype: torch.dtype, requests: int, seed: int
) -> tuple[nn.Module, list[list[int]]]:
    """A checkpoint, and prompts: texts where a tokenizer is beside it, random ids otherwise."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if list(folder.glob("tokenizer*")):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        texts = [f"{i // len(PROMPTS) + 1}. {PROMPTS[i % len(PROMPTS)]}" for i in range(requests)]
        return model, [tokenizer(text)["input_ids"] for text in texts]
    generator = torch.Generator().manual_seed(seed)
    size = (requests, PROMPT_TOKENS)
    vocabulary = model.get_input_embeddings().num_embeddings
    return model, torch.randint(vocabulary, size, generator=generator).tolist()
