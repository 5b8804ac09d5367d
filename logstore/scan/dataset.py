"""A scan as a data set of pyarrow: DuckDB hands it the columns and the filter of a query.

DuckDB does so with data sets alone, and with no other Arrow object. It uses ``schema`` and
``scanner`` of a data set; the other methods need C++ objects of pyarrow, and are refused here.

Invariant: a filter is applied to every row, for DuckDB does not apply it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import dataset

from logstore.errors import UsageError
from logstore.scan.query import Query

_NEEDS_MORE = (
    "__reduce__",
    "count_rows",
    "filter",
    "get_fragments",
    "head",
    "join",
    "join_asof",
    "replace_schema",
    "sort_by",
    "take",
    "to_batches",
    "to_table",
)


class Reading:
    """The columns and the filter of one query, to be read once."""

    def __init__(self, query: Query, columns: Sequence[str] | None, filter: Any) -> None:
        self._query = query
        self._columns = columns
        self._filter = filter

    def to_reader(self) -> pa.RecordBatchReader:
        """The record batches."""
        return self._query.reader(self._columns, self._filter)


class Entries(dataset.Dataset):
    """The entries of a scan, as a data set that has ``schema`` and ``scanner`` only."""

    def __init__(self, query: Query) -> None:
        self._query = query

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._query.schema

    def __repr__(self) -> str:
        return f"<Entries: {', '.join(self.schema.names)}>"

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, **_options: Any
    ) -> Reading:
        """Read some columns, of rows for which a filter holds. Options of pyarrow are about files,
        and are ignored."""
        return Reading(self._query, columns, filter)


def _refused(name: str) -> Any:
    def refused(_self: Entries, *_arguments: Any, **_options: Any) -> Any:
        raise UsageError(f"this data set is for DuckDB, and has no {name}: use the scan itself")

    return refused


# The methods of pyarrow would follow a C++ pointer that is not there.
for _name in _NEEDS_MORE:
    setattr(Entries, _name, _refused(_name))
