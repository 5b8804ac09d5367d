"""Commands on a pseudo terminal, as a user has them: what is typed, what is shown, how they end.

Invariants: a wait is for what is shown, never for a time; it fails when its patience is over.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tools.commands import COMMAND, environment

READY = b"<ready>"  # what prompt_toolkit does first: it enables pasting
PATIENCE_S = 120
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[>=]|\r")


def last_screen(said: bytes) -> list[str]:
    """The lines of the last screen of a command that puts each line where it belongs, also of one
    that is not whole yet."""
    _, begun, lines = said.rpartition(b"\x1b[1;1H")
    if not begun:
        return []
    parts = re.split(rb"\x1b\[[0-9]+;1H", lines.partition(b"\x1b[?1049l")[0])
    return [ESCAPES.sub(b"", part).decode(errors="replace").strip("\n") for part in parts]


class Terminal:
    """A command on a pseudo terminal of its own, which Ctrl-C reaches as it does users'."""

    def __init__(self, *arguments: str, home: Path, program: tuple[str, ...] = COMMAND,
                 size: tuple[int, int] = (100, 30), **variables: str) -> None:  # fmt: skip
        """Start it, on so many columns and lines."""
        self.pid, self._fd = pty.fork()
        if not self.pid:
            env = {**environment(), "TERM": "xterm", "XDG_STATE_HOME": str(home)}
            env.pop("COLUMNS", None)
            env.pop("LINES", None)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.execve(program[0], [*program, *arguments], {**env, **variables})
        self.said = b""
        self.modes_at_end: list[Any] = []
        self.resize(*size)

    def resize(self, columns: int, lines: int) -> None:
        """Give it another size, of which the command is told."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def modes(self) -> list[Any]:
        """How it treats what is typed."""
        return termios.tcgetattr(self._fd)[:4]

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, text: str) -> str:
        """Wait until a text is shown, and give what was shown since the last call up to it."""
        wanted = text.encode()
        self._read_until(lambda: wanted in self._shown(), f"{text!r} is not there")
        found, _, self.said = self._shown().partition(wanted)
        return (found + wanted).decode(errors="replace")

    def _read_until(self, done: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            left = deadline - time.monotonic()
            assert left > 0, f"{otherwise}: {self._shown().decode(errors='replace')[-5000:]}"
            if select.select([self._fd], [], [], min(left, 1))[0]:
                self.said += self._read()
                if b"\x1b[6n" in self.said:  # prompt_toolkit asks where the cursor is
                    self.said = self.said.replace(b"\x1b[6n", b"")
                    os.write(self._fd, b"\x1b[1;1R")

    def screen(self, *texts: str) -> list[str]:
        """Wait until a command that draws whole screens shows all of these texts on its last one,
        and give the lines of that; what stands behind the texts may not be there yet."""
        found: list[str] = []

        def has_all() -> bool:
            found[:] = last_screen(self.said)
            shown = "\n".join(found)
            return all(text in shown for text in texts)

        self._read_until(has_all, f"{texts!r} are not on a screen")
        return found

    def prompt(self) -> None:
        """Wait until the next statement is asked for."""
        self.until(READY.decode())

    def _shown(self) -> bytes:
        return ESCAPES.sub(b"", self.said.replace(b"\x1b[?2004h", READY))

    def end(self) -> int:
        """Wait for the end of the command: its exit code."""
        while part := self._read():
            self.said += part
        self.modes_at_end = self.modes()
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, 65536)
        except OSError:  # its end is closed
            return b""
