"""Deciding when a stream expires, and dropping those whose time has come.

Invariants: from its time on a stream is gone for every reader and every writer at once, told by the
store's clock (``Snapshot.record``, ``TxnView.record_by_name``), whether or not it was dropped yet.
It goes with a DROP frame, in the commit that gives its name to another stream (``removal.vacate``)
or in the background, and nothing is ever added to it in between. A clock that is put back before
the drop brings it back. Adding and reading compare one number, and look nothing up.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Literal, TypeAlias

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features.due_entries import When
from logstore.errors import CorruptionError, OptionError
from logstore.features.expiry import Expire, ExpiryRows
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames

EXPIRES_MAX_MS = (1 << 63) - 1
STREAMS_A_COMMIT = 100
NODES_A_COMMIT = 10_000  # a stream with more goes in a commit of its own
# Only if the stream never expires; only if it does; only to a later time; only to an earlier one.
Condition: TypeAlias = Literal["never", "already", "later", "sooner"]


def expire(
    txn: WriteTxn, name: bytes, when: When, conditions: AbstractSet[Condition] = frozenset()
) -> bool:
    """Set when a stream expires; False if there is none, or a condition was not met.

    A time that has come already drops it. OptionError for one that cannot be counted in 63 bits.
    """
    record = txn.record_by_name(name)
    if record is None:
        return False
    at_ms = when.ms + txn.now_ms if when.from_now else when.ms
    if at_ms > EXPIRES_MAX_MS:
        raise OptionError(f"a stream cannot expire that late: {at_ms} ms is above 63 bits")
    if not _met(conditions, record.expires_ms, at_ms):
        return False
    expire_at(txn, record, at_ms)
    return True


def _met(conditions: AbstractSet[Condition], before_ms: int, at_ms: int) -> bool:
    """Whether all of the conditions are; "never" counts as later than any time."""
    return not (
        ("never" in conditions and before_ms)
        or ("already" in conditions and not before_ms)
        or ("later" in conditions and (not before_ms or at_ms <= before_ms))
        or ("sooner" in conditions and before_ms and at_ms >= before_ms)
    )


def expire_at(txn: WriteTxn, record: StreamRecord, at_ms: int) -> None:
    """The stream expires then (unix ms); it is dropped if that is now or was before."""
    if at_ms <= txn.now_ms:
        txn.emit(frames.Drop(record.number))
    else:
        txn.emit(Expire(record.number, at_ms))


def persist(txn: WriteTxn, name: bytes) -> bool:
    """The stream expires no longer; False if there is none, or it never did."""
    record = txn.record_by_name(name)
    if record is None or not record.expires_ms:
        return False
    txn.emit(Expire(record.number, 0))
    return True


def drop_expired(txn: WriteTxn) -> int:
    """Drop streams whose time has come, a batch at most; how many."""
    expired: list[int] = []
    left = NODES_A_COMMIT
    for stream in ExpiryRows(txn.index).expired(txn.now_ms):
        record = txn.record(stream)
        if record is None:
            raise CorruptionError(
                f"stream {stream} is to expire, and is gone: close the store, delete its index "
                "directory, and open it again"
            )
        expired.append(stream)
        left -= record.nodes
        if left <= 0 or len(expired) == STREAMS_A_COMMIT:
            break
    for stream in expired:
        txn.emit(frames.Drop(stream))
    txn.counts["expired_streams"] += len(expired)
    return len(expired)
