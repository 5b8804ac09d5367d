"""XRANGE, XREVRANGE and XREAD."""

from __future__ import annotations

from typing import NamedTuple

from logstore.engine.snapshots.snapshot import Snapshot
from logstore.ids import ZERO_ID, StreamID
from logstore.options import Profile
from logstore.wire.commands.walking import Budget, EntriesWalk, RangeWalk, Stretch, behind
from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.reply import NULL_ARRAY, Pairs, Reply
from logstore.wire.resp.words import Words, integer, interval_end, interval_start, strict_id
from logstore.wire.service import Client
from logstore.wire.steps import Block, Look, Step, walked
from logstore.wire.table import Command, is_valkey

LAST, NEWEST = "$", "+"


def xrange(_client: Client, words: Words) -> Step:
    """As XRANGE."""
    return _range(words, reverse=False)


def xrevrange(_client: Client, words: Words) -> Step:
    """As XREVRANGE."""
    return _range(words, reverse=True)


def _range(words: Words, *, reverse: bool) -> Step:
    key = words.next()
    first, second = words.next(), words.next()
    low = interval_start(second if reverse else first)
    high = interval_end(first if reverse else second)
    limit: int | None = None
    if len(words):
        while len(words):
            if not words.take(b"COUNT"):
                raise Failed(SYNTAX)
            limit = words.integer()
    if limit is not None and limit <= 0:
        return Look(lambda reader: NULL_ARRAY if reader.once(lambda v: v.record(key)) else [])
    most = -1 if limit is None else limit
    return walked(lambda: RangeWalk(Stretch(key, low, high, most, reverse=reverse)))


class ReadOptions(NamedTuple):
    """What XREAD and XREADGROUP have in common."""

    limit: int  # entries of each stream; 0: none
    max_count: int  # of all together; 0: no limit
    max_bytes: int  # of the reply; 0: no limit
    timeout_ms: int | None  # None: do not wait; 0: for ever
    streams: list[tuple[bytes, bytes]]

    def budget(self) -> Budget:
        """What the reply may hold."""
        return Budget(self.limit, self.max_count, self.max_bytes)


class ReadParser:
    """The options of XREAD and XREADGROUP up to the streams."""

    def __init__(self, client: Client, command: str) -> None:
        self._command = command
        self._profile: Profile = client.service.profile
        self._count = self._max_count = self._max_bytes = 0
        self._timeout_ms: int | None = None

    def takes(self, option: bytes, words: Words) -> bool:
        """Whether this is an option of both; its value is taken."""
        if option == b"COUNT":
            self._count = max(0, words.integer())
        elif option == b"BLOCK":
            self._timeout_ms = _timeout(words.next())
        elif option == b"MAXCOUNT" and self._profile == "redis-8.10":
            self._max_count = _positive(words, "MAXCOUNT")
        elif option == b"MAXSIZE" and self._profile == "redis-8.10":
            self._max_bytes = _positive(words, "MAXSIZE")
        else:
            return False
        return True

    def streams(self, words: Words) -> ReadOptions:
        """The keys and IDs behind STREAMS, and all options."""
        rest = words.rest()
        half = len(rest) // 2
        if not rest or len(rest) % 2:
            raise Failed(self._unbalanced())
        if self._max_count and self._count and self._max_count < self._count:
            raise Failed("ERR MAXCOUNT must be greater than or equal to COUNT")
        return ReadOptions(
            self._count,
            self._max_count,
            self._max_bytes,
            self._timeout_ms,
            list(zip(rest[:half], rest[half:], strict=True)),
        )

    def _unbalanced(self) -> str:
        group = self._command == "xreadgroup"
        if is_valkey(self._profile):
            wanted = "an ID or '>'" if group else "an ID or '$'"
        else:
            wanted = "an ID or '>'" if group else "an ID, '+', or '$'"
        return (
            f"ERR Unbalanced '{self._command}' list of streams: for each stream key "
            f"{wanted} must be specified."
        )


def _positive(words: Words, name: str) -> int:
    value = words.integer()
    if value <= 0:
        raise Failed(f"ERR {name} must be a positive integer")
    return value


def _timeout(word: bytes) -> int:
    value = integer(word, "ERR timeout is not an integer or out of range")
    if value < 0:
        raise Failed("ERR timeout is negative")
    return value


def xread(client: Client, words: Words) -> Step:
    """As XREAD."""
    parser = ReadParser(client, "xread")
    while (word := words.option()) != b"STREAMS":
        if parser.takes(word, words):
            continue
        if word in (b"CLAIM", b"GROUP", b"NOACK"):
            raise Failed(
                f"ERR The {word.decode()} option is only supported by XREADGROUP. "
                "You called XREAD instead."
            )
        raise Failed(SYNTAX)
    options = parser.streams(words)
    wanted: list[tuple[bytes, StreamID | str]] = []
    for key, word in options.streams:
        if word == b"$":
            wanted.append((key, LAST))
        elif word == b"+":
            wanted.append((key, NEWEST))
        elif word == b">":
            raise Failed(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP "
                "<group> <consumer> option."
            )
        else:
            wanted.append((key, strict_id(word)))
    read = _Read(client, options, wanted)
    look = walked(read.walk)
    if options.timeout_ms is None:
        return look
    return Block(
        look,
        [key for key, _ in options.streams],
        options.timeout_ms or None,
        empty=read.empty,
    )


class _Read:
    """One XREAD, which may be tried again: where it begins is settled at its first look."""

    def __init__(
        self, client: Client, options: ReadOptions, wanted: list[tuple[bytes, StreamID | str]]
    ) -> None:
        self.options = options
        self.empty = NULL_ARRAY
        self.starts: list[tuple[bytes, StreamID]] | None = None
        self._wanted = wanted
        known = [(key, at) for key, at in wanted if isinstance(at, StreamID)]
        if len(known) == len(wanted):
            self.starts = known
        self._one_id = is_valkey(client.service.profile)  # of "+": the last ID, or none

    def walk(self) -> ReadWalk:
        """One try."""
        return ReadWalk(self)

    def begin(self, view: Snapshot) -> tuple[list[tuple[bytes, StreamID]], list[Stretch]]:
        """Behind which entries it reads, and what of each stream."""
        starts, stretches = [], []
        for key, at in self._wanted:
            start = at if isinstance(at, StreamID) else _last(view, key)
            starts.append((key, start))
            if at == NEWEST:
                low = start if self._one_id else ZERO_ID
                stretches.append(Stretch(key, low, start, 1, reverse=True))
            else:
                stretches.append(behind(key, start))
        return starts, stretches


class ReadWalk(EntriesWalk):
    """One try of an XREAD."""

    def __init__(self, read: _Read) -> None:
        starts = read.starts
        known = None if starts is None else [behind(key, start) for key, start in starts]
        super().__init__(known, read.options.budget())
        self._read_of = read

    def begin(self, view: Snapshot) -> list[Stretch]:
        """Settle where it begins."""
        self._read_of.starts, stretches = self._read_of.begin(view)
        return stretches

    def reply(self) -> Reply:
        """Entries by stream; the null array if there are none."""
        return Pairs(self.found) if self.found else self._read_of.empty


def _last(view: Snapshot, key: bytes) -> StreamID:
    record = view.record(key)
    return record.last if record is not None else ZERO_ID


_CATEGORIES = ("read", "stream", "slow")
COMMANDS = [
    Command("xrange", -4, xrange, ("readonly",), (1, 1, 1), "5.0.0",
            "O(log M + N), M nodes in the stream, N entries given",
            summary="Gives the entries between two IDs.",
            categories=_CATEGORIES),
    Command("xrevrange", -4, xrevrange, ("readonly",), (1, 1, 1), "5.0.0",
            "O(log M + N), M nodes in the stream, N entries given",
            summary="Gives the entries between two IDs, the newest first.",
            categories=_CATEGORIES),
    Command("xread", -4, xread, ("readonly", "blocking", "movablekeys"), (0, 0, 0), "5.0.0",
            summary="Gives entries of streams above an ID each; with BLOCK it waits for some.",
            categories=("read", "stream", "slow", "blocking")),
]  # fmt: skip
