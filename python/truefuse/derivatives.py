"""Gradients of a case's callables, and what mathematics says they are."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Inputs, Mode
from truefuse.compare import Reference
from truefuse.context import Context, Results, as_tuple, is_floating, widened

# PyTorch's own "does not require grad" comes after the fact, from a graph that was silently cut.
REFUSAL = re.compile(
    r"^(?!.*does not require grad)(?=.*(grad|backward|training|differentia|derivative))",
    re.IGNORECASE,
)


BY_SENT = "by incoming gradient"


class Missing(Exception):
    """Nothing was raised, and yet a gradient that was asked for is not there."""


def names(context: Context, inputs: Inputs) -> tuple[str, ...]:
    """The inputs to differentiate: those that the case names, else all floating ones (where the case
    names none, a candidate has to refuse or be right)."""
    if context.case.gradients:
        return context.case.gradients
    return tuple(name for name, value in inputs.items() if is_floating(value))


def incoming(context: Context, inputs: Inputs, mode: Mode, *labels: object) -> tuple[Tensor, ...]:
    """A random gradient of every floating output."""
    generator = context.generator("gradient", *labels)
    with torch.no_grad():
        outputs = as_tuple(context.baseline(*context.fresh(inputs).values(), **mode))
    return tuple(
        torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.device, out.dtype)
        for out in outputs
        if is_floating(out)
    )


def gradients(
    function: Callable[..., Any],
    inputs: Inputs,
    mode: Mode,
    wanted: Sequence[str],
    gradient: tuple[Tensor, ...] | Callable[[tuple[Tensor, ...]], Tensor],
    create_graph: bool = False,
) -> Results:
    """{"gradient of x": tensor}; `gradient` is that of the outputs, or makes a scalar of them. Raises
    Missing."""
    return next(passes(function, inputs, mode, wanted, gradient, create_graph))


def passes(
    function: Callable[..., Any],
    inputs: Inputs,
    mode: Mode,
    wanted: Sequence[str],
    gradient: tuple[Tensor, ...] | Callable[[tuple[Tensor, ...]], Tensor],
    create_graph: bool = False,
    count: int = 1,
) -> Iterator[Results]:
    """`gradients` of one call, `count` times from the same graph."""
    leaves, outputs = _on_leaves(function, inputs, mode, wanted)
    if not any(out.requires_grad for out in outputs):
        if not outputs or any(out.numel() for out in outputs):
            raise Missing("gradients are silently missing")
        # Nothing came out, and nothing changes with anything: a loop over nothing records nothing.
        pairs = zip(wanted, leaves, strict=True)
        zeros = {f"gradient of {name}": torch.zeros_like(leaf) for name, leaf in pairs}
        yield from [zeros] * count
        return
    for left in reversed(range(count)):
        options = {"create_graph": create_graph, "allow_unused": True}
        if left:
            options["retain_graph"] = True
        with torch.enable_grad():
            if callable(gradient):
                found = torch.autograd.grad(gradient(outputs), leaves, **options)
            else:
                ends, sent = _ends(outputs, gradient)
                found = torch.autograd.grad(ends, leaves, sent, **options)
        named = {}
        for name, leaf, tensor in zip(wanted, leaves, found, strict=True):
            if tensor is None and leaf.numel():
                raise Missing(f"the gradient of '{name}' is silently missing")
            named[f"gradient of {name}"] = torch.zeros_like(leaf) if tensor is None else tensor
        yield named


def before_and_after_change(
    function: Callable[..., Any],
    inputs: Inputs,
    mode: Mode,
    wanted: Sequence[str],
    sent: tuple[Tensor, ...],
    of_inputs: bool,
) -> tuple[Results, Results]:
    """The gradients of a call, and those of the same call if its floating inputs, or its results, are changed in
    place before the pass backward. PyTorch raises for what it has saved."""
    found = []
    for changes in (False, True):
        own = {k: v.clone() if isinstance(v, Tensor) else v for k, v in inputs.items()}
        leaves, outputs = _on_leaves(function, own, mode, wanted)
        ends, given = _ends(outputs, sent)
        touched = [value for value in own.values() if is_floating(value)] if of_inputs else outputs
        with torch.no_grad():
            for one in touched if changes else ():
                one.mul_(-0.5).add_(0.25)
        with torch.enable_grad():
            made = torch.autograd.grad(ends, leaves, given, allow_unused=True)
        pairs = zip(wanted, made, strict=True)
        found.append({f"gradient of {name}": one for name, one in pairs if one is not None})
    return found[0], found[1]


def _on_leaves(
    function: Callable[..., Any], inputs: Inputs, mode: Mode, wanted: Sequence[str]
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """The inputs of those names, which can be differentiated by, and the floating outputs of a call."""
    leaves, outputs = _call_on_leaves(function, inputs, mode, wanted)
    return [*leaves.values()], tuple(out for out in as_tuple(outputs) if is_floating(out))


def forward(function: Callable[..., Any], inputs: Inputs, mode: Mode, wanted: Sequence[str]) -> Any:
    """The outputs of a call whose gradients are recorded."""
    return _call_on_leaves(function, inputs, mode, wanted)[1]


def _call_on_leaves(
    function: Callable[..., Any], inputs: Inputs, mode: Mode, wanted: Sequence[str]
) -> tuple[Results, Any]:
    leaves = {name: inputs[name].detach().requires_grad_() for name in wanted}
    with torch.enable_grad():
        return leaves, function(*(inputs | leaves).values(), **mode)


def _ends(
    outputs: tuple[Tensor, ...], sent: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The outputs that can be differentiated, and their gradients."""
    pairs = [(o, g) for o, g in zip(outputs, sent, strict=True) if o.requires_grad]
    ends, given = zip(*pairs, strict=True)
    return ends, given


def has_second(
    function: Callable[..., Any],
    inputs: Inputs,
    mode: Mode,
    wanted: Sequence[str],
    sent: tuple[Tensor, ...],
) -> bool:
    """Whether the gradients themselves change with any of the inputs; those of a linear function and of
    a piecewise linear one do not. True too where the function cannot be differentiated twice."""
    try:
        # Not by what is sent: on that the gradients of a linear function depend too.
        found = _second(function, inputs, mode, wanted, sent)
    except RuntimeError:
        return True
    return any(bool(tensor.any()) for tensor in found.values())


def second(
    function: Callable[..., Any],
    inputs: Inputs,
    mode: Mode,
    wanted: Sequence[str],
    sent: tuple[Tensor, ...],
) -> Results:
    """How the gradients change with each input and with each incoming gradient: derivatives of their squares, half
    of each square held. Zeros where nothing was recorded."""
    sent = tuple(one.detach().clone().requires_grad_() for one in sent)
    return _second(function, inputs, mode, wanted, sent)


def _second(
    function: Callable[..., Any],
    inputs: Inputs,
    mode: Mode,
    wanted: Sequence[str],
    sent: tuple[Tensor, ...],
) -> Results:
    """By each input, and by each incoming gradient that is a leaf."""
    leaves, outputs = _on_leaves(function, inputs, mode, wanted)
    ends, given = _ends(outputs, sent)
    by = {f"by {name}": leaf for name, leaf in zip(wanted, leaves, strict=True)}
    by |= {f"{BY_SENT} {number}": one for number, one in enumerate(given) if one.requires_grad}
    with torch.enable_grad():
        first = torch.autograd.grad(ends, leaves, given, create_graph=True, allow_unused=True)
        # A plain sum of gradients is constant where they cancel, as those of a softmax do.
        held = [(t * t.detach()).sum() for t in first if t is not None and t.requires_grad]
        if not held:
            return {label: torch.zeros_like(one) for label, one in by.items()}
        found = torch.autograd.grad(sum(held), list(by.values()), allow_unused=True)
    return {
        label: torch.zeros_like(one) if tensor is None else tensor
        for (label, one), tensor in zip(by.items(), found, strict=True)
    }


def of_candidate(
    context: Context,
    inputs: Inputs,
    mode: Mode,
    wanted: Sequence[str],
    gradient: tuple[Tensor, ...] | Callable[[tuple[Tensor, ...]], Tensor],
    create_graph: bool = False,
) -> Results:
    """As `gradients`; the candidate's backward runs where its forward does."""
    with context.running():
        found = gradients(context.case.candidate, inputs, mode, wanted, gradient, create_graph)
    context.synchronize()
    return found


def yardstick(
    context: Context, inputs: Inputs, mode: Mode, wanted: Sequence[str], sent: tuple[Tensor, ...]
) -> Results:
    """Autograd of the yardstick: of eager; for half types in float32, rounded once."""
    return gradients(context.good, inputs, mode, wanted, sent)


def mathematics(
    context: Context, inputs: Inputs, mode: Mode, wanted: Sequence[str], sent: tuple[Tensor, ...]
) -> dict[str, Reference]:
    """On the CPU in float64: the case's own gradients, or autograd of its reference."""
    case = context.case
    wide = widened(inputs)
    sent = tuple(one.detach().cpu().double() for one in sent)
    reference = _floating_results(context, inputs, mode)
    if case.reference_gradients is not None:
        found = as_tuple(case.reference_gradients(*sent, *wide.values(), **mode))
        high = dict(zip((f"gradient of {name}" for name in wanted), found, strict=True))
    else:
        high = gradients(reference, wide, mode, wanted, sent)
    scales: Sequence[Tensor | None]
    if case.gradient_scale is not None:
        scales = as_tuple(case.gradient_scale(*sent, *wide.values(), **mode))
    else:
        scales = [_size_of_sum(reference, wide, mode, name, sent) for name in wanted]
    return {
        key: Reference(value, inputs[name].dtype, scale)
        for name, (key, value), scale in zip(wanted, high.items(), scales, strict=True)
    }


def _floating_results(context: Context, inputs: Inputs, mode: Mode) -> Callable[..., Any]:
    """The reference without the results that are integers or booleans: mathematics gives those as float64 too."""
    with torch.no_grad():
        dtypes = [*context.result_dtypes(inputs, mode).values()]

    def reference(*given: Any, **mode: Any) -> tuple[Any, ...]:
        outputs = as_tuple(context.case.reference(*given, **mode))
        # Behind the outputs' dtypes come those of the mutated inputs.
        return tuple(o for o, d in zip(outputs, dtypes, strict=False) if d.is_floating_point)

    return reference


def _size_of_sum(
    reference: Callable[..., Any], wide: Inputs, mode: Mode, name: str, sent: tuple[Tensor, ...]
) -> Tensor | None:
    """For an input that was broadcast its gradient is a sum, which may cancel: the root of the sum of
    the squares of its summands. None for an input that was not broadcast."""
    shape = wide[name].shape
    if len(sent) != 1 or shape == sent[0].shape:
        return None
    try:
        spread = wide | {name: wide[name].expand(sent[0].shape)}
        (summands,) = gradients(reference, spread, mode, [name], sent).values()
        return summands.nan_to_num(0, 0, 0).square().sum_to_size(shape).sqrt()
    except (RuntimeError, Missing):
        return None


def undefined(references: dict[str, Reference], inputs: Inputs) -> str:
    """Where the reference itself has no finite gradient although every input is finite."""
    if not all(bool(v.isfinite().all()) for v in inputs.values() if is_floating(v)):
        return ""
    for name, reference in references.items():
        count = int((~reference.high.isfinite()).sum())
        if count:
            return f"{count} elements of the {name}"
    return ""


def layouts(gradient: Tensor) -> dict[str, Tensor]:
    """The same incoming gradient in other memory; the last is what `sum` sends."""
    found = {"contiguous": gradient.contiguous()}
    if gradient.dim():
        larger = gradient.new_full((*gradient.shape[:-1], gradient.shape[-1] + 3), math.nan)
        larger[..., 1:-2] = gradient
        found["narrow"] = larger[..., 1:-2]
        found["every second element"] = torch.stack((gradient, gradient), dim=-1)[..., 0]
    if gradient.dim() >= 2:
        found["transposed"] = gradient.transpose(-1, -2).contiguous().transpose(-1, -2)
        found["one row for all"] = gradient[:1].expand_as(gradient)
    found["stride 0, one number for all"] = gradient.new_full((), -1.75).expand_as(gradient)
    found["stride 0, from sum"] = gradient.new_ones(()).expand_as(gradient)
    return found
