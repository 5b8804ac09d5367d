"""What is pending: XACK, XACKDEL, XNACK, XPENDING, XCLAIM, XAUTOCLAIM."""

from __future__ import annotations

from functools import partial
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import ack, admin, claim, describe
from logstore.engine.groups.deliver import Delivered
from logstore.engine.streams.budget import ByteBudget
from logstore.wire.commands.removing import SINCE_8_2, IdBlock
from logstore.wire.commands.xinfo import every_consumer
from logstore.wire.resp.failures import SYNTAX, Failed
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


def _delivered(entry: Delivered) -> Reply:
    return [bytes(entry.id), entry.items]


def _id_of(entry: Delivered) -> Reply:
    return bytes(entry.id)


def xack(_client: Client, words: Words) -> Step:
    """As XACK."""
    key, group = words.next(), words.next()
    wanted = ids(words.rest(), ascending=True)

    def op(state: WriteTxn) -> int:
        if admin.maybe(state, key, group) is None:
            return 0  # the peers do not look at the IDs then
        return ack.ack(state, key, group, wanted())

    return Change(op, frees=True)


def xackdel(_client: Client, words: Words) -> Step:
    """As XACKDEL."""
    key, group = words.next(), words.next()
    block = IdBlock(words)

    def op(state: WriteTxn) -> list[int]:
        if admin.maybe(state, key, group) is None:
            return [-1] * block.count
        return list(ack.ack_delete(state, key, group, block.ids(), block.mode))

    return Change(op, frees=True)


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
            page, following = reader.once(
                partial(
                    describe.detail_page,
                    stream=key,
                    group=group,
                    start=start,
                    end=high,
                    count=left,
                    consumer=consumer,
                    min_idle_ms=min_idle_ms,
                    now_ms=now_ms,
                )
            )
            rows.add([[bytes(row.id), row.consumer, row.idle_ms, row.count] for row in page])
            left -= len(page)
            if following is None:
                return rows.done()
            start = following

    return Look(find)


def _summary(reader: Reader, key: bytes, group: bytes) -> Reply:
    rows = reader.rows()
    bounds = reader.once(lambda view: describe.pending_bounds(view, key, group))
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
    """As XCLAIM; a reply that is more than the client may owe claims nothing."""
    key, group, consumer = words.next(), words.next(), words.next()
    idle, *rest = words.rest()
    wanted = leading_ids(rest)
    given = rest[len(wanted) :]
    just_id = b"JUSTID" in [word.upper() for word in given]

    def op(state: WriteTxn) -> Reply:
        admin.existing(state, key, group)  # before the peers look at what follows
        min_idle_ms = integer(idle, "ERR Invalid min-idle-time argument for XCLAIM")
        options = _claim_options(Words(given, 0))  # they begin with the first word that is no ID
        owed = client.owed
        room = ByteBudget(0, owed.room())
        claimed = claim.claim(
            state,
            key,
            group,
            consumer,
            wanted,
            min_idle_ms=max(0, min_idle_ms),
            room=room,
            **options,
        )
        if room.full:
            raise owed.over()
        return owed.rows().all_of(claimed, _id_of if just_id else _delivered)

    return Change(op)


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

    def op(state: WriteTxn) -> Reply:
        owed = client.owed
        claimed = claim.autoclaim(
            state,
            key,
            group,
            consumer,
            min_idle_ms=min_idle_ms,
            start=start,
            count=count,
            just_id=just_id,
            room=ByteBudget(0, owed.room(CLAIM_PART)),
        )
        entries = owed.rows().all_of(claimed.entries, _id_of if just_id else _delivered)
        return [bytes(claimed.cursor), entries, owed.rows().all_of(claimed.deleted, bytes)]

    return Change(op)


_FAST = ("write", "stream", "fast")
COMMANDS = [
    Command("xack", -4, xack, ("write", "fast"), (1, 1, 1), "5.0.0", "O(N), N IDs",
            summary="Entries of a group are done; tells how many were pending.", categories=_FAST),
    Command("xackdel", -6, xackdel, ("write", "fast"), (1, 1, 1), "8.2.0", "O(N), N IDs",
            summary="Entries of a group are done, and are deleted.", categories=_FAST,
            levels=SINCE_8_2),
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
