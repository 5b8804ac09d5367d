"""XADD and XLEN."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from logstore.api import arguments
from logstore.api.opening import OpenStore
from logstore.codec.fingerprint import fingerprint
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features import setting_changes
from logstore.engine.streams import add, idempotency
from logstore.engine.streams.add import AUTO, Added, AutoID
from logstore.engine.streams.idempotency import ProducerRequest
from logstore.engine.streams.removal import TrimRule
from logstore.ids import ZERO_ID, StreamID
from logstore.options import ENTRY_MAX_BYTES, PRODUCER_ID_MAX_BYTES, Profile
from logstore.settings import IDEMPOTENT_DURATION_MAX_S, IDEMPOTENT_IDS_MAX
from logstore.wire.commands.removing import trim_options
from logstore.wire.resp.failures import INVALID_ID, SYNTAX, TOO_LARGE, Failed, wrong_arity
from logstore.wire.resp.reply import Reply
from logstore.wire.resp.words import Words, strict_id
from logstore.wire.service import Client
from logstore.wire.steps import ROW_BYTES, Change, Look, Reader, Row, Step, ok
from logstore.wire.table import Command

BESIDE_MAX_BYTES = 64 * 1024  # of an entry that is added in the loop's thread


class _Options(NamedTuple):
    create: bool = True
    rule: TrimRule | None = None
    producer: bytes | None = None
    name: bytes | None = None  # idempotent ID; None: computed


def xadd(client: Client, words: Words) -> Step:
    """As XADD."""
    key = words.next()
    options = _Options()
    if (word := words.peek()) is not None and word != b"*" and not word[:1].isdigit():
        options = _options(words, client.service.profile)
    ids = _id(words.next())
    parts = words.rest()
    size = _checked(parts)
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    if ids == ZERO_ID:
        raise Failed("ERR The ID specified in XADD must be greater than 0-0")
    if options.producer is not None:
        return _idempotent(_request(key, pairs, ids, options), options.producer, options.name)

    def op(state: WriteTxn) -> Added | None:
        return add.add(state, _request(key, pairs, ids, options))

    cost = 1 + size // ROW_BYTES
    if ids is not AUTO or not options.create or options.rule is not None:
        return Change(op, _first, cost=cost if options.rule is None else 0)
    fields = dict(pairs) if size <= BESIDE_MAX_BYTES else {}
    beside = partial(_beside, key, fields) if len(fields) == len(pairs) else None  # none twice
    return Change(op, _first, row=Row(key, pairs), cost=cost, beside=beside)


def _beside(key: bytes, fields: dict[bytes, bytes], opened: OpenStore[bytes]) -> Reply | None:
    added = opened.add_plain(key, fields)
    return bytes(added) if added else None


def _request(
    key: bytes, pairs: list[tuple[bytes, bytes]], ids: AutoID | StreamID, options: _Options
) -> add.Add:
    batch = arguments.rows([pairs], None)
    return add.Add(key, batch, 0, 1, ids, options.create, options.rule)


def _idempotent(request: add.Add, producer: bytes, name: bytes | None) -> Step:
    if request.ids is not AUTO:
        raise Failed("ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs")
    iid = fingerprint(request.batch.flat(0)) if name is None else name
    asked = ProducerRequest(producer, [iid])

    def reply(added: list[StreamID] | None) -> Reply:
        return None if added is None else bytes(added[0])

    return Change(lambda state: idempotency.add(state, request, asked), reply)


def _options(words: Words, profile: Profile) -> _Options:
    create = True
    producer: bytes | None = None
    name: bytes | None = None
    parser = trim_options("xadd", profile)
    with_producers = profile == "redis-8.10"
    while (word := words.peek()) is not None:
        if word == b"NOMKSTREAM":
            words.next()
            create = False
        elif with_producers and word in (b"IDMP", b"IDMPAUTO"):
            if producer is not None:
                raise Failed("ERR syntax error, IDMP/IDMPAUTO specified multiple times")
            words.next()
            producer, name = _producer(words, given=word == b"IDMP")
        elif not parser.take(words):
            _id(word)  # the peers look at it before they look at the options together
            break
    return _Options(create, parser.rule(), producer, name)


def _producer(words: Words, *, given: bool) -> tuple[bytes, bytes | None]:
    option = "IDMP" if given else "IDMPAUTO"
    producer = words.next()
    if not producer:
        raise Failed(f"ERR syntax error, {option} requires a non-empty producer ID")
    if not given:
        return producer, None
    name = words.next()
    if not name:
        raise Failed("ERR syntax error, IDMP requires a non-empty idempotent ID")
    if max(len(producer), len(name)) > PRODUCER_ID_MAX_BYTES:
        raise Failed(TOO_LARGE)
    return producer, name


def _id(word: bytes) -> AutoID | StreamID:
    if word == b"*":
        return AUTO
    if word.endswith(b"-*"):
        return AutoID(strict_id(word[:-2]).ms) if b"-" not in word[:-2] else _refuse_id()
    return strict_id(word)


def _refuse_id() -> AutoID:
    raise Failed(INVALID_ID)


def _checked(parts: list[bytes]) -> int:
    """How many bytes the fields and values of an entry have."""
    if not parts or len(parts) % 2:
        raise wrong_arity("xadd")
    size = sum(map(len, parts))
    if size > ENTRY_MAX_BYTES:
        raise Failed(TOO_LARGE)
    return size


def _first(added: Added | None) -> Reply:
    return None if added is None else bytes(added.first)


def xcfgset(_client: Client, words: Words) -> Step:
    """As XCFGSET."""
    key = words.next()
    limits = {
        b"IDMP-DURATION": ("idempotent_duration_s", IDEMPOTENT_DURATION_MAX_S, "seconds"),
        b"IDMP-MAXSIZE": ("idempotent_max_ids", IDEMPOTENT_IDS_MAX, "entries"),
    }
    changes: dict[str, int] = {}
    while len(words):
        word = words.option()
        if word not in limits or not len(words):
            raise Failed(SYNTAX)
        name, most, unit = limits[word]
        if name in changes:
            raise Failed(f"ERR {word.decode()} specified multiple times")
        changes[name] = words.integer()
        if not 1 <= changes[name] <= most:
            raise Failed(f"ERR {word.decode()} must be between 1 and {most} {unit}")
    if not changes:
        raise Failed("ERR At least one parameter must be specified")
    return Change(lambda state: setting_changes.stream(state, key, changes, create=False), ok)


def xidmprecord(_client: Client, words: Words) -> Step:
    """As XIDMPRECORD, which the peers' append-only files hold."""
    key, producer, name = words.next(), words.next(), words.next()
    id = strict_id(words.next())
    for word, what in ((producer, "producer"), (name, "idempotent")):
        if not word:
            raise Failed(f"ERR {what} ID must be non-empty")
    if max(len(producer), len(name)) > PRODUCER_ID_MAX_BYTES:
        raise Failed(TOO_LARGE)
    return Change(lambda state: idempotency.record(state, key, producer, name, id), ok)


def xlen(_client: Client, words: Words) -> Step:
    """As XLEN."""
    key = words.next()

    def find(reader: Reader) -> Reply:
        record = reader.record(key)
        return record.length if record is not None else 0

    return Look(find, light=True)


COMMANDS = [
    Command("xadd", -5, xadd, ("write", "denyoom", "fast"), (1, 1, 1), "5.0.0",
            "O(1); with trimming O(N), N entries trimmed",
            summary="Adds an entry to a stream, which is made if it is missing.",
            categories=("write", "stream", "fast")),
    Command("xcfgset", -4, xcfgset, ("write", "fast"), (1, 1, 1), "8.6.0", "O(1)",
            summary="Bounds what is remembered of idempotent adds.",
            categories=("write", "stream", "fast"), levels=frozenset({"redis-8.10"})),
    Command("xidmprecord", 5, xidmprecord, ("write", "denyoom", "fast"), (1, 1, 1), "8.8.0",
            "O(1)", summary="Remembers which idempotent ID gave an entry that is there.",
            categories=("write", "stream", "fast"), levels=frozenset({"redis-8.10"})),
    Command("xlen", 2, xlen, ("readonly", "fast"), (1, 1, 1), "5.0.0", "O(1)",
            summary="Tells how many entries a stream has.",
            categories=("read", "stream", "fast"), access=("",)),
]  # fmt: skip
