"""Taking a checkpoint: a fuzzy copy of the state that changes.

It holds streams, groups, what features store (``logstore.features``), tombstone vectors with their
versions, the set of segments with one live bit for each of their node frames, and the numbers that
are never used again; no open nodes.

Invariants: all of the log that a snapshot saw is synced before the file gets its name; the state is
read in short snapshots, each at or behind the checkpoint's position; replay from there is
idempotent, so what a later snapshot saw already is not counted twice. The last two are kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from logstore import format as fmt
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit import durability
from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance import whole_log
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.background import Pause, no_pause
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import CorruptionError
from logstore.features.feature import Copied
from logstore.features.feature_list import FEATURES
from logstore.format import Kind
from logstore.index.group_keys import ConsumerRecord, GroupRecord, PendingRun
from logstore.index.keys import RECORD_BYTES
from logstore.index.txn import IndexTxn
from logstore.log import chain, checkpoint_file, file_names, hint, log_reader

STREAMS_A_CHUNK = 2000
NODES_A_CHUNK = 20_000
RUNS_A_CHUNK = 500
# Chunks behind a place, and the place behind them; None at the end.
Paged: TypeAlias = tuple[list[dict[str, Any]], Any] | None
Page: TypeAlias = Callable[..., Paged]


def take(engine: Engine, committer: Committer) -> int:
    """Take a checkpoint of now; its bytes."""
    with maintenance_locks.alone(engine):
        return take_alone(engine, committer)


def take_alone(engine: Engine, committer: Committer, pause: Pause = no_pause) -> int:
    """As ``take``, if the maintenance lock is held; ``pause`` is called between snapshots."""
    with committer.locked() as words:
        _check_followed(engine, words.applied)
    if not words.applied:
        return 0  # there is no commit that it could follow
    head = checkpoint_file.CheckpointHead(
        words.applied, words.commit, fmt.offset_of(words.last_frame), words.last_crc
    )
    pieces = whole_log.upto(engine, words.applied)
    chunks: list[Any] = [_meta(engine)]
    chunks += _walk(engine, _streams)
    chunks += _walk(engine, _groups)
    for feature in FEATURES:
        for copied in feature.copies:
            chunks += _walk(engine, partial(_of_feature, copied))
    live, vectors = _nodes(engine, pause)
    chunks += vectors
    adopted = snapshot.read(engine, lambda view: set(view.index.segment_rows()))
    rows: list[tuple[int, int, int, bytes]] = []
    for link, role, _ in pieces:
        if role == fmt.Role.MAIN or link.number in adopted:
            rows.append(_live_row(engine, link, role, live.get(link.number)))
            pause(0)
    chunks.append({"kind": "live", "rows": rows})
    # Last, not first: a snapshot may have seen commits behind the position, and what is in the file
    # must not be lost from the log.
    durability.flush_seen(engine, committer)
    size = checkpoint_file.write(engine.fs, engine.path, engine.uuid, head, chunks)
    for old in file_names.checkpoints(engine.fs, engine.path)[: -checkpoint_file.KEPT]:
        engine.fs.remove(file_names.checkpoint(engine.path, old))
    engine.metrics.count("checkpoints")
    return size


def _check_followed(engine: Engine, position: int) -> None:
    """CorruptionError if the index has not all of the log up to the checkpoint's position: what it
    lacks would be lost with the frames that the checkpoint stands for. It is asked itself, as no
    other word counts here."""
    generation = engine.index()
    with generation.env.begin() as txn:
        upto = IndexTxn(generation, txn).meta().applied
    if upto < position:
        raise CorruptionError(
            f"the index ends at {fmt.position_parts(upto)} and the log at "
            f"{fmt.position_parts(position)}, so no checkpoint is taken: close the store, delete "
            "its index directory, and open it again; it is rebuilt from the log"
        )


def _meta(engine: Engine) -> dict[str, Any]:
    meta = snapshot.read(engine, lambda view: view.meta)
    return {
        "kind": "meta",
        "rows": [],
        "next_stream": meta.next_stream,
        "next_segment": meta.next_segment,
    }


def _walk(engine: Engine, page: Page) -> list[dict[str, Any]]:
    """All chunks of one kind of state, each page read in a snapshot of its own."""
    chunks: list[dict[str, Any]] = []
    after: Any = None
    while (read := snapshot.read(engine, partial(page, after=after))) is not None:
        chunks += read[0]
        after = read[1]
    return chunks


def _of_feature(copied: Copied, view: Snapshot, after: Any) -> Paged:
    return copied.page(view.index, after)


def _streams(view: Snapshot, after: int | None) -> Paged:
    rows: list[tuple[int, bytes]] = []
    for record in view.index.records(after or 0):
        rows.append((record.number, record.pack()))
        if len(rows) == STREAMS_A_CHUNK:
            break
    if not rows:
        return None
    return [{"kind": "streams", "rows": rows, "head_bytes": RECORD_BYTES}], rows[-1][0]


def _groups(view: Snapshot, after: int | None) -> Paged:
    """The next group, with its consumers and pending entries: all in one snapshot, so that its
    position says for all of them which frames they have seen. Runs are copied as they are stored.
    """
    txn = view.index.groups
    group = next(iter(txn.all_groups(after or 0)), None)
    if group is None:
        return None
    number = group.number
    consumers = [(consumer.number, consumer.pack()) for consumer in txn.consumers(number)]
    runs = [run.pack() for run in txn.runs(number)]
    chunks: list[dict[str, Any]] = [{"kind": "groups", "rows": [[number, group.pack(), consumers]]}]
    chunks += [
        {"kind": "pending", "rows": [[number, run] for run in runs[at : at + RUNS_A_CHUNK]]}
        for at in range(0, len(runs), RUNS_A_CHUNK)
    ]
    return chunks, number


def load_groups(txn: WriteTxn, chunk: dict[str, Any]) -> None:
    """Put a chunk of groups with their consumers into an empty index."""
    rows = txn.groups.index
    for number, packed, consumers in chunk["rows"]:
        group = GroupRecord.unpack(number, packed)
        rows.put_name(group)
        rows.put_group(group)
        for consumer_number, packed_consumer in consumers:
            consumer = ConsumerRecord.unpack(consumer_number, packed_consumer)
            rows.put_consumer(number, consumer)
            rows.put_consumer_name(number, consumer)


def load_pending(txn: WriteTxn, chunk: dict[str, Any]) -> None:
    """Put a chunk of pending entries into an empty index."""
    for number, packed in chunk["rows"]:
        txn.groups.index.put_run(number, PendingRun.unpack(packed))


def _nodes(engine: Engine, pause: Pause) -> tuple[dict[int, array[int]], list[dict[str, Any]]]:
    """Offsets of live nodes by segment, and the vectors."""
    live: dict[int, array[int]] = {}
    chunks: list[dict[str, Any]] = []
    after = b""
    while True:
        rows, last = snapshot.read(engine, partial(_node_rows, after=after, live=live))
        if rows:
            chunks.append({"kind": "vectors", "rows": rows})
        if last is None:
            return live, chunks
        after = last + b"\x00"
        pause(0)


def _node_rows(
    view: Snapshot, after: bytes, live: dict[int, array[int]]
) -> tuple[list[tuple[int, int, int, int, bytes]], bytes | None]:
    rows: list[tuple[int, int, int, int, bytes]] = []
    last: bytes | None = None
    for count, (key, stream, master, locator) in enumerate(view.index.all_nodes(after)):
        if count == NODES_A_CHUNK:
            break
        last = key
        number, offset = fmt.position_parts(locator.position)
        live.setdefault(number, array("L")).append(offset)
        if locator.vector:
            rows.append((stream, master.ms, master.seq, locator.position, locator.vector))
    return rows, last


def _live_row(
    engine: Engine, link: chain.Link, role: int, offsets: array[int] | None
) -> tuple[int, int, int, bytes]:
    wanted = set(offsets or ())
    bits = 0
    if wanted:
        for place, frame in enumerate(node_frames(engine, link)):
            if frame.offset in wanted:
                bits |= 1 << place
                wanted.remove(frame.offset)
        # In the active segment nodes may stand behind the position, as snapshots are later.
        if role == fmt.Role.MAIN:
            wanted = {offset for offset in wanted if offset < link.end_offset}
        if wanted:
            raise whole_log.damaged(link.number, min(wanted), "a node of the index is not there")
    bitmap = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return (link.number, int(role), link.end_offset, bitmap)


def node_frames(engine: Engine, link: chain.Link) -> list[log_reader.LogFrame]:
    """The node frames of a segment, in order, from its hint or from the segment."""
    kept = hint.read(engine.fs, engine.path, engine.uuid, link)
    if kept is not None:
        return [frame for frame in kept if frame.kind == Kind.NODE]
    file = engine.fs.open(file_names.segment(engine.path, link.number))
    try:
        scanned = log_reader.scan(
            file, engine.seed, link.number, link.start_offset, link.end_offset
        )
        return [hint.shortened(frame) for frame in scanned if frame.kind == Kind.NODE]
    finally:
        file.close()
