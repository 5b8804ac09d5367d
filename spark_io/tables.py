"""Tables about a store: its streams, groups, pending entries, segments, pins and damage.

``option("table", "groups")`` reads one of them in place of entries. The planner gathers the rows,
for they are few beside the history, and tasks only hand them on. The table ``damage`` is read by
tasks: they read all streams, and give a row for each run of damaged nodes. So who reads with
``failOnDataLoss=false`` can tell what was left out, and count it in a query.

Invariants: the columns and their types are fixed, and a schema may leave some out. A row is true at
one moment, and two rows may be of two moments. Each damaged node is in one row. Importing this
needs no LMDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logstore.errors import GroupNotFoundError, OptionError
from logstore.ids import U64_MAX
from logstore.scan import split_reads
from logstore.scan.record_batches import Gather, Loss, Losses
from logstore.spark_io import spark_columns, spark_options
from logstore.spark_io.spark_options import SourceOptions, shown_name
from logstore.spark_io.split_tasks import SplitPartition
from logstore.store_path import shown

if TYPE_CHECKING:
    from logstore.api.store import Store


BATCH_ROWS = 10_000
DAMAGE = "damage"
TABLES = {
    "streams": "stream string, length bigint, first_id string, last_id string, "
    "max_deleted_id string, entries_added bigint, nodes bigint, node_bytes bigint, groups bigint, "
    "scheduled bigint, expires_at timestamp",
    "groups": "stream string, group string, consumers bigint, pending bigint, "
    "last_delivered_id string, entries_read bigint, lag bigint",
    "pending": "stream string, group string, id string, consumer string, idle_ms bigint, "
    "delivery_count bigint",
    "segments": "segment bigint, created_at timestamp, live_nodes bigint, live_bytes bigint, "
    "total_bytes bigint",
    "pins": "pin string, purpose string, host string, pid bigint, since timestamp, "
    "until timestamp, segments bigint, segment_bytes bigint, snapshot_bytes bigint",
    DAMAGE: "stream string, first_id string, last_id string, nodes bigint, entries bigint, "
    "segment bigint, offset bigint, reason string",
}
OF_STORE = ", store string"
_ALLOWED = {"path", "paths", "stream", "streams", "snapshotdir", "reader"}
_OF_ENTRIES = {
    "mode",
    "columnnameofcorruptrecord",
    "storecolumn",
    "failondataloss",
    "typedcolumns",
}


def parse(given: Mapping[str, str]) -> tuple[str, SourceOptions]:
    """The name of a table, and the options for its stores and streams; checked."""
    rest = dict(given)
    table = rest.pop("table").lower()
    if table not in TABLES:
        raise OptionError(f"option 'table' is {', '.join(TABLES)}, not {table!r}")
    # The table of damage is read by the same plans as entries, in ranges and splits.
    for key in rest.keys() & _OF_ENTRIES if table == DAMAGE else rest.keys() - _ALLOWED:
        name = spark_options.as_written(key)
        raise OptionError(f"option {name!r} does not go with 'table': leave it out")
    if not {"stream", "streams"} & rest.keys():
        rest["streams"] = "*"
    return table, spark_options.parse_read(rest | {"failondataloss": "false"})


def ddl(table: str, *, several: bool) -> str:
    """The columns of a table; of several stores with a column for the store."""
    return TABLES[table] + (OF_STORE if several else "")


def _types(table: str) -> dict[str, str]:
    pairs = (each.split() for each in ddl(table, several=True).split(", "))
    return {name: kind for name, kind in pairs}  # noqa: C416  (a list is no pair to a checker)


class TablePartition(InputPartition):
    """Rows for a task, as an Arrow stream."""

    def __init__(self, rows: bytes) -> None:
        super().__init__(len(rows))
        self.rows = rows


class TableReader(DataSourceReader):
    """Gathers a table in the planner, and hands it on in tasks."""

    def __init__(self, table: str, options: SourceOptions, schema: Any) -> None:
        self.table = table
        self.options = options
        kinds = _types(table)
        self.wanted = {field.name: field.dataType.simpleString() for field in schema}
        for name, kind in self.wanted.items():
            if kinds.get(name) != kind:
                raise OptionError(
                    f"column {name!r} {kind}: the table {table!r} has {ddl(table, several=True)}"
                )

    def partitions(self) -> list[InputPartition]:
        """The rows, as they are now."""
        from logstore.spark_io import planning

        rows: list[tuple[Any, ...]] = []
        for path, names in planning.streams(self.options).items():
            with planning.open_local(self.options, path) as store:
                rows += [(*row, shown(path)) for row in _ROWS[self.table](store, names)]
        return [
            TablePartition(self._packed(rows[at : at + BATCH_ROWS]))
            for at in range(0, len(rows), BATCH_ROWS)
        ]

    def batch(self, rows: list[tuple[Any, ...]]) -> Any:
        """A batch of the wanted columns. The last value of each row is its store."""
        import pyarrow as pa

        kinds = _types(self.table)
        numbers = {name: number for number, name in enumerate(kinds)}
        arrays = [
            pa.array([row[numbers[name]] for row in rows], spark_columns.arrow_type(kind))
            for name, kind in self.wanted.items()
        ]
        return (
            pa.RecordBatch.from_arrays(arrays, names=list(self.wanted))
            if arrays
            else pa.record_batch({"row": pa.nulls(len(rows))}).select([])
        )

    def _packed(self, rows: list[tuple[Any, ...]]) -> bytes:
        import pyarrow as pa

        batch = self.batch(rows)
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        packed: bytes = out.getvalue().to_pybytes()
        return packed

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one partition."""
        import pyarrow as pa

        if isinstance(partition, TablePartition):  # else there are no partitions, as Spark says it
            yield from pa.ipc.open_stream(partition.rows)


# -- rows -------------------------------------------------------------------------------------
def _streams(store: Store[bytes], names: list[bytes]) -> Iterator[tuple[Any, ...]]:
    for name in names:
        info = store.stream(name).info()
        yield (
            shown_name(name),
            info.length,
            str(info.recorded_first_entry_id),
            str(info.last_generated_id),
            str(info.max_deleted_entry_id),
            _bigint(info.entries_added),
            info.radix_tree_keys,
            info.node_bytes,
            info.groups,
            info.scheduled,
            info.expires_at,
        )


def _groups(store: Store[bytes], names: list[bytes]) -> Iterator[tuple[Any, ...]]:
    for name in names:
        for info in store.stream(name).groups():
            yield (
                shown_name(name),
                shown_name(info.name),
                info.consumers,
                info.pending,
                str(info.last_delivered_id),
                _bigint(info.entries_read),
                info.lag,
            )


def _pending(store: Store[bytes], names: list[bytes]) -> Iterator[tuple[Any, ...]]:
    for name in names:
        for info in store.stream(name).groups():
            with suppress(GroupNotFoundError):  # it was destroyed meanwhile
                for entry in store.stream(name).group(info.name).pending_entries():
                    who = None if entry.consumer is None else shown_name(entry.consumer)
                    idle = None if entry.idle is None else entry.idle.total_seconds() * 1000
                    yield (
                        shown_name(name),
                        shown_name(info.name),
                        str(entry.id),
                        who,
                        None if idle is None else round(idle),
                        entry.delivery_count,
                    )


def _segments(store: Store[bytes], _names: list[bytes]) -> Iterator[tuple[Any, ...]]:
    from logstore.api.opening import opened_of

    rows = opened_of(store).view(lambda view: view.index.segment_rows())
    for number, row in sorted(rows.items()):
        created = datetime.fromtimestamp(row.born_ms / 1000, UTC)
        yield number, created, row.live_nodes, row.live_bytes, row.total_bytes


def _pins(store: Store[bytes], _names: list[bytes]) -> Iterator[tuple[Any, ...]]:
    for pin in store.pins():
        yield (
            pin.id,
            pin.purpose,
            pin.host,
            pin.pid,
            pin.since,
            pin.until,
            pin.segments,
            pin.segment_bytes,
            pin.snapshot_bytes,
        )


_ROWS = {
    "streams": _streams,
    "groups": _groups,
    "pending": _pending,
    "segments": _segments,
    "pins": _pins,
}


def _bigint(value: int | None) -> int | None:
    """A number as Spark's bigint; null if it is too large."""
    return value if value is None or value <= U64_MAX >> 1 else None


class DamageReader(TableReader):
    """Reads the table of damage: plans as a read of entries does, and reads in tasks."""

    def __init__(self, table: str, options: SourceOptions, schema: Any, cores: int) -> None:
        super().__init__(table, options, schema)
        self.cores = cores

    def partitions(self) -> list[InputPartition]:
        """The splits of a new plan, pinned."""
        from logstore.spark_io import planning

        made = planning.plan(self.options, self.cores, ())
        return [SplitPartition(each) for each in made.splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A row for each loss in one split."""
        if not isinstance(partition, SplitPartition):
            return
        losses = Losses(allowed=True)
        for _ in split_reads.batches(partition.split, Gather(["ms"]), losses=losses):
            pass
        if losses.found:
            path = shown(partition.split.store)
            yield self.batch([(*_loss_row(each), path) for each in losses.found])


def _loss_row(loss: Loss) -> tuple[Any, ...]:
    ids = str(loss.first), str(loss.last)
    where = loss.segment, loss.offset
    return shown_name(loss.stream), *ids, loss.nodes, loss.entries, *where, loss.error.message
