"""XRANGE, XREVRANGE and XREAD."""

from __future__ import annotations

from typing import NamedTuple

from logstore.codec import NodeEntry
from logstore.engine.streams import read as ranges
from logstore.engine.streams.budget import ByteBudget, entry_bytes
from logstore.ids import MAX_ID, StreamID
from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.reply import NULL_ARRAY, Pairs, Reply
from logstore.wire.resp.words import Words, integer, interval_end, interval_start, strict_id
from logstore.wire.service import Client
from logstore.wire.steps import Block, Look, Reader, Step
from logstore.wire.table import Command, is_valkey

LAST, NEWEST = "$", "+"


def entry(row: NodeEntry) -> Reply:
    """An entry: its ID, and a flat list of fields and values."""
    return [b"%d-%d" % (row[1], row[2]), row[3]]


def found_in(
    reader: Reader,
    key: bytes,
    low: StreamID,
    high: StreamID,
    limit: int,
    *,
    reverse: bool = False,
    budget: Budget | None = None,
) -> Reply:
    """Entries of an interval, read in batches, as an array; ``limit`` -1: all."""
    rows = reader.rows()
    room = None if budget is None else budget.room()
    interval: ranges.Interval | None = None
    while True:
        batch = ranges.read_on(reader.once, key, low, high, limit, reverse=reverse, walked=interval)
        interval = interval or (low, high)
        entries = [entry(row) for row in batch.entries]
        kept = entries if budget is None or room is None else budget.take(entries, room)
        rows.add(kept)
        if limit >= 0:
            limit -= len(entries)
        if batch.rest is None or limit == 0 or len(kept) < len(entries):
            return rows.done()
        low, high = batch.rest


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
    return Look(lambda reader: found_in(reader, key, low, high, most, reverse=reverse))


def xrange(_client: Client, words: Words) -> Step:
    """As XRANGE."""
    return _range(words, reverse=False)


def xrevrange(_client: Client, words: Words) -> Step:
    """As XREVRANGE."""
    return _range(words, reverse=True)


class ReadOptions(NamedTuple):
    """What XREAD and XREADGROUP have in common."""

    limit: int  # entries of each stream; 0: none
    max_count: int  # of all together; 0: no limit
    max_bytes: int  # of the reply; 0: no limit
    timeout_ms: int | None  # None: do not wait; 0: for ever
    streams: list[tuple[bytes, bytes]]


class ReadParser:
    """The options of XREAD and XREADGROUP up to the streams."""

    def __init__(self, client: Client, command: str) -> None:
        self._command = command
        self._limits = client.service.profile == "redis-8.10"
        self._valkey = is_valkey(client.service.profile)
        self._count = self._max_count = self._max_bytes = 0
        self._timeout_ms: int | None = None

    def take(self, words: Words) -> bool:
        """Take one option, if one stands here."""
        if words.take(b"BLOCK"):
            self._timeout_ms = _timeout(words.next())
        elif words.take(b"COUNT"):
            self._count = max(0, words.integer())
        elif self._limits and words.take(b"MAXCOUNT"):
            self._max_count = _positive(words, "MAXCOUNT")
        elif self._limits and words.take(b"MAXSIZE"):
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
        if self._valkey:
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
    while not words.take(b"STREAMS"):
        if parser.take(words):
            continue
        word = words.option()
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
    if options.timeout_ms is None:
        return Look(read.find)
    return Block(
        Look(read.find),
        [key for key, _ in options.streams],
        options.timeout_ms or None,
        empty=read.empty,
    )


class _Read:
    """One XREAD: where it begins is settled at its first look."""

    def __init__(
        self, client: Client, options: ReadOptions, wanted: list[tuple[bytes, StreamID | str]]
    ) -> None:
        self._client = client
        self._options = options
        self._wanted = wanted
        self._starts: list[tuple[bytes, StreamID]] | None = None
        self.empty = NULL_ARRAY

    def find(self, reader: Reader) -> Reply:
        """Entries by stream; the null array if there are none."""
        newest: set[int] = set()  # places, at the first look
        if self._starts is None:
            self._starts = []
            for place, (key, at) in enumerate(self._wanted):
                start = at if isinstance(at, StreamID) else _last(reader, key)
                if at == NEWEST:
                    newest.add(place)
                self._starts.append((key, start))
        left = Budget(self._options)
        replies: list[tuple[bytes, Reply]] = []
        for place, (key, start) in enumerate(self._starts):
            if left.spent:
                break
            rows = self._newest(reader, key, start, left) if place in newest else []
            if not rows and start < MAX_ID:
                rows = found_in(reader, key, start.next(), MAX_ID, left.count(), budget=left)
            if rows:
                replies.append((key, rows))
        return Pairs(replies) if replies else self.empty

    def _newest(self, reader: Reader, key: bytes, last: StreamID, left: Budget | None) -> Reply:
        if is_valkey(self._client.service.profile):
            return found_in(reader, key, last, last, 1, budget=left)
        return found_in(reader, key, StreamID(0, 0), MAX_ID, 1, reverse=True, budget=left)


class Budget:
    """What one reply may still hold: entries, and bytes as ``room`` counts them."""

    def __init__(self, options: ReadOptions) -> None:
        self._each = options.limit
        self._left = options.max_count or None
        self._bytes = options.max_bytes or None

    @property
    def spent(self) -> bool:
        """Whether nothing more goes in."""
        return (self._left is not None and self._left <= 0) or (
            self._bytes is not None and self._bytes <= 0
        )

    def count(self) -> int:
        """How many entries to read of the next stream; -1: all."""
        if self._left is None:
            return self._each or -1
        return min(self._left, self._each) if self._each else self._left

    @property
    def max_bytes(self) -> int:
        """How many bytes are left; 0: no limit."""
        return self._bytes or 0

    def room(self) -> ByteBudget:
        """The bytes that are left for the next stream."""
        return ByteBudget(self.max_bytes)

    def take(self, rows: list[Reply], room: ByteBudget) -> list[Reply]:
        """The rows of a stream that still fit; its first one does in any case."""
        if self._bytes is not None:
            kept = next((at for at, row in enumerate(rows) if not room.takes(row[1])), None)
            rows = rows if kept is None else rows[:kept]
            self._bytes = 0 if kept is not None else self._bytes
        self.spend([row[1] for row in rows])
        return rows

    def spend(self, entries: list[list[bytes] | None]) -> None:
        """These are in the reply: fields and values of each."""
        if self._left is not None:
            self._left -= len(entries)
        if self._bytes is not None:
            self._bytes -= sum(entry_bytes(items or ()) for items in entries)


def _last(reader: Reader, key: bytes) -> StreamID:
    record = reader.once(lambda view: view.record(key))
    return record.last if record is not None else StreamID(0, 0)


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
