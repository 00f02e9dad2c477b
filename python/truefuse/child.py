"""A process that says how far it is, one JSON object a line, and may crash, hang, exit or be interrupted on
the way: it has then ended early, in the step that it was in."""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from truefuse.verdict import INTERRUPTED, Result, Status

START = "start"  # the step before the first
START_SECONDS = 180.0  # importing PyTorch on a busy machine
LOOK_SECONDS = 0.5  # between looks at whether the child is there
TAIL = 4000  # characters of what a child that died has said


class EndedEarly(Exception):
    """In which `step`, `at` what there, after how long, a `reason` code, what it did, what it should have done,
    and the last `words` of the process."""

    def __init__(
        self, step: str, at: str, seconds: float, reason: str, got: str, expected: str, words: str
    ) -> None:
        self.step, self.at, self.seconds, self.reason = step, at, seconds, reason
        self.got, self.expected, self.words = got, expected, words
        self.signal = signal.Signals[got] if reason == INTERRUPTED else None
        verb = "had to be ended" if reason == "hangs" else "ended"
        sentence = f"the process {verb} in this step: {got}"
        if reason == INTERRUPTED:
            sentence = f"interrupted by {got}: neither this step nor any after it was judged"
        super().__init__(sentence)

    def result(self, status: Status, seed: int, replay: str) -> Result:
        """`status` is for what the process itself did: an interruption says nothing of it, nor does an end
        before the first step."""
        is_its_own = self.step != START and self.reason != INTERRUPTED
        return Result(
            self.step,
            status if is_its_own else Status.UNKNOWN,
            self.reason,
            str(self),
            expected=self.expected,
            got=self.got,
            first=self.at,
            seed=seed,
            replay=replay,
            seconds=self.seconds,
            traceback=self.words,
        )


class Child:
    """A process that answers to a request. Within the `with`, a signal that asks this process to end ends the
    child alone, so that what it has found can still be said."""

    def __init__(
        self,
        command: Sequence[str],
        request: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        self._words = tempfile.TemporaryFile()
        receive, send = os.pipe()
        arguments = {**request, "pipe": send, "parent": os.getpid()}
        # A group of its own: what a case starts ends with it.
        self._process = subprocess.Popen(
            [*command, json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=subprocess.STDOUT,
            pass_fds=(send,),
            env=environment,
            start_new_session=True,
        )
        os.close(send)
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._signals = _Signals()
        threading.Thread(target=self._read, args=(receive,), daemon=True).start()

    def __enter__(self) -> Child:
        self._signals.note()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._signals.obey()

    def messages(self, limit: Callable[[str], float]) -> Iterator[dict[str, Any]]:
        """What it says, each with its `kind`: a "step" has a name, and a `limit` of seconds until the next one
        or a "progress". Does not end by itself: raises EndedEarly once nothing more will come."""
        step, at, begin = START, START, time.monotonic()
        while True:
            allowed = START_SECONDS if step == START else limit(step)
            message = self._next(begin + allowed)
            if message is None:
                raise self._early(step, at, time.monotonic() - begin, allowed)
            if message["kind"] == "step":
                step = at = message["name"]
                begin = time.monotonic()
            elif message["kind"] == "progress":
                at, begin = message["text"], time.monotonic()
            yield message

    def words(self) -> str:
        """The last of what it has printed."""
        self._words.seek(0)
        return self._words.read().decode("utf-8", "replace")[-TAIL:]

    def _read(self, receive: int) -> None:
        with open(receive, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    self._messages.put(json.loads(line))
                except ValueError:
                    break  # cut off in the middle, or not ours: it ends here
        self._messages.put(None)

    def _next(self, deadline: float) -> dict[str, Any] | None:
        """None if there is no more to come, or not in time."""
        while True:
            if self._signals.noted is not None and self._process.poll() is None:
                self._end()  # what it has said before is still to come
            has_ended = self._process.poll() is not None  # others may still hold its pipe
            left = deadline - time.monotonic()
            try:
                return self._messages.get(timeout=max(0.0, min(left, LOOK_SECONDS)))
            except queue.Empty:
                if has_ended or left <= 0:
                    return None

    def _early(self, step: str, at: str, seconds: float, limit: float) -> EndedEarly:
        expected = "an answer" if math.isinf(limit) else f"an answer within {limit:g} s"
        if self._signals.noted is not None:
            reason, got, expected = INTERRUPTED, self._signals.noted.name, ""
        elif seconds >= limit:
            reason, got = "hangs", f"nothing for {limit:g} s"
        else:
            try:
                code = self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                code = None
            reason, got = _ending(code)
        self._end()
        return EndedEarly(step, at, seconds, reason, got, expected, self.words())

    def _end(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()


class _Signals:
    """Those that ask a program to end, noted instead of obeyed. One that is ignored stays so."""

    ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.noted: signal.Signals | None = None
        self._before: dict[int, Any] = {}

    def note(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may say what a signal does

        def noted(number: int, frame: Any) -> None:
            self.noted = signal.Signals(number)

        for number in self.ASKING:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, noted)

    def obey(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


def _ending(code: int | None) -> tuple[str, str]:
    if code is None:
        return "closed-its-pipe", "it goes on without a word"
    if code < 0:
        name = signal.Signals(-code).name
        return f"died-{name.lower()}", f"killed by {name}"
    return "exits", f"it called exit({code})"
