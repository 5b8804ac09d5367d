"""Loading a checkpoint into an empty index: streams, vectors, and the nodes that lived.

Invariants: only the newest checkpoint that is whole and fits the log is used; a live bit counts
node frames of its segment in order; a vector is taken only for the version it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from logstore import format as fmt
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.maintenance import checkpoint as checkpoints
from logstore.engine.runtime.engine import Engine, log
from logstore.errors import (
    CorruptFrameError,
    CorruptionError,
    DamagedStoreError,
    FormatVersionError,
)
from logstore.features.feature_list import COPIES, LOADED
from logstore.ids import StreamID
from logstore.index.keys import FIRST_RECORD_BYTES, Locator, SegmentRow, StreamRecord
from logstore.log import chain, checkpoint_file, file_names, hint, log_reader
from logstore.log import frame as frames
from logstore.recovery.replay_guard import UNNAMED
from logstore.recovery.report import Damage, RecoveryReport

_LOADERS: dict[str, Callable[[WriteTxn, dict[str, Any]], None]] = {
    "groups": checkpoints.load_groups,
    "pending": checkpoints.load_pending,
    **{kind: copied.load for kind, copied in COPIES.items()},
}


Vectors: TypeAlias = dict[tuple[int, int, int], tuple[int, bytes]]


def newest(engine: Engine, txn: WriteTxn, report: RecoveryReport) -> int:
    """Load the newest valid checkpoint; the position to replay from (0: there is none)."""
    for position in reversed(file_names.checkpoints(engine.fs, engine.path)):
        if not position:
            continue  # of a store that held nothing: it follows no commit
        try:
            head, chunks = checkpoint_file.read(engine.fs, engine.path, engine.uuid, position)
        except CorruptionError as exc:
            log.error("checkpoint %d is passed over: %s", position, exc)
            continue
        if not checkpoint_file.fits_log(engine.fs, engine.path, engine.uuid, head):
            number = fmt.segment_of(position)
            if engine.fs.exists(file_names.segment(engine.path, number)):
                log.error("checkpoint %d is passed over: its commit is not in the log", position)
                continue
            # What it says was true. What came behind it in that segment is gone.
            _is_missing(engine, number, report)
        report.checkpoint_position = position
        _load(engine, txn, chunks, position, report)
        number = fmt.segment_of(position)
        txn.meta = txn.meta._replace(
            applied=position,
            commit=head.commit,
            last_crc=head.last_crc,
            last_frame=fmt.position(number, head.last_frame_offset),
        )
        return position
    return 0


def _is_missing(engine: Engine, number: int, report: RecoveryReport) -> None:
    """A segment that nothing says was dropped: DamagedStoreError, unless the loss is accepted."""
    path = file_names.segment(engine.path, number)
    why = f"{path} is missing and was not dropped: restore it from a backup"
    if not engine.accept_loss:
        raise DamagedStoreError(
            f"{why}, or accept the loss with 'logstore recover'", segment=number
        )
    report.damage.append(Damage(number, 0, 0, why))


def _load(
    engine: Engine, txn: WriteTxn, chunks: list[Any], position: int, report: RecoveryReport
) -> None:
    vectors: Vectors = {}
    for chunk in chunks:
        kind, rows = chunk["kind"], chunk["rows"]
        if kind == "meta":
            txn.meta = txn.meta._replace(
                next_stream=chunk["next_stream"], next_segment=chunk["next_segment"]
            )
        elif kind == "streams":
            head_bytes = chunk.get("head_bytes", FIRST_RECORD_BYTES)
            for number, packed in rows:
                record = StreamRecord.unpack(number, packed, head_bytes)
                if txn.record(number) is None:
                    txn.create(record)
                    for loaded in LOADED:
                        loaded(txn, record)
        elif kind in _LOADERS:
            _LOADERS[kind](txn, chunk)
        elif kind == "vectors":
            for stream, ms, seq, version, vector in rows:
                vectors[stream, ms, seq] = (version, vector)
        elif kind == "live":
            unsure: list[log_reader.LogFrame] = []
            for number, role, end_offset, bitmap in rows:
                segment = (number, role, end_offset)
                unsure += _load_segment(engine, txn, segment, bitmap, vectors, position, report)
            _load_unsure(txn, unsure, vectors, report)
        else:  # passed over, all that it holds would be lost without a word
            raise FormatVersionError(
                f"checkpoint {position} has a chunk {kind!r}, which this version of logstore does "
                "not know: open the store with a newer one"
            )


def _load_segment(
    engine: Engine,
    txn: WriteTxn,
    segment: tuple[int, int, int],
    bitmap: bytes,
    vectors: Vectors,
    position: int,
    report: RecoveryReport,
) -> list[log_reader.LogFrame]:
    """Load the nodes that lived; those of which that is not known, because frames before them
    were lost, are returned."""
    number, role, end_offset = segment
    link = chain.Link(number, fmt.SEGMENT_HEAD_BYTES, end_offset, end_offset, 0)
    bits = int.from_bytes(bitmap, "little")
    txn.put_segment(number, SegmentRow(role, 0, 0, end_offset, 0))
    if not bits:
        return []
    found, unsure = _node_frames(engine, link, report)
    for place, node in enumerate(found):
        if node.position >= position and role == fmt.Role.MAIN:
            break
        if bits >> place & 1:
            _put(txn, node, vectors)
    return [node for node in unsure if node.position < position or role != fmt.Role.MAIN]


def _put(txn: WriteTxn, found: log_reader.LogFrame, vectors: Vectors) -> None:
    body = found.body()
    assert isinstance(body, frames.Node)
    master = StreamID(body.master_ms, body.master_seq)
    version, vector = vectors.get((body.stream, body.master_ms, body.master_seq), (0, b""))
    locator = Locator(
        found.position,
        found.payload_bytes,
        body.entries,
        StreamID(body.last_ms, body.last_seq),
        vector if version == found.position else b"",
    )
    txn.index.put_node(body.stream, master, locator)


def _load_unsure(
    txn: WriteTxn, unsure: list[log_reader.LogFrame], vectors: Vectors, report: RecoveryReport
) -> None:
    """Nodes behind damage in a segment without a hint: live bits count frames, and some are lost.

    Taken are those that no node that lives overlaps, the latest first, of what is not trimmed. So
    none is there twice; but what was deleted may be there again, and that is reported.
    """
    for found in sorted(unsure, key=lambda each: -each.position):
        body = found.body()
        assert isinstance(body, frames.Node)
        record = txn.record(body.stream)
        master = StreamID(body.master_ms, body.master_seq)
        last = StreamID(body.last_ms, body.last_seq)
        if record is None or last < record.first:
            continue
        if record.entries_added and not record.length:
            continue  # all of it is deleted; of a stream that never had any, the frames are lost
        if record.open_version and last >= record.open_master:
            continue
        floor = txn.index.node_floor(body.stream, last)
        if floor is not None and floor[1].last >= master:
            continue
        _put(txn, found, vectors)
        report.unsure.append(
            f"node {master} of {record.name!r} stands behind damage, in segment {found.segment} "
            "without a hint: if its entries were deleted, they are there again"
        )


def unadopted(engine: Engine, txn: WriteTxn, report: RecoveryReport) -> None:
    """Without a checkpoint and without the beginning of the log: nodes of compacted segments, of
    which nothing that is left says whether they were adopted."""
    txn.flush()
    known = {locator.position for _, _, _, locator in txn.index.all_nodes()}
    unsure: list[log_reader.LogFrame] = []
    for number, (head, size) in chain.heads(engine.fs, engine.path, engine.uuid).items():
        if head.role == fmt.Role.COMPACTED:
            link = chain.Link(number, fmt.SEGMENT_HEAD_BYTES, size, size, 0)
            found, behind = _node_frames(engine, link, report)
            unsure += [each for each in [*found, *behind] if each.position not in known]
    for node in unsure:
        number = int.from_bytes(node.payload[:8], "little")
        if txn.record(number) is None:
            txn.create(StreamRecord(number, UNNAMED % number, length=1, position=1))
            following = max(txn.meta.next_stream, number + 1)
            txn.meta = txn.meta._replace(next_stream=following)
    txn.flush()
    _load_unsure(txn, unsure, {}, report)


def _node_frames(
    engine: Engine, link: chain.Link, report: RecoveryReport
) -> tuple[list[log_reader.LogFrame], list[log_reader.LogFrame]]:
    """The node frames of a segment in order, and those that stand behind damage."""
    try:
        return checkpoints.node_frames(engine, link), []
    except FileNotFoundError:
        _is_missing(engine, link.number, report)
        return [], []
    except CorruptFrameError:
        return _around_damage(engine, link, report)


def _around_damage(
    engine: Engine, link: chain.Link, report: RecoveryReport
) -> tuple[list[log_reader.LogFrame], list[log_reader.LogFrame]]:
    """Damage is reported; a main segment's once more when it is replayed."""
    before: list[log_reader.LogFrame] = []
    behind: list[log_reader.LogFrame] = []
    good = link.start_offset
    file = engine.fs.open(file_names.segment(engine.path, link.number))
    try:
        for found in log_reader.next_valid(
            file, engine.seed, link.number, link.start_offset, link.end_offset
        ):
            if found.offset > good:
                damage = Damage(link.number, good, found.offset, "no valid frame")
                report.damage.append(damage)
            good = found.end_offset
            if found.kind == fmt.Kind.NODE:
                sure = not any(each.segment == link.number for each in report.damage)
                (before if sure else behind).append(hint.shortened(found))
        if good < link.end_offset:
            report.damage.append(Damage(link.number, good, link.end_offset, "no valid frame"))
    finally:
        file.close()
    return before, behind
