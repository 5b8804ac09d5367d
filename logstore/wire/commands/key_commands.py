"""Commands of keys: every key is a stream. EXPIRE and TTL with their families, and PERSIST, too."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features import expiry
from logstore.engine.features.due_entries import DueTime
from logstore.engine.features.expiry import EXPIRES_MAX_MS, Condition
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import lifecycle
from logstore.index.keys import StreamRecord
from logstore.wire.partial_commits import ALL, counting
from logstore.wire.resp.globs import Glob
from logstore.wire.resp.reply import SYNTAX, Failed, Reply, Simple
from logstore.wire.resp.words import I64_MAX, I64_MIN, Words, shown, unsigned
from logstore.wire.service import Client, Parse
from logstore.wire.steps import Change, CommandStep, Reader, ReadStep
from logstore.wire.table import Command, constant, help_of

NO_KEY, NEVER = -2, -1  # instead of a time
_CONDITIONS: dict[bytes, Condition] = {
    b"NX": "never",
    b"XX": "already",
    b"GT": "later",
    b"LT": "sooner",
}


# -- when a stream expires --------------------------------------------------------------------
def _expiring(name: str, unit_ms: int, *, from_now: bool) -> Parse:
    """A command that sets when a key expires."""

    def parse(_client: Client, words: Words) -> CommandStep:
        key, word = words.next(), Words([words.next()], 0)
        conditions = _conditions(words)
        when_ms = word.integer() * unit_ms
        if not I64_MIN <= when_ms <= EXPIRES_MAX_MS:
            raise _invalid(name)
        when = DueTime(when_ms, from_now)

        def op(state: WriteTxn) -> bool:
            if from_now and when_ms + state.now_ms > EXPIRES_MAX_MS:
                raise _invalid(name)
            return expiry.expire(state, key, when, conditions)

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


def persist(_client: Client, words: Words) -> CommandStep:
    """As PERSIST."""
    return Change(partial(expiry.persist, name=words.next()), int)


def _answering(answer: Callable[[int, int], int]) -> Parse:
    """A command that tells when a key expires, of that time and the time now (unix ms)."""

    def parse(_client: Client, words: Words) -> CommandStep:
        key = words.next()

        def find(reader: Reader) -> Reply:
            looked_up: tuple[StreamRecord | None, int] = reader.once(
                lambda view: (view.record(key), view.now_ms)
            )
            record, now_ms = looked_up
            if record is None:
                return NO_KEY
            return answer(record.expires_ms, now_ms) if record.expires_ms else NEVER

        return ReadStep(find)

    return parse


def _seconds(ms: int) -> int:
    return (ms + 500) // 1000


def _set(name: str, unit_ms: int, summary: str, since: str, *, from_now: bool) -> Command:
    return _of_expiry(
        name, -3, _expiring(name, unit_ms, from_now=from_now), "write", summary, since
    )


def _time_of(name: str, answer: Callable[[int, int], int], summary: str, since: str) -> Command:
    return _of_expiry(name, 2, _answering(answer), "read", summary, since)


def _of_expiry(name: str, arity: int, parse: Parse, kind: str, summary: str, since: str) -> Command:
    flags = ("write" if kind == "write" else "readonly", "fast")
    return constant(
        name, arity, parse, since, summary, group="generic", flags=flags, keys=(1, 1, 1),
        categories=(kind, "keyspace", "fast"),
    )  # fmt: skip


_EXPIRY = [
    _of_expiry("persist", 2, persist, "write", "Lets a stream expire no longer.", "2.2.0"),
    _set("expire", 1000, "Lets a stream expire in some seconds.", "1.0.0", from_now=True),
    _set("pexpire", 1, "Lets a stream expire in some milliseconds.", "2.6.0", from_now=True),
    _set("expireat", 1000, "Lets a stream expire at a time, in seconds.", "1.2.0", from_now=False),
    _set("pexpireat", 1, "Lets a stream expire at a time, in milliseconds.", "2.6.0",
         from_now=False),
    _time_of("ttl", lambda at, now: _seconds(at - now),
             "Tells in how many seconds a stream expires.", "1.0.0"),
    _time_of("pttl", lambda at, now: at - now, "Tells in how many milliseconds a stream expires.",
          "2.6.0"),
    _time_of("expiretime", lambda at, _: _seconds(at), "Tells when a stream expires, in seconds.",
          "7.0.0"),
    _time_of("pexpiretime", lambda at, _: at, "Tells when a stream expires, in milliseconds.",
          "7.0.0"),
]  # fmt: skip


# -- keys -------------------------------------------------------------------------------------
SCAN_COUNT = 10
LOOKED_AT_MAX = 1000
PAGE_BYTES = 1 << 20  # of names that are read on one snapshot
_STREAM = Simple(b"stream")
_NONE = Simple(b"none")


def delete(_client: Client, words: Words) -> CommandStep:
    """As DEL and UNLINK."""
    keys = words.rest()

    def op(state: WriteTxn, items: slice = ALL) -> int:
        return sum(lifecycle.drop(state, key) for key in keys[items])

    return Change(op, frees=True, parts=counting(len(keys), op))


def exists(_client: Client, words: Words) -> CommandStep:
    """As EXISTS."""
    keys = words.rest()

    def find(reader: Reader) -> Reply:
        return sum(
            reader.once(partial(_there, keys=keys[at : at + LOOKED_AT_MAX]))
            for at in range(0, len(keys), LOOKED_AT_MAX)
        )

    return ReadStep(find)


def _there(view: Snapshot, keys: list[bytes]) -> int:
    return sum(view.record(key) is not None for key in keys)


def _of_key(key: bytes, answer: Callable[[StreamRecord], Reply], missing: Reply) -> CommandStep:
    def find(reader: Reader) -> Reply:
        record = reader.once(lambda view: view.record(key))
        return missing if record is None else answer(record)

    return ReadStep(find, light=True)


def kind(_client: Client, words: Words) -> CommandStep:
    """As TYPE."""
    return _of_key(words.next(), lambda _: _STREAM, _NONE)


# -- names ----------------------------------------------------------------------------------------
def keys(_client: Client, words: Words) -> CommandStep:
    """As KEYS."""
    fits = Glob(words.next()).fits

    def find(reader: Reader) -> Reply:
        rows = reader.rows()
        after = 0
        while page := reader.once(partial(_page, after=after, most=LOOKED_AT_MAX)):
            rows.add(_fitting(reader, page, fits))
            after = page[-1][0]
        return rows.done()

    return ReadStep(find)


def _fitting(
    reader: Reader, page: list[tuple[int, bytes]], fits: Callable[[bytes], bool] | None
) -> list[Reply]:
    """The names of a page that fit a pattern, which may take long for each of them."""
    fitting: list[Reply] = []
    for _, name in page:
        reader.check()
        if fits is None or fits(name):
            fitting.append(name)
    return fitting


def _page(view: Snapshot, after: int, most: int) -> list[tuple[int, bytes]]:
    """Numbers and names of at most ``most`` streams, fewer if the names are long."""
    page: list[tuple[int, bytes]] = []
    size = 0
    for record in view.listed(after):
        page.append((record.number, record.name))
        size += len(record.name)
        if len(page) >= most or size >= PAGE_BYTES:
            break
    return page


def scan(_client: Client, words: Words) -> CommandStep:
    """As SCAN: the cursor is a stream's number, so that nothing comes twice or is left out."""
    cursor = min(unsigned(words.next(), "ERR invalid cursor"), I64_MAX)
    count, fits, wanted = SCAN_COUNT, None, True
    while len(words):
        word = words.option()
        if word == b"COUNT" and len(words):
            count = words.integer()
            if count < 1:
                raise Failed(SYNTAX)
        elif word == b"MATCH" and len(words):
            fits = Glob(words.next()).fits
        elif word == b"TYPE" and len(words):
            wanted = words.next().lower() == b"stream"
        else:
            raise Failed(SYNTAX)
    most = min(count, LOOKED_AT_MAX)

    def find(reader: Reader) -> Reply:
        page = reader.once(partial(_page, after=cursor, most=most))
        full = len(page) == most or sum(len(name) for _, name in page) >= PAGE_BYTES
        following = page[-1][0] if full else 0
        return [b"%d" % following, _fitting(reader, page, fits) if wanted else []]

    return ReadStep(find)


def random_key(_client: Client, _words: Words) -> CommandStep:
    """As RANDOMKEY: that of a stream made not before a random moment, or of the oldest one."""

    def look(view: Snapshot) -> Reply:
        for after in (secrets.randbelow(view.meta.next_stream), 0):
            page = _page(view, after, 1)
            if page:
                return page[0][1]
        return None

    return ReadStep(lambda reader: reader.once(look))


# -- what a key is made of ------------------------------------------------------------------------
def object_encoding(_client: Client, words: Words) -> CommandStep:
    """As OBJECT ENCODING."""
    return _of_key(words.next(), lambda _: b"stream", None)


def object_idle(_client: Client, words: Words) -> CommandStep:
    """As OBJECT IDLETIME: nothing is forgotten for being idle, so it is not counted."""
    return _of_key(words.next(), lambda _: 0, None)


def object_frequency(_client: Client, words: Words) -> CommandStep:
    """As OBJECT FREQ, which is refused without a policy that counts it."""
    words.next()
    raise Failed(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note "
        "that when switching between policies at runtime LRU and LFU data will take some time to "
        "adjust."
    )


def object_references(_client: Client, words: Words) -> CommandStep:
    """As OBJECT REFCOUNT."""
    return _of_key(words.next(), lambda _: 1, None)


def memory_usage(_client: Client, words: Words) -> CommandStep:
    """As MEMORY USAGE: bytes of the stream's nodes, on disk."""
    key = words.next()
    if len(words):
        if not words.take(b"SAMPLES"):
            raise Failed(SYNTAX)
        if words.integer() < 0:
            raise Failed(SYNTAX)
    words.end()

    def find(reader: Reader) -> Reply:
        return reader.once(lambda view: _bytes_of(view, key))

    return ReadStep(find)


def _bytes_of(view: Snapshot, key: bytes) -> int | None:
    record = view.record(key)
    if record is None:
        return None
    node: Any = view.open_node(record.number) if record.open_version else None
    inline = len(node.lp) if node is not None and node.lp is not None else 0
    return record.node_bytes + inline + len(record.pack())


def _one(
    name: str,
    arity: int,
    parse: Parse | None,
    summary: str,
    *flags: str,
    keys: tuple[int, int, int] = (1, 1, 1),
    subcommands: tuple[Command, ...] = (),
    categories: tuple[str, ...] | None = None,
) -> Command:
    kind_of = "write" if "write" in flags else "read"
    speed = "fast" if "fast" in flags else "slow"
    return Command(
        name,
        arity,
        parse,
        flags,
        keys,
        "1.0.0",
        "O(1) a key",
        "generic",
        summary,
        categories or (kind_of, "keyspace", speed),
        subcommands={part.name: part for part in subcommands},
        access=None if kind_of == "write" else ("",),  # whether it is there, not what it holds
    )


_OBJECT = (
    _one("object|encoding", 3, object_encoding, "Tells 'stream'.", "readonly", keys=(2, 2, 1)),
    _one("object|freq", 3, object_frequency, "Refused: not counted.", "readonly", keys=(2, 2, 1)),
    _one("object|idletime", 3, object_idle, "Tells 0: not counted.", "readonly", keys=(2, 2, 1)),
    _one("object|refcount", 3, object_references, "Tells 1.", "readonly", keys=(2, 2, 1)),
)
_OF_KEY = ("encoding", "freq", "idletime", "refcount")
_MEMORY = (
    _one(
        "memory|usage",
        -3,
        memory_usage,
        "Tells the bytes of a stream's nodes.",
        "readonly",
        keys=(2, 2, 1),
        categories=("read", "slow"),
    ),
)
COMMANDS = [
    _one("del", -2, delete, "Removes streams.", "write", keys=(1, -1, 1)),
    _one("unlink", -2, delete, "Removes streams.", "write", "fast", keys=(1, -1, 1)),
    _one("exists", -2, exists, "Tells how many of the streams exist.", "readonly", "fast",
         keys=(1, -1, 1)),
    _one("type", 2, kind, "Tells what a key holds: a stream.", "readonly", "fast"),
    _one("keys", 2, keys, "Tells the names that fit a pattern.", "readonly", keys=(0, 0, 0),
         categories=("keyspace", "read", "slow", "dangerous")),
    _one("scan", -2, scan, "Tells the names, some at a time.", "readonly", keys=(0, 0, 0)),
    _one("randomkey", 1, random_key, "Tells the name of some stream.", "readonly",
         keys=(0, 0, 0)),
    _one("object", -2, None, "What a key is made of.", keys=(0, 0, 0), categories=("slow",),
         subcommands=(*_OBJECT, help_of("object", _OBJECT, dict.fromkeys(_OF_KEY, "<key>"),
                                        categories=("keyspace", "slow")))),
    _one("memory", -2, None, "Sizes.", keys=(0, 0, 0), categories=("slow",), subcommands=(
        *_MEMORY, help_of("memory", _MEMORY, {"usage": "<key> [SAMPLES <count>]"})
    )),
    *_EXPIRY,
]  # fmt: skip
