"""Rows of the index: a row with a wrong checksum is never taken for one, one with a right checksum
is read, written, read the same; runs of pending entries are the same in both codecs.

An input is a byte that says what it is a row of, then its value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from logstore.codec import native_or_none, pending_run
from logstore.errors import CorruptionError, Error
from logstore.ids import StreamID
from logstore.index import group_keys, keys
from logstore.row_seal import seal, unseal

KEY = b"key"
NATIVE_RUN = None if native_or_none is None else native_or_none.PendingRun


def _run() -> bytes:
    made = pending_run.PendingRun()
    made.extend(b"".join(struct.pack(">QQ", 5, seq) for seq in range(5)), 1, 1000, 1)
    return made.pack()


def _open_node() -> bytes:
    runs = [keys.NodeFrame(64, 40, 3, 12), keys.NodeFrame(164, 20, 1, 4)]
    return keys.OpenNode(b"skeleton", runs, 5).pack()


ROWS: list[tuple[bytes, Callable[[bytes], Any]]] = [
    (keys.StreamRecord(3, b"s", 1, 1, StreamID(5, 5)).pack(),
     lambda value: keys.StreamRecord.unpack(3, value)),
    (keys.Locator(64, 40, 3, StreamID(5, 5), b"\x05").pack(), keys.Locator.unpack),
    (_open_node(), keys.OpenNode.unpack),
    (keys.OpenNode(b"listpack").pack(), keys.OpenNode.unpack),
    (keys.Meta(9, 1, 64, 7).pack(), keys.Meta.unpack),
    (keys.SegmentRow(0, 10, 1, 100, 5).pack(), keys.SegmentRow.unpack),
    (group_keys.GroupRecord(3, 1, b"g", StreamID(5, 5)).pack(),
     lambda value: group_keys.GroupRecord.unpack(3, value)),
    (group_keys.ConsumerRecord(1, b"c", 5, 5, 1).pack(),
     lambda value: group_keys.ConsumerRecord.unpack(1, value)),
    (_run(), pending_run.PendingRun.unpack),
]  # fmt: skip
SEEDS = [bytes((which,)) + value for which, (value, _) in enumerate(ROWS)]


def one(data: bytes) -> None:
    """It is refused, or it is the same when it was written again."""
    which, value = (data[0] if data else 0) % len(ROWS), data[1:]
    sealed = seal(KEY, value)
    assert unseal(KEY, sealed) == value
    flipped = bytearray(sealed)
    flipped[len(data) % len(sealed)] ^= 1 << (len(value) & 7)
    try:
        unseal(KEY, bytes(flipped))
        raise AssertionError("a flipped bit is taken")
    except CorruptionError:
        pass
    read = ROWS[which][1]
    found = _attempt(read, value)
    if read is pending_run.PendingRun.unpack and NATIVE_RUN is not None:
        other = _attempt(NATIVE_RUN.unpack, value)
        assert (found is None) == (other is None)
        assert found is None or found.pack() == other.pack()
    if found is None or getattr(found, "rows", 0):  # those of its runs that stand elsewhere
        return
    again = found.pack()
    assert read(again).pack() == again


def _attempt(read: Callable[[bytes], Any], value: bytes) -> Any:
    """What was read; None if it was refused. A right checksum promises a right layout, so that
    any error will do; what counts is that no memory is read that is not there."""
    try:
        return read(value)
    except (Error, struct.error, ValueError, IndexError):
        return None
