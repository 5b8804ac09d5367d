"""Deciding what becomes of staged nodes: all of a job's streams in one commit, or nothing.

A job may write to several streams; to each it adds behind what is there, or puts its entries in the
place of all that was. Nodes come as they will stand in the log; where the store gives the IDs, they
are moved to theirs here. Values were written by the schema that their stream had then; one whose
entries are replaced keeps its schema.

Invariants: every refusal comes before the first frame, and for all streams together; a node that is
published is sealed, and so is the one that was open before it; who publishes under a name that has
this batch, or a later one, changes nothing; no entry passes the schema of its stream by. All of it
stands in one segment, so it has a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from logstore.codec import ID, codec
from logstore.codec.node_batch import NodeBatch
from logstore.engine.apply.streams import nodes_added
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import restore
from logstore.engine.dump.restore import INSTALL_MAX_BYTES
from logstore.engine.runtime.record_cache import BeforeImage
from logstore.engine.streams import add, lifecycle
from logstore.engine.streams.removal import TrimRule
from logstore.engine.txn import nodes
from logstore.errors import (
    CorruptionError,
    IDOrderError,
    OptionError,
    SchemaError,
    StreamExistsError,
    TooLargeError,
)
from logstore.features.schema_rows import SchemaRows, StoredSchema
from logstore.ids import U64_MAX, ZERO_ID, StreamID
from logstore.log import frame as frames
from logstore.log import stagefile
from logstore.log.stagefile import StagedRun
from logstore.options import check_name
from logstore.tuples import NamedTuple

APPEND, OVERWRITE, ERROR, IGNORE = "append", "overwrite", "error", "ignore"
NODES_MAX = 1 << 62


class StagedEntries(NamedTuple):
    """The entries for one stream: runs with their bytes, in the order in which they are to come.

    ``own_ids``: the IDs are those in the runs. Else the store gives them, and in each run the
    entries count from 0-1.
    """

    name: bytes
    own_ids: bool
    runs: tuple[tuple[StagedRun, bytes], ...]

    @property
    def rows(self) -> int:
        """How many entries there are."""
        return sum(run.rows for run, _ in self.runs)


class Progress(NamedTuple):
    """Which batch of which query this is; kept as the one entry of a stream ``name``."""

    name: bytes
    query: bytes
    batch: int


def staged(name: bytes, runs: Sequence[tuple[StagedRun, bytes]], *, own_ids: bool) -> StagedEntries:
    """The runs of one stream in order; IDOrderError if their IDs interleave."""
    check_name(name, "a stream name")
    if own_ids:
        runs = sorted(runs, key=lambda each: each[0].first)
        for (before, _), (run, _) in pairwise(runs):
            if run.first <= before.last:
                raise IDOrderError(
                    f"the tasks' IDs of stream {name!r} interleave: {StreamID(*run.first)} of one "
                    f"is not above {StreamID(*before.last)} of another. Sort by ID before you "
                    "write: df.orderBy('id_key'), or by the columns that the ID is made of",
                    stream=name,
                )
    return StagedEntries(name, own_ids, tuple(runs))


def publish(
    txn: WriteTxn, streams: Sequence[StagedEntries], mode: str, progress: Progress | None = None
) -> int:
    """Add the entries of all streams; how many. ``mode`` is one of the four of this module.

    IDOrderError names the first ID that is not above its stream's last; StreamExistsError with
    ERROR; SchemaError for a stream whose schema is not the one that the values were written by;
    TooLargeError; CorruptionError; OptionError if the progress is another query's.
    """
    if progress is not None and not _is_next(txn, progress):
        return 0
    if mode == IGNORE:
        streams = [each for each in streams if txn.record_by_name(each.name) is None]
    parts = [(each, _parts(txn, each, mode)) for each in streams]
    size = sum(part.nbytes for _, found in parts for part in found)
    if size > INSTALL_MAX_BYTES:
        raise TooLargeError(
            f"{size} bytes of nodes cannot be written as one commit ({INSTALL_MAX_BYTES} at most): "
            "nothing was written; write the DataFrame in parts"
        )
    every: list[restore.VerifiedPart] = [part for _, found in parts for part in found]
    restore.check_room(txn, every)
    for each, found in parts:
        _add(txn, each, found, replace=mode == OVERWRITE)
    rows = sum(each.rows for each in streams)
    if progress is not None:
        _remember(txn, progress, rows)
    txn.counts["added_entries"] += rows
    txn.counts["added_bytes"] += size
    return rows


def _parts(txn: WriteTxn, wanted: StagedEntries, mode: str) -> list[NodeBatch]:
    """The nodes of a stream, verified, with their IDs."""
    record = txn.record_by_name(wanted.name)
    last = ZERO_ID if record is None or mode == OVERWRITE else record.last
    if record is not None and mode == ERROR:
        raise StreamExistsError("there is a stream of this name already", stream=wanted.name)
    schema_at = 0 if record is None else record.schema_at
    if any(run.schema_at != schema_at for run, _ in wanted.runs):
        raise SchemaError(
            "the stream's schema was set, changed or dropped while the nodes for it were made "
            "elsewhere: nothing was written, to no stream. Run the job again",
            stream=wanted.name,
        )
    if wanted.own_ids and wanted.runs and StreamID(*wanted.runs[0][0].first) <= last:
        first = StreamID(*wanted.runs[0][0].first)
        raise IDOrderError(
            f"entry {first} is not above the last ID of stream {wanted.name!r}, {last}: nothing "
            "was written, to no stream. Write what is above it, or overwrite the stream",
            stream=wanted.name,
        )
    found: list[NodeBatch] = []
    master: ID | None = None
    top: ID = ZERO_ID
    for data, run in _placed(txn, wanted, last):
        batch = codec().NodeBatch(data, 0, NODES_MAX, master, top)
        if batch.end != len(data) or batch.live != run.rows:
            raise CorruptionError(
                f"the staged file {run.file} has nodes that are not sound: nothing was written",
                stream=wanted.name,
            )
        master, top = batch.master or master, batch.top
        found.append(batch)
    return found


def _placed(
    txn: WriteTxn, wanted: StagedEntries, last: StreamID
) -> Iterator[tuple[bytes, StagedRun]]:
    """The bytes of the runs with their IDs."""
    if wanted.own_ids:
        yield from ((data, run) for run, data in wanted.runs)
        return
    at = _first_given(txn, last, wanted.rows)
    for run, data in wanted.runs:
        yield stagefile.moved(data, (at.ms, at.seq - 1)), run  # entries count from 1 in a run
        at = StreamID(at.ms, at.seq + run.rows)


def _first_given(txn: WriteTxn, last: StreamID, rows: int) -> StreamID:
    """The first of so many IDs of one millisecond: in a node they cannot carry into the next."""
    if txn.now_ms > last.ms:
        return StreamID(txn.now_ms, 0)
    if last.seq + rows <= U64_MAX:
        return last.next()
    if last.ms == U64_MAX:
        raise IDOrderError(add.EXHAUSTED)
    return StreamID(last.ms + 1, 0)


def _add(txn: WriteTxn, wanted: StagedEntries, parts: list[NodeBatch], *, replace: bool) -> None:
    record = txn.record_by_name(wanted.name)
    schema: str | None = None
    if record is not None and replace:
        schema = SchemaRows(txn.index).text(record.number)
        lifecycle.drop(txn, wanted.name)
        record = None
    if record is None:
        record = add.create(txn, wanted.name)
        if schema is not None:
            txn.emit(StoredSchema(record.number, schema))
    if not parts:
        return
    first = parts[0].first
    assert first is not None
    if record.number not in txn.grown:
        txn.grown[record.number] = BeforeImage(record.last, record.entries_added)
    before = (record.length, record.entries_added, record.first)
    add.end_open_node(txn, record, StreamID(*first))
    sealed: list[restore.VerifiedPart] = list(parts)
    nodes_added(txn, record, restore.written(txn, record.number, sealed))
    txn.emit(
        frames.Record(
            record.number,
            before[0] + wanted.rows,
            (before[1] + wanted.rows) & U64_MAX,
            *parts[-1].last,
            *(before[2] if before[0] else first),
            *record.max_deleted,
        )
    )


# -- which batch was last ----------------------------------------------------------------------
def _is_next(txn: WriteTxn, progress: Progress) -> bool:
    """Whether this batch was not published yet; OptionError if another query uses the name."""
    record = txn.record_by_name(progress.name)
    if record is None or not record.length:
        return True
    found = nodes.Lookup(txn, record).fields(record.last)
    query = None if found is None else dict(zip(found[::2], found[1::2], strict=True)).get(b"query")
    if query != progress.query:
        raise OptionError(
            f"the producer {progress.name!r} is another streaming query's, or this one began anew "
            "with an empty checkpoint, so that its batches cannot be told from those that are "
            "there: give a producer of its own, or drop that stream"
        )
    return record.last < StreamID(progress.batch + 1, 0)


def _remember(txn: WriteTxn, progress: Progress, rows: int) -> None:
    """One entry, with the number of the batch as its ID; those before it go."""
    fields = {b"query": progress.query, b"batch": progress.batch, b"rows": rows}
    batch, id = codec().rows([fields]), StreamID(progress.batch + 1, 0)
    add.add(txn, add.Add(progress.name, batch, 0, 1, id, rule=TrimRule(max_entries=1)))


__all__ = [
    "APPEND",
    "ERROR",
    "IGNORE",
    "OVERWRITE",
    "Progress",
    "StagedEntries",
    "publish",
    "staged",
]
