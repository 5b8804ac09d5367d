"""What ``Stream.describe`` tells of the columns of a stream: plain values.

Invariants: it is exact, whatever statistics tell; see ``scan.column_summary``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

from logstore.api.configuring import stream_schema
from logstore.api.opening import OpenStore
from logstore.codec.column_keys import COLUMNS_MAX
from logstore.errors import OptionError, SchemaError, shown
from logstore.ids import StreamID

if TYPE_CHECKING:
    from logstore.schema.stream_schema import Column, Schema


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column: how many entries have a value, and how many have none; the least and the most of
    the values, None if there are none."""

    type: str
    count: int
    nulls: int
    least: Any
    most: Any

    def as_dict(self) -> dict[str, Any]:
        """Plain values, those that JSON lacks as they are stored; for --json."""
        return {**asdict(self), "least": _plain(self.least), "most": _plain(self.most)}


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """The entries of an interval, and their columns by name. ``nodes_read``: of how many of its
    ``nodes`` the bytes were read; the others are told by statistics."""

    entries: int
    columns: dict[str, ColumnDescription]
    nodes: int
    nodes_read: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values; for --json."""
        columns = {name: each.as_dict() for name, each in self.columns.items()}
        return {**asdict(self), "columns": columns}


def describe(
    opened: OpenStore[Any],
    name: bytes,
    start: StreamID,
    end: StreamID,
    columns: Sequence[str] | None,
) -> StreamDescription:
    """What the columns of a stream hold. SchemaError, OptionError, StreamNotFoundError."""
    from logstore.scan import column_summary

    chosen = _chosen(name, stream_schema(opened, name), columns)
    found = column_summary.summary(opened.engine(), [name], start, end, chosen)
    assert found is not None  # as much is read as must be
    told = {
        column.name: ColumnDescription(
            column.type.name, found.entries - each.nulls, each.nulls, each.least, each.most
        )
        for column, each in zip(chosen, found.columns, strict=True)
    }
    return StreamDescription(found.entries, told, found.nodes, found.nodes_read)


def _chosen(name: bytes, schema: Schema | None, columns: Sequence[str] | None) -> list[Column]:
    """The columns that are asked for; all whose values have an order."""
    from logstore.scan.column_summary import can_summarize

    if schema is None:
        raise SchemaError(
            "there is no schema, and so no columns: set one with configure(schema=...), or see "
            "'logstore schema infer'",
            stream=name,
        )
    if columns is None:
        return [each for each in schema.columns if can_summarize(each)][:COLUMNS_MAX]
    if isinstance(columns, str | bytes) or not isinstance(columns, Sequence):
        raise OptionError(f"columns are a list of names, not {shown(columns)}")
    if len(columns) > COLUMNS_MAX:
        raise OptionError(f"at most {COLUMNS_MAX} columns are described at once: {len(columns)}")
    by_name = {each.name: each for each in schema.columns}
    found = []
    for each in dict.fromkeys(columns):
        column = by_name.get(each)
        if column is None:
            raise SchemaError(f"there is no column {shown(each)} in {schema.text!r}", stream=name)
        if not can_summarize(column):
            raise SchemaError(
                f"column {each!r} is {column.type.name}, whose values have no least and no most",
                stream=name,
            )
        found.append(column)
    return found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    from logstore.schema.column_types import DATE, TIME, TIMESTAMP

    for kind, of in ((datetime, TIMESTAMP), (date, DATE), (time, TIME)):
        if isinstance(value, kind):
            return of.write(value).decode()
    return str(value)
