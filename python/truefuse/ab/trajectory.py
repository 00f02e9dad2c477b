"""What a request produced, and where two productions of it part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

CONTEXT = 12  # characters of a text shown on each side of a difference


@dataclass(frozen=True)
class Output:
    """The trajectory of one request.

    `tokens` are token ids, where whoever ran it gives ids. `text` is the text with reasoning and tool
    calls, `count` the number of generated tokens, `stop` why it ended ("eos", "length", ...); None is
    "not given". `error` says why there is no, or only a partial, output.
    """

    tokens: tuple[int, ...] | None = None
    text: str | None = None
    count: int | None = None
    stop: str | None = None
    error: str | None = None

    @property
    def length(self) -> int | None:
        return len(self.tokens) if self.tokens is not None else self.count


@dataclass(frozen=True)
class Difference:
    """The first place where a request's two outputs differ.

    `kind` is "token", "length", "stop", "text", "count" or "error"; `position` counts tokens (for
    "text": characters) from 0. `margin` is the baseline's best logit less its second there.
    """

    request: int
    name: str
    kind: str
    position: int
    baseline: str
    candidate: str
    margin: float | None = None

    def sentence(self) -> str:
        unit = "character" if self.kind == "text" else "token"
        where = f"request {self.request} ({self.name}), {unit} {self.position}"
        what = {"token": "", "text": ""}.get(self.kind, f"{self.kind} ")
        margin = "" if self.margin is None else f", margin of the logits {self.margin:.3g}"
        return f"{where}: {what}{self.baseline} → {self.candidate}{margin}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def first_difference(
    request: int,
    name: str,
    baseline: Output,
    candidate: Output,
    margins: Sequence[float] | None = None,
) -> Difference | None:
    """None if the two outputs are one trajectory, in ids where both sides give them and in text."""

    def differ(kind: str, position: int, one: object, other: object) -> Difference:
        margin = (
            margins[position] if margins and kind == "token" and position < len(margins) else None
        )
        return Difference(request, name, kind, position, str(one), str(other), margin)

    if baseline.error != candidate.error:
        produced = candidate.length or 0
        return differ("error", produced, baseline.error or "none", candidate.error or "none")
    if baseline.tokens is not None and candidate.tokens is not None:
        pairs = zip_longest(baseline.tokens, candidate.tokens)
        for position, (one, other) in enumerate(pairs):
            if one is None or other is None:
                lengths = len(baseline.tokens), len(candidate.tokens)
                return differ("length", position, *lengths)
            if one != other:
                return differ("token", position, one, other)
    if baseline.text != candidate.text:
        return _text_difference(differ, baseline.text or "", candidate.text or "")
    if baseline.length != candidate.length:
        return differ("count", 0, baseline.length, candidate.length)
    if baseline.stop != candidate.stop:
        return differ("stop", baseline.length or 0, baseline.stop, candidate.stop)
    return None


def _text_difference(differ: Any, one: str, other: str) -> Difference:
    position = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    window = slice(max(0, position - CONTEXT), position + CONTEXT)
    return differ("text", position, repr(one[window]), repr(other[window]))


def differences(
    names: Sequence[str],
    baseline: Sequence[Output],
    candidate: Sequence[Output],
    margins: Sequence[Sequence[float] | None] | None = None,
) -> list[Difference]:
    """One entry for each request whose outputs part, in the order of the requests."""
    known = margins or [None] * len(names)
    rows = zip(names, baseline, candidate, known, strict=True)
    found = [first_difference(i, *row) for i, row in enumerate(rows)]
    return [difference for difference in found if difference]
