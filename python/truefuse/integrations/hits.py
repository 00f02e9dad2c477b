"""How often each operator ran in each layer.

With TRUEFUSE_HITS=FILE the counts are also written there, as a JSON object, so that a comparison of
servers can read them: at once, in place of an earlier process' counts, then at most every half second, and
when the process ends.
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
import time
from pathlib import Path
from typing import ClassVar

EVERY = 0.5  # seconds


class Hits:
    """Counts by "operator@layer". All that a process has are written together."""

    _published: ClassVar[list[Hits]] = []

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        path = os.environ.get("TRUEFUSE_HITS")
        self._path = Path(path) if path else None
        self._written = 0.0
        if self._path:
            self._published.append(self)
            atexit.register(self.write)
            self.write()

    def add(self, operator: str, layer: str) -> None:
        name = f"{operator}@{layer}"
        self.counts[name] = self.counts.get(name, 0) + 1
        if self._path and time.monotonic() - self._written > EVERY:
            self.write()

    def write(self) -> None:
        """Replaces the file as a whole. Counting never breaks a service: a failure is left alone."""
        if self._path is None:
            return
        self._written = time.monotonic()
        counts: dict[str, int] = {}
        for each in self._published:
            for name, count in each.counts.items():
                counts[name] = counts.get(name, 0) + count
        try:
            handle, temporary = tempfile.mkstemp(dir=self._path.parent)
            with os.fdopen(handle, "w") as file:
                json.dump(counts, file)
            os.replace(temporary, self._path)
        except OSError:
            self._path = None
