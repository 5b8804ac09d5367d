"""Exporting streams to an RDB file, which Redis from 7.2 on and every Valkey load at their start;
or, for a newer Redis, one that holds more.

Invariants: the file takes its name when it is whole and durable: written under another name,
synced, renamed, its directory synced; a killed export leaves what had the name before. Streams are
written one by one, each as it was at one moment, in memory of some hundred kilobytes and the
places of one stream's nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from logstore.api.dump import TYPES_OF, Peer
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.codec import listpack
from logstore.engine.dump import export as exports
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import StreamNotFoundError, UsageError
from logstore.fs import LOCAL, File
from logstore.rdb.value import Node
from logstore.rdb.writer import FileWriter
from logstore.transfer.job import Progress, Report, Wanted, unwatched

PART = ".part"


def names(store: Store[Any], wanted: Wanted) -> list[bytes]:
    """The streams of a store that are wanted, sorted; an unfinished import is left out."""

    def find(view: Snapshot) -> list[bytes]:
        return sorted(record.name for record in view.listed() if wanted.wants(record.name))

    return snapshot.read(opened_of(store).engine(), find)


def expires_ms(store: Store[Any], name: bytes) -> int | None:
    """When a stream expires (unix ms), None: never."""
    record = snapshot.read(opened_of(store).engine(), lambda view: view.record(name))
    return None if record is None else record.expires_ms or None


def spelt(nodes: Iterable[Node], peer: Peer | None) -> Iterable[Node]:
    """The nodes as one of the servers writes them."""
    if peer is None:
        return nodes
    valkey = peer == "valkey"
    return ((key, listpack.respell(lp, valkey=valkey)) for key, lp in nodes)


def export_file(
    store: Store[Any],
    path: Path,
    wanted: Wanted | None = None,
    *,
    peer: Peer | None = None,
    report: Report | None = None,
    progress: Progress = unwatched,
) -> Report:
    """Write the streams that are wanted to an RDB file; one that is there gives way only if
    ``wanted`` replaces.

    ``peer``: as for ``Stream.dump``. ``progress`` is told bytes of nodes. FileSystemError,
    UsageError; SnapshotExpired if what is written was erased meanwhile. The store must have been
    opened for writing: what is read is pinned.
    """
    wanted = wanted or Wanted()
    report = Report() if report is None else report
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{path} cannot be a file: name one in a directory that is there")
    if path.exists() and not wanted.replace:
        raise UsageError(f"{path} is there already: replace it, or name another")
    part = path.with_name(path.name + PART)
    file = LOCAL.open_new(part)
    try:
        _write(store, file, wanted, peer, report, progress)
        file.sync()
    except BaseException:
        LOCAL.remove(part)
        raise
    finally:
        file.close()
    LOCAL.rename(part, path)
    LOCAL.sync_directory(path.parent)
    return report


def _write(
    store: Store[Any],
    file: File,
    wanted: Wanted,
    peer: Peer | None,
    report: Report,
    progress: Progress,
) -> None:
    found = names(store, wanted)
    total = sum(_node_bytes(store, name) for name in found)
    at = 0

    def write(data: bytes) -> None:
        nonlocal at
        file.pwrite(data, at)
        at += len(data)
        progress(min(at, total), total)

    writer = FileWriter(write, [(b"logstore", b"1")], TYPES_OF[peer])
    engine = opened_of(store).engine()
    for name in found:
        expires = expires_ms(store, name)
        try:
            with exports.pinned(engine, name) as export:
                nodes = spelt(export.nodes(engine), peer)
                target = wanted.target(name)
                writer.stream(target, export.node_count, nodes, export.info, expires)
        except StreamNotFoundError:
            continue  # it was dropped, or expired, before anything of it was written
        report.streams += 1
        report.entries += export.info.length
    writer.finish()


def _node_bytes(store: Store[Any], name: bytes) -> int:
    record = snapshot.read(opened_of(store).engine(), lambda view: view.record(name))
    return 0 if record is None else record.node_bytes
