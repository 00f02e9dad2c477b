"""A model small enough to reason about: a recurrence over token ids, with states and logits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import jsonschema
import torch
from torch import Tensor

from truefuse import ab
from truefuse.ab.report import SCHEMA_PATH, AbReport

VOCABULARY = 11
WIDTH = 4
REQUESTS = [ab.Request(f"r{i}", [i + 1, i + 2], 12) for i in range(5)]


class Toy:
    """Two layers of state; `layer` is how one of them advances, so that a test can replace it."""

    def __init__(self, layer: Callable[[Tensor, int], Tensor] | None = None) -> None:
        generator = torch.Generator().manual_seed(5)
        self.logits = torch.randn(WIDTH, VOCABULARY, generator=generator, dtype=torch.float64)
        self.inputs = torch.randn(VOCABULARY, WIDTH, generator=generator, dtype=torch.float64)
        self.layer = layer or self.advance
        self.calls = 0

    def advance(self, state: Tensor, token: int) -> Tensor:
        return torch.tanh(0.5 * state + self.inputs[token])

    def run(self, request: ab.Request) -> Iterator[ab.Step]:
        first = torch.zeros(WIDTH, dtype=torch.float64)
        second = torch.zeros(WIDTH, dtype=torch.float64)
        pending = list(request.prompt)
        for position in range(request.max_tokens):
            for token in pending:
                first = self.advance(first, token)
                second = self.layer(second + first, token)
                self.calls += 1
            scores = torch.log_softmax(3 * second @ self.logits, 0)
            best = scores.topk(2)
            preferred = int(best.indices[0])
            token = request.forced[position] if request.forced else preferred
            yield ab.Step(
                token,
                float(best.values[0] - best.values[1]),
                preferred,
                float(scores[token]),
                {"layers.0": first, "layers.1": second},
            )
            pending = [token]
        return "length"


def sides(candidate: Toy, hits: str = "toy@1") -> tuple[ab.Side, ab.Side]:
    baseline = ab.Side("baseline", Toy().run, hits=dict)
    return baseline, ab.Side("candidate", candidate.run, hits=lambda: {hits: candidate.calls})


def checked(report: AbReport) -> dict:
    """The report's JSON, valid by its schema."""
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    jsonschema.validate(data, json.loads(SCHEMA_PATH.read_text()))
    return data


def gate(data: dict, name: str) -> dict:
    return next(entry for entry in data["gates"] if entry["gate"] == name)


def speaks_of_speed(value: object) -> bool:
    """Whether any key or text of a report gives a time, a rate or a ratio of sides."""
    words = ('"gain"', "speedup", "throughput", "tokens/s", "tpot", "ttft", "seconds", "faster")
    text = json.dumps(value, ensure_ascii=False).lower()
    return any(word in text for word in words)
