"""A process that runs some code, and answers each line that it is given with a line."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager

PATIENCE_S = 60


class Piped(AbstractContextManager["Piped"]):
    """The code reads lines from its standard input, and prints one for each, flushed."""

    def __init__(self, code: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, *words: object) -> str:
        """Its answer to a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def end(self) -> int:
        """Have it end, as nothing more comes; its exit code."""
        self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode

    def __exit__(self, *_: object) -> None:
        self.end()
