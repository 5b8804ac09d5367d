"""What is pending: XACK, XACKDEL, XNACK, XPENDING, XCLAIM, XAUTOCLAIM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from logstore.api.opening import OpenStore
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import ack, admin, claim, group_rows
from logstore.engine.groups.claim import ATTEMPTS_AN_ENTRY
from logstore.engine.groups.deliver import Delivered
from logstore.engine.streams.budget import ByteBudget
from logstore.ids import ZERO_ID, StreamID
from logstore.wire.commands.removing import WITH_MODES, IdBlock
from logstore.wire.commands.xinfo import every_consumer
from logstore.wire.partial_commits import (
    ALL,
    PART_ENTRIES,
    PART_ITEMS,
    OfItems,
    Parts,
    Share,
    counting,
    listing,
)
from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.outgoing import Owed
from logstore.wire.resp.reply import NULL_ARRAY, Reply
from logstore.wire.resp.words import (
    Words,
    ids,
    integer,
    interval_end,
    interval_start,
    leading_ids,
    shown,
    strict_id,
)
from logstore.wire.service import Client
from logstore.wire.steps import Change, Look, Reader, Step
from logstore.wire.table import Command

AUTOCLAIM_COUNT = 100
CLAIM_PART = 4  # XAUTOCLAIM takes at most one of so many parts of what its client may still owe
AUTOCLAIM_COUNT_MAX = (1 << 63) // 128
SCANNED_MAX = 2000  # pending entries that a part of XAUTOCLAIM looks at


def _delivered(entry: Delivered) -> Reply:
    return [bytes(entry.id), entry.items]


def _id_of(entry: Delivered) -> Reply:
    return bytes(entry.id)


def xack(_client: Client, words: Words) -> Step:
    """As XACK."""
    key, group = words.next(), words.next()
    given = words.rest()
    wanted = ids(given, ascending=True)

    def op(state: WriteTxn, items: slice = ALL) -> int:
        if admin.maybe(state, key, group) is None:
            return 0  # the peers do not look at the IDs then
        return ack.ack(state, key, group, wanted()[items])

    def beside(opened: OpenStore[bytes]) -> int | None:
        try:
            return opened.ack_plain(key, group, tuple(wanted()))
        except Failed:  # one is no ID: that is told only if there is a group
            return None

    parts = counting(len(given), op)
    return Change(op, frees=True, cost=len(given), beside=None if parts else beside, parts=parts)


def xackdel(_client: Client, words: Words) -> Step:
    """As XACKDEL."""
    key, group = words.next(), words.next()
    block = IdBlock(words)

    def op(state: WriteTxn, items: slice = ALL) -> list[int]:
        if admin.maybe(state, key, group) is None:
            return [-1] * len(range(block.count)[items])
        return list(ack.ack_delete(state, key, group, block.ids()[items], block.mode))

    return Change(op, frees=True, parts=listing(block.count, op))


_MODES = {b"SILENT": "silent", b"FAIL": "fail", b"FATAL": "fatal"}


def xnack(_client: Client, words: Words) -> Step:
    """As XNACK, by its documentation."""
    key, group, mode = words.next(), words.next(), words.option()
    if mode not in _MODES:
        raise Failed("ERR mode must be SILENT, FAIL, or FATAL")
    if words.option() != b"IDS":
        raise Failed("ERR syntax error, expected IDS keyword")
    count = integer(words.next(), "ERR numids must be a positive integer")
    if count <= 0:
        raise Failed("ERR numids must be a positive integer")
    if count > len(words):
        raise Failed("ERR number of IDs doesn't match numids")
    wanted = ids([words.next() for _ in range(count)])()
    retry: int | None = None
    force = False
    while len(words):
        word = words.option()
        if word == b"RETRYCOUNT" and len(words):
            retry = integer(words.next(), "ERR Invalid RETRYCOUNT value, must be >= 0")
            if retry < 0:
                raise Failed("ERR Invalid RETRYCOUNT value, must be >= 0")
        elif word == b"FORCE":
            force = True
        else:
            raise Failed(f"ERR Unrecognized XNACK option '{shown(word)}'")
    return Change(
        lambda state: ack.nack(
            state, key, group, wanted, mode=_MODES[mode], retry_count=retry, force=force
        )
    )


# -- XPENDING -------------------------------------------------------------------------------------
def xpending(_client: Client, words: Words) -> Step:
    """As XPENDING."""
    key, group = words.next(), words.next()
    if not len(words):
        return Look(lambda reader: _summary(reader, key, group))
    min_idle_ms = 0
    if words.take(b"IDLE"):
        if len(words) < 4:
            raise Failed(SYNTAX)
        min_idle_ms = words.integer()
    if len(words) not in (3, 4):
        raise Failed(SYNTAX)
    first, last = words.next(), words.next()
    count = words.integer()
    consumer = words.next() if len(words) else None
    low, high = interval_start(first), interval_end(last)

    def find(reader: Reader) -> Reply:
        now_ms, rows = reader.now_ms, reader.rows()
        left, start = count, low
        while True:
            asked = group_rows.PendingRange(start, high, left, now_ms, consumer, min_idle_ms)
            page, following = reader.once(
                partial(group_rows.detail_page, stream=key, group=group, asked=asked)
            )
            rows.add([[bytes(row.id), row.consumer, row.idle_ms, row.count] for row in page])
            left -= len(page)
            if following is None:
                return rows.done()
            start = following

    return Look(find)


def _summary(reader: Reader, key: bytes, group: bytes) -> Reply:
    rows = reader.rows()
    bounds = reader.once(lambda view: group_rows.pending_bounds(view, key, group))
    if bounds is None:
        return [0, None, None, NULL_ARRAY]
    count, first, last = bounds
    consumers = [
        (row.name, row.pending) for row in every_consumer(reader, rows, key, group) if row.pending
    ]
    told = rows.all_of(consumers, lambda row: [row[0], b"%d" % row[1]])
    return [count, bytes(first), bytes(last), told]


# -- claims ---------------------------------------------------------------------------------------
def xclaim(client: Client, words: Words) -> Step:
    """As XCLAIM; a reply that is more than the client may owe claims nothing, or of very many IDs
    nothing more."""
    key, group, consumer = words.next(), words.next(), words.next()
    idle, *rest = words.rest()
    wanted = leading_ids(rest)
    given = rest[len(wanted) :]
    just_id = b"JUSTID" in [word.upper() for word in given]
    told = _id_of if just_id else _delivered

    def claimed(state: WriteTxn, owed: Owed, items: slice = ALL) -> list[Delivered]:
        admin.existing(state, key, group)  # before the peers look at what follows
        min_idle_ms = integer(idle, "ERR Invalid min-idle-time argument for XCLAIM")
        options = _claim_options(Words(given, 0))  # they begin with the first word that is no ID
        room = ByteBudget(0, owed.room())
        taken = claim.claim(
            state,
            key,
            group,
            consumer,
            wanted[items],
            min_idle_ms=max(0, min_idle_ms),
            room=room,
            **options,
        )
        if room.full:
            raise owed.over()
        return taken

    def op(state: WriteTxn) -> Reply:
        return client.owed.rows().all_of(claimed(state, client.owed), told)

    def begin(owed: Owed) -> Parts:
        rows = owed.rows()

        def keep(found: list[Delivered]) -> None:
            rows.all_of(found, told)

        return OfItems(
            len(wanted), lambda state, items: claimed(state, owed, items), keep, rows.done
        )

    return Change(op, parts=begin if len(wanted) > PART_ITEMS else None)


def _claim_options(words: Words) -> dict[str, Any]:
    options: dict[str, Any] = {"force": False, "just_id": False}
    names = {b"IDLE": "idle_ms", b"TIME": "time_ms", b"RETRYCOUNT": "retry_count"}
    while len(words):
        given = words.next()
        word = given.upper()
        if word == b"FORCE":
            options["force"] = True
        elif word == b"JUSTID":
            options["just_id"] = True
        elif word in names and len(words):
            name = word.decode()
            value = integer(words.next(), f"ERR Invalid {name} option argument for XCLAIM")
            if word != b"RETRYCOUNT" or value >= 0:  # below it is "not given" to the peers
                options[names[word]] = value
        elif word == b"LASTID" and len(words):
            options["last_id"] = strict_id(words.next())
        else:
            raise Failed(f"ERR Unrecognized XCLAIM option '{shown(given)}'")
    return options


def xautoclaim(client: Client, words: Words) -> Step:
    """As XAUTOCLAIM; it ends, and its cursor says where, at a part of what the client may owe."""
    key, group, consumer = words.next(), words.next(), words.next()
    min_idle_ms = max(0, integer(words.next(), "ERR Invalid min-idle-time argument for XAUTOCLAIM"))
    start = interval_start(words.next())
    count, just_id = AUTOCLAIM_COUNT, False
    while len(words):
        word = words.option()
        if word == b"COUNT" and len(words):
            count = integer(words.next(), "ERR COUNT must be > 0")
            if not 1 <= count <= AUTOCLAIM_COUNT_MAX:
                raise Failed("ERR COUNT must be > 0")
        elif word == b"JUSTID":
            just_id = True
        else:
            raise Failed(SYNTAX)

    scan = _Scan(key, group, consumer, min_idle_ms, just_id)

    def op(state: WriteTxn) -> Reply:
        owed = client.owed
        found = scan.step(state, start, count, count * ATTEMPTS_AN_ENTRY, owed.room(CLAIM_PART))
        entries = owed.rows().all_of(found.entries, scan.told)
        return [bytes(found.cursor), entries, owed.rows().all_of(found.deleted, bytes)]

    def begin(owed: Owed) -> Parts:
        return _ScanParts(scan, start, count, owed)

    return Change(op, parts=begin if count > SCANNED_MAX // ATTEMPTS_AN_ENTRY else None)


class _Scan(NamedTuple):
    """What XAUTOCLAIM asks for, wherever it goes on."""

    stream: bytes
    group: bytes
    consumer: bytes
    min_idle_ms: int
    just_id: bool

    def step(
        self, state: WriteTxn, start: StreamID, count: int, attempts: int, room: int
    ) -> claim.Autoclaimed:
        """So many entries, among so many that are looked at."""
        return claim.autoclaim(
            state,
            self.stream,
            self.group,
            self.consumer,
            min_idle_ms=self.min_idle_ms,
            start=start,
            count=count,
            just_id=self.just_id,
            attempts=attempts,
            room=ByteBudget(0, room),
        )

    @property
    def told(self) -> Callable[[Delivered], Reply]:
        """How an entry is told."""
        return _id_of if self.just_id else _delivered


class _ScanParts:
    """XAUTOCLAIM of many, from one cursor to the next."""

    def __init__(self, scan: _Scan, start: StreamID, count: int, owed: Owed) -> None:
        self._scan = scan
        self._cursor = start
        self._left = count
        self._attempts = count * ATTEMPTS_AN_ENTRY
        self._share = Share(owed, CLAIM_PART)
        self._entries, self._deleted = owed.rows(), owed.rows()

    def op(self, state: WriteTxn) -> claim.Autoclaimed:
        """The next step of the scan."""
        return self._scan.step(
            state,
            self._cursor,
            min(self._left, PART_ENTRIES),
            min(self._attempts, SCANNED_MAX),
            self._share.room(),
        )

    def went(self, found: claim.Autoclaimed) -> bool:
        """Where it ended the next one goes on, unless all is taken or looked at."""
        self._cursor = found.cursor
        self._left -= len(found.entries) + len(found.deleted)
        self._attempts -= min(self._attempts, SCANNED_MAX) - found.attempts_left
        full = found.full or self._share.spent
        self._entries.all_of(found.entries, self._scan.told)
        self._deleted.all_of(found.deleted, bytes)
        return self._cursor != ZERO_ID and self._left > 0 and self._attempts > 0 and not full

    def reply(self) -> Reply:
        """Where to go on, what was claimed, and what is gone."""
        return [bytes(self._cursor), self._entries.done(), self._deleted.done()]


_FAST = ("write", "stream", "fast")
COMMANDS = [
    Command("xack", -4, xack, ("write", "fast"), (1, 1, 1), "5.0.0", "O(N), N IDs",
            summary="Entries of a group are done; tells how many were pending.", categories=_FAST),
    Command("xackdel", -6, xackdel, ("write", "fast"), (1, 1, 1), "8.2.0", "O(N), N IDs",
            summary="Entries of a group are done, and are deleted.", categories=_FAST,
            levels=WITH_MODES),
    Command("xnack", -7, xnack, ("write", "fast"), (1, 1, 1), "8.8.0", "O(N), N IDs",
            summary="Gives entries back to their group.", categories=_FAST,
            levels=frozenset({"redis-8.10"})),
    Command("xpending", -3, xpending, ("readonly",), (1, 1, 1), "5.0.0",
            "O(N), N entries looked at", summary="Tells what is pending in a group.",
            categories=("read", "stream", "slow")),
    Command("xclaim", -6, xclaim, ("write", "fast"), (1, 1, 1), "5.0.0", "O(log N) an ID",
            summary="Makes pending entries a consumer's own.", categories=_FAST),
    Command("xautoclaim", -6, xautoclaim, ("write", "fast"), (1, 1, 1), "6.2.0",
            "O(1) for a small COUNT", summary="Makes idle pending entries a consumer's own.",
            categories=_FAST),
]  # fmt: skip
