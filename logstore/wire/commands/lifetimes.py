"""RENAME, COPY, and the family of EXPIRE: what becomes of a key as a whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import copy as copies
from logstore.engine.features import expiry
from logstore.engine.features.expiry import EXPIRES_MAX_MS, Condition
from logstore.engine.features.schedule import When
from logstore.engine.streams import lifecycle
from logstore.index.keys import StreamRecord
from logstore.wire.command_words import I64_MIN, Words, shown
from logstore.wire.failures import SYNTAX, Failed
from logstore.wire.reply import Reply
from logstore.wire.session import Session
from logstore.wire.steps import Change, Look, Reader, Step, ok
from logstore.wire.table import Command, Parse

SAME = "ERR source and destination objects are the same"
NO_KEY, NEVER = -2, -1  # instead of a time
_CONDITIONS: dict[bytes, Condition] = {
    b"NX": "never", b"XX": "already", b"GT": "later", b"LT": "sooner",
}  # fmt: skip


# -- names ----------------------------------------------------------------------------------------
def rename(_session: Session, words: Words) -> Step:
    """As RENAME."""
    old, new = words.next(), words.next()
    return Change(partial(lifecycle.rename, old=old, new=new), ok)


def rename_new(_session: Session, words: Words) -> Step:
    """As RENAMENX."""
    old, new = words.next(), words.next()
    return Change(partial(lifecycle.rename, old=old, new=new, replace=False), int)


def _own_database(session: Session, number: int) -> None:
    """Only the database at hand is copied to: another one is another store."""
    if number not in session.service.databases:
        raise Failed("ERR DB index is out of range")
    if number != session.database.number:
        raise Failed("ERR COPY to another database is not possible here: use DUMP and RESTORE")


def copy(session: Session, words: Words) -> Step:
    """As COPY, inside of a database."""
    source, target = words.next(), words.next()
    replace = False
    while len(words):
        word = words.option()
        if word == b"REPLACE":
            replace = True
        elif word == b"DB" and len(words):
            _own_database(session, words.integer())
        else:
            raise Failed(SYNTAX)
    if source == target:
        raise Failed(SAME)

    def op(state: WriteTxn) -> bool:
        if state.record_by_name(source) is None:
            return False
        return copies.copy(state, source, target, replace=replace)

    return Change(op, int)


# -- times ----------------------------------------------------------------------------------------
def _expiring(name: str, unit_ms: int, *, from_now: bool) -> Parse:
    """A command that sets when a key expires."""

    def parse(_session: Session, words: Words) -> Step:
        key, word = words.next(), Words([words.next()], 0)
        conditions = _conditions(words)
        when_ms = word.integer() * unit_ms
        if not I64_MIN <= when_ms <= EXPIRES_MAX_MS:
            raise _invalid(name)
        when = When(when_ms, from_now)

        def op(state: WriteTxn) -> bool:
            if from_now and when_ms + state.now_ms > EXPIRES_MAX_MS:
                raise _invalid(name)
            return expiry.expire(state, key, when, conditions)

        return Change(op, int, frees=True)

    return parse


def _invalid(name: str) -> Failed:
    return Failed(f"ERR invalid expire time in '{name}' command")


def _conditions(words: Words) -> frozenset[Condition]:
    found: set[Condition] = set()
    for word in words.rest():
        condition = _CONDITIONS.get(word.upper())
        if condition is None:
            raise Failed(f"ERR Unsupported option {shown(word)}")
        found.add(condition)
    if "never" in found and len(found) > 1:
        raise Failed("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {"later", "sooner"} <= found:
        raise Failed("ERR GT and LT options at the same time are not compatible")
    return frozenset(found)


def persist(_session: Session, words: Words) -> Step:
    """As PERSIST."""
    return Change(partial(expiry.persist, name=words.next()), int)


def _telling(told: Callable[[int, int], int]) -> Parse:
    """A command that tells when a key expires, of that time and the time now (unix ms)."""

    def parse(_session: Session, words: Words) -> Step:
        key = words.next()

        def find(reader: Reader) -> Reply:
            found: tuple[StreamRecord | None, int] = reader.once(
                lambda view: (view.record(key), view.now_ms)
            )
            record, now_ms = found
            if record is None:
                return NO_KEY
            return told(record.expires_ms, now_ms) if record.expires_ms else NEVER

        return Look(find)

    return parse


def _seconds(ms: int) -> int:
    return (ms + 500) // 1000


def _set(name: str, unit_ms: int, summary: str, since: str, *, from_now: bool) -> Command:
    return Command(
        name, -3, _expiring(name, unit_ms, from_now=from_now), ("write", "fast"), (1, 1, 1), since,
        "O(1)", "generic", summary, ("write", "keyspace", "fast"),
    )  # fmt: skip


def _tell(name: str, told: Callable[[int, int], int], summary: str, since: str) -> Command:
    return Command(
        name, 2, _telling(told), ("readonly", "fast"), (1, 1, 1), since, "O(1)", "generic",
        summary, ("read", "keyspace", "fast"),
    )  # fmt: skip


COMMANDS = [
    Command("rename", 3, rename, ("write",), (1, 2, 1), "1.0.0", "O(1)", "generic",
            "Calls a stream otherwise; one of that name goes.", ("write", "keyspace", "slow"),
            access=("rw", "w")),
    Command("renamenx", 3, rename_new, ("write", "fast"), (1, 2, 1), "1.0.0", "O(1)", "generic",
            "Calls a stream otherwise, if there is none of that name.",
            ("write", "keyspace", "fast"), access=("rw", "w")),
    Command("copy", -3, copy, ("write", "denyoom"), (1, 2, 1), "6.2.0", "O(N), N bytes of nodes",
            "generic", "Copies a stream with its groups.", ("write", "keyspace", "slow"),
            access=("r", "w")),
    Command("persist", 2, persist, ("write", "fast"), (1, 1, 1), "2.2.0", "O(1)", "generic",
            "Lets a stream expire no longer.", ("write", "keyspace", "fast")),
    _set("expire", 1000, "Lets a stream expire in some seconds.", "1.0.0", from_now=True),
    _set("pexpire", 1, "Lets a stream expire in some milliseconds.", "2.6.0", from_now=True),
    _set("expireat", 1000, "Lets a stream expire at a time, in seconds.", "1.2.0", from_now=False),
    _set("pexpireat", 1, "Lets a stream expire at a time, in milliseconds.", "2.6.0",
         from_now=False),
    _tell("ttl", lambda at, now: _seconds(at - now), "Tells in how many seconds a stream expires.",
          "1.0.0"),
    _tell("pttl", lambda at, now: at - now, "Tells in how many milliseconds a stream expires.",
          "2.6.0"),
    _tell("expiretime", lambda at, _: _seconds(at), "Tells when a stream expires, in seconds.",
          "7.0.0"),
    _tell("pexpiretime", lambda at, _: at, "Tells when a stream expires, in milliseconds.",
          "7.0.0"),
]  # fmt: skip
