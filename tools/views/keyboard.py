"""Keys that are pressed while a picture fills the terminal, and the signals that concern it.

Invariants: the terminal is left as it was found, whatever ends the block. Ctrl-C stays an
interrupt. A wait ends at a key, at a new size of the terminal, at a signal that ends or stops the
process, or when its time is over; nothing is polled. Where stdin is no terminal there are no keys,
and signals come all the same.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
import termios
import tty
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

# Names of what a wait gives besides the character of a key.
UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESC, TAB, BACKSPACE = "enter", "esc", "tab", "backspace"
OTHER = "other"  # a key that has no name here
RESIZED, SUSPEND, LEAVE = "resized", "suspend", "leave"

_SIGNALS: dict[int, str] = {
    signal.SIGWINCH: RESIZED,
    signal.SIGTSTP: SUSPEND,
    signal.SIGTERM: LEAVE,
    signal.SIGHUP: LEAVE,
}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<]*[A-Za-z~]|O[A-Za-z])")
_SEQUENCES = {
    "A": UP, "B": DOWN, "H": HOME, "F": END,
    "1~": HOME, "7~": HOME, "4~": END, "8~": END, "5~": PAGE_UP, "6~": PAGE_DOWN,
}  # fmt: skip
_CHARACTERS = {"\r": ENTER, "\n": ENTER, "\t": TAB, "\x7f": BACKSPACE, "\b": BACKSPACE}
READ_BYTES = 1024
REST_OF_A_KEY_S = 0.05  # the bytes of one key come together; a lone Esc is followed by none


class Keyboard:
    """The keys of stdin in a block, and signals as if they were keys."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        self._found: list[Any] = []
        self._pressed: deque[str] = deque()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._handlers: dict[int, Any] = {}
        self._pipe = (-1, -1)
        self._wakeup = -1

    def __enter__(self) -> Self:
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, lambda *_: None)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _tb: TracebackType | None,
    ) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for end in self._pipe:
            os.close(end)

    def _take(self) -> None:
        """Get each key at once, and show none of them."""
        if self._fd >= 0:
            self._found = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)

    def _give_back(self) -> None:
        if self._fd >= 0:
            with suppress(termios.error):  # the terminal has gone
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._found)

    def suspend(self) -> None:
        """Stop the process, as Ctrl-Z does, with the terminal as it was found."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def wait(self, timeout_s: float | None) -> str | None:
        """The next key: its name, or its character. None: there was none in time."""
        if self._pressed:
            return self._pressed.popleft()
        ends = [end for end in (self._fd, self._pipe[0]) if end >= 0]
        ready = select.select(ends, [], [], None if timeout_s is None else max(0.0, timeout_s))[0]
        if self._pipe[0] in ready:
            numbers = os.read(self._pipe[0], READ_BYTES)
            self._pressed += [_SIGNALS[each] for each in numbers if each in _SIGNALS]
        if self._fd in ready:
            self._pressed += self._keys()
        return self._pressed.popleft() if self._pressed else None

    def _keys(self) -> list[str]:
        """The keys whose bytes are there. A terminal that has gone asks to leave."""
        text = ""
        while True:
            try:
                raw = os.read(self._fd, READ_BYTES)
            except OSError:
                raw = b""
            if not raw:
                return [*keys_of(text), LEAVE]
            text += self._decoder.decode(raw)
            if not _is_begun(text):
                return keys_of(text)
            if not select.select([self._fd], [], [], REST_OF_A_KEY_S)[0]:
                return keys_of(text)


def _is_begun(text: str) -> bool:
    """Whether a text ends within the bytes of one key."""
    return re.search(r"\x1b(?:\[[0-9;?<]*|O)?$", text) is not None


def keys_of(text: str) -> list[str]:
    """The keys that a terminal sends as this text."""
    found: list[str] = []
    at = 0
    while at < len(text):
        sequence = _SEQUENCE.match(text, at)
        if sequence is not None:
            found.append(_SEQUENCES.get(sequence[0][2:], OTHER))
            at = sequence.end()
            continue
        character = text[at]
        at += 1
        if character == "\x1b":
            found.append(ESC)
        elif character in _CHARACTERS:
            found.append(_CHARACTERS[character])
        else:
            found.append(character if character.isprintable() else OTHER)
    return found
