"""When a stream expires: EXPIRE and its family, TTL and its family, PERSIST."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features import expired
from logstore.engine.features.due_entries import DueTime
from logstore.engine.features.expired import EXPIRES_MAX_MS, Condition
from logstore.index.keys import StreamRecord
from logstore.wire.resp.failures import Failed
from logstore.wire.resp.reply import Reply
from logstore.wire.resp.words import I64_MIN, Words, shown
from logstore.wire.service import Client, Parse
from logstore.wire.steps import Change, Look, Reader, Step
from logstore.wire.table import Command

NO_KEY, NEVER = -2, -1  # instead of a time
_CONDITIONS: dict[bytes, Condition] = {
    b"NX": "never",
    b"XX": "already",
    b"GT": "later",
    b"LT": "sooner",
}


def _expiring(name: str, unit_ms: int, *, from_now: bool) -> Parse:
    """A command that sets when a key expires."""

    def parse(_client: Client, words: Words) -> Step:
        key, word = words.next(), Words([words.next()], 0)
        conditions = _conditions(words)
        when_ms = word.integer() * unit_ms
        if not I64_MIN <= when_ms <= EXPIRES_MAX_MS:
            raise _invalid(name)
        when = DueTime(when_ms, from_now)

        def op(state: WriteTxn) -> bool:
            if from_now and when_ms + state.now_ms > EXPIRES_MAX_MS:
                raise _invalid(name)
            return expired.expire(state, key, when, conditions)

        return Change(op, int, frees=True)

    return parse


def _invalid(name: str) -> Failed:
    return Failed(f"ERR invalid expire time in '{name}' command")


def _conditions(words: Words) -> frozenset[Condition]:
    conditions: set[Condition] = set()
    for word in words.rest():
        condition = _CONDITIONS.get(word.upper())
        if condition is None:
            raise Failed(f"ERR Unsupported option {shown(word)}")
        conditions.add(condition)
    if "never" in conditions and len(conditions) > 1:
        raise Failed("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {"later", "sooner"} <= conditions:
        raise Failed("ERR GT and LT options at the same time are not compatible")
    return frozenset(conditions)


def persist(_client: Client, words: Words) -> Step:
    """As PERSIST."""
    return Change(partial(expired.persist, name=words.next()), int)


def _telling(told: Callable[[int, int], int]) -> Parse:
    """A command that tells when a key expires, of that time and the time now (unix ms)."""

    def parse(_client: Client, words: Words) -> Step:
        key = words.next()

        def find(reader: Reader) -> Reply:
            looked_up: tuple[StreamRecord | None, int] = reader.once(
                lambda view: (view.record(key), view.now_ms)
            )
            record, now_ms = looked_up
            if record is None:
                return NO_KEY
            return told(record.expires_ms, now_ms) if record.expires_ms else NEVER

        return Look(find)

    return parse


def _seconds(ms: int) -> int:
    return (ms + 500) // 1000


def _set(name: str, unit_ms: int, summary: str, since: str, *, from_now: bool) -> Command:
    return Command(
        name,
        -3,
        _expiring(name, unit_ms, from_now=from_now),
        ("write", "fast"),
        (1, 1, 1),
        since,
        "O(1)",
        "generic",
        summary,
        ("write", "keyspace", "fast"),
    )


def _tell(name: str, told: Callable[[int, int], int], summary: str, since: str) -> Command:
    return Command(
        name,
        2,
        _telling(told),
        ("readonly", "fast"),
        (1, 1, 1),
        since,
        "O(1)",
        "generic",
        summary,
        ("read", "keyspace", "fast"),
    )


COMMANDS = [
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
