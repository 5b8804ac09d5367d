"""Counts and times of a server: connections, commands, errors by their code; slow commands.

Of each command it counts the calls, their time, those that failed, and what was refused before it
was a call: unknown numbers of words, no right to it, not between MULTI and EXEC.

INFO shows the counts, SLOWLOG the commands that took long.

Invariants: counts begin at the start, or at CONFIG RESETSTAT. A rate is that of the last second or
two, and needs no timer. As in Redis the time of a command is its work, without its waits: for its
turn, for what it blocks on, for its commit to be durable. A call is counted once, however often
its step is decided or tried; one that was queued is counted by EXEC. Entries of the slow log are
few and short, and hold no password. Knows no store.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterable
from itertools import islice

from logstore.wire.audit import AuditedClient, without_passwords
from logstore.wire.resp.reply import Encoded, Failure, Reply
from logstore.wire.table import Command

CODES_MAX = 128  # kinds of errors, as in Redis
SAMPLE_S = 0.1
SAMPLES = 16
_ENCODED_ERROR = re.compile(rb"(?:\A|\n)-(\S+)")


class CommandCounts:
    """The counts of one command."""

    __slots__ = ("calls", "failed", "ns", "rejected")

    def __init__(self) -> None:
        self.calls = self.ns = self.rejected = self.failed = 0

    def add(self, other: CommandCounts) -> None:
        """Count what another has."""
        self.calls += other.calls
        self.ns += other.ns
        self.rejected += other.rejected
        self.failed += other.failed

    def copy(self) -> CommandCounts:
        """The same counts, which no longer change."""
        found = CommandCounts()
        found.add(self)
        return found

    def line(self) -> str:
        """As INFO tells them."""
        us = self.ns // 1000
        return (
            f"calls={self.calls},usec={us},usec_per_call={us / max(1, self.calls):.2f},"
            f"rejected_calls={self.rejected},failed_calls={self.failed}"
        )


class Counts:
    """The counts of one server."""

    def __init__(self) -> None:
        self.connections = 0
        self.rejected = 0  # connections, for want of a place
        self.commands = 0
        self.errors: dict[str, int] = {}
        self.adds = CommandCounts()  # plain ones that the loop does itself: its thread alone counts
        self._of: dict[str, CommandCounts] = {}  # by the name of the command; of XADD the others
        self._mutex = threading.Lock()  # for what is counted of commands: also threads run them
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)
        self._sample_at = 0.0

    def reset(self) -> None:
        """As CONFIG RESETSTAT."""
        self.connections = self.rejected = self.commands = 0
        self.errors.clear()
        self._samples.clear()
        self.adds = CommandCounts()
        with self._mutex:
            self._of.clear()

    def count(self, commands: int) -> None:
        """Count so many commands."""
        now = time.monotonic()
        if now >= self._sample_at:
            self._samples.append((now, self.commands))
            self._sample_at = now + SAMPLE_S
        self.commands += commands

    def commands_a_second(self) -> int:
        """About how many commands came in each of the last seconds."""
        now = time.monotonic()
        begun = now - SAMPLE_S * SAMPLES
        for when, commands in self._samples:
            if when >= begun:
                return round((self.commands - commands) / max(now - when, SAMPLE_S))
        return 0

    def called(self, name: str, calls: int, took_ns: int, failed: int = 0) -> None:
        """Count so many calls of a command, or 0 if more time of the same ones."""
        with self._mutex:
            of = self._of.get(name)
            if of is None:
                of = self._of[name] = CommandCounts()
            of.calls += calls
            of.ns += took_ns
            if failed:
                of.failed += failed

    def refused(self, name: str, times: int = 1) -> None:
        """Count requests that were refused before they were calls."""
        with self._mutex:
            self._of.setdefault(name, CommandCounts()).rejected += times

    def of_commands(self) -> dict[str, str]:
        """What INFO tells of each command that was asked for, by its name."""
        with self._mutex:
            found = {name: of.copy() for name, of in self._of.items()}
        if self.adds.calls:
            found.setdefault("xadd", CommandCounts()).add(self.adds)
        return {name: found[name].line() for name in sorted(found)}

    def note(self, replies: Iterable[Reply]) -> None:
        """Count the errors among replies, also those in what a transaction replies."""
        for reply in replies:
            kind = type(reply)
            if kind is Failure:
                self._failed(reply.text.partition(" ")[0])
            elif kind is Encoded and (b"\n-" in reply.data or reply.data[:1] == b"-"):
                for code in _ENCODED_ERROR.findall(reply.data):
                    self._failed(code.decode("utf-8", "replace"))

    def _failed(self, code: str) -> None:
        if code in self.errors or len(self.errors) < CODES_MAX:
            self.errors[code] = self.errors.get(code, 0) + 1


def human(size: int) -> str:
    """A size as INFO tells it to people."""
    if size < 1024:
        return f"{size}B"
    value = float(size)
    for unit in "KMGT":
        value /= 1024
        if value < 1024:
            return f"{value:.2f}{unit}"
    return f"{value / 1024:.2f}P"


SLOWER_US = 10_000
ENTRIES_MAX = 128
WORDS_MAX = 32  # of an entry
WORD_MAX_BYTES = 128
NEVER_NS = 1 << 63
EACH_US = 1000  # below that also adds of a pipeline are looked at one by one


class SlowLog:
    """The slow commands of one server. A step carries its ``TimedRequest``, which keeps how
    long it took by who runs the step."""

    def __init__(self) -> None:
        self.slower_us = SLOWER_US
        self.most = ENTRIES_MAX  # slowlog-max-len
        self._entries: deque[Reply] = deque()  # the newest first
        self._next = 0
        self._mutex = threading.Lock()

    @property
    def slower_us(self) -> int:
        """As slowlog-log-slower-than: who took less is not kept; negative: nobody is."""
        return self._slower_us

    @slower_us.setter
    def slower_us(self, value: int) -> None:
        self._slower_us = value
        self.slower_ns = value * 1000 if value >= 0 else NEVER_NS
        self.times_all = 0 <= value < EACH_US  # also commands that never take long, one by one

    def note(self, client: AuditedClient, words: list[bytes], took_us: int) -> None:
        """An entry for a request that took long."""
        shown: list[Reply] = [_clipped(word) for word in words[:WORDS_MAX]]
        if len(words) > WORDS_MAX:
            shown[-1] = b"... (%d more arguments)" % (len(words) - WORDS_MAX + 1)
        when_s, address = int(time.time()), client.address.encode()
        with self._mutex:
            self._entries.appendleft([self._next, when_s, took_us, shown, address, client.name])
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


class CountedCalls:
    """Calls of one command that are run as one step: how long they take, and how many fail."""

    __slots__ = ("_calls", "_counts", "_failures", "_name")

    def __init__(self, counts: Counts, name: str, calls: int = 1) -> None:
        self._counts, self._name = counts, name
        self._calls = calls  # that are not counted yet
        self._failures = 0  # that are

    def took(self, begun_ns: int) -> None:
        """The step, begun at ``begun_ns`` (``perf_counter_ns``), was run, maybe once more."""
        self._count(time.perf_counter_ns() - begun_ns)

    def failed(self, times: int = 1) -> None:
        """So many of the calls were answered with an error."""
        self._count(0, times - self._failures)
        self._failures = times

    def ended(self) -> None:
        """They are answered, also if nothing of them was run."""
        if self._calls:
            self._count(0)

    def _count(self, took_ns: int, failed: int = 0) -> None:
        calls, self._calls = self._calls, 0
        self._counts.called(self._name, calls, took_ns, failed)


class TimedRequest(CountedCalls):
    """A request: a call, which the slow log wants to know if it takes long."""

    __slots__ = ("_client", "_command", "_slowlog", "_words")

    def __init__(
        self,
        counts: Counts,
        slowlog: SlowLog,
        client: AuditedClient,
        command: Command,
        words: list[bytes],
    ) -> None:
        # Each request makes one: nothing is called here.
        self._counts, self._name, self._calls, self._failures = counts, command.name, 1, 0
        self._slowlog, self._client, self._command = slowlog, client, command
        self._words = words

    def took(self, begun_ns: int) -> None:
        """The step, begun at ``begun_ns`` (``perf_counter_ns``), was run, maybe once more."""
        took_ns = time.perf_counter_ns() - begun_ns
        calls, self._calls = self._calls, 0
        self._counts.called(self._name, calls, took_ns)
        if took_ns >= self._slowlog.slower_ns and "skip_slowlog" not in self._command.flags:
            words = without_passwords(self._command, self._words)
            self._slowlog.note(self._client, words, took_ns // 1000)


def _clipped(word: bytes) -> bytes:
    if len(word) <= WORD_MAX_BYTES:
        return word
    return word[:WORD_MAX_BYTES] + b"... (%d more bytes)" % (len(word) - WORD_MAX_BYTES)
