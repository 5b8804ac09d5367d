"""DUMP payloads with a right checksum: refused by a typed error, or read, written, read the same.

An input is a payload without its last ten bytes: the type, then the value. What is read is also
taken into a store, and what the store then dumps it takes again.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import logstore
from logstore.api.store import Store
from logstore.codec import Codec, native_or_none, pure
from logstore.errors import Error
from logstore.ids import StreamID
from logstore.rdb import codes, dump_payload
from logstore.rdb.codes import crc64
from logstore.rdb.value import (
    ConsumerValue,
    GroupValue,
    PendingValue,
    StreamInfoValue,
    StreamValue,
)
from tests.fuzz.corpus import using

VERSION = 15
CODECS: list[Codec] = [each for each in (pure, native_or_none) if each is not None]


def _value() -> StreamValue:
    """A stream with all that type 21 has."""
    lp = pure.new_node(5, 5, [b"f", b"1"])
    for seq in (6, 7, 8):
        lp, _ = pure.append(lp, 5, 5, 5, seq, [b"f", b"text"])
    pending = PendingValue()
    for seq in (5, 6, 7):
        pending.add(StreamID(5, seq).packed(), 1000 + seq, seq)
    pending.owners[0] = pending.owners[2] = 1
    pending.owners[1] = 2
    group = GroupValue(b"g", StreamID(5, 7), 3)
    group.pending = pending
    group.consumers = [ConsumerValue(b"alice", 7, 7), ConsumerValue(b"12", 8, 8)]
    info = StreamInfoValue(4, StreamID(5, 8))
    info.first, info.entries_added, info.groups = StreamID(5, 5), 4, [group]
    return StreamValue([(StreamID(5, 5).packed(), lp)], info)


def _seeds() -> list[bytes]:
    value = _value()
    found = [dump_payload.encode(value, kind)[:-10] for kind in (15, 19, 21)]
    idempotent = b"\x3c\x0a\x01\x01p\x02\x03one\x05\x05\x03two\x05\x06\x07\x02"
    found.append(b"\x1a" + found[2][1:] + idempotent)
    empty = b"\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00"
    return [*found, b"\x15" + empty, b"\x15\x01\x10" + bytes(15) + b"\x01\xc3\x05\x40\xffabcde"]


SEEDS = _seeds()


@cache
def _store() -> Store[bytes]:
    folder = tempfile.mkdtemp(prefix="logstore-fuzz-")
    atexit.register(close)
    return logstore.open(Path(folder) / "store", sync="os", background=False)


def close() -> None:
    """Close the store that the payloads went through, and remove it; the next one opens another."""
    if _store.cache_info().currsize:
        made = _store()
        made.close()
        shutil.rmtree(made.path.parent)
        _store.cache_clear()


def signed(value: bytes) -> bytes:
    """A payload of this value."""
    whole = value + VERSION.to_bytes(2, "little")
    return whole + crc64(whole).to_bytes(8, "little")


def one(data: bytes) -> None:
    """It is refused, or nothing of it is lost."""
    if not data or data[0] not in codes.STREAMS:
        data = b"\x15" + data
    payload = signed(data)
    found = [taken(codec, payload) for codec in CODECS]
    assert found[0] == found[-1]
    if found[0] is None:
        return
    assert dump_payload.decode(payload) is not None
    assert taken(CODECS[-1], found[0]) == found[0]


def taken(codec: Codec, payload: bytes) -> bytes | None:
    """What the store dumps after it took it in; None if it was refused."""
    store = _store()
    with using(codec):
        try:
            stream = store.restore("s", payload, replace=True)
        except Error:
            return None
        assert stream.info().length == sum(1 for _ in stream.range())
        return stream.dump()
