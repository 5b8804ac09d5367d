"""Streams as payloads of DUMP and RESTORE: what the faces offer of them.

Invariants: a payload is verified whole before the store is touched. It knows no logic of the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from logstore.codec import listpack
from logstore.engine import exports, installs
from logstore.errors import EntryTypeError, OptionError
from logstore.options import Sync
from logstore.rdb import dump

if TYPE_CHECKING:
    from logstore.store import Store

Peer: TypeAlias = Literal["redis", "valkey"]


def payload(store: Store[Any], name: bytes, peer: Peer | None = None) -> bytes:
    """A stream as a payload that servers RESTORE."""
    if peer not in (None, *get_args(Peer)):
        raise OptionError(f"peer is 'redis', 'valkey' or None: {peer!r}")
    found = exports.read(store._engine(), name, dump.PAYLOAD_MAX_BYTES)
    if peer is not None:
        valkey = peer == "valkey"
        found.nodes = [(key, listpack.respell(lp, valkey=valkey)) for key, lp in found.nodes]
    return dump.encode(found)


def restore(
    store: Store[Any], name: bytes, payload: bytes, *, replace: bool, sync: Sync | None
) -> None:
    """Make a stream of a payload, in one commit."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise EntryTypeError(f"a payload is bytes, not {type(payload).__name__}")
    stream = installs.prepare(dump.decode(bytes(payload)))
    store._commit(lambda state: installs.install(state, name, stream, replace=replace), sync)
