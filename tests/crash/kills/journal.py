"""The file of expected values, outside of the store: what a writer was about to do, and has done.

One line of JSON before each operation (the intent) and one after it (the acknowledgement, with what
it returned and the moment), so that of each operation it is known whether it was acknowledged, only
begun, or neither. A line that a kill cut short counts as never written: what it would have said had
not been said to anybody.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Journal:
    """The writer's side."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._fd, b"\n")  # ends what the writer before may have left half

    def begin(self, step: Line) -> None:
        """It is about to do this."""
        os.write(self._fd, json.dumps(step).encode() + b"\n")

    def done(self, number: int, result: Line, of_lane: tuple[int, ...] = ()) -> None:
        """It returned this; commits of the lane meanwhile, as adds, reads and acks."""
        line = {"n": number, "result": result, "t": time.monotonic_ns(), "lane": of_lane}
        os.write(self._fd, json.dumps(line).encode() + b"\n")


class Reader:
    """The other side: every whole line once, while it is written to or after."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[Line]:
        """What came since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found: list[Line] = []
        for line in whole.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found
