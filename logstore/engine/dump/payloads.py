"""Streams as payloads of DUMP and RESTORE: made of a stream, and made a stream again.

Invariants: a payload is verified whole before the store is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args

from logstore.codec import codec, listpack
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import export
from logstore.engine.dump.restore import VerifiedStream, bring, check_free, install, prepare
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import (
    CorruptNodeError,
    EntryTypeError,
    InvalidPayloadError,
    OptionError,
    TooLargeError,
    shown,
)
from logstore.options import Sync
from logstore.rdb import codes, dump_payload, rdb_writer
from logstore.rdb.value import Node, StreamValue

# Runs an operation as a commit, with a promise stronger than the store's or None.
Commit: TypeAlias = Callable[[Callable[[WriteTxn], Any], Sync | None], Any]
Peer: TypeAlias = Literal["redis", "redis-8.6", "redis-8.8", "valkey"]
# The newest type of a stream that each knows; None: of all of them.
TYPES_OF: Final[dict[Peer | None, int]] = {
    None: codes.LISTPACKS_3,
    "redis": codes.LISTPACKS_3,
    "redis-8.6": codes.LISTPACKS_4,
    "redis-8.8": codes.LISTPACKS_5,
    "valkey": codes.LISTPACKS_3,
}


def payload(engine: Engine, name: bytes, peer: Peer | None = None) -> bytes:
    """A stream as a payload that servers RESTORE."""
    if peer not in (None, *get_args(Peer)):
        names = ", ".join(map(repr, get_args(Peer)))
        raise OptionError(f"peer is one of {names} or None: {shown(peer)}")
    return _encoded(export.read(engine, name, dump_payload.PAYLOAD_MAX_BYTES), peer)


def payload_in(view: Snapshot, name: bytes, peer: Peer | None = None) -> bytes:
    """The same of a stream as a view has it, such as that of a transaction."""
    value = export.seen(view, name)
    if value.node_bytes > dump_payload.PAYLOAD_MAX_BYTES:
        raise TooLargeError(
            f"the stream's nodes have about {value.node_bytes} bytes, more than servers take",
            stream=name,
        )
    source, fold = view.segments, codec().fold
    nodes: list[Node] = []
    for master, locator in value.sealed:
        lp = source.node(value.stream, master, locator)
        nodes.append((master.packed(), fold(lp, locator.vector) if locator.vector else lp))
    if value.open_node is not None:
        nodes.append(value.open_node)
    return _encoded(StreamValue(nodes, value.info), peer)


def _encoded(value: StreamValue, peer: Peer | None) -> bytes:
    if peer is not None:
        valkey = peer == "valkey"
        value.nodes = [(key, listpack.respell(lp, valkey=valkey)) for key, lp in value.nodes]
    return dump_payload.encode(value, rdb_writer.kind_of(value.info, TYPES_OF[peer]))


def prepared(payload: bytes) -> VerifiedStream:
    """The stream of a payload, verified whole; InvalidPayloadError, TooLargeError."""
    try:
        return prepare(dump_payload.decode(payload))
    except CorruptNodeError as exc:
        raise InvalidPayloadError(exc.message) from exc


def restore(
    commit: Commit, name: bytes, payload: bytes, *, replace: bool, sync: Sync | None
) -> None:
    """Make a stream of a payload: it is there whole, or not at all."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise EntryTypeError(f"a payload is bytes, not {type(payload).__name__}")
    restore_prepared(commit, name, prepared(bytes(payload)), replace=replace, sync=sync)


def restore_prepared(
    commit: Commit,
    name: bytes,
    stream: VerifiedStream,
    *,
    replace: bool,
    sync: Sync | None = None,
    last: Callable[[WriteTxn], object] = bool,
) -> None:
    """Make a stream of what was verified, in one commit unless it has very many groups; ``last`` is
    done in the (last) commit. StreamExistsError."""

    def op(state: WriteTxn) -> None:
        install(state, name, stream, replace=replace)
        last(state)

    if not stream.info.many:
        commit(op, sync)
        return
    if not replace:
        commit(partial(check_free, name=name), None)
    bring(lambda step: commit(step, sync), name, stream, replace=replace, last=last)
