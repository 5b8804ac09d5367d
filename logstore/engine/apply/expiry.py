"""Applying frames of what becomes of a stream as a whole: what ``apply`` does with their kind.

Invariants: physical only, as all of ``apply``: a time that has come drops nothing here, a DROP
frame does. A checkpoint is read in pieces, so two streams may have had one name by turns between
its position and the last piece, and a replayed frame may take a name from a stream that has it for
good: the frame that gave it that name comes later, and binds it once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logstore.index.expiry_txn import ExpiryTxn, first_due
from logstore.log.lifeframe import Expire, Rename

if TYPE_CHECKING:
    from logstore.engine.txn.view import TxnView


def _expire(state: TxnView, at: int, _: int, body: Expire) -> None:
    record = state.record(body.stream)
    if record is None or record.position >= at:
        return
    expiries = ExpiryTxn(state.index)
    expiries.delete(record)
    record.expires_ms = body.expires_ms
    expiries.put(record)
    record.position = at
    state.touch(record)  # who waits sleeps no longer than until then
    state.next_due_ms = first_due(state.index)


def _rename(state: TxnView, at: int, _: int, body: Rename) -> None:
    record = state.record(body.stream)
    if record is None:
        return
    if record.position < at:
        state.woken.add(record.name)
        if record.name != body.name:
            state.index.delete_name(record.name, record.number)
        record.name = body.name
        record.position = at
        state.touch(record)
    if record.name == body.name:
        state.bind(record)


APPLY: dict[type, Callable[[TxnView, int, int, Any], None]] = {Expire: _expire, Rename: _rename}
