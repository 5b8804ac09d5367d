"""Deciding the copy of a stream: its nodes and groups, as they are, under another name.

Invariants: the copy is of the moment of its commit, all or nothing; no node is re-encoded, but
tombstones that stand beside a node are set in the bytes of its copy. Entries, counts, groups with
what is pending in them, what is remembered of idempotent adds, and when the stream expires are
copied; other settings and what is scheduled are not.
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import export, restore
from logstore.engine.dump.restore import INSTALL_MAX_BYTES, Edge, Prepared, Sealed
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams.add import existing
from logstore.errors import TooLargeError, UsageError
from logstore.features.expiry import Expire
from logstore.ids import ZERO_ID, StreamID


def copy(txn: WriteTxn, source: bytes, target: bytes, *, replace: bool = False) -> bool:
    """Copy a stream; False if the target is there already and ``replace`` is False.

    StreamNotFoundError; UsageError if both are one; TooLargeError above 1 GiB.
    """
    if source == target:
        raise UsageError("source and destination objects are the same: name another target")
    record = existing(txn, source)
    if txn.record_by_name(target) is not None and not replace:
        return False
    expires_ms = record.expires_ms
    if record.node_bytes > INSTALL_MAX_BYTES:
        raise TooLargeError(
            f"a stream of {record.node_bytes} bytes cannot be copied in one commit "
            f"({INSTALL_MAX_BYTES} at most): read it, and add it in batches with add_many",
            stream=source,
        )
    restore.install(txn, target, _prepared(txn, source), replace=True)
    if expires_ms:
        made = existing(txn, target)
        txn.emit(Expire(made.number, expires_ms))
    return True


def _prepared(txn: WriteTxn, source: bytes) -> Prepared:
    """The stream as this commit has it so far."""
    txn.flush()
    view = Snapshot(txn.index, txn.segments, lambda: txn.now_ms)
    found = export.seen(view, source)
    nodes: list[Sealed] = []
    for master, locator in found.sealed:
        lp = view.segments.node(found.stream, master, locator)
        if locator.vector:
            lp = codec().fold(lp, locator.vector)
        nodes.append(Sealed(master, locator.last, locator.live, lp))
    if found.open_node is not None:
        key, lp = found.open_node
        master = StreamID.unpacked(key)
        nodes.append(Sealed(master, codec().last_id(lp, *master), codec().counts(lp)[0], lp))
    return Prepared([nodes], Edge(first=found.info.first or ZERO_ID), found.info)
