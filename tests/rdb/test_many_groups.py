"""Prevents groups that come many at a time from being other groups than one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import logstore
from logstore.engine.dump import export
from logstore.ids import U64_MAX, ZERO_ID, StreamID
from logstore.rdb import codes, dump
from logstore.rdb.reader import Reader
from logstore.rdb.stream_reader import info
from logstore.rdb.value import (
    GROUPS_AT_ONCE,
    ConsumerValue,
    GroupValue,
    PendingValue,
    PlainGroup,
    StreamInfoValue,
    StreamValue,
)
from logstore.recovery.check import check
from logstore.row_seal import digest
from tests.tools.commands import invoke

COUNTS = (0, 1, 63, 64, (1 << 14) - 1, 1 << 14, (1 << 31), (1 << 32) - 1, 1 << 40, U64_MAX)


def length(count: int) -> bytes:
    """As servers write it, in as few bytes as it takes."""
    if count < 1 << 6:
        return bytes([count])
    if count < 1 << 14:
        return bytes([0x40 | count >> 8, count & 0xFF])
    if count < 1 << 32:
        return b"\x80" + count.to_bytes(4, "big")
    return b"\x81" + count.to_bytes(8, "big")


def names() -> list[bytes]:
    """Strings of every length that is short, some that are not, and numbers, as they are packed."""
    plain = [length(size) + bytes([size % 251]) * size for size in (*range(70), 300, 20_000)]
    numbers = [
        bytes([0xC0 + kind]) + value.to_bytes(1 << kind, "little", signed=True)
        for kind in range(3)
        for value in (2 + kind, -3 - kind, 127 - kind, -100 - kind)
    ]
    return plain + numbers + [b"\x06%06d" % at for at in range(GROUPS_AT_ONCE)]


def group(rng: random.Random, name: bytes, kind: int, at: int) -> bytes:
    """One of them, packed; every seventh one has consumers and an entry that is pending."""
    read = length(rng.choice(COUNTS)) if kind >= codes.LISTPACKS_2 else b""
    head = name + length(rng.choice(COUNTS)) + length(rng.choice(COUNTS)) + read
    nothing = b"\x00" if kind >= codes.LISTPACKS_5 else b""
    active = bytes(8) if kind >= codes.LISTPACKS_3 else b""
    if at % 7:
        return head + b"\x00\x00" + nothing
    id = bytes(15) + b"\x05"
    pending = b"\x01" + id + bytes(8) + b"\x02"
    consumers = b"\x02" + b"\x01c" + bytes(8) + active + b"\x01" + id
    return head + pending + consumers + b"\x01d" + bytes(8) + active + b"\x00" + nothing


@pytest.mark.parametrize("kind", codes.STREAMS)
def test_each_group_is_the_same_in_every_form(kind: int) -> None:
    """Lengths and names in all their encodings: those by one pattern are those byte by byte."""
    rng = random.Random(kind)
    packed = [group(rng, name, kind, at) for at, name in enumerate(names())]
    head = b"\x00\x05\x00" + (bytes(5) if kind >= codes.LISTPACKS_2 else b"")
    behind = b"\x01\x01" + bytes(3) if kind >= codes.LISTPACKS_4 else b""
    found = info(Reader(head + length(len(packed)) + b"".join(packed) + behind), kind, 0)
    assert found.packed is not None
    values = sorted(found.packed, key=lambda each: digest(each.name))
    assert len(values) == len(packed)
    plain = 0
    for value, fast in zip(values, found.packed.by_digest(), strict=True):
        if isinstance(fast, PlainGroup):
            plain += 1
            assert not value.consumers
            assert fast == (digest(value.name), value.name, *value.last, value.entries_read)
        else:
            assert fast == value
    assert plain > len(packed) // 2


def test_a_name_that_stands_twice_is_refused_among_many() -> None:
    groups = [GroupValue(b"%d" % at, ZERO_ID, 0) for at in range(GROUPS_AT_ONCE + 5)]
    groups[-1].name = groups[3].name
    payload = dump.encode(
        StreamValue([], StreamInfoValue(0, StreamID(5, 0), ZERO_ID, ZERO_ID, 0, groups))
    )
    with pytest.raises(logstore.InvalidPayloadError, match="two groups have the same name"):
        dump.decode(payload)


def test_restored_together_they_are_what_their_frames_say(tmp_path: Path) -> None:
    """The index has the rows that a rebuild from the log makes, and the payload comes back."""
    groups = []
    for at in range(4 * GROUPS_AT_ONCE):
        made = GroupValue(b"group-%d" % at, StreamID(at % 6, at % 3), at % 50 - 1)
        if at % 9 == 0:
            pending = PendingValue()
            pending.add(StreamID(5, 0).packed(), 1000 + at, 1 + at % 3, 1)
            made.consumers, made.pending = [ConsumerValue(b"c", 1000, 2000)], pending
        groups.append(made)
    groups.sort(key=lambda each: each.name)
    value = StreamValue([], StreamInfoValue(0, StreamID(5, 0), ZERO_ID, ZERO_ID, 9, groups))
    payload, path = dump.encode(value), tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.restore(b"s", payload)
        assert store.stream(b"s").dump() == payload
        store.stream(b"s").group(b"group-1").set_id("3-0")  # frames behind find their group
        before = export.read(store._engine(), b"s").info
    assert not check(path).damage
    assert invoke("check", path).exit_code == 0
    for each in sorted((path / "index").rglob("*"), reverse=True):
        each.unlink() if each.is_file() else each.rmdir()
    with logstore.open(path, background=False) as store:
        assert export.read(store._engine(), b"s").info == before
