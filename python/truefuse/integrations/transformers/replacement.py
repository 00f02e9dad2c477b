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


def plain(module: nn.Module, *types: type[nn.Module]) -> None:
    """Raises Unsupported unless the layer is exactly of one of these types and nobody listens to its
    calls: what a quantiser, an adapter or a hook put there would be left out."""
    if type(module) not in types:
        wanted = " or ".join(t.__name__ for t in types)
        raise Unsupported(f"its projection is {type(module).__name__}, not a plain {wanted}")
    unhooked(module)


def unhooked(module: nn.Module) -> None:
    own_forward(module)
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    if any(hooks):
        raise Unsupported(
            f"hooks are attached to its {type(module).__name__}, and would not be called"
        )


def own_forward(module: nn.Module) -> None:
    """Raises Unsupported if its forward is not its class'."""
    kind = type(module).__name__
    if hasattr(module, "_hf_hook"):
        raise Unsupported(
            f"hooks of accelerate are attached to this {kind} (device_map?), and would not be called"
        )
    if "forward" in vars(module):
        raise Unsupported(
            f"the forward of this {kind} has been replaced already, as transformers' own kernel mapping does: "
            "load the model without use_kernels=True, or keep that kernel"
        )
