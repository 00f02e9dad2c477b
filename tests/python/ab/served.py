"""A real, small, OpenAI-compatible server on a port of this machine, which can also misbehave."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["the", "state", "of", "a", "layer", "is", "read", "and", "written", "once"]


def answer(prompt: str, count: int, shift: int = 0) -> list[tuple[int, str]]:
    """Token ids and texts: a function of the prompt alone."""
    ids = [(sum(prompt.encode()) + 3 * i * i + shift) % len(WORDS) for i in range(count)]
    return [(i, f" {WORDS[i]}") for i in ids]


@dataclass
class Behaviour:
    """`kind`: "" answers; "garbage", "html", "error", "error-event", "odd", "cut", "no-usage", "hang",
    "drip", "dripping-head", "gzip", "down" misbehave, each in its way, from the request number `since`
    on. `model` is the name in the answers."""

    kind: str = ""
    since: int = 0
    shift: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # what /hits says
    operator: str | None = None
    model: str | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour: Behaviour

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        pages = {
            "/v1/models": {"object": "list", "data": [{"id": "tiny"}]},
            "/version": {"version": "0.1"},
            "/hits": self.behaviour.counts,
        }
        if self.path in pages:
            self.whole(200, json.dumps(pages[self.path]))
        else:
            self.whole(404, "not here")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaviour = self.behaviour
        behaviour.asked.append(body)
        if behaviour.kind == "down" and len(behaviour.asked) == behaviour.since:
            # This request is answered, and nobody listens any more; closed alone, it would listen for
            # as long as the server's thread waits for it.
            self.server.socket.shutdown(socket.SHUT_RDWR)
            self.server.socket.close()
        kind = behaviour.kind if len(behaviour.asked) > behaviour.since else ""
        if kind == "html":
            self.whole(200, "<html>gateway</html>")
        elif kind == "error":
            self.whole(500, "out of memory")
        elif kind == "hang":
            time.sleep(3)
        elif kind == "dripping-head":
            self.drip_head()
        elif kind == "gzip":
            self.whole(200, gzip.compress(b"{}"), {"Content-Encoding": "gzip"})
        elif kind == "odd":
            self.whole(200, f"data: {json.dumps({'choices': [{'text': 7}]})}\n\ndata: [DONE]\n\n")
        else:
            self.complete(body, kind)

    def complete(self, body: dict[str, Any], kind: str) -> None:
        behaviour = self.behaviour
        chat = "messages" in body
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        tokens = answer(prompt, body["max_tokens"], behaviour.shift)
        if behaviour.operator:
            done = behaviour.counts.get(behaviour.operator, 0)
            behaviour.counts[behaviour.operator] = done + len(tokens)
        usage = {} if kind == "no-usage" else {"usage": {"completion_tokens": len(tokens)}}
        if not body.get("stream"):
            text = "".join(text for _, text in tokens)
            part = {"message": {"content": text}} if chat else {"text": text}
            ids = [i for i, _ in tokens]
            extra = {"token_ids": ids} if body.get("return_token_ids") else {}
            choice = {**part, **extra, "finish_reason": "length"}
            self.whole(200, json.dumps({"choices": [choice], **usage, **self.named()}))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for number, (token, text) in enumerate(tokens):
            if kind == "cut" and number == 3:
                return
            if kind == "garbage" and number == 3:
                self.event('{"choices": [')
                return
            if kind == "error-event" and number == 3:
                self.event(json.dumps({"error": {"message": "state pool exhausted"}}))
                return
            if kind == "drip":
                time.sleep(0.3)
            if number == 1:
                time.sleep(
                    0.02
                )  # On a busy machine too the first token is there before the next one.
            part = {"delta": {"content": text}} if chat else {"text": text}
            ids = {"token_ids": [token]} if body.get("return_token_ids") else {}
            last = number == len(tokens) - 1
            choice = {**part, **ids, "finish_reason": "length" if last else None}
            self.event(json.dumps({"choices": [choice], **self.named()}))
        self.event(json.dumps({"choices": [], **usage}))
        self.event("[DONE]")

    def event(self, data: str) -> None:
        try:
            self.wfile.write(f"data: {data}\n\n".encode())
            self.wfile.flush()
        except OSError:  # the client has given up
            pass

    def named(self) -> dict[str, str]:
        return {"model": self.behaviour.model} if self.behaviour.model else {}

    def drip_head(self) -> None:
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(40):
                self.wfile.write(b"z")
                self.wfile.flush()
                time.sleep(0.1)
        except OSError:  # the client has given up
            pass
        self.close_connection = True

    def whole(self, status: int, text: str | bytes, headers: dict[str, str] | None = None) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


class Server6(Server):
    address_family = socket.AF_INET6


@contextmanager
def serving(behaviour: Behaviour, version: int = 4) -> Iterator[str]:
    """The server's URL."""
    handler = type("BehavingHandler", (Handler,), {"behaviour": behaviour})
    kind, host = (Server, "127.0.0.1") if version == 4 else (Server6, "::1")
    with kind((host, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            name = host if version == 4 else f"[{host}]"
            yield f"http://{name}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def raw(*pieces: bytes) -> Iterator[str]:
    """The URL of a server that answers one request with these bytes, sent one piece after the other."""

    def answer_once() -> None:
        client, _ = listening.accept()
        with client:
            client.recv(1 << 16)
            client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            for piece in pieces:
                time.sleep(0.05)
                client.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer_once)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()
