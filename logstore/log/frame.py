"""What frames say of streams and of consumer groups, as typed tuples, to and from payload bytes.

Invariants: a body is a physical result (nodes dropped, ordinals set, the record after), so that
replaying it computes no trim, no clock and no ID; bodies that carry listpack bytes (OPEN, APPEND,
NODE) may be decoded from their fixed part alone, as hints keep it: ``data`` is None then, and is
found in the segment right behind the fixed part. IDs in bodies of groups are packed, 16 bytes big
endian, in ascending order; a group and a consumer are named by number, so that a replay looks
nothing up. Knows nothing of files or of the index.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from logstore import format as fmt
from logstore.errors import CorruptFrameError
from logstore.features.feature_list import FRAMES, FeatureBody
from logstore.format import Kind
from logstore.tuples import NamedTuple

ID_BYTES = 16


class Group(NamedTuple):
    """A group was made (``group`` 0), or its last delivered ID was set."""

    stream: int
    group: int
    last_ms: int
    last_seq: int
    entries_read: int
    name: bytes


class GroupDrop(NamedTuple):
    """A group was removed, with its consumers and pending entries."""

    stream: int
    group: int


class Consumer(NamedTuple):
    """A consumer was made or seen; or, with ``alive`` 0, removed with its pending entries."""

    group: int
    consumer: int
    seen_ms: int
    active_ms: int
    alive: int
    name: bytes


class Deliver(NamedTuple):
    """New entries were handed to a consumer, once each."""

    group: int
    consumer: int
    time_ms: int
    last_ms: int
    last_seq: int
    entries_read: int
    noack: int
    ids: bytes


class Ack(NamedTuple):
    """Entries are no longer pending."""

    group: int
    ids: bytes


class Claim(NamedTuple):
    """Entries are pending with this consumer; the delivery time and count of each after.

    ``consumer`` 0: they were given back, and the time is their place in the line.
    """

    group: int
    consumer: int
    seen_ms: int
    active_ms: int
    items: tuple[tuple[int, int, int, int], ...]


GroupBody: TypeAlias = Group | GroupDrop | Consumer | Deliver | Ack | Claim

# Every read and every ack of a group makes one of these.
_PACK_DELIVER: Final = fmt.DELIVER_BODY.pack
_PACK_ACK: Final = fmt.ACK_BODY.pack


def _tailed(layout: struct.Struct) -> Callable[..., bytes]:
    pack = layout.pack
    return lambda body: pack(*body[:-1]) + body[-1]


def _encode_deliver(body: Deliver) -> bytes:
    group, consumer, time_ms, last_ms, last_seq, read, noack, ids = body
    return _PACK_DELIVER(group, consumer, time_ms, last_ms, last_seq, read, noack) + ids


def _encode_ack(body: Ack) -> bytes:
    group, ids = body
    return _PACK_ACK(group) + ids


def _encode_claim(body: Claim) -> bytes:
    items = b"".join([fmt.CLAIM_ITEM.pack(*item) for item in body.items])
    return fmt.CLAIM_BODY.pack(*body[:-1]) + items


def _decoder(made: Any, layout: struct.Struct, *, ids: bool = False) -> Callable[[bytes], Any]:
    def decode_tailed(payload: bytes) -> Any:
        tail = payload[layout.size :]
        if ids and len(tail) % ID_BYTES:
            raise struct.error("a list of IDs ends within an ID")
        return made._make((*layout.unpack_from(payload), tail))

    return decode_tailed


def _decode_claim(payload: bytes) -> Claim:
    head = fmt.CLAIM_BODY.unpack_from(payload)
    return Claim._make((*head, tuple(fmt.CLAIM_ITEM.iter_unpack(payload[fmt.CLAIM_BODY.size :]))))


class Seal(NamedTuple):
    """The segment ends here; the next one has this number."""

    next_segment: int


class Create(NamedTuple):
    """A stream was created."""

    stream: int
    name: bytes


class Drop(NamedTuple):
    """A stream was removed with all its nodes."""

    stream: int


class Open(NamedTuple):
    """The whole listpack of the open node; ``entries`` of them are new to the stream."""

    stream: int
    master_ms: int
    master_seq: int
    last_ms: int
    last_seq: int
    entries: int
    data: bytes | None


class Append(NamedTuple):
    """Listpack bytes added to the open node."""

    stream: int
    last_ms: int
    last_seq: int
    entries: int
    elements: int
    data: bytes | None


class Node(NamedTuple):
    """A sealed node; replaces the open node of the same master ID."""

    stream: int
    master_ms: int
    master_seq: int
    last_ms: int
    last_seq: int
    entries: int  # live ones in the listpack
    data: bytes | None


class Tombstone(NamedTuple):
    """Entries of one version of a node were deleted."""

    stream: int
    master_ms: int
    master_seq: int
    version: int
    ordinals: tuple[int, ...]


class Trim(NamedTuple):
    """All nodes with master IDs in the closed interval were dropped."""

    stream: int
    from_ms: int
    from_seq: int
    to_ms: int
    to_seq: int


class Record(NamedTuple):
    """The stream's record after."""

    stream: int
    length: int
    entries_added: int
    last_ms: int
    last_seq: int
    first_ms: int
    first_seq: int
    max_deleted_ms: int
    max_deleted_seq: int


class Rename(NamedTuple):
    """The stream has this name now; no other stream has it."""

    stream: int
    name: bytes


class AdoptItem(NamedTuple):
    """A node of a compacted segment takes the place of the nodes it was made from."""

    stream: int
    master_ms: int
    master_seq: int
    last_ms: int
    last_seq: int
    offset: int
    payload_bytes: int
    entries: int
    replaced: tuple[tuple[int, int], ...]


class Adopt(NamedTuple):
    """A compacted segment is published."""

    segment: int
    items: tuple[AdoptItem, ...]


class DropSegment(NamedTuple):
    """Nothing lives in the segment any more; its file may go once this is durable."""

    segment: int


class Note(NamedTuple):
    """A remark; changes nothing."""

    text: bytes


StreamBody: TypeAlias = (
    Create | Drop | Open | Append | Node | Tombstone | Trim | Record | Adopt | Rename
)
Body: TypeAlias = StreamBody | GroupBody | FeatureBody | Seal | DropSegment | Note

KIND_OF: dict[type, int] = {
    Seal: Kind.SEAL,
    Create: Kind.CREATE,
    Drop: Kind.DROP,
    Open: Kind.OPEN,
    Append: Kind.APPEND,
    Node: Kind.NODE,
    Tombstone: Kind.TOMBSTONE,
    Trim: Kind.TRIM,
    Record: Kind.RECORD,
    Adopt: Kind.ADOPT,
    DropSegment: Kind.DROP_SEGMENT,
    Note: Kind.NOTE,
    Rename: Kind.RENAME,
    Group: Kind.GROUP,
    GroupDrop: Kind.GROUP_DROP,
    Consumer: Kind.CONSUMER,
    Deliver: Kind.DELIVER,
    Ack: Kind.ACK,
    Claim: Kind.CLAIM,
    **{body: frame.kind for frame in FRAMES.values() for body in frame.bodies},
}

# Bytes of the fixed part of the kinds that carry listpack bytes: what a hint keeps of them.
DATA_HEAD_BYTES: dict[int, int] = {
    Kind.OPEN: fmt.OPEN_BODY.size,
    Kind.APPEND: fmt.APPEND_BODY.size,
    Kind.NODE: fmt.NODE_BODY.size,
}


def encode(body: Body) -> bytes:
    """The payload of a frame."""
    return ENCODERS[type(body)](body)


def _encode_tombstone(body: Tombstone) -> bytes:
    head = fmt.TOMBSTONE_BODY.pack(*body[:4])
    return head + struct.pack(f"<{len(body.ordinals)}I", *body.ordinals)


def _encode_adopt(body: Adopt) -> bytes:
    parts = [fmt.ADOPT_BODY.pack(body.segment, len(body.items))]
    for item in body.items:
        parts.append(fmt.ADOPT_ITEM.pack(*item[:8], len(item.replaced)))
        parts.extend(fmt.MASTER.pack(*master) for master in item.replaced)
    return b"".join(parts)


def _with_data(layout: struct.Struct) -> Callable[..., bytes]:
    pack = layout.pack

    def encode_with_data(body: tuple[int | bytes, ...]) -> bytes:
        data = body[-1]
        assert isinstance(data, bytes)
        return pack(*body[:-1]) + data

    return encode_with_data


ENCODERS: dict[type, Callable[..., bytes]] = {
    Seal: lambda body: fmt.SEAL_BODY.pack(*body),
    Create: lambda body: fmt.CREATE_BODY.pack(body.stream) + body.name,
    Drop: lambda body: fmt.DROP_BODY.pack(*body),
    Open: _with_data(fmt.OPEN_BODY),
    Append: _with_data(fmt.APPEND_BODY),
    Node: _with_data(fmt.NODE_BODY),
    Tombstone: _encode_tombstone,
    Trim: lambda body: fmt.TRIM_BODY.pack(*body),
    Record: lambda body: fmt.RECORD_BODY.pack(*body),
    Adopt: _encode_adopt,
    DropSegment: lambda body: fmt.DROP_SEGMENT_BODY.pack(*body),
    Note: lambda body: body.text,
    Rename: lambda body: fmt.RENAME_BODY.pack(body.stream) + body.name,
    Group: _tailed(fmt.GROUP_BODY),
    GroupDrop: lambda body: fmt.GROUP_DROP_BODY.pack(*body),
    Consumer: _tailed(fmt.CONSUMER_BODY),
    Deliver: _encode_deliver,
    Ack: _encode_ack,
    Claim: _encode_claim,
    **{body: frame.encode for frame in FRAMES.values() for body in frame.bodies},
}


def _data(payload: bytes, head_bytes: int) -> bytes | None:
    return payload[head_bytes:] if len(payload) > head_bytes else None


def _decode_tombstone(payload: bytes) -> Tombstone:
    head = fmt.TOMBSTONE_BODY.unpack_from(payload)
    size = len(payload) - fmt.TOMBSTONE_BODY.size
    ordinals = struct.unpack_from(f"<{size // 4}I", payload, fmt.TOMBSTONE_BODY.size)
    return Tombstone._make((*head, ordinals))


def _decode_adopt(payload: bytes) -> Adopt:
    segment, count = fmt.ADOPT_BODY.unpack_from(payload)
    at = fmt.ADOPT_BODY.size
    if count > (len(payload) - at) // fmt.ADOPT_ITEM.size:
        raise struct.error("more items than bytes")
    items: list[AdoptItem] = []
    for _ in range(count):
        *head, replaced_count = fmt.ADOPT_ITEM.unpack_from(payload, at)
        at += fmt.ADOPT_ITEM.size
        end = at + replaced_count * fmt.MASTER.size
        if end > len(payload):
            raise struct.error("more replaced nodes than bytes")
        replaced = tuple(fmt.MASTER.iter_unpack(payload[at:end]))
        items.append(AdoptItem._make((*head, replaced)))
        at = end
    return Adopt(segment, tuple(items))


_DECODERS: dict[int, Callable[[bytes], Body]] = {
    Kind.SEAL: lambda payload: Seal(*fmt.SEAL_BODY.unpack(payload)),
    Kind.CREATE: lambda payload: Create._make((*fmt.CREATE_BODY.unpack_from(payload), payload[8:])),
    Kind.DROP: lambda payload: Drop(*fmt.DROP_BODY.unpack(payload)),
    Kind.OPEN: lambda payload: Open._make(
        (*fmt.OPEN_BODY.unpack_from(payload), _data(payload, 44))
    ),
    Kind.APPEND: lambda payload: Append._make(
        (*fmt.APPEND_BODY.unpack_from(payload), _data(payload, 32))
    ),
    Kind.NODE: lambda payload: Node._make(
        (*fmt.NODE_BODY.unpack_from(payload), _data(payload, 44))
    ),
    Kind.TOMBSTONE: _decode_tombstone,
    Kind.TRIM: lambda payload: Trim(*fmt.TRIM_BODY.unpack(payload)),
    Kind.RECORD: lambda payload: Record(*fmt.RECORD_BODY.unpack(payload)),
    Kind.ADOPT: _decode_adopt,
    Kind.DROP_SEGMENT: lambda payload: DropSegment(*fmt.DROP_SEGMENT_BODY.unpack(payload)),
    Kind.NOTE: Note,
    Kind.RENAME: lambda payload: Rename._make(
        (*fmt.RENAME_BODY.unpack_from(payload), payload[fmt.RENAME_BODY.size :])
    ),
    Kind.GROUP: _decoder(Group, fmt.GROUP_BODY),
    Kind.GROUP_DROP: lambda payload: GroupDrop(*fmt.GROUP_DROP_BODY.unpack(payload)),
    Kind.CONSUMER: _decoder(Consumer, fmt.CONSUMER_BODY),
    Kind.DELIVER: _decoder(Deliver, fmt.DELIVER_BODY, ids=True),
    Kind.ACK: _decoder(Ack, fmt.ACK_BODY, ids=True),
    Kind.CLAIM: _decode_claim,
    **{frame.kind: frame.decode for frame in FRAMES.values()},
}


def decode(kind: int, payload: bytes, *, segment: int = 0, offset: int = 0) -> Body | None:
    """The body of a frame whose CRC was checked; None for a kind that may be skipped.

    CorruptFrameError for a kind that must be known and is not, naming it.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        if kind & fmt.SKIPPABLE:
            return None
        name = Kind(kind).name if kind in Kind._value2member_map_ else str(kind)
        raise CorruptFrameError(
            f"frame of kind {name} is from a newer logstore: upgrade to read this store",
            segment=segment,
            offset=offset,
        )
    try:
        return decoder(payload)
    except struct.error as exc:
        raise CorruptFrameError(
            f"frame of kind {Kind(kind).name} has a body that does not fit: {exc}",
            segment=segment,
            offset=offset,
        ) from exc


def data_place(kind: int, offset: int, payload_bytes: int) -> tuple[int, int]:
    """Offset in the segment and length of the listpack bytes that a frame carries."""
    head = DATA_HEAD_BYTES[kind]
    return offset + fmt.FRAME_HEAD_BYTES + head, payload_bytes - head
