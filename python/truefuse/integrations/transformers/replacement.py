"""What a replacement of a layer's computation is, and what every one of them checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Forward = Callable[..., Any]


class Unsupported(Exception):
    """This layer cannot be replaced; the sentence says why."""


@dataclass(frozen=True)
class Place:
    """One layer that an operator is swapped into.

    `original` is its class' forward, `call` the operator, `hit` counts one use of it.
    """

    module: nn.Module
    name: str
    original: Forward
    call: Callable[..., torch.Tensor]
    hit: Callable[[], None]


@dataclass(frozen=True)
class Replacement:
    """`bind` gives the new forward of a layer whose class has one of these names, or raises
    Unsupported. Like `place.original`, which it calls wherever the operator has nothing to say (a
    prefill, a gradient), it takes the layer as its first argument: a copied model has copied layers.
    """

    operator: str
    classes: tuple[str, ...]
    bind: Callable[[Place], Forward]


def needs_gradient(x: torch.Tensor, layer: nn.Module) -> bool:
    return torch.is_grad_enabled() and (
        x.requires_grad or any(parameter.requires_grad for parameter in layer.parameters())
    )


def refuse(complaint: str | None) -> None:
    """Raises Unsupported if there is something to complain of."""
    if complaint:
        raise Unsupported(complaint)


def foreign(layer: nn.Module) -> str | None:
    """A class that only has the name of transformers' own may compute something else."""
    kind = type(layer)
    if kind.__module__.startswith("transformers.models."):
        return None
    return f"its class {kind.__name__} is not transformers' own but of {kind.__module__}"


def other_forward(module: nn.Module) -> str | None:
    """Its forward is not its class'."""
    kind = type(module).__name__
    if hasattr(module, "_hf_hook"):
        return f"hooks of accelerate are attached to this {kind} (device_map?), and would not be called"
    if "forward" in module.__dict__:
        return (
            f"the forward of this {kind} has been replaced already, as transformers' own kernel mapping does: "
            "load the model without use_kernels=True, or keep that kernel"
        )
    return None


def listened_to(module: nn.Module) -> str | None:
    """A computation without a call of the module would leave something out: what a hook or another forward
    adds. Asked when an operator is put in, and at each of its calls: these may come later."""
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        return f"hooks are attached to its {type(module).__name__}, and would not be called"
    return other_forward(module)


def not_plain(module: nn.Module, *types: type[nn.Module]) -> str | None:
    """The same for a module whose parameters are used: a quantiser or an adapter is another class."""
    if type(module) not in types:
        wanted = " or ".join(t.__name__ for t in types)
        return f"its projection is {type(module).__name__}, not a plain {wanted}"
    return listened_to(module)
