"""The schema of a stream: set, changed and dropped.

An entry that was stored before must be readable by a schema that is set. So all of them are held
against it first, in batches, with no lock held; and in the commit what came since.

Invariants: a schema counts from its commit on. Each add behind it was written by it, and each entry
before it can be read by it. Every refusal comes before the first frame.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import add, read
from logstore.errors import Error, OptionError, SchemaError
from logstore.features.schedule_rows import ScheduleRows, unpacked
from logstore.features.schema_rows import StoredSchema
from logstore.features.typed_rows import schema_of
from logstore.format import NODE_KEY
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import file_names
from logstore.options import StreamSettings
from logstore.schema.stream_schema import Schema

NODES_A_SNAPSHOT = 1000
TRIES = 10  # rounds without a lock; then what is left is looked at in the commit


def put(
    engine: Engine,
    commit: Callable[[Callable[[WriteTxn], Any]], Any],
    name: bytes,
    schema: Schema | None,
    *,
    create: bool,
    settings: Callable[[WriteTxn], StreamSettings],
) -> StreamSettings:
    """Set the schema of a stream; None: it has none from now on.

    ``settings`` changes its settings in the same commit, and gives them.

    Raises:
        SchemaError: a stored or scheduled entry cannot be read by it; the first one is named.
        StreamNotFoundError: there is no stream, and none is to be made.
    """
    checked = ZERO_ID
    for left in reversed(range(TRIES)):
        step = partial(
            _put, name=name, schema=schema, checked=checked, create=create, settings=settings
        )
        after: StreamSettings | None = commit(partial(step, last=not left))
        if after is not None:
            try:
                _forget_statistics(engine, name)
            except (Error, OSError) as exc:  # the schema counts; reads for a condition are slower
                log.warning("%s: old statistics were not removed: %s", engine.path, exc)
            return after
        assert schema is not None
        record = read.record(engine, name)
        upto = ZERO_ID if record is None else record.last
        if upto < checked:  # the last ID was lowered, or it is another stream
            checked = ZERO_ID
        _check(partial(read.read_batch, engine, name), name, schema, checked, upto)
        checked = upto
    raise AssertionError("the last round checks in its commit")


def _put(
    txn: WriteTxn,
    *,
    name: bytes,
    schema: Schema | None,
    checked: StreamID,
    create: bool,
    settings: Callable[[WriteTxn], StreamSettings],
    last: bool,
) -> StreamSettings | None:
    """The commit; None if there are entries that were not checked, and need to be."""
    record = txn.record_by_name(name)
    if record is None:
        record = add.create(txn, name) if create else add.existing(txn, name)
    codec = txn.settings.stream(record.number).codec
    if codec is not None and schema is not None:
        raise OptionError(
            f"the stream has the codec {codec!r}, which says how its values are written: a schema "
            "can be set for one without a codec"
        )
    before = schema_of(txn.index, record)
    if before == schema:
        return settings(txn)
    if schema is not None and not (before is not None and schema.reads_all_of(before)):
        if record.last != checked:
            if not last:
                return None
            _check_in(txn, name, schema, min(checked, record.last), record.last)
        for row in ScheduleRows(txn.index).of_stream(record.number):
            fault = schema.fault_of(unpacked(row.fields))
            if fault is not None:
                raise SchemaError(
                    f"the schema does not fit an entry that is scheduled: {fault}", stream=name
                )
    after = settings(txn)  # what it refuses comes before its first frame
    txn.emit(StoredSchema(record.number, "" if schema is None else schema.text))
    return after


def _forget_statistics(engine: Engine, name: bytes) -> None:
    """Remove the statistics of the segments in which nodes of the stream lie: they tell nothing of
    its columns, or of those that it had. They are made again."""
    segments: set[int] = set()
    at: StreamID | None = ZERO_ID
    while at is not None:
        found, at = snapshot.read(engine, _segments, name, at)
        segments |= found
    for number in segments:
        engine.fs.remove(file_names.statistics(engine.path, number))


def _segments(view: Snapshot, name: bytes, start: StreamID) -> tuple[set[int], StreamID | None]:
    """The segments of the next nodes, and where to go on."""
    record = view.record(name)
    if record is None:
        return set(), None
    rows = view.index.node_rows(record.number, start, NODES_A_SNAPSHOT)
    found = codec().NodeList()
    found.add_rows(rows, 0, record.number, start, MAX_ID, len(rows))
    last = NODE_KEY.unpack(rows[-1][0]) if len(rows) == NODES_A_SNAPSHOT else (0, 0, 0)
    return found.segments(), StreamID(*last[1:]).next() if last[0] == record.number else None


def _check_in(
    txn: WriteTxn, name: bytes, schema: Schema, checked: StreamID, upto: StreamID
) -> None:
    txn.flush()
    view = Snapshot(txn.index, txn.segments, lambda: txn.now_ms)
    _check(partial(read.read_on, lambda batch: batch(view), name), name, schema, checked, upto)


def _check(
    batch_of: Callable[[read.RangeRead], read.Batch],
    name: bytes,
    schema: Schema,
    checked: StreamID,
    upto: StreamID,
) -> None:
    """Hold the entries above one ID, up to another, against a schema."""
    rest: read.Interval | None = (checked.next(), upto) if checked < upto else None
    while rest is not None:
        found = batch_of(read.RangeRead(*rest, -1))
        for entry in found.entries:
            fault = schema.fault_of(entry[3])
            if fault is not None:
                id = StreamID(*entry[1:3])
                raise SchemaError(
                    f"the schema does not fit entry {id}: {fault}; give a schema that does, "
                    "or delete the entry",
                    stream=name,
                )
        rest = found.rest
