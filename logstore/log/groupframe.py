"""What frames say of consumer groups, as typed tuples, to and from payload bytes.

Invariants: IDs are packed, 16 bytes big endian, in ascending order; a group and a consumer are
named by number, so that a replay looks nothing up. Knows nothing of files or of the index.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from logstore import format as fmt
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

KIND_OF: dict[type, int] = {
    Group: Kind.GROUP,
    GroupDrop: Kind.GROUP_DROP,
    Consumer: Kind.CONSUMER,
    Deliver: Kind.DELIVER,
    Ack: Kind.ACK,
    Claim: Kind.CLAIM,
}


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


ENCODERS: dict[type, Callable[..., bytes]] = {
    Group: _tailed(fmt.GROUP_BODY),
    GroupDrop: lambda body: fmt.GROUP_DROP_BODY.pack(*body),
    Consumer: _tailed(fmt.CONSUMER_BODY),
    Deliver: _encode_deliver,
    Ack: _encode_ack,
    Claim: _encode_claim,
}


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


DECODERS: dict[int, Callable[[bytes], Any]] = {
    Kind.GROUP: _decoder(Group, fmt.GROUP_BODY),
    Kind.GROUP_DROP: lambda payload: GroupDrop(*fmt.GROUP_DROP_BODY.unpack(payload)),
    Kind.CONSUMER: _decoder(Consumer, fmt.CONSUMER_BODY),
    Kind.DELIVER: _decoder(Deliver, fmt.DELIVER_BODY, ids=True),
    Kind.ACK: _decoder(Ack, fmt.ACK_BODY, ids=True),
    Kind.CLAIM: _decode_claim,
}
