"""Applying frames of scheduled entries to the index: what ``apply`` does with their kind.

Invariants: physical only, as all of ``apply``. What is kept is a set under keys that are never
used again: whatever of a schedule's few frames a checkpoint has seen, replaying those behind its
position ends with the same set, so no record's position is asked. Adding an entry and keeping it no
longer stand in one commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logstore.index.expiry_txn import first_due
from logstore.index.schedule_txn import ScheduleRow
from logstore.log.scheduleframe import Scheduled, Unscheduled

if TYPE_CHECKING:
    from logstore.engine.txn.view import TxnView


def _scheduled(state: TxnView, at: int, _: int, body: Scheduled) -> None:
    record = state.record(body.stream)
    if record is None:
        return
    state.index.schedules.put(ScheduleRow(body.stream, body.due_ms, at, body.fields))
    state.next_due_ms = first_due(state.index)
    state.woken.add(record.name)  # who waits sleeps no longer than until it is due


def _unscheduled(state: TxnView, _at: int, _: int, body: Unscheduled) -> None:
    for key in body.keys:
        state.index.schedules.delete(body.stream, key)
    state.next_due_ms = first_due(state.index)


def drop_all(state: TxnView, stream: int) -> None:
    """The stream was dropped, and what was scheduled for it is cancelled."""
    if state.index.schedules.drop(stream):
        state.next_due_ms = first_due(state.index)


APPLY: dict[type, Callable[[TxnView, int, int, Any], None]] = {
    Scheduled: _scheduled, Unscheduled: _unscheduled,
}  # fmt: skip
