"""The frame bodies of scheduled entries: one is kept until its time, or kept no longer.

Invariants: a physical result, as all bodies. A schedule's number is the position of the frame that
made it, so it is never used again; together with its time it is its key. Knows nothing of files or
of the index.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from logstore import format as fmt
from logstore.format import Kind
from logstore.tuples import NamedTuple

KEPT, ADDED, CANCELLED = 0, 1, 2  # the forms of the frame


class Scheduled(NamedTuple):
    """An entry that is added to the stream when its time has come."""

    stream: int
    due_ms: int
    fields: bytes  # as ``packed`` gives them


class Unscheduled(NamedTuple):
    """Entries of one stream that are scheduled no longer: they were added, or cancelled."""

    stream: int
    added: bool
    keys: tuple[tuple[int, int], ...]  # of each: due (unix ms), number


ScheduleBody: TypeAlias = Scheduled | Unscheduled


def packed(flat: Sequence[bytes]) -> bytes:
    """Field, value, field, value, ... as bytes."""
    size = fmt.SCHEDULE_PART.pack
    return b"".join(part for each in flat for part in (size(len(each)), each))


def unpacked(data: bytes) -> list[bytes]:
    """Field, value, field, value, ...; struct.error for bytes that hold no such thing."""
    flat: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        (size,) = fmt.SCHEDULE_PART.unpack_from(data, at)
        at += fmt.SCHEDULE_PART.size
        if size > end - at:
            raise struct.error("a field or value is longer than the frame")
        flat.append(data[at : at + size])
        at += size
    if not flat or len(flat) % 2:
        raise struct.error("no fields with their values")
    return flat


def _encode_scheduled(body: Scheduled) -> bytes:
    head = fmt.SCHEDULE_BODY.pack(body.stream, KEPT)
    return head + fmt.SCHEDULE_DUE.pack(body.due_ms) + body.fields


def _encode_unscheduled(body: Unscheduled) -> bytes:
    head = fmt.SCHEDULE_BODY.pack(body.stream, ADDED if body.added else CANCELLED)
    return head + b"".join(fmt.SCHEDULE_KEY.pack(*key) for key in body.keys)


def _decode(payload: bytes) -> ScheduleBody:
    stream, form = fmt.SCHEDULE_BODY.unpack_from(payload)
    at = fmt.SCHEDULE_BODY.size
    if form == KEPT:
        (due_ms,) = fmt.SCHEDULE_DUE.unpack_from(payload, at)
        fields = payload[at + fmt.SCHEDULE_DUE.size :]
        unpacked(fields)
        return Scheduled(stream, due_ms, fields)
    if form not in (ADDED, CANCELLED):
        raise struct.error(f"form {form} is not known")
    keys = tuple((due, number) for due, number in fmt.SCHEDULE_KEY.iter_unpack(payload[at:]))
    return Unscheduled(stream, form == ADDED, keys)


KIND_OF: dict[type, int] = {Scheduled: Kind.SCHEDULE, Unscheduled: Kind.SCHEDULE}
ENCODERS: dict[type, Callable[..., bytes]] = {
    Scheduled: _encode_scheduled, Unscheduled: _encode_unscheduled,
}  # fmt: skip
DECODERS: dict[int, Callable[[bytes], Any]] = {int(Kind.SCHEDULE): _decode}
