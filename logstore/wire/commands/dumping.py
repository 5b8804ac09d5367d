"""DUMP and RESTORE: streams as the payloads that servers exchange."""

from __future__ import annotations

from typing import Any

from logstore import interchange
from logstore.engine import installs, lifetimes
from logstore.engine.lifetimes import EXPIRES_MAX_MS
from logstore.engine.schedules import When
from logstore.engine.state import State
from logstore.errors import Error, InvalidPayloadError, StreamNotFoundError, TooLargeError
from logstore.rdb import dump
from logstore.wire.failures import SYNTAX, Failed
from logstore.wire.reply import Reply
from logstore.wire.session import Session
from logstore.wire.steps import Admin, Change, Look, Reader, Step, ok
from logstore.wire.table import Command
from logstore.wire.words import Words

BUSY = "BUSYKEY Target key name already exists."


def dumped(session: Session, words: Words) -> Step:
    """As DUMP."""
    key = words.next()
    store = session.database.store
    peer: Any = "valkey" if session.service.profile == "valkey-9" else "redis"

    def work() -> Reply:
        try:
            return interchange.payload(store, key, peer)
        except StreamNotFoundError:
            return None

    if session.multi is None:
        return Admin(work, commits=False)

    def find(reader: Reader) -> Reply:  # as the transaction has it so far
        try:
            return reader.once(lambda view: interchange.payload_in(view, key, peer))
        except StreamNotFoundError:
            return None

    return Look(find)


def restore(_session: Session, words: Words) -> Step:
    """As RESTORE."""
    key = words.next()
    ttl = words.integer()
    payload = words.next()
    replace = absolute = False
    while len(words):
        word = words.option()
        if word == b"REPLACE":
            replace = True
        elif word in (b"IDLETIME", b"FREQ") and len(words):
            words.integer()
        elif word == b"ABSTTL":
            absolute = True
        else:
            raise Failed(SYNTAX)
    if ttl < 0:
        raise Failed("ERR Invalid TTL value, must be >= 0")
    stream, error = _prepared(payload)

    def op(state: State) -> None:
        if not replace and state.record_by_name(key) is not None:
            raise Failed(BUSY)
        if stream is None:
            raise error or Failed(SYNTAX)
        installs.install(state, key, stream, replace=replace)
        if ttl:
            at_ms = ttl if absolute else ttl + state.now_ms
            lifetimes.expire(state, key, When(min(at_ms, EXPIRES_MAX_MS)))

    return Change(op, ok)


def _prepared(payload: bytes) -> tuple[installs.Prepared | None, Error | None]:
    """The stream of a payload, decoded before any lock is taken; or why there is none."""
    try:
        return installs.prepare(dump.decode(payload)), None
    except (InvalidPayloadError, TooLargeError) as error:
        return None, error


COMMANDS = [
    Command("dump", 2, dumped, ("readonly",), (1, 1, 1), "2.6.0", "O(N), N bytes of nodes",
            "generic", "Gives a stream as a payload that RESTORE takes.",
            ("read", "keyspace", "slow")),
    Command("restore", -4, restore, ("write", "denyoom"), (1, 1, 1), "2.6.0",
            "O(N), N bytes of nodes", "generic", "Makes a stream of a payload.",
            ("write", "keyspace", "slow", "dangerous")),
]  # fmt: skip
