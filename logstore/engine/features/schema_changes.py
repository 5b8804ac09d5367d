"""The schema of a stream: set, changed and dropped.

An entry that was stored before must be readable by a schema that is set. So all of them are held
against it first, in batches, with no lock held; and in the commit what came since. Columns that
read all that was taken under the schema before are passed over.

Invariants: a schema counts from its commit on. Each add behind it was written by it, and each entry
before it can be read by it; what was moved as it is, such as a dead letter, can be read by each
column that came later. Every refusal comes before the first frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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
from logstore.schema.stream_schema import Column, Schema, fault_of
from logstore.tuples import NamedTuple

NODES_A_SNAPSHOT = 1000
_NUMBER = re.compile(rb"-?[0-9]+")
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
    seen = _Part(0, (), ZERO_ID)
    for left in reversed(range(TRIES)):
        step = partial(_put, name=name, schema=schema, seen=seen, create=create, settings=settings)
        after: StreamSettings | _Part = commit(partial(step, last=not left))
        if not isinstance(after, _Part):
            try:
                _forget_statistics(engine, name)
            except (Error, OSError) as exc:  # the schema counts; reads for a condition are slower
                log.warning("%s: old statistics were not removed: %s", engine.path, exc)
            return after
        _check(partial(read.read_batch, engine, name), name, after, after.unseen(seen))
        seen = after
    raise AssertionError("the last round checks in its commit")


class _Part(NamedTuple):
    """A part of a stream: some columns of its entries up to one of them."""

    number: int  # of the stream
    columns: tuple[Column, ...]
    upto: StreamID

    def unseen(self, seen: _Part) -> StreamID:
        """Above which ID it has what another part has not."""
        is_beyond = (
            self.number == seen.number
            and self.upto >= seen.upto  # else the last ID was lowered
            and set(self.columns) <= set(seen.columns)
        )
        return seen.upto if is_beyond else ZERO_ID


def _put(
    txn: WriteTxn,
    *,
    name: bytes,
    schema: Schema | None,
    seen: _Part,
    create: bool,
    settings: Callable[[WriteTxn], StreamSettings],
    last: bool,
) -> StreamSettings | _Part:
    """The commit; or what must fit the schema, if not all of it was seen to."""
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
    unsure = (
        () if schema is None else schema.columns if before is None else schema.unsure_of(before)
    )
    part = _Part(record.number, tuple(unsure), record.last)
    if part.columns:
        above = part.unseen(seen)
        if above != part.upto:
            if not last:
                return part
            _check_in(txn, name, part, above)
        _check_scheduled(txn, name, part)
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


def _check_in(txn: WriteTxn, name: bytes, part: _Part, above: StreamID) -> None:
    txn.flush()
    view = Snapshot(txn.index, txn.segments, lambda: txn.now_ms)
    _check(partial(read.read_on, lambda batch: batch(view), name), name, part, above)


def _check_scheduled(txn: WriteTxn, name: bytes, part: _Part) -> None:
    columns = {column.field: column for column in part.columns}
    for row in ScheduleRows(txn.index).of_stream(part.number):
        fault = fault_of(unpacked(row.fields), columns)
        if fault is not None:
            raise SchemaError(
                f"the schema does not fit an entry that is scheduled: {fault}", stream=name
            )


def _check(
    batch_of: Callable[[read.RangeRead], read.Batch], name: bytes, part: _Part, above: StreamID
) -> None:
    """Hold the entries of a part that are above an ID against its columns."""
    columns = {column.field: column for column in part.columns}
    maker = _Suspects(list(columns)) if all(each.nullable for each in part.columns) else None
    rest: read.Interval | None = (above.next(), part.upto) if above < part.upto else None
    while rest is not None:
        found = batch_of(read.RangeRead(*rest, -1, maker=maker))
        for entry in found.entries:
            fault = fault_of(entry[3], columns)
            if fault is not None:
                id = StreamID(*entry[1:3])
                raise SchemaError(
                    f"the schema does not fit entry {id}: {fault}; give a schema that does, "
                    "or delete the entry",
                    stream=name,
                )
        rest = found.rest


class _Suspects:
    """Gives the entries of nodes that have one of some fields: of a new column that may be null all
    others fit. So a column that comes costs a search in bytes."""

    def __init__(self, fields: Sequence[bytes]) -> None:
        self._fields = fields
        self._all = any(_NUMBER.fullmatch(field) for field in fields)  # which has other bytes

    def entries(self, lp: bytes, *rest: Any) -> list[Any]:
        """Those of a node, as ``codec.entries`` gives them."""
        if self._all or any(field in lp for field in self._fields):
            return codec().entries(lp, *rest)
        return []
