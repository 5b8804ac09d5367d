"""Streams as a whole: RENAME, COPY; DUMP and RESTORE, the payloads that servers exchange."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from logstore.api.opening import opened_of
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import copy as copies
from logstore.engine.dump import payloads
from logstore.engine.dump.restore import VerifiedStream, install
from logstore.engine.features import expiry
from logstore.engine.features.due_entries import DueTime
from logstore.engine.features.expiry import EXPIRES_MAX_MS
from logstore.engine.streams import lifecycle
from logstore.errors import Error, StreamExistsError, StreamNotFoundError
from logstore.options import Profile
from logstore.wire.resp.reply import OK, SYNTAX, Failed, Reply
from logstore.wire.resp.words import Words
from logstore.wire.service import Client, Database
from logstore.wire.steps import Admin, Change, CommandStep, Reader, ReadStep, ok
from logstore.wire.table import Command

# As whom DUMP writes: what each of them RESTOREs.
PEERS: dict[Profile, payloads.Peer] = {
    "redis-8.2": "redis",
    "redis-8.10": "redis-8.8",
    "valkey-9": "valkey",
    "valkey-9.2": "valkey",
}
SAME = "ERR source and destination objects are the same"
BUSY = "BUSYKEY Target key name already exists."
ALONE_BYTES = 16 * 1024  # a payload that long may have so many groups that it takes many commits


# -- names, copies -------------------------------------------------------------------------------
def rename(_client: Client, words: Words) -> CommandStep:
    """As RENAME."""
    old, new = words.next(), words.next()
    return Change(partial(lifecycle.rename, old=old, new=new), ok)


def rename_new(_client: Client, words: Words) -> CommandStep:
    """As RENAMENX."""
    old, new = words.next(), words.next()
    return Change(partial(lifecycle.rename, old=old, new=new, replace=False), int)


def _own_database(client: Client, number: int) -> None:
    """Only the database at hand is copied to: another one is another store."""
    if number not in client.service.databases:
        raise Failed("ERR DB index is out of range")
    if number != client.database.number:
        raise Failed("ERR COPY to another database is not possible here: use DUMP and RESTORE")


def copy(client: Client, words: Words) -> CommandStep:
    """As COPY, inside of a database."""
    source, target = words.next(), words.next()
    replace = False
    while len(words):
        word = words.option()
        if word == b"REPLACE":
            replace = True
        elif word == b"DB" and len(words):
            _own_database(client, words.integer())
        else:
            raise Failed(SYNTAX)
    if source == target:
        raise Failed(SAME)

    def op(state: WriteTxn) -> bool:
        if state.record_by_name(source) is None:
            return False
        return copies.copy(state, source, target, replace=replace)

    return Change(op, int)


# -- payloads ------------------------------------------------------------------------------------
def dumped(client: Client, words: Words) -> CommandStep:
    """As DUMP."""
    key = words.next()
    store = client.database.store
    peer = PEERS[client.service.profile]

    def work() -> Reply:
        try:
            return payloads.payload(opened_of(store).engine(), key, peer)
        except StreamNotFoundError:
            return None

    if client.multi is None:
        return Admin(work, commits=False)

    def find(reader: Reader) -> Reply:  # as the transaction has it so far
        try:
            return reader.once(lambda view: payloads.payload_in(view, key, peer))
        except StreamNotFoundError:
            return None

    return ReadStep(find)


def restore(client: Client, words: Words) -> CommandStep:
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
    restoring = _Restoring(key, payload, ttl, replace=replace, absolute=absolute)
    if client.multi is None and len(payload) >= ALONE_BYTES:
        database = client.database
        return Admin(lambda: restoring.alone(database))
    return Change(restoring.step, ok, prepare=restoring.prepare)


@dataclass
class _Restoring:
    """One RESTORE. The payload is decoded in a thread, and before any lock is taken."""

    key: bytes
    payload: bytes
    ttl: int
    replace: bool
    absolute: bool
    stream: VerifiedStream | None = None
    error: Error | None = None

    def prepare(self) -> None:
        """Decode the payload, or find out why it cannot be."""
        if self.stream is None and self.error is None:
            try:
                self.stream = payloads.prepared(self.payload)
            except Error as error:
                self.error = error
            self.payload = b""

    def step(self, state: WriteTxn) -> None:
        """All of it as part of a commit."""
        self._check_free(state)
        install(state, self.key, self._prepared(), replace=self.replace)
        self._expire(state)

    def alone(self, database: Database) -> Reply:
        """All of it by itself: in one commit, or in many if it has very many groups."""
        self.prepare()
        if self.stream is None or not self.stream.info.many:
            return database.runner.run([Change(self.step, ok)])[0]
        try:
            payloads.restore_prepared(
                opened_of(database.store).commit,
                self.key,
                self.stream,
                replace=self.replace,
                last=self._expire,
            )
        except StreamExistsError:
            raise Failed(BUSY) from None
        return OK

    def _check_free(self, state: WriteTxn) -> None:
        if not self.replace and state.record_by_name(self.key) is not None:
            raise Failed(BUSY)

    def _prepared(self) -> VerifiedStream:
        if self.stream is None:
            raise self.error or Failed(SYNTAX)
        return self.stream

    def _expire(self, state: WriteTxn) -> None:
        if self.ttl:
            at_ms = self.ttl if self.absolute else self.ttl + state.now_ms
            expiry.expire(state, self.key, DueTime(min(at_ms, EXPIRES_MAX_MS)))


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
    Command("dump", 2, dumped, ("readonly",), (1, 1, 1), "2.6.0", "O(N), N bytes of nodes",
            "generic", "Gives a stream as a payload that RESTORE takes.",
            ("read", "keyspace", "slow")),
    Command("restore", -4, restore, ("write", "denyoom"), (1, 1, 1), "2.6.0",
            "O(N), N bytes of nodes", "generic", "Makes a stream of a payload.",
            ("write", "keyspace", "slow", "dangerous")),
]  # fmt: skip
