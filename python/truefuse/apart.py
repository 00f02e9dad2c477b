"""A function of this package in a process of its own: files that users hand over run there, and may end it as they
like. The status of os._exit(0) is that of success."""

from __future__ import annotations

import base64
import faulthandler
import math
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from truefuse.child import Child, EndedEarly

WORKER = (sys.executable, "-m", "truefuse.apart")
T = TypeVar("T")


class Refused(Exception):
    """What is wrong with what the user has handed over: a sentence."""


def call(function: Callable[..., T], *arguments: Any) -> T:
    """What it gives; what is printed there goes to standard error. Raises Refused as it does, or
    EndedEarly."""
    with Child(WORKER, {"call": _packed((function, arguments))}, os.environ) as child:
        try:
            messages = child.messages(lambda step: math.inf)
            answer = next(one for one in messages if one["kind"] != "step")
        finally:
            sys.stderr.write(child.words())
    if answer["kind"] == "refused":
        raise Refused(answer["text"])
    return _unpacked(answer["value"])


def ended(error: EndedEarly, status: int) -> tuple[str, int]:
    """The sentence, and the exit status: `status`, unless it was a signal to this process."""
    if error.signal is not None:
        return f"interrupted by {error.got}", 128 + error.signal
    return f"the process that ran it ended without an answer: {error.got}", status


def main() -> None:
    """The child: the one argument is the request as JSON; the answer goes to the pipe that it names."""
    from truefuse import worker

    faulthandler.enable()
    request, send = worker.answering()
    worker.end_with_parent(request["parent"])
    send("step", name="call")
    function, arguments = _unpacked(request["call"])
    try:
        answer = function(*arguments)
    except Refused as error:
        send("refused", text=str(error))
        return
    sys.stdout.flush()
    send("answer", value=_packed(answer))


def _packed(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _unpacked(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))


if __name__ == "__main__":
    # Not as __main__, whose Refused would be another class.
    from truefuse import apart

    apart.main()
