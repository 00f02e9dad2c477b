"""What one server answered to a list of prompts: a file, complete or as far as it came."""

from __future__ import annotations

import hashlib
import json
import math
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from truefuse.ab.client import Down, Endpoint, Served
from truefuse.ab.sides import Pass, Played
from truefuse.ab.states import StateLog
from truefuse.ab.trajectory import Output
from truefuse.report import replace_file

KIND = "truefuse-ab-recording"
SCHEMA_VERSION = 1
SAID = ("engine", "arch", "flags", "operator")


class BadRecording(Exception):
    """A file that is no recording, or prompts that are none: a sentence."""


@dataclass
class Recording:
    """`said` is what only the operator of the server knows (engine, arch, flags, operator), `server`
    what the server says about itself, `sampling` and `prompts` (a digest) what was asked."""

    said: dict[str, str]
    server: dict[str, str]
    host: str
    sampling: dict[str, Any]
    prompts: str
    names: list[str]
    date: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat())
    passes: list[list[dict[str, Any]]] = field(default_factory=list)
    hits: dict[str, int] | None = None
    complete: bool = False

    def add(self, served: Served) -> None:
        if not self.passes or len(self.passes[-1]) == len(self.names):
            self.passes.append([])
        output = asdict(served.output)
        tokens = None if served.output.tokens is None else list(served.output.tokens)
        times = {"times": served.times, "total": served.total, "model": served.model}
        self.passes[-1].append({**output, "tokens": tokens, **times})

    def played(self) -> list[Pass]:
        """The passes that are whole."""
        whole = [one for one in self.passes if len(one) == len(self.names)]
        return [Pass([_played(entry) for entry in one], self.hits, None) for one in whole]

    def models(self) -> list[str]:
        """Who the answers say they are from."""
        answers = [entry for one in self.passes for entry in one if not entry["error"]]
        return sorted({entry.get("model") or "not given" for entry in answers})

    @property
    def began(self) -> datetime:
        return datetime.fromisoformat(self.date)

    def answered(self) -> datetime:
        """A time at which it still ran: that of its answers after the beginning, without the warm-up."""
        seconds = sum(entry["total"] for one in self.passes for entry in one)
        return self.began + timedelta(seconds=seconds)

    def save(self, path: Path) -> None:
        data = {"kind": KIND, "schema_version": SCHEMA_VERSION, **asdict(self)}
        replace_file(path, json.dumps(data, indent=1, ensure_ascii=False))


def _played(entry: dict[str, Any]) -> Played:
    tokens = entry["tokens"]
    output = Output(
        None if tokens is None else tuple(tokens),
        *(entry[key] for key in ("text", "count", "stop", "error")),
    )
    return Played(output, list(entry["times"]), entry["total"], [], StateLog(0))


def load(path: Path) -> Recording:
    """Raises BadRecording with a sentence."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadRecording(f"{path}: {error}. Record it with truefuse ab record") from error
    if not isinstance(data, dict) or data.pop("kind", None) != KIND:
        raise BadRecording(f"{path} is no recording of truefuse ab record")
    if data.pop("schema_version", None) != SCHEMA_VERSION:
        raise BadRecording(f"{path} was recorded by another version of truefuse; record it again")
    try:
        found = Recording(**data)
        wrong = _wrong(found)
    except (TypeError, KeyError, AttributeError) as error:
        raise BadRecording(f"{path} lacks or has a field that it should not: {error}") from error
    if wrong:
        raise BadRecording(f"{path} has a {wrong} that truefuse ab record does not write")
    return found


def _wrong(one: Recording) -> str | None:
    """The first field that is no such value."""
    texts = (*(one.said[key] for key in SAID), one.host, one.prompts, one.date, *one.names)
    if not all(isinstance(text, str) for text in texts):
        return "text"
    try:
        if one.began.tzinfo is None:
            return "date"
    except ValueError:
        return "date"
    objects = (one.said, one.server, one.sampling, one.hits or {})
    if not all(isinstance(value, dict) for value in objects):
        return "object"
    numbers = ((one.hits or {}).values(), [one.sampling.get("seed", 0)])
    if not all(type(number) is int for found in numbers for number in found):
        return "count or seed"
    for entry in (entry for answers in one.passes for entry in answers):
        optional = (entry["text"], entry["stop"], entry["error"], entry.get("model"))
        if not all(value is None or isinstance(value, str) for value in optional):
            return "text"
        counts = (entry["count"], *(entry["tokens"] or ()))
        if not all(count is None or type(count) is int for count in counts):
            return "count"
        times = (*entry["times"], entry["total"])
        if not all(type(time) in (int, float) and 0 < time < math.inf for time in times):
            return "time"
    return None


def read_prompts(path: Path, max_tokens: int) -> list[dict[str, Any]]:
    """One JSON object a line: "prompt" (text) or "messages", optionally "name" and "max_tokens"."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRecording(f"--prompts {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            asked = {key: entry[key] for key in ("prompt", "messages") if key in entry}
        except (ValueError, TypeError, RecursionError) as error:
            raise BadRecording(
                f"--prompts {path}, line {number}: no JSON object: {error}"
            ) from error
        if len(asked) != 1:
            raise BadRecording(
                f'--prompts {path}, line {number}: give "prompt" or "messages", one of them'
            )
        name = str(entry.get("name", f"line {number}"))
        found.append({"name": name, "max_tokens": entry.get("max_tokens", max_tokens), **asked})
    if not found:
        raise BadRecording(f"--prompts {path} holds no prompt")
    return found


def digest(prompts: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(prompts, sort_keys=True).encode()).hexdigest()


def host_digest(endpoint: Endpoint) -> str:
    """Tells machines apart without naming one: this one, and the server's address."""
    try:
        address = socket.gethostbyname(endpoint.host)
    except OSError:
        address = endpoint.host
    return hashlib.sha256(f"{socket.gethostname()} {address}".encode()).hexdigest()[:16]


def read_hits(source: str) -> dict[str, int]:
    """Counts by operator and layer, from a file or a URL that holds a JSON object. A file that does
    not exist yet means that nothing has run. Raises BadRecording."""
    try:
        if source.startswith(("http://", "https://")):
            with urlopen(source, timeout=10) as answer:
                data = json.loads(answer.read())
        elif not Path(source).exists():
            return {}
        else:
            data = json.loads(Path(source).read_text(encoding="utf-8"))
        return {str(name): int(count) for name, count in data.items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise BadRecording(
            f"--hits {source}: {error}. It must hold a JSON object of counts"
        ) from error


def record(
    endpoint: Endpoint,
    prompts: list[dict[str, Any]],
    path: Path,
    *,
    said: dict[str, str],
    sampling: dict[str, Any],
    repeat: int = 4,
    hits: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Recording:
    """Asks every prompt `repeat` times, one after the other, after one pass that only warms up.

    `path` is written after every answer, so that what came is kept whatever happens. Raises Down if
    nobody answers, or no longer.
    """
    server = endpoint.facts()
    names = [prompt["name"] for prompt in prompts]
    found = Recording(said, server, host_digest(endpoint), sampling, digest(prompts), names)
    found.save(path)
    model = {"model": server["model"]} if "model" in server else {}
    bodies = [{**model, **sampling, **{k: v for k, v in p.items() if k != "name"}} for p in prompts]
    before = read_hits(hits) if hits else None
    for number in range(-1, repeat):
        for name, body in zip(names, bodies, strict=True):
            progress(f"{'warm-up' if number < 0 else f'pass {number + 1} of {repeat}'}: {name}")
            try:
                served = endpoint.complete(body)
            except Down as error:
                kept = sum(map(len, found.passes))
                raise Down(f"{error}; the {kept} answers until then are in {path}") from error
            if number >= 0:
                found.add(served)
                found.save(path)
    if hits and before is not None:
        after = read_hits(hits)
        found.hits = {k: n - before.get(k, 0) for k, n in after.items() if n > before.get(k, 0)}
    found.complete = True
    found.save(path)
    return found
