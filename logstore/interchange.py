"""Streams as payloads of DUMP and RESTORE: what the faces offer of them.

Invariants: a payload is verified whole before the store is touched. It knows no logic of the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.engine import exports, installs
from logstore.errors import EntryTypeError
from logstore.options import Sync
from logstore.rdb import dump

if TYPE_CHECKING:
    from logstore.store import Store


def payload(store: Store[Any], name: bytes) -> bytes:
    """A stream as a payload that servers RESTORE."""
    return dump.encode(exports.read(store._engine(), name))


def restore(
    store: Store[Any], name: bytes, payload: bytes, *, replace: bool, sync: Sync | None
) -> None:
    """Make a stream of a payload, in one commit."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise EntryTypeError(f"a payload is bytes, not {type(payload).__name__}")
    stream = installs.prepare(dump.decode(bytes(payload)))
    store._commit(lambda state: installs.install(state, name, stream, replace=replace), sync)
