"""How the packed forms are checked: one tensor holds gate and up, in every packing.

geglu_packed/case.py takes this case: what its modes have in addition says which function is meant.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size, load

PACKINGS = ("gate|up", "up|gate", "gate,up interleaved", "up,gate interleaved")
_swiglu, _geglu = load("swiglu"), load("geglu")


def apart(mode: Mode) -> Case:
    """The case on two tensors."""
    return _geglu if "approximate" in mode else _swiglu


def candidate(*tensors: Tensor, **mode: object) -> Tensor:
    return torch.ops.truefuse.swiglu_packed(*tensors, **mode)


def parts(packed: Tensor, packing: str) -> tuple[Tensor, Tensor]:
    """Gate and up."""
    if packing.endswith("interleaved"):
        first, second = packed[..., 0::2], packed[..., 1::2]
    else:
        first, second = packed.chunk(2, dim=-1)
    return (first, second) if packing.startswith("gate") else (second, first)


def together(gate: Tensor, up: Tensor, packing: str) -> Tensor:
    """The other way round."""
    first, second = (gate, up) if packing.startswith("gate") else (up, gate)
    if packing.endswith("interleaved"):
        return torch.stack((first, second), dim=-1).flatten(-2)
    return torch.cat((first, second), dim=-1)


def eager(packed: Tensor, *, packing: str, **mode: Any) -> Tensor:
    return apart(mode).baselines["eager"](*parts(packed, packing), **mode).contiguous()


def reference(packed: Tensor, *, packing: str, **mode: Any) -> Tensor:
    return apart(mode).reference(*parts(packed, packing), **mode)


def exact(inputs: Inputs, mode: Mode) -> list[Any]:
    gate, up = parts(inputs["packed"], mode["packing"])
    return apart(mode).exact({"gate": gate, "up": up}, mode)


def reference_gradients(
    grad: Tensor, packed: Tensor, *, packing: str, **mode: Any
) -> tuple[Tensor]:
    found = apart(mode).reference_gradients(grad, *parts(packed, packing), **mode)
    return (together(*found, packing),)


def gradient_scale(grad: Tensor, packed: Tensor, *, packing: str, **mode: Any) -> tuple[Tensor]:
    found = apart(mode).gradient_scale(grad, *parts(packed, packing), **mode)
    return (together(*found, packing),)


def make_inputs(
    size: Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator, kind: str
) -> Inputs:
    """`size` is that of the output. Both functions are checked on the same numbers."""
    inputs = _swiglu.make_inputs(size, dtype, device, generator, kind)
    return {"packed": torch.cat((inputs["gate"], inputs["up"]), dim=-1)}


def every_once(modes: Sequence[Mode]) -> tuple[Mode, ...]:
    """Every packing and every mode: they have nothing to do with each other."""
    pairs = zip(PACKINGS, itertools.cycle(modes), strict=False)
    return tuple({"packing": packing, **mode} for packing, mode in pairs)


def other_half(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    at = PACKINGS.index(mode["packing"])
    return inputs, {**mode, "packing": PACKINGS[at ^ 1]}


def other_packing(inputs: Inputs, mode: Mode) -> tuple[Inputs, Mode]:
    halves = mode["packing"].endswith("interleaved")
    return inputs, {**mode, "packing": "gate|up" if halves else "gate,up interleaved"}


case = dataclasses.replace(
    _swiglu,
    name="swiglu_packed",
    operator="truefuse::swiglu_packed",
    candidate=candidate,
    baselines={"eager": eager},
    reference=reference,
    exact=exact,
    reference_gradients=reference_gradients,
    gradient_scale=gradient_scale,
    make_inputs=make_inputs,
    modes=every_once(_swiglu.modes),
    kinds=("normal",),
    gradients=("packed",),
    strict_kinds=(),
    faults={"the other one is the gate": other_half, "halves for turns": other_packing},
)
