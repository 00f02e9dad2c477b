"""Recurrent states of the two sides: kept at a few steps, compared layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

STATE_BYTES = 1 << 30  # kept per pass
# Relative L2. The states of equivalent implementations in half types stay an order of magnitude below
# it, those of a kernel that reads other elements than were written are near 1.
PARTED = 1e-2


class StateLog:
    """Copies of the states of one request, at steps 0, 1, 2, 4, 8, ..., up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.steps: dict[int, dict[str, Tensor]] = {}

    def add(self, step: int, states: Mapping[str, Tensor]) -> None:
        size = sum(state.numel() * state.element_size() for state in states.values())
        if not states or step & (step - 1) or self.bytes + size > self.limit:
            return
        self.bytes += size
        self.steps[step] = {name: state.detach().cpu().clone() for name, state in states.items()}


@dataclass(frozen=True)
class Distance:
    """Relative L2 of one layer's state, candidate against baseline, after one step of a request."""

    request: int
    step: int
    layer: str
    relative: float

    def to_json(self) -> dict[str, Any]:
        return vars(self).copy()


def distances(baseline: Iterable[StateLog], candidate: Iterable[StateLog]) -> list[Distance]:
    """Of every state that both sides kept, in the order of requests, steps and layers."""
    found = []
    for request, (one, other) in enumerate(zip(baseline, candidate, strict=True)):
        for step in sorted(one.steps.keys() & other.steps.keys()):
            for layer, state in one.steps[step].items():
                if layer in other.steps[step]:
                    relative = relative_l2(state, other.steps[step][layer])
                    found.append(Distance(request, step, layer, relative))
    return found


def relative_l2(reference: Tensor, other: Tensor) -> float:
    """‖other - reference‖ / ‖reference‖; infinite where shapes differ or a value is not finite."""
    if reference.shape != other.shape:
        return math.inf
    reference, other = reference.double(), other.double()
    norm = float(torch.linalg.vector_norm(reference))
    distance = float(torch.linalg.vector_norm(other - reference))
    if not math.isfinite(distance) or not math.isfinite(norm):
        return math.inf
    if distance == 0:
        return 0.0
    return distance / norm if norm else math.inf


def first_parted(found: Iterable[Distance]) -> Distance | None:
    """The earliest step of the first request, and in it the first layer, where the states part."""
    return next((distance for distance in found if distance.relative > PARTED), None)


def worst_by_layer(found: Iterable[Distance]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for distance in found:
        worst[distance.layer] = max(worst.get(distance.layer, 0.0), distance.relative)
    return worst
