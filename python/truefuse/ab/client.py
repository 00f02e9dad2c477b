"""One request to an OpenAI-compatible server, timed as it is answered. Standard library alone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import urlsplit

from truefuse.ab.trajectory import Output

MOST_BYTES = 64 << 20  # of one answer
SHOWN = 200  # characters of an answer that cannot be read
CHUNK = 1 << 16
JSON = {dict: "object", list: "array", str: "string", int: "whole number"}
T = TypeVar("T")


class Down(Exception):
    """Nobody answers at the endpoint."""


class BadAnswer(Exception):
    """An answer that is none: an HTTP error, garbage, too late, or cut off."""


@dataclass
class Served:
    """`times` are seconds from sending to the arrival of each event that brought something; those that arrived
    together have one time. Empty if no stream was asked for. `model` is the name that the answer gives."""

    output: Output
    times: list[float]
    total: float
    model: str | None = None


@dataclass
class Answer:
    """What has been received so far."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tools: dict[int, dict[str, str]] = field(default_factory=dict)
    tokens: list[int] | None = None
    count: int | None = None
    stop: str | None = None
    model: str | None = None

    def add(self, data: dict[str, Any]) -> bool:
        """Takes a whole answer or a piece of one; True if it brought text, reasoning, a call or a token."""
        if data.get("error"):
            raise BadAnswer(f"the server says: {_short(json.dumps(data['error']))}")
        if data.get("choices") is None:
            raise BadAnswer(f"no choices in the answer: {_short(json.dumps(data))}")
        self.model = _of(data, "model", str) or self.model
        usage = _of(data, "usage", dict) or {}
        self.count = _of(usage, "completion_tokens", int) or self.count
        choices = _of(data, "choices", list)
        if not choices:
            return False
        choice = _of({"choices[0]": choices[0]}, "choices[0]", dict) or {}
        self.stop = _of(choice, "finish_reason", str) or self.stop
        tokens = _of(choice, "token_ids", list)
        part = _of(choice, "delta", dict) or _of(choice, "message", dict)
        part = part or {"content": choice.get("text")}
        text = _of(part, "content", str) or _of(part, "refusal", str)
        reasoning = _of(part, "reasoning_content", str) or _of(part, "reasoning", str)
        calls = _of(part, "tool_calls", list) or []
        if function := _of(part, "function_call", dict):  # what a call was called before tools
            calls = [*calls, {"function": function}]
        if tokens is not None:
            if not all(type(token) is int for token in tokens):
                raise BadAnswer(f"token_ids are no whole numbers: {_short(json.dumps(tokens))}")
            self.tokens = [*(self.tokens or []), *tokens]
        self.text.append(text or "")
        self.reasoning.append(reasoning or "")
        for position, call in enumerate(calls):
            self._call(position, _of({"tool_calls": call}, "tool_calls", dict) or {})
        return bool(text or reasoning or calls or tokens)

    def _call(self, position: int, call: dict[str, Any]) -> None:
        index = _of(call, "index", int)
        function = _of(call, "function", dict) or {}
        kept = self.tools.setdefault(
            position if index is None else index, {"name": "", "arguments": ""}
        )
        for key in kept:
            kept[key] += _of(function, key, str) or ""

    def output(self, error: str | None = None) -> Output:
        text, reasoning = "".join(self.text), "".join(self.reasoning)
        if reasoning or self.tools:
            calls = [self.tools[index] for index in sorted(self.tools)]
            whole = {"text": text, "reasoning": reasoning, "tool_calls": calls}
            text = json.dumps(whole, ensure_ascii=False)
        # Ids of a part of the tokens neither tell two answers apart nor count them.
        whole_ids = self.tokens and self.count in (None, len(self.tokens))
        tokens = tuple(self.tokens) if self.tokens and whole_ids else None
        return Output(tokens, text, self.count, self.stop, error)


class Endpoint:
    """`url` is the server's base, with or without /v1; `timeout` is for a whole request, in seconds."""

    def __init__(self, url: str, timeout: float) -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            self.host, self.port, self.scheme = parts.hostname or "", parts.port, parts.scheme
        except ValueError as error:
            raise ValueError(f"--endpoint {url}: {error}") from error
        if self.scheme not in ("http", "https") or not self.host:
            raise ValueError(f"--endpoint {url}: it must be http://HOST:PORT or https://HOST")
        path = parts.path.rstrip("/")
        self.base = path.removesuffix("/v1")
        self.timeout = timeout

    def facts(self) -> dict[str, str]:
        """What the server says about itself: its model, and version where it has such a page. Raises
        Down."""
        found = {}
        match self._get("/v1/models"):
            case {"data": [{"id": str(model)}, *_]}:
                found["model"] = model
        match self._get("/version"):
            case {"version": str(version)}:
                found["version"] = version
        return found

    def complete(self, body: dict[str, Any]) -> Served:
        """Sends a completion (chat, if body has messages). What is wrong with the answer is in its
        `output.error`, beside what had come until then. Raises Down."""
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        answer, times = Answer(), []
        error = None
        connection = self._connect()
        begin = time.perf_counter()
        late = _Deadline(connection, self.timeout)
        try:
            response = self._send(connection, path, body)
            if body.get("stream"):
                for arrived, data in _events(response):
                    if answer.add(data):
                        times.append(arrived - begin)
            else:
                answer.add(_json(b"".join(_pieces(response))))
        except (BadAnswer, OSError, HTTPException) as bad:
            if late.passed or isinstance(bad, TimeoutError):
                error = f"no complete answer within {self.timeout:g} s"
            elif isinstance(bad, BadAnswer):
                error = str(bad)
            else:
                error = f"the connection broke: {type(bad).__name__}: {bad}"
        finally:
            late.cancel()
            connection.close()
        total = time.perf_counter() - begin
        return Served(answer.output(error), times, total, answer.model)

    def _connect(self) -> HTTPConnection:
        kind = HTTPSConnection if self.scheme == "https" else HTTPConnection
        connection = kind(self.host, self.port, timeout=self.timeout)
        try:
            connection.connect()
        except OSError as error:
            host = f"[{self.host}]" if ":" in self.host else self.host
            raise Down(
                f"nobody answers at {self.scheme}://{host}:{connection.port} ({error}). Start the "
                "server, or correct --endpoint"
            ) from error
        return connection

    def _send(self, connection: HTTPConnection, path: str, body: dict[str, Any]) -> HTTPResponse:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", self.base + path, json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status != 200:
            text = response.read(SHOWN).decode("utf-8", "replace")
            raise BadAnswer(f"HTTP {response.status} {response.reason}: {_short(text)}")
        encoding = response.getheader("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise BadAnswer(
                f"the answer is compressed ({encoding}), which was not asked for: turn that off in the "
                "server, or in the proxy in front of it"
            )
        return response

    def _get(self, path: str) -> Any:
        connection = self._connect()
        late = _Deadline(connection, self.timeout)
        try:
            connection.request("GET", self.base + path)
            response = connection.getresponse()
            return json.loads(response.read(MOST_BYTES)) if response.status == 200 else None
        except (OSError, HTTPException, ValueError, RecursionError):
            return None  # A server need not have the page.
        finally:
            late.cancel()
            connection.close()


class _Deadline:
    """Ends a connection after so many seconds. A time limit of the socket would be one for each piece,
    and a server that drips could hold us for ever."""

    def __init__(self, connection: HTTPConnection, seconds: float) -> None:
        self.passed = False
        self._socket = connection.sock
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _end(self) -> None:
        self.passed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def cancel(self) -> None:
        self._timer.cancel()


def _pieces(response: HTTPResponse) -> Iterator[bytes]:
    """Bytes as they come."""
    received = 0
    while piece := response.read1(CHUNK):
        received += len(piece)
        if received > MOST_BYTES:
            raise BadAnswer(f"the answer is longer than {MOST_BYTES >> 20} MiB")
        yield piece
    if response.length:
        raise BadAnswer(f"the answer is cut off: {response.length} bytes are missing")


def _events(response: HTTPResponse) -> Iterator[tuple[float, dict[str, Any]]]:
    """When it arrived, and the data of each server-sent event, up to [DONE]."""
    waiting, count = b"", 0
    for piece in chain(_pieces(response), [b"\n"]):
        arrived = time.perf_counter()
        *lines, waiting = (waiting + piece).split(b"\n")
        for line in lines:
            line = line.strip()
            if not line or line.startswith((b":", b"event:", b"id:", b"retry:")):
                continue
            if not line.startswith(b"data:"):
                raise BadAnswer(f"no event stream: {_short(line.decode('utf-8', 'replace'))}")
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            count += 1
            yield arrived, _json(data)
    raise BadAnswer(f"the stream is cut off after {count} events, without [DONE]")


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadAnswer(f"no JSON object: {_short(data.decode('utf-8', 'replace'))}")
    return found


def _of(data: dict[str, Any], key: str, kind: type[T]) -> T | None:
    """data[key], which may be missing or null, but nothing else than such a value."""
    value = data.get(key)
    if value is None or type(value) is kind:
        return value
    raise BadAnswer(f"{key} in the answer is {_short(json.dumps(value))}, no {JSON[kind]}")


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
