"""What features do without being asked: when a time has come, or every so often.

A feature that only answers operations has no line here; what it stores is registered in
``logstore.features.feature_list``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.features import due_entries, expiry
from logstore.engine.features.background_sweep import IdempotentExpiry, KeyCompaction
from logstore.engine.features.retention import Retention
from logstore.engine.runtime.engine import Engine
from logstore.features import schedule_rows, ttl_rows
from logstore.features.feature import Feature
from logstore.tuples import NamedTuple


class Timed(NamedTuple):
    """Work that a time is set for."""

    feature: Feature  # whose ``first_due`` says when
    work: Callable[[WriteTxn], int]  # does a batch of what is due; how much that was
    frees: bool = False  # it gives space back, so it is done on a full disk too


class Periodic(Protocol):
    """Work for one process that looks by itself for what there is to do."""

    def tick(self) -> None:
        """Do what is due, for a bounded time."""
        ...


# In this order: a stream whose time has come goes before entries are added to it, or expire.
TIMED = (
    Timed(ttl_rows.STREAM_EXPIRY, expiry.drop_expired, frees=True),
    Timed(ttl_rows.ENTRY_EXPIRY, expiry.expire_due, frees=True),
    Timed(schedule_rows.FEATURE, due_entries.add_due),
)
PERIODIC: tuple[Callable[[Engine, Committer], Periodic], ...] = (
    Retention,
    IdempotentExpiry,
    KeyCompaction,
)
