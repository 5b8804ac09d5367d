"""The frame body of idempotent adds: which IDs of producers gave which entries, what is forgotten.

Invariants: a physical result, as all bodies: what is forgotten is named by intervals of entry IDs,
and the counts are those after the frame, so that applying it again, or over a later state that the
frames behind it lead to anyway, ends in the same. It is in the commit of the entries that it names.
Knows nothing of files or of the index.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from logstore import format as fmt
from logstore.format import Kind
from logstore.ids import MAX_ID, ZERO_ID
from logstore.tuples import NamedTuple

ID: TypeAlias = tuple[int, int]
NOTHING: tuple[ID, ID] = (MAX_ID, ZERO_ID)  # the empty interval


class Idempotent(NamedTuple):
    """What is remembered of a stream's producers changes, in this order:

    of all producers, what gave entries from ``first`` to ``last`` is forgotten; of ``producer``,
    what gave entries up to ``upto`` (0-0: nothing); each of ``items``, (entry ID, idempotent ID),
    is remembered, in the place of an older entry of the same ID.
    """

    stream: int
    added: int  # idempotent adds of the stream's whole life, after this
    duplicates: int  # of those that added nothing
    first: ID
    last: ID
    upto: ID = ZERO_ID
    producer: bytes = b""
    items: tuple[tuple[ID, bytes], ...] = ()


def _encode(body: Idempotent) -> bytes:
    parts = [
        fmt.IDEMPOTENT_BODY.pack(
            body.stream, body.added, body.duplicates, *body.first, *body.last, *body.upto,
            len(body.producer),
        ),
        body.producer,
    ]  # fmt: skip
    for id, name in body.items:
        parts += (fmt.IDEMPOTENT_ITEM.pack(*id, len(name)), name)
    return b"".join(parts)


def _decode(payload: bytes) -> Idempotent:
    stream, added, duplicates, *ids, size = fmt.IDEMPOTENT_BODY.unpack_from(payload)
    at = fmt.IDEMPOTENT_BODY.size + size
    producer = payload[at - size : at]
    items: list[tuple[ID, bytes]] = []
    while at < len(payload):
        ms, seq, size = fmt.IDEMPOTENT_ITEM.unpack_from(payload, at)
        at += fmt.IDEMPOTENT_ITEM.size + size
        items.append(((ms, seq), payload[at - size : at]))
    if at > len(payload):
        raise struct.error("an ID is longer than what is left")
    first, last, upto = zip(ids[::2], ids[1::2], strict=True)
    return Idempotent(stream, added, duplicates, first, last, upto, producer, tuple(items))


KIND_OF: dict[type, int] = {Idempotent: Kind.IDEMPOTENT}
ENCODERS: dict[type, Callable[..., bytes]] = {Idempotent: _encode}
DECODERS: dict[int, Callable[[bytes], Any]] = {int(Kind.IDEMPOTENT): _decode}
