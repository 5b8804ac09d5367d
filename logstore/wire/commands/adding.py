"""XADD and XLEN."""

from __future__ import annotations

from typing import NamedTuple

from logstore import arguments
from logstore.engine import adds
from logstore.engine.adds import AUTO, Added, AutoID
from logstore.engine.state import State
from logstore.engine.trims import TrimRule
from logstore.ids import ZERO_ID, StreamID
from logstore.options import ENTRY_MAX_BYTES
from logstore.wire.commands.trimming import trim_options
from logstore.wire.failures import INVALID_ID, TOO_LARGE, Failed, wrong_arity
from logstore.wire.reply import Reply
from logstore.wire.session import Session
from logstore.wire.steps import AddRow, Change, Look, Reader, Step
from logstore.wire.table import Command
from logstore.wire.words import Words, strict_id


class _Options(NamedTuple):
    create: bool
    rule: TrimRule | None


def xadd(_session: Session, words: Words) -> Step:
    """As XADD."""
    key = words.next()
    create, rule = True, None
    if (word := words.peek()) is not None and word != b"*" and not word[:1].isdigit():
        create, rule = _options(words)
    ids = _id(words.next())
    pairs = _pairs(words)
    if ids == [ZERO_ID]:
        raise Failed("ERR The ID specified in XADD must be greater than 0-0")
    batch = arguments.rows([pairs], None)
    request = adds.Add(key, batch, 0, 1, ids, create, rule)

    def op(state: State) -> Added | None:
        return adds.add(state, request)

    change = Change(op, _first)
    if ids is AUTO and create and rule is None:
        return AddRow(key, pairs, change)
    return change


def _options(words: Words) -> _Options:
    create = True
    parser = trim_options("xadd")
    while (word := words.peek()) is not None:
        if word == b"NOMKSTREAM":
            words.next()
            create = False
        elif not parser.take(words):
            break
    return _Options(create, parser.rule())


def _id(word: bytes) -> AutoID | list[StreamID]:
    if word == b"*":
        return AUTO
    if word.endswith(b"-*"):
        return AutoID(strict_id(word[:-2]).ms) if b"-" not in word[:-2] else _refuse_id()
    return [strict_id(word)]


def _refuse_id() -> AutoID:
    raise Failed(INVALID_ID)


def _pairs(words: Words) -> list[tuple[bytes, bytes]]:
    parts = words.rest()
    if not parts or len(parts) % 2:
        raise wrong_arity("xadd")
    if sum(map(len, parts)) > ENTRY_MAX_BYTES:
        raise Failed(TOO_LARGE)
    return list(zip(parts[::2], parts[1::2], strict=True))


def _first(added: Added | None) -> Reply:
    return None if added is None else bytes(added.first)


def xlen(_session: Session, words: Words) -> Step:
    """As XLEN."""
    key = words.next()

    def find(reader: Reader) -> Reply:
        record = reader.once(lambda view: view.record(key))
        return record.length if record is not None else 0

    return Look(find)


COMMANDS = [
    Command("xadd", -5, xadd, ("write", "denyoom", "fast"), (1, 1, 1), "5.0.0",
            "O(1); with trimming O(N), N entries trimmed",
            summary="Adds an entry to a stream, which is made if it is missing.",
            categories=("write", "stream", "fast")),
    Command("xlen", 2, xlen, ("readonly", "fast"), (1, 1, 1), "5.0.0", "O(1)",
            summary="Tells how many entries a stream has.",
            categories=("read", "stream", "fast")),
]  # fmt: skip
