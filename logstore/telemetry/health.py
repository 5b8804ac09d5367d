"""Whether an open store does its work: for monitors, which ask every few seconds.

Invariants: it takes no longer for many streams or a long history; nothing is changed.
"""

from __future__ import annotations

from typing import Any

from logstore.api.opening import OpenStore
from logstore.engine.shm.control_block import Wake
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import Error
from logstore.log import file_names


def trouble(opened: OpenStore[Any]) -> str:
    """Why the store does not do its work; empty: it does."""
    try:
        opened.view(_look)
        engine = opened.engine()
    except Error as error:
        return str(error)
    if Wake.last_failure(engine.fs, engine.path / file_names.WAKE):
        return f"a sync of {engine.path} failed: nothing more is acknowledged"
    return ""


def _look(view: Snapshot) -> int:
    """Where the index stands: read, and checked against its checksum."""
    return view.meta.applied
