"""XREADGROUP.

A stream read with ``>`` gives what is new to the group; any other ID gives the consumer's own
history, which always replies and never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, NamedTuple

from logstore.api.opening import OpenStore
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin, deliver
from logstore.engine.groups.deliver import Delivered
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams.budget import ByteBudget
from logstore.engine.waiting import probe
from logstore.ids import MAX_ID, StreamID
from logstore.wire.commands.read_commands import ReadOptions, ReadParser
from logstore.wire.commands.walking import Budget
from logstore.wire.partial_commits import PART_ENTRIES, Share
from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.outgoing import Owed, Rows
from logstore.wire.resp.reply import NULL_ARRAY, Pairs, Reply
from logstore.wire.resp.words import Words, integer, strict_id
from logstore.wire.service import Client
from logstore.wire.steps import Beside, Block, Change, QueuedRead, Reader, Step
from logstore.wire.table import Command

_MEANINGLESS = (
    "ERR The {} ID is meaningless in the context of XREADGROUP: you want to read the history of "
    "this consumer by specifying a proper ID, or use the > ID to get new messages. The {} ID would "
    "just return an empty result set."
)
BESIDE_MAX_BYTES = 256 * 1024  # of nodes whose entries are handed out in the loop's thread
NEW_PART = 4  # what is new is at most one of so many parts of what its client may still owe
STREAM_COST = 20  # entries that could be handed out while one more stream is looked at
_IDLE = "ERR min-idle-time is not an integer or out of range"


class _Asked(NamedTuple):
    """What a read of groups asks for."""

    group: bytes
    consumer: bytes
    noack: bool
    asked_idle_ms: int | None
    options: ReadOptions

    @property
    def keys(self) -> list[bytes]:
        """The streams."""
        return [key for key, _ in self.options.streams]

    @property
    def most(self) -> int:
        """How many entries it gives at most; 0 or less: any number."""
        return self.options.budget().count() * len(self.options.streams)

    def starts(self, state: WriteTxn) -> list[tuple[bytes, StreamID | None]]:
        """Where to read each stream from; None: what is new. One after the other, as the peers."""
        starts: list[tuple[bytes, StreamID | None]] = []
        for key, word in self.options.streams:
            admin.existing(state, key, self.group, deliver.WHERE)
            if word in (b"$", b"+"):
                raise Failed(_MEANINGLESS.format(word.decode(), word.decode()))
            starts.append((key, _after(word)))
        return starts


def xreadgroup(client: Client, words: Words) -> Step:
    """As XREADGROUP."""
    asked = _parse(client, words)
    read = _GroupRead(client, asked)
    most = asked.most
    if 0 < most <= PART_ENTRIES:
        change = Change(read.op, read.reply, cost=most, beside=read.beside(most))
    else:
        change = Change(read.op, read.reply, parts=partial(_ReadParts, read, asked))
    timeout_ms = asked.options.timeout_ms
    if timeout_ms is None or any(word != b">" for _, word in asked.options.streams):
        return change
    keys = asked.keys
    group = read.in_queue(keys[0]) if len(keys) == 1 else None
    return Block(change, keys, timeout_ms or None, read.worth, NULL_ARRAY, read.pause_ms, group)


def _parse(client: Client, words: Words) -> _Asked:
    parser = ReadParser(client, "xreadgroup")
    names: tuple[bytes, bytes] | None = None
    noack = False
    claim: int | None = None
    while (word := words.option()) != b"STREAMS":
        if word == b"GROUP" and len(words) >= 2:
            names = words.next(), words.next()
        elif parser.takes(word, words):
            continue
        elif word == b"NOACK":
            noack = True
        elif word == b"CLAIM" and client.service.profile == "redis-8.10":
            claim = integer(words.next(), _IDLE)
            if claim < 0:
                raise Failed("ERR min-idle-time must be a positive integer")
        else:
            raise Failed(SYNTAX)
    options = parser.streams(words)
    if names is None:
        raise Failed("ERR Missing GROUP option for XREADGROUP")
    return _Asked(*names, noack, claim, options)


def _after(word: bytes) -> StreamID | None:
    """Where to read from; None: what is new. To the peers the largest ID says the same as ">"."""
    start = MAX_ID if word == b">" else strict_id(word)
    return None if start == MAX_ID else start


def _delivered(entry: Delivered) -> Reply:
    return [bytes(entry.id), NULL_ARRAY if entry.items is None else entry.items]


def _claimed(entry: Delivered) -> Reply:
    return [bytes(entry.id), entry.items, entry.idle_ms, entry.count - 1]


class _GroupRead:
    """One read: an operation over all its streams, and its reply."""

    def __init__(self, client: Client, asked: _Asked) -> None:
        self._client = client
        self._asked = asked
        self._came = False

    def op(self, state: WriteTxn) -> list[tuple[bytes, Reply]]:
        """Deliver; the entries by stream, without streams that have nothing new.

        They are handed out by the commit, so what it may hold of them is bounded before: what is
        new ends where a part of what the client may owe is full, and the rest stays new. A history
        is told whole: one that is more than the client may owe ends the connection, and nothing is
        counted as delivered.
        """
        asked, owed = self._asked, self._client.owed
        left = asked.options.budget()
        replies: list[tuple[bytes, Reply]] = []
        for key, after in asked.starts(state):
            if left.spent:
                break
            count = max(0, left.count())
            if after is None:
                entries = deliver.read_new(
                    state,
                    key,
                    asked.group,
                    asked.consumer,
                    count=count,
                    noack=asked.noack,
                    asked_idle_ms=asked.asked_idle_ms,
                    room=ByteBudget(left.max_bytes, owed.room(NEW_PART)),
                )
            else:
                room = ByteBudget(0, owed.room())
                entries = deliver.read_history(
                    state, key, asked.group, asked.consumer, after, count=count, room=room
                )
                if room.full:
                    raise owed.over()
            left.spend([entry.items for entry in entries])
            if entries or after is not None:
                replies.append((key, self._told(entries, history=after is not None)))
        return replies

    def _told(self, entries: list[Delivered], *, history: bool = False) -> Reply:
        """The entries of one stream; the list is emptied on the way."""
        return self._client.owed.rows().all_of(entries, self.told(history=history))

    def told(self, *, history: bool) -> Callable[[Delivered], Reply]:
        """How an entry is told."""
        claims = self._asked.asked_idle_ms is not None and not history
        return _claimed if claims else _delivered

    def beside(self, count: int) -> Beside | None:
        """The same beside the pipeline; None if it is not what that takes: a few new entries of
        one stream."""
        asked, options = self._asked, self._asked.options
        if len(options.streams) > 1 or options.streams[0][1] != b">" or options.max_bytes:
            return None
        if asked.noack or asked.asked_idle_ms is not None:
            return None
        key = options.streams[0][0]

        def work(opened: OpenStore[bytes]) -> Reply | None:
            rows = self._client.owed.rows()
            made = _NewEntries(rows).first
            try:
                found = opened.read_plain(
                    key, asked.group, asked.consumer, count, 0, lambda _: (made, ()), None
                )
            except _TooLarge:
                return None
            if not found:
                return None if found is None else NULL_ARRAY
            rows.take(found)
            return Pairs([(key, rows.done())])

        return work

    def reply(self, replies: list[tuple[bytes, Reply]]) -> Reply:
        """Entries by stream; the null array if there are none."""
        return Pairs(replies) if replies else NULL_ARRAY

    def in_queue(self, key: bytes) -> QueuedRead:
        """The read of the one stream, for the queue of its group."""
        asked = self._asked
        left = asked.options.budget()
        count, max_bytes = max(0, left.count()), left.max_bytes

        def once(state: WriteTxn, takes_new: bool) -> list[Delivered]:
            return deliver.read_new(
                state,
                key,
                asked.group,
                asked.consumer,
                count=count,
                noack=asked.noack,
                asked_idle_ms=asked.asked_idle_ms,
                takes_new=takes_new,
                room=ByteBudget(max_bytes, self._client.owed.room(NEW_PART)),
            )

        def reply(entries: list[Delivered]) -> Reply:
            return self.reply([(key, self._told(list(entries)))] if entries else [])

        return QueuedRead(
            key,
            asked.group,
            asked.consumer,
            once,
            reply,
            count,
            asked.asked_idle_ms,
            asked.noack,
            max_bytes > 0,
        )

    def worth(self, reader: Reader) -> bool:
        """Whether a read would give something, be it an error; the first makes the consumer."""
        if not self._came:
            self._came = True
            return True
        now_ms = reader.now_ms
        for key in self._asked.keys:
            found = reader.once(partial(self._look, key=key))
            if found is None or found.fresh or found.claimable(now_ms):
                return True
        return False

    def pause_ms(self, reader: Reader) -> int | None:
        """How long until an entry becomes claimable; None: none will."""
        now_ms, least = reader.now_ms, None
        for key in self._asked.keys:
            found = reader.once(partial(self._look, key=key))
            if found is not None and found.claimable_at_ms is not None:
                pause = max(1, found.claimable_at_ms - now_ms)
                least = pause if least is None else min(least, pause)
        return least

    def _look(self, view: Snapshot, key: bytes) -> probe.AvailableEntries | None:
        asked = self._asked
        return probe.probe(view, key, asked.group, asked.asked_idle_ms, noack=asked.noack)


class _TooLarge(Exception):  # noqa: N818  (control flow)
    """What a node would give is more than is made in the loop's thread."""


class _NewEntries:
    """Makes new entries what rows of a reply are made of, as ``DeliveryMaker`` of the codec makes
    deliveries."""

    __slots__ = ("_left", "_made")

    def __init__(self, rows: Rows) -> None:
        self._made = rows.first
        self._left = BESIDE_MAX_BYTES

    def first(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes,
        start: StreamID,
        limit: int,
        *_others: object,
    ) -> tuple[list[Any], bytes]:
        """Those of a node, and their IDs. ``_TooLarge``, before anything is committed."""
        self._left -= len(lp)
        if self._left < 0:
            raise _TooLarge
        return self._made(lp, master_ms, master_seq, vector, start, limit)


class _Took(NamedTuple):
    """What a part handed out of one stream."""

    entries: list[Delivered]
    whole: bool  # there is no more of this stream for this read
    upto: StreamID  # the last ID when the read came to this stream


class _ReadParts:
    """A read of many entries: some of them in each commit, one stream after the other. What was
    added since it came to a stream is not waited for."""

    def __init__(self, read: _GroupRead, asked: _Asked, owed: Owed) -> None:
        self._read = read
        self._asked = asked
        self._owed = owed
        self._left = asked.options.budget()
        self._share = Share(owed, NEW_PART)
        self._starts: list[tuple[bytes, StreamID | None]] | None = None
        self._begun_ms: int | None = None
        self._at = 0  # of the streams
        self._next_stream()
        self._found: list[tuple[bytes, Reply]] = []

    def _next_stream(self) -> None:
        self._rows = self._owed.rows()
        self._told = 0  # entries of this stream
        self._after: StreamID | None = None  # of a history: where it goes on
        self._upto: StreamID | None = None

    def op(self, state: WriteTxn) -> tuple[list[tuple[bytes, StreamID | None]], list[_Took], int]:
        """Hand out the next entries, of one stream or of several that have few."""
        starts = self._starts
        if starts is None:
            starts = self._asked.starts(state)
        left, took, room = copy(self._left), [], PART_ENTRIES
        for at in range(self._at, len(starts)):
            if left.spent or room <= 0:
                break
            continued = at == self._at and self._upto is not None
            most = left.count() - (self._told if continued else 0)
            some = min(room, most) if left.count() > 0 else room
            key, after = starts[at]
            took.append(self._one(state, key, after, some, left, continued=continued))
            left.spend([each.items for each in took[-1].entries])
            if not took[-1].whole:
                break
            room -= len(took[-1].entries) + STREAM_COST
        return starts, took, state.now_ms

    def _one(
        self,
        state: WriteTxn,
        key: bytes,
        after: StreamID | None,
        count: int,
        left: Budget,
        *,
        continued: bool,
    ) -> _Took:
        asked, owed = self._asked, self._owed
        record, _ = admin.existing(state, key, asked.group, deliver.WHERE)
        upto = self._upto if continued and self._upto is not None else record.last
        if after is None:
            room = ByteBudget(left.max_bytes, self._share.room())
            entries = deliver.read_new(
                state,
                key,
                asked.group,
                asked.consumer,
                count=count,
                noack=asked.noack,
                asked_idle_ms=asked.asked_idle_ms,
                room=room,
                left_before_ms=self._begun_ms if continued else None,
            )
        else:
            room = ByteBudget(0, owed.room())
            after = self._after if continued and self._after is not None else after
            entries = deliver.read_history(
                state, key, asked.group, asked.consumer, after, count=count, room=room
            )
            if room.full:
                raise owed.over()
        whole = room.full or len(entries) < count or entries[-1].id >= upto
        return _Took(entries, whole, upto)

    def went(self, found: tuple[list[tuple[bytes, StreamID | None]], list[_Took], int]) -> bool:
        """Tell of what was handed out; whether more is to be."""
        self._starts, took, now_ms = found
        self._begun_ms = self._begun_ms or now_ms
        for each in took:
            key, after = self._starts[self._at]
            self._left.spend([entry.items for entry in each.entries])
            self._told += len(each.entries)
            if each.entries:
                self._after = each.entries[-1].id
            self._upto = each.upto
            self._rows.all_of(each.entries, self._read.told(history=after is not None))
            full = after is None and self._share.spent
            limit = self._asked.options.limit
            if each.whole or full or self._left.spent or 0 < limit <= self._told:
                if self._told or after is not None:
                    self._found.append((key, self._rows.done()))
                self._at += 1
                self._next_stream()
        if self._at >= len(self._starts) or self._left.spent:
            return False
        return not (self._share.spent and self._starts[self._at][1] is None)

    def reply(self) -> Reply:
        """Entries by stream; what is told of the stream at hand is among them."""
        if self._told and self._starts is not None:
            self._found.append((self._starts[self._at][0], self._rows.done()))
            self._told = 0
        return self._read.reply(self._found)


COMMANDS = [
    Command("xreadgroup", -7, xreadgroup, ("write", "blocking", "movablekeys"), (0, 0, 0), "5.0.0",
            "O(M), M entries given",
            summary="Gives new entries of streams to a consumer, or tells its own history.",
            categories=("write", "stream", "slow", "blocking"), access=("r",)),
]  # fmt: skip
