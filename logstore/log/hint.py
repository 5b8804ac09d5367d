"""Hints: a sealed segment's summary, from which the index is rebuilt without reading the nodes.

Invariants: a hint is written only for a segment that was synced, and lists the frames of it in
order; of frames that carry listpack bytes it keeps only the fixed part. Appends of an open node
that is sealed in the same segment may be *joined* into the last of them: that is enough for who
applies all of the segment, and for nobody who begins in the middle of it. A hint that does not fit
its segment in any respect is as good as none: the segment itself is read. A main segment gets its
hint only when the next one stands, durable, under its name: so a log whose last main segment has a
hint lacks its newest ones (``lost_successor``). Never imports the index.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import FileSystemError
from logstore.features.feature_list import FRAMES
from logstore.format import Kind
from logstore.fs import FileSystem
from logstore.log import chain, file_names, log_reader, versioned, whole_file
from logstore.log import frame as frames
from logstore.log.chain import Link
from logstore.tuples import NamedTuple

HINT_MAX_BYTES = 4 << 30
_ZLIB_LEVEL = 1  # a quarter of the bytes; higher levels take three times as long for a twentieth
_ITEM = fmt.HINT_ITEM
_MAGICS = (fmt.HINT_MAGIC, fmt.HINT_MAGIC_PLAIN, fmt.HINT_MAGIC_WHOLE)
_ADDED = struct.Struct("<II")  # of an append: entries and elements added, behind stream and last ID
_ADDED_AT = fmt.APPEND_BODY.size - _ADDED.size
_SIZE, _SIZE_AT = struct.Struct("<I"), 4  # of an item: bytes of the frame's payload
# Frames that a stream's record, or its open node, follows from; all begin with its number.
_OF_STREAM = frozenset(
    {
        Kind.CREATE,
        Kind.DROP,
        Kind.OPEN,
        Kind.APPEND,
        Kind.NODE,
        Kind.TOMBSTONE,
        Kind.TRIM,
        Kind.RECORD,
        Kind.RENAME,
        *(frame.kind for frame in FRAMES.values() if frame.of_record),
    }
)


def shortened(frame: log_reader.LogFrame) -> log_reader.LogFrame:
    """A frame as a hint keeps it."""
    kept = frames.DATA_HEAD_BYTES.get(frame.kind)
    return frame if kept is None else frame._replace(payload=frame.payload[:kept])


_ONLY_BETWEEN = (Kind.TOMBSTONE, Kind.RECORD)  # the node stays the open one


class _JoinedAppends:
    """The appends of one open node, as items of the hint that is being made."""

    __slots__ = ("finished", "going", "master")

    def __init__(self, master: bytes) -> None:
        self.master = master
        self.going: list[int] = []  # places behind each other, nothing of the stream between them
        self.finished: list[list[int]] = []

    def interrupt(self) -> None:
        """What follows counts from the stream's record of now."""
        if len(self.going) > 1:
            self.finished.append(self.going)
        self.going = []


def pack(items: Iterator[log_reader.LogFrame]) -> tuple[bytes, int]:
    """The body of a hint, and how many items it has."""
    parts: list[bytes] = []
    add, item, head_bytes = parts.append, _ITEM.pack, frames.DATA_HEAD_BYTES.get
    nodes: dict[bytes, _JoinedAppends] = {}  # by stream, whose open nodes began here
    gone = 0
    for _, offset, size, commit, _, ordinal, kind, flags, crc, payload in items:
        kept = payload[: head_bytes(kind)]  # without a limit: all of it
        place = len(parts)
        add(item(offset, size, commit, ordinal, crc, len(kept), kind, flags))
        add(kept)
        if kind not in _OF_STREAM:
            continue
        stream = payload[:8]
        if kind == Kind.OPEN:
            nodes[stream] = _JoinedAppends(payload[8:24])
            continue
        node = nodes.get(stream)
        if node is None:
            continue
        if kind == Kind.APPEND:
            node.going.append(place)
            continue
        node.interrupt()
        if kind == Kind.NODE:
            del nodes[stream]
            if payload[8:24] == node.master:
                gone += _join(parts, node)
        elif kind not in _ONLY_BETWEEN:
            del nodes[stream]
    return b"".join(parts), len(parts) // 2 - gone


def _join(parts: list[bytes], node: _JoinedAppends) -> int:
    """Put appends into the last of them, with the entries, elements and bytes of all; how many
    items are no more."""
    gone = 0
    for places in node.finished:
        entries = elements = 0
        size = fmt.APPEND_BODY.size
        for place in places:
            added = _ADDED.unpack_from(parts[place + 1], _ADDED_AT)
            entries, elements = entries + added[0], elements + added[1]
            size += _SIZE.unpack_from(parts[place], _SIZE_AT)[0] - fmt.APPEND_BODY.size
        *before, last = places
        for place in before:
            parts[place] = parts[place + 1] = b""
        item, kept = parts[last], parts[last + 1]
        parts[last] = item[:_SIZE_AT] + _SIZE.pack(size) + item[_SIZE_AT + _SIZE.size :]
        parts[last + 1] = kept[:_ADDED_AT] + _ADDED.pack(entries, elements)
        gone += len(before)
    return gone


def write(
    fs: FileSystem, store: Path, uuid: bytes, seed: int, link: Link, role: int = fmt.Role.MAIN
) -> None:
    """Write the hint of a sealed segment, reading the segment once.

    Several processes may be about to: one of them does it, the others leave it to that one.
    """
    file = fs.open(file_names.segment(store, link.number))
    try:
        scanned = log_reader.scan(file, seed, link.number, link.start_offset, link.end_offset)
        body, count = pack(scanned)
    finally:
        file.close()
    body = zlib.compress(body, _ZLIB_LEVEL)
    head = fmt.HINT_HEAD.pack(
        fmt.HINT_MAGIC,
        fmt.FORMAT_VERSION,
        0,
        link.number,
        role,
        link.end_offset,
        count,
        len(body),
        uuid,
        0,
    )[:-4]
    crc = crc32c(body, crc32c(head)).to_bytes(4, "little")
    whole_file.write_alone(fs, file_names.hint(store, link.number), head + crc + body)


class _CheckedHint(NamedTuple):
    """A hint whose checksum is right."""

    magic: bytes
    segment_bytes: int
    item_count: int
    items: bytes


def read(
    fs: FileSystem, store: Path, uuid: bytes, link: Link, *, joined: bool = True
) -> list[log_reader.LogFrame] | None:
    """The frames of a segment as its hint keeps them; None if there is no hint that fits.

    Without ``joined``, also if it may be one that joins appends.
    """
    data = _whole(fs, store, uuid, link.number)
    if data is None or data.segment_bytes != link.end_offset:
        return None
    if data.magic != fmt.HINT_MAGIC_WHOLE and not joined:
        return None
    return _items(data.items, link.number, data.item_count)


class InspectedHint(NamedTuple):
    """A hint as it lies in its file, for people."""

    segment_bytes: int
    joined: bool  # whether appends may be joined
    frames: list[log_reader.LogFrame]


def inspected(fs: FileSystem, store: Path, uuid: bytes, segment: int) -> InspectedHint | None:
    """The hint of a segment, also one that does not fit the segment; None if it is no hint."""
    data = _whole(fs, store, uuid, segment)
    if data is None:
        return None
    frames_of_it = _items(data.items, segment, data.item_count)
    if frames_of_it is None:
        return None
    return InspectedHint(data.segment_bytes, data.magic != fmt.HINT_MAGIC_WHOLE, frames_of_it)


def lost_successor(fs: FileSystem, store: Path, uuid: bytes, last: int) -> int:
    """The segment that stood behind ``last``, the last main one, and is missing; 0 if none is.

    0 also where nothing says it: without a hint, the writer may have died behind its seal frame,
    before it made the next segment.
    """
    data = _whole(fs, store, uuid, last)
    if data is None or chain.main_links(fs, store, uuid, last + 1):  # one came while we looked
        return 0
    items = _items(data.items, last, data.item_count)
    if items is None:
        return 0
    body = items[-1].body() if items else None
    return body.next_segment if isinstance(body, frames.Seal) else last + 1


def told_bytes(fs: FileSystem, store: Path, uuid: bytes, segment: int, size_bytes: int) -> int:
    """The length of a segment when its hint was written, if it is shorter now (``size_bytes``);
    else 0, also if there is no hint."""
    try:
        file = fs.open(file_names.hint(store, segment))
    except (FileNotFoundError, FileSystemError):
        return 0
    try:
        head = file.pread(fmt.HINT_HEAD.size, 0)
    finally:
        file.close()
    if len(head) < fmt.HINT_HEAD.size or fmt.HINT_HEAD.unpack(head)[5] <= size_bytes:
        return 0
    data = _whole(fs, store, uuid, segment)  # or the hint is what is damaged
    return data.segment_bytes if data is not None and data.segment_bytes > size_bytes else 0


def _whole(fs: FileSystem, store: Path, uuid: bytes, segment: int) -> _CheckedHint | None:
    """The hint of a segment, whatever the segment is like now."""
    try:
        data = fs.read(file_names.hint(store, segment), HINT_MAX_BYTES)
    except (FileNotFoundError, FileSystemError):
        return None
    if len(data) < fmt.HINT_HEAD.size:
        return None
    fields = fmt.HINT_HEAD.unpack_from(data)
    magic, of_format, _, number, _, segment_bytes, count, body_bytes, owner, crc = fields
    body_at = fmt.HINT_HEAD.size
    if magic not in _MAGICS or not versioned.is_readable(of_format):
        return None
    if owner != uuid or number != segment:
        return None
    body = data[body_at:]
    if len(body) != body_bytes or crc32c(body, crc32c(data[: body_at - 4])) != crc:
        return None
    # Each item stands for a frame of the segment, and keeps of its payload what it keeps.
    if count * fmt.FRAME_HEAD_BYTES > segment_bytes:
        return None
    most = count * _ITEM.size + segment_bytes
    items = _inflated(body, most) if magic == fmt.HINT_MAGIC else body
    if items is None or count * _ITEM.size > len(items):
        return None
    return _CheckedHint(magic, segment_bytes, count, items)


def _inflated(body: bytes, most_bytes: int) -> bytes | None:
    """The items of a compressed hint; None if they are longer than those of its segment can be, or
    no zlib data: no process of ours made it then."""
    inflating = zlib.decompressobj()
    try:
        items = inflating.decompress(body, most_bytes + 1)
    except zlib.error:
        return None
    whole = inflating.eof and not inflating.unused_data and len(items) <= most_bytes
    return items if whole else None


def _items(data: bytes, segment: int, count: int) -> list[log_reader.LogFrame] | None:
    """The items; None if they are not the bytes: somebody made this, no crash did."""
    at = 0
    items: list[log_reader.LogFrame] = []
    unpack, size = _ITEM.unpack_from, _ITEM.size
    make = log_reader.LogFrame
    for _ in range(count):
        if at + size > len(data):
            return None
        offset, payload_bytes, commit, ordinal, crc, kept, kind, flags = unpack(data, at)
        at += size
        payload = data[at : at + kept]
        at += kept
        items.append(
            make(segment, offset, payload_bytes, commit, 0, ordinal, kind, flags, crc, payload)
        )
    return items if at == len(data) else None
