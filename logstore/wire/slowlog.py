"""Commands that took long, as SLOWLOG tells them.

What counts is the time in which a command does its work, as in Redis: not that in which it waits
for its turn, for what it blocks on, or for its commit to be durable. Invariants: entries are few
and short, and hold no password. Knows no command.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from logstore.wire.redaction import without_passwords
from logstore.wire.reply import Reply
from logstore.wire.steps import Asked

if TYPE_CHECKING:
    from logstore.wire.session import Session

SLOWER_US = 10_000
ENTRIES_MAX = 128
WORDS_MAX = 32  # of an entry
WORD_MAX_BYTES = 128
EACH_US = 1000  # below that also adds of a pipeline are looked at one by one


class SlowLog:
    """The slow commands of one server. A session writes on each step what was asked; who runs the
    step times it, and calls ``took``."""

    def __init__(self) -> None:
        self.slower_us = SLOWER_US  # slowlog-log-slower-than: negative: none is kept
        self.most = ENTRIES_MAX  # slowlog-max-len
        self._entries: deque[Reply] = deque()  # the newest first
        self._next = 0
        self._mutex = threading.Lock()

    @property
    def each(self) -> bool:
        """Whether also commands that never take long are to be timed one by one."""
        return 0 <= self.slower_us < EACH_US

    def note(self, asked: Asked, took_us: int) -> None:
        """An entry for what took long, if any is to be kept of it."""
        _, session, command, words = asked
        if self.slower_us >= 0 and "skip_slowlog" not in command.flags:
            self._enter(session, without_passwords(command, words), took_us)

    def _enter(self, session: Session, words: list[bytes], took_us: int) -> None:
        shown: list[Reply] = [_clipped(each) for each in words[:WORDS_MAX]]
        if len(words) > WORDS_MAX:
            shown[-1] = b"... (%d more arguments)" % (len(words) - WORDS_MAX + 1)
        with self._mutex:
            self._entries.appendleft(
                [self._next, int(time.time()), took_us, shown, session.address.encode(),
                 session.name]
            )  # fmt: skip
            self._next += 1
            while len(self._entries) > max(0, self.most):
                self._entries.pop()

    def newest(self, most: int) -> list[Reply]:
        """As SLOWLOG GET tells them; -1: all."""
        with self._mutex:
            return list(self._entries if most < 0 else islice(self._entries, most))

    def clear(self) -> None:
        """As SLOWLOG RESET."""
        with self._mutex:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


def took(asked: Asked | None, begun_ns: int) -> None:
    """A step of a request was run; it began then (``time.perf_counter_ns``)."""
    if asked is not None:
        took_us = (time.perf_counter_ns() - begun_ns) // 1000
        if took_us >= asked[0].slower_us:
            asked[0].note(asked, took_us)


def _clipped(word: bytes) -> bytes:
    if len(word) <= WORD_MAX_BYTES:
        return word
    return word[:WORD_MAX_BYTES] + b"... (%d more bytes)" % (len(word) - WORD_MAX_BYTES)
