"""Applying frames of consumer groups to the index: what ``apply`` does with their kinds.

Invariants: physical only, as all of ``apply``; whatever belongs to a group changes only if the
frame stands behind the group's own position, and counts follow from what really changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logstore.engine.runtime import group_state
from logstore.engine.runtime.group_state import PendingSet
from logstore.ids import StreamID
from logstore.index.group_keys import NO_ONE, ConsumerRecord, GroupRecord, NewGroup
from logstore.log import frame as frames

if TYPE_CHECKING:
    from logstore.engine.txn.view import TxnView


def _group(txn: TxnView, at: int, _: int, body: frames.Group) -> None:
    if not body.group:
        there = txn.groups.by_number(at)
        if there is not None:
            # From a checkpoint that is behind this frame: one of its name that came and went
            # before it, in frames that were just replayed, has taken the name along.
            txn.groups.bind(there)
        elif txn.record(body.stream) is not None:
            last = StreamID(body.last_ms, body.last_seq)
            txn.groups.create(
                GroupRecord(at, body.stream, body.name, last, body.entries_read, position=at)
            )
        return
    group = txn.groups.advance(body.group, at)
    if group is not None:
        group.last = StreamID(body.last_ms, body.last_seq)
        group.entries_read = body.entries_read


def made(txn: TxnView, stream: int, positions: list[int], groups: list[NewGroup]) -> None:
    """What frames that make groups of one stream change, applied together: there may be hundreds of
    thousands. Digests of names and positions ascend. Such a group has a new number, so nothing of
    it can be in the index, nor held decoded."""
    txn.groups.index.put_new(stream, positions, groups)


def _group_drop(txn: TxnView, at: int, _: int, body: frames.GroupDrop) -> None:
    group = txn.groups.by_number(body.group)
    if group is not None and group.position < at:
        _wake(txn, group)
        _remove(txn, group)


def _wake(txn: TxnView, group: GroupRecord) -> None:
    """Whoever waits for the group must look again."""
    record = txn.record(group.stream)
    if record is not None:
        txn.woken.add(record.name)


def drop_all(txn: TxnView, stream: int, at: int) -> None:
    """The stream was dropped by the frame at this position, and its groups with it."""
    for group in txn.groups.of_stream(stream):
        if group.position < at:
            _remove(txn, group)


def _remove(txn: TxnView, group: GroupRecord) -> None:
    txn.settings.drop_group(group.number)
    txn.groups.remove(group)


def _consumer(txn: TxnView, at: int, _: int, body: frames.Consumer) -> None:
    groups = txn.groups
    group = groups.advance(body.group, at)
    if group is None:
        return
    record = groups.consumer(group.number, body.consumer)
    if not body.alive:
        if record is not None:
            pending = PendingSet(groups.index, group.number)
            pending.remove_of(body.consumer)
            group_state.count(groups, group, pending)
            groups.remove_consumer(group, record)
        return
    if record is None:
        record = ConsumerRecord(body.consumer, body.name)
        groups.add_consumer(group, record)
    record.seen_ms, record.active_ms = body.seen_ms, body.active_ms
    groups.touch_consumer(group.number, record)


def _deliver(txn: TxnView, at: int, _: int, body: frames.Deliver) -> None:
    group_state.deliver(txn.groups, at, body)


def _ack(txn: TxnView, at: int, _: int, body: frames.Ack) -> None:
    group_state.ack(txn.groups, at, body)


def _claim(txn: TxnView, at: int, _: int, body: frames.Claim) -> None:
    groups = txn.groups
    group = groups.advance(body.group, at)
    if group is None:
        return
    record = groups.consumer(group.number, body.consumer) if body.consumer else None
    if record is not None:
        record.seen_ms, record.active_ms = body.seen_ms, body.active_ms
        groups.touch_consumer(group.number, record)
    if body.consumer == NO_ONE and body.items:
        _wake(txn, group)
        group.next_nack = max(group.next_nack, 1 + max(item[2] for item in body.items))
    pending = PendingSet(groups.index, group.number)
    pending.put(body.items, body.consumer)
    group_state.count(groups, group, pending)


APPLY: dict[type, Callable[[TxnView, int, int, Any], None]] = {
    frames.Group: _group,
    frames.GroupDrop: _group_drop,
    frames.Consumer: _consumer,
    frames.Deliver: _deliver,
    frames.Ack: _ack,
    frames.Claim: _claim,
}
