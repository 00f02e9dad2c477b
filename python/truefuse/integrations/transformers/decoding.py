"""Greedy decoding of a transformers model as a side of an A/B."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import LinearAttentionLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from truefuse.ab.sides import Request, Side, Step, play
from truefuse.ab.speed import Amdahl
from truefuse.integrations.transformers.peers import put_aside_on_cpu
from truefuse.integrations.transformers.swap import Swap, use

# What a model calls its cache, as an argument and in its output; 5.24 has renamed it.
CACHE = next(
    f.name for f in fields(CausalLMOutputWithPast) if f.name in ("cache", "past_key_values")
)
SHARE_TOKENS = 8
SHARE_REPEATS = 5


def side(
    name: str,
    model: nn.Module,
    active: Callable[[], AbstractContextManager[Any]] = nullcontext,
    hits: Callable[[], Mapping[str, int]] | None = None,
    batch: int = 1,
    prompts: Sequence[Sequence[int]] = (),
) -> Side:
    """Decodes one request at a time with the model's own cache; a prompt is a list of token ids. `batch` and
    `prompts` are those of decode."""

    @contextmanager
    def running() -> Iterator[None]:
        with put_aside_on_cpu(model), active():
            yield

    return Side(name, lambda request: decode(model, request, batch, prompts), running, hits)


def decode(
    model: nn.Module, request: Request, batch: int = 1, prompts: Sequence[Sequence[int]] = ()
) -> Iterator[Step]:
    """Yields until max_tokens ("length") or an end token ("eos").

    `batch` sequences are decoded together, each its own tokens (the forced ones, if there are any): the request's
    prompt and those that follow it in `prompts`, made as long as it is. A kernel that takes one row for another is
    right with copies. Each token that is yielded is another row's in turn; no end comes before every row had its.
    """
    device = next(model.parameters()).device
    ends = _end_tokens(model)
    ids = torch.tensor(rows(list(request.prompt), batch, prompts), device=device)
    cache, has_ended = None, False
    for position in range(request.max_tokens):
        with torch.no_grad():
            found = model(input_ids=ids, use_cache=True, **{CACHE: cache})
        cache = found[CACHE]
        logits = found.logits[:, -1]
        step = chosen(logits, cache, request, position)
        yield step
        has_ended |= request.forced is None and step.token in ends
        if has_ended and position + 1 >= batch:
            return "eos"
        if request.forced or batch == 1:
            ids = torch.full((batch, 1), step.token, device=device)
        else:
            ids = logits.argmax(-1, keepdim=True)
    return "length"


def rows(prompt: list[int], batch: int, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The prompt, and those after it in `prompts`, cut or repeated to its length; copies, if there are none."""
    known = [list(each) for each in prompts] or [prompt]
    start = known.index(prompt) if prompt in known else 0
    others = (known[(start + number) % len(known)] for number in range(1, batch))
    return [prompt, *([*islice(cycle(other), len(prompt))] for other in others)]


def chosen(logits: Tensor, cache: Any, request: Request, position: int) -> Step:
    """The next token, by the logits [batch, vocabulary] or as the request says, with what is to be
    observed. Rows take turns: a kernel that is right in the first one alone is seen."""
    row = position % len(logits)
    logits = logits[row]
    if not request.observe:
        return Step(request.forced[position] if request.forced else int(logits.argmax()))
    # Of equal logits topk may put another first than argmax does: both kinds of pass ask argmax.
    preferred = int(logits.argmax())
    token = request.forced[position] if request.forced else preferred
    logits = logits.double()
    best = logits.topk(2)
    if not torch.isfinite(best.values[0]):
        raise RuntimeError(f"the logits of token {position} are not finite: {best.values.tolist()}")
    return Step(
        token,
        margin=float(best.values[0] - best.values[1]),
        preferred=preferred,
        log_probability=float(logits.log_softmax(-1)[token]),
        states=cache_states(cache, row),
    )


def cache_states(cache: Any, row: int) -> dict[str, Tensor]:
    """Convolution and recurrent states of one sequence by layer, where the cache has any."""
    found = {}
    for number, layer in enumerate(getattr(cache, "layers", ())):
        if isinstance(layer, LinearAttentionLayer):
            kinds = {"conv": layer.conv_states[0], "recurrent": layer.recurrent_states[0]}
            found |= {
                f"layers.{number}.{k}": state[row : row + 1]
                for k, state in kinds.items()
                if state is not None
            }
    return found


def _end_tokens(model: nn.Module) -> set[int]:
    end = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if end is None:
        return set()
    return set(end) if isinstance(end, (list, tuple)) else {int(end)}


class Swapped:
    """Swaps operators in for the passes of a candidate, and counts for both sides."""

    def __init__(self, model: nn.Module, ops: list[str], **options: Any) -> None:
        self._use = lambda: use(model, ops, **options)
        self._swap: Swap | None = None

    def active(self) -> Swap:
        self._swap = self._use()
        return self._swap

    def hits(self) -> dict[str, int]:
        return self._swap.hits() if self._swap else {}


@contextmanager
def rounded_otherwise(model: nn.Module, layers: list[str]) -> Iterator[None]:
    """An equivalent baseline: what goes into and comes out of the named layers is moved by up to one unit
    in the last place, at random, as any other legitimate order of operations might."""

    def moved(x: Tensor) -> Tensor:
        ulps = torch.randint(-1, 2, x.shape, device=x.device)
        return (x.double() * (1 + ulps * torch.finfo(x.dtype).eps)).to(x.dtype)

    def before(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if inputs:
            return (moved(inputs[0]), *inputs[1:]), named
        return inputs, {**named, "hidden_states": moved(named["hidden_states"])}

    def after(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return moved(output)

    handles = []
    try:
        for name in layers:
            module = model.get_submodule(name)
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after))
        yield
    finally:
        for handle in handles:
            handle.remove()


def amdahl(
    model: nn.Module, layers: list[str], sides: tuple[Side, Side], request: Request
) -> Amdahl | None:
    """The share that the swapped layers have of a decode step, and how much faster they became.

    Layers and whole step are timed in a profile of the baseline and of the candidate, with a
    synchronisation around each layer: good for a share, not for a time per token.
    """
    device = next(model.parameters()).device
    short = replace(
        request, max_tokens=SHARE_TOKENS, forced=request.forced and request.forced[:SHARE_TOKENS]
    )
    inside, whole = [], []
    for one in sides:
        found = [_layer_seconds(model, layers, one, short, device) for _ in range(SHARE_REPEATS)]
        # The least of each: whatever else the machine does only adds to them.
        inside.append(min(pair[0] for pair in found))
        whole.append(min(pair[1] for pair in found))
    if not all(inside) or inside[0] >= whole[0]:
        return None
    return Amdahl(inside[0] / whole[0], inside[0] / inside[1])


def _layer_seconds(
    model: nn.Module, layers: list[str], one: Side, request: Request, device: torch.device
) -> tuple[float, float]:
    """(in the layers, in all) of the decode steps after the first token."""
    from truefuse.integrations.transformers.stopwatch import stopwatch

    with stopwatch(model, layers, device) as watch:
        played = play(replace(one, hits=None), [request], device).played[0]
    return watch.seconds, played.total - played.times[0]
