"""XREADGROUP.

A stream read with ``>`` gives what is new to the group; any other ID gives the consumer's own
history, which always replies and never waits.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin, deliver
from logstore.engine.groups.deliver import Delivered
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.streams.budget import ByteBudget
from logstore.engine.waiting import probe
from logstore.ids import MAX_ID, StreamID
from logstore.wire.commands.reading import Budget, ReadOptions, ReadParser, by_stream
from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.reply import NULL_ARRAY, Reply
from logstore.wire.resp.words import Words, integer, strict_id
from logstore.wire.service import Client
from logstore.wire.steps import Block, Change, QueuedRead, Reader, Step
from logstore.wire.table import Command

_MEANINGLESS = (
    "ERR The {} ID is meaningless in the context of XREADGROUP: you want to read the history of "
    "this consumer by specifying a proper ID, or use the > ID to get new messages. The {} ID would "
    "just return an empty result set."
)
NEW_PART = 4  # what is new is at most one of so many parts of what its client may still owe
_IDLE = "ERR min-idle-time is not an integer or out of range"


class _Asked(NamedTuple):
    """What a read of groups asks for."""

    group: bytes
    consumer: bytes
    noack: bool
    claim_idle_ms: int | None
    options: ReadOptions

    @property
    def keys(self) -> list[bytes]:
        """The streams."""
        return [key for key, _ in self.options.streams]

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
    change = Change(read.op, read.reply)
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
    while not words.take(b"STREAMS"):
        if parser.take(words):
            continue
        word = words.option()
        if word == b"GROUP" and len(words) >= 2:
            names = words.next(), words.next()
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
        left = Budget(asked.options)
        replies: list[tuple[bytes, Reply]] = []
        for key, after in asked.starts(state):
            if left.spent:
                break
            count = max(0, left.count())
            if after is None:
                entries = deliver.read_new(
                    state, key, asked.group, asked.consumer, count=count, noack=asked.noack,
                    claim_idle_ms=asked.claim_idle_ms,
                    room=ByteBudget(left.max_bytes, owed.room(NEW_PART)),
                )  # fmt: skip
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
        claims = self._asked.claim_idle_ms is not None and not history
        return self._client.owed.rows().all_of(entries, _claimed if claims else _delivered)

    def reply(self, replies: list[tuple[bytes, Reply]]) -> Reply:
        """Entries by stream; the null array if there are none."""
        return by_stream(self._client, replies) if replies else NULL_ARRAY

    def in_queue(self, key: bytes) -> QueuedRead:
        """The read of the one stream, for the queue of its group."""
        asked = self._asked
        left = Budget(asked.options)
        count, max_bytes = max(0, left.count()), left.max_bytes

        def once(state: WriteTxn, takes_new: bool) -> list[Delivered]:
            return deliver.read_new(
                state, key, asked.group, asked.consumer, count=count, noack=asked.noack,
                claim_idle_ms=asked.claim_idle_ms, takes_new=takes_new,
                room=ByteBudget(max_bytes, self._client.owed.room(NEW_PART)),
            )  # fmt: skip

        def reply(entries: list[Delivered]) -> Reply:
            return self.reply([(key, self._told(list(entries)))] if entries else [])

        return QueuedRead(
            key, asked.group, asked.consumer, once, reply, count, asked.claim_idle_ms,
            asked.noack, max_bytes > 0,
        )  # fmt: skip

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

    def _look(self, view: Snapshot, key: bytes) -> probe.Available | None:
        asked = self._asked
        return probe.probe(view, key, asked.group, asked.claim_idle_ms, noack=asked.noack)


COMMANDS = [
    Command("xreadgroup", -7, xreadgroup, ("write", "blocking", "movablekeys"), (0, 0, 0), "5.0.0",
            "O(M), M entries given",
            summary="Gives new entries of streams to a consumer, or tells its own history.",
            categories=("write", "stream", "slow", "blocking"), access=("r",)),
]  # fmt: skip
