"""Deciding that entries expire: a time to live that is given with an add.

Invariants: the frame that says when entries expire is in the commit of the add, so that no crash
leaves an entry that should expire and does not. An ID that a row names is given to no other entry.
What is done when the time has come is ``engine.features.ttl``'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.engine.apply.write_txn import WriteTxn
from logstore.features.entry_ttl import TTL, TTLForgotten, TTLRows, packed
from logstore.ids import StreamID


def keep(txn: WriteTxn, stream: int, ids: Iterator[StreamID], due_ms: int) -> None:
    """These entries, which this commit adds, expire then (unix ms)."""
    txn.emit(TTL(stream, due_ms, packed(ids)))


def forget_above(txn: WriteTxn, stream: int, last: StreamID) -> None:
    """The last ID was lowered: what is above may be given to other entries."""
    if next(TTLRows(txn.index).of_stream(stream, last), None) is not None:
        txn.emit(TTLForgotten(stream, last))
