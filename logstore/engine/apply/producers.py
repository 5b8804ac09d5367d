"""Applying frames of idempotent adds to the index: what ``apply`` does with their kind.

Invariants: physical only, as all of ``apply``: no clock, no settings. Not by position, for a frame
says what is true after it and never by how much: what a checkpoint copied a little later ends in
the same when the frames that it saw already are applied again. A frame of a stream that has no
record is passed over; what is remembered ends with the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logstore.ids import ZERO_ID, StreamID
from logstore.log.producerframe import Idempotent

if TYPE_CHECKING:
    from logstore.engine.txn.view import TxnView


def _idempotent(state: TxnView, _at: int, _: int, body: Idempotent) -> None:
    if state.record(body.stream) is None:
        return
    producers = state.index.producers
    if body.first <= body.last:
        producers.forget(body.stream, StreamID(*body.first), StreamID(*body.last))
    if body.upto > ZERO_ID:
        producers.evict(body.stream, body.producer, StreamID(*body.upto))
    items = [(StreamID(*id), name) for id, name in body.items]
    producers.remember(body.stream, body.producer, items)
    producers.set_counts(body.stream, body.added, body.duplicates)


APPLY: dict[type, Callable[[TxnView, int, int, Any], None]] = {Idempotent: _idempotent}
