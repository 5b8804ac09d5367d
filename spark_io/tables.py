"""Tables about a store: its streams, groups, pending entries, segments and pins.

What ``option("table", "groups")`` reads in place of entries. They are small beside the history, so
the planner gathers them, and tasks only hand them on.

Invariants: the columns and their types are fixed, and a schema may leave some out; a row is true of
one moment, and two rows may be of two moments. Importing this needs no LMDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logstore.errors import GroupNotFoundError, OptionError
from logstore.ids import U64_MAX
from logstore.spark_io import schema as columns
from logstore.spark_io import source_options
from logstore.spark_io.source_options import SourceOptions
from logstore.store_path import shown

if TYPE_CHECKING:  # with LMDB, which tasks must not need
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
_ALLOWED = {"path", "paths", "stream", "streams", "snapshotdir"}
_OF_ENTRIES = {"mode", "columnnameofcorruptrecord", "storecolumn", "failondataloss"}


def parse(given: Mapping[str, str]) -> tuple[str, SourceOptions]:
    """The table of a load, and the store and streams that it is about; checked."""
    rest = dict(given)
    table = rest.pop("table").lower()
    if table not in TABLES:
        raise OptionError(f"option 'table' is {', '.join(TABLES)}, not {table!r}")
    # The table of what is damaged is read as entries are, in ranges and parts, by the same plans.
    for key in rest.keys() & _OF_ENTRIES if table == DAMAGE else rest.keys() - _ALLOWED:
        name = source_options.shown(key)
        raise OptionError(f"option {name!r} does not go with 'table': leave it out")
    if not {"stream", "streams"} & rest.keys():
        rest["streams"] = "*"
    return table, source_options.parse(rest | {"failondataloss": "false"})


def ddl(table: str, *, several: bool) -> str:
    """The columns of a table, of several stores with the one that says which."""
    return TABLES[table] + (OF_STORE if several else "")


def _types(table: str) -> dict[str, str]:
    pairs = (each.split() for each in ddl(table, several=True).split(", "))
    return {name: kind for name, kind in pairs}  # noqa: C416  (a list is no pair to a checker)


class TablePartition(InputPartition):
    """Rows on their way to a task, as an Arrow stream."""

    def __init__(self, rows: bytes) -> None:
        super().__init__(len(rows))
        self.rows = rows


class TableReader(DataSourceReader):
    """Gathers a table on the driver's side, hands it over in tasks."""

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
        from logstore.spark_io import planning, stores

        rows: list[tuple[Any, ...]] = []
        for place, names in planning.streams(self.options).items():
            with stores.local(self.options, place) as store:
                rows += [(*row, shown(place)) for row in _ROWS[self.table](store, names)]
        return [
            TablePartition(self._packed(rows[at : at + BATCH_ROWS]))
            for at in range(0, len(rows), BATCH_ROWS)
        ]

    def batch(self, rows: list[tuple[Any, ...]]) -> Any:
        """Rows, each with its store behind the columns of the table, as those that are wanted."""
        import pyarrow as pa

        kinds = _types(self.table)
        places = {name: place for place, name in enumerate(kinds)}
        arrays = [
            pa.array([row[places[name]] for row in rows], columns.arrow_type(kind))
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

        if isinstance(partition, TablePartition):  # else Spark's way to say that there are none
            yield from pa.ipc.open_stream(partition.rows)


# -- rows -------------------------------------------------------------------------------------
def _streams(store: Store[bytes], names: list[bytes]) -> Iterator[tuple[Any, ...]]:
    for name in names:
        info = store.stream(name).info()
        yield (
            _text(name),
            info.length,
            str(info.recorded_first_entry_id),
            str(info.last_generated_id),
            str(info.max_deleted_entry_id),
            _number(info.entries_added),
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
                _text(name),
                _text(info.name),
                info.consumers,
                info.pending,
                str(info.last_delivered_id),
                _number(info.entries_read),
                info.lag,
            )


def _pending(store: Store[bytes], names: list[bytes]) -> Iterator[tuple[Any, ...]]:
    for name in names:
        for info in store.stream(name).groups():
            with suppress(GroupNotFoundError):  # it was destroyed meanwhile
                for entry in store.stream(name).group(info.name).pending_entries():
                    who = None if entry.consumer is None else _text(entry.consumer)
                    idle = None if entry.idle is None else entry.idle.total_seconds() * 1000
                    yield (
                        _text(name),
                        _text(info.name),
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


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _number(value: int | None) -> int | None:
    """A number that Spark has a type for, or null."""
    return value if value is None or value <= U64_MAX >> 1 else None
