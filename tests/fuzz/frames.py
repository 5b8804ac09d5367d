"""Frames of the log: a body is refused by a typed error, or is the same when it was written again;
of the bytes of a segment only frames whose checksum fits their place are found.

An input is a kind and a body; or 0 and frames, each as a kind, flags, two bytes of length and a
body. Odd flags break the checksum.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import CorruptFrameError
from logstore.format import Kind
from logstore.log import frame, log_reader
from logstore.log.frame import (
    Adopt,
    AdoptItem,
    Append,
    Create,
    Drop,
    Node,
    Note,
    Open,
    Record,
    Seal,
    Tombstone,
    Trim,
)

SEED, SEGMENT, START = 77, 3, 64
BODIES = (
    Seal(4), Create(1, b"name"), Drop(1), Open(1, 5, 0, 5, 1, 2, b"listpack"),
    Append(1, 5, 2, 1, 4, b"more"), Node(1, 5, 0, 5, 2, 3, b"listpack"),
    Tombstone(1, 5, 0, 9, (0, 2)), Trim(1, 0, 0, 5, 0), Record(1, 3, 3, 5, 2, 5, 0, 0, 0),
    Adopt(2, (AdoptItem(1, 5, 0, 5, 2, 64, 9, 3, ((5, 0), (6, 0))),)), Note(b"a remark"),
)  # fmt: skip
KINDS = sorted({int(kind) for kind in Kind})
HEAD_BYTES = 4


def _body(kind: int, payload: bytes) -> bytes:
    return bytes((kind,)) + payload


def _listed(kind: int, payload: bytes, flags: int) -> bytes:
    return bytes((kind, flags)) + len(payload).to_bytes(2, "little") + payload


SEEDS = [
    *(_body(frame.KIND_OF[type(body)], frame.encode(body)) for body in BODIES),
    *(_body(kind, bytes(range(80))) for kind in KINDS if kind),
    b"\x00" + b"".join(
        _listed(frame.KIND_OF[type(body)], frame.encode(body), 2) for body in BODIES
    ),
    b"\x00" + b"".join(
        _listed(frame.KIND_OF[type(body)], frame.encode(body), 2 + place % 2)
        for place, body in enumerate(BODIES)
    ),
]  # fmt: skip


class _Held:
    """The bytes of a segment from ``START`` on."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """As of a file."""
        at = offset - START
        return self._data[at : at + size_bytes]


def _frames(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at + HEAD_BYTES <= len(data):
        kind, flags = data[at], data[at + 1]
        end = at + HEAD_BYTES + int.from_bytes(data[at + 2 : at + 4], "little")
        yield kind, flags, data[at + HEAD_BYTES : end]
        at = end


def _segment(data: bytes) -> tuple[bytes, list[int]]:
    """The bytes of a segment, and where its sound frames begin."""
    made, sound = bytearray(), []
    for number, (kind, flags, payload) in enumerate(_frames(data)):
        offset = START + len(made)
        head = fmt.FRAME_HEAD.pack(0, len(payload), number + 1, 0, 0, kind, 1, fmt.FRAME_MARK)
        place = (SEGMENT << 32 | offset).to_bytes(8, "little")
        crc = crc32c(payload, crc32c(place + head[4:], SEED))
        if flags & 1:
            crc ^= 1 << (flags >> 3)
        elif kind:
            sound.append(offset)
        made += crc.to_bytes(4, "little") + head[4:] + payload
    return bytes(made), sound


def one(data: bytes) -> None:
    """It is refused, or it is what was written."""
    if data[:1] == b"\x00":
        _scan(data[1:])
    elif data:
        _decode(data[0], data[1:])


def _decode(kind: int, payload: bytes) -> None:
    try:
        body = frame.decode(kind, payload)
    except CorruptFrameError:
        return
    if body is None:
        assert kind & fmt.SKIPPABLE
        return
    try:
        again = frame.encode(body)
    except AssertionError:
        assert body[-1] is None  # without its listpack, as a hint has it
        return
    assert frame.decode(kind, again) == body


def _scan(data: bytes) -> None:
    raw, sound = _segment(data)
    end = START + len(raw)
    found = [each.offset for each in log_reader.next_valid(_Held(raw), SEED, SEGMENT, START, end)]
    # Sound frames inside of the body of a broken one are found as well.
    assert found == sorted(set(found))
    for offset in found:
        frame_there = log_reader.read_frame(_Held(raw), SEED, SEGMENT, offset, end)
        try:
            frame_there.body()
        except CorruptFrameError:
            continue
    missing = set(sound) - set(found)
    assert all(any(at < lost < _end(raw, at) for at in found) for lost in missing), (found, sound)


def _end(raw: bytes, offset: int) -> int:
    at = offset - START
    return offset + fmt.FRAME_HEAD_BYTES + int.from_bytes(raw[at + 4 : at + 8], "little")
