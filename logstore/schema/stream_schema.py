"""The schema of a stream: its columns, and rows held against them.

A column is a field of the entries. An entry has each column that is not nullable; a column with a
default is filled where a row lacks it. Fields beyond the columns are refused, unless the schema is
open, which its text says with ``*`` at the end.

Invariants: a row that was taken has for each column the one text of its value, in the order in
which it was given. A schema and its text are the same thing: equal schemas have equal texts. No two
columns have names that differ by case only, as Spark and DuckDB take them for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from logstore.errors import OptionError, SchemaError, shown
from logstore.schema.column_types import ColumnType
from logstore.tuples import NamedTuple

COLUMNS_MAX: Final = 1000


class Column(NamedTuple):
    """A field and what it holds. ``default``: the text of the value of rows that lack it."""

    name: str
    type: ColumnType
    nullable: bool = False
    default: bytes | None = None

    @property
    def field(self) -> bytes:
        """The name, as entries have it."""
        return self.name.encode("utf-8", "surrogateescape")


class Schema:
    """Columns, and whether entries may have other fields, too."""

    __slots__ = ("_by_field", "_filled", "columns", "is_open")

    def __init__(self, columns: Sequence[Column], *, is_open: bool = False) -> None:
        """OptionError for columns that cannot stand together."""
        if len(columns) > COLUMNS_MAX:
            raise OptionError(f"a schema has at most {COLUMNS_MAX} columns, not {len(columns)}")
        if not columns and not is_open:
            raise OptionError("a schema names a column at least, such as 'temp double'")
        self.columns = tuple(columns)
        self.is_open = is_open
        names: dict[str, str] = {}
        for column in columns:
            other = names.setdefault(folded(column.name), column.name)
            if other is not column.name:
                raise OptionError(
                    f"columns {other!r} and {column.name!r} are one to Spark and DuckDB, which do "
                    "not know upper from lower case: give the field another name"
                )
        self._by_field = {column.field: column for column in columns}
        self._filled = {
            field: column
            for field, column in self._by_field.items()
            if column.default is not None or not column.nullable
        }

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Schema)
            and other.columns == self.columns
            and other.is_open == self.is_open
        )

    def __hash__(self) -> int:
        return hash((self.columns, self.is_open))

    def column(self, field: bytes) -> Column | None:
        """The column of a field; None if there is none."""
        return self._by_field.get(field)

    def row(self, pairs: Iterable[tuple[Any, Any]]) -> list[tuple[bytes, Any]]:
        """A row as it is stored: for each column the one text of its value.

        Args:
            pairs: names as bytes or str, and values. None stands for a field that is not there.
                Bytes and str are texts of a value, but in columns of text, bytes and JSON.

        Returns:
            Names and texts. A field that is no column has the value that was given.

        Raises:
            SchemaError: a value is not of its column's type, a column is missing, or a field is no
                column and the schema is not open.
        """
        taken: list[tuple[bytes, Any]] = []
        there: set[bytes] = set()
        for name, value in pairs:
            field = name if isinstance(name, bytes) else _encoded(name)
            column = self._by_field.get(field)
            if column is None:
                self._refuse_unknown(field)
                taken.append((field, value))
                continue
            there.add(field)
            if value is not None:
                taken.append((field, _text(column, value)))
            elif not column.nullable:
                raise SchemaError(f"column {column.name!r} is not nullable: {_give(column)}")
        for field, column in self._filled.items():
            if field not in there:
                if column.default is None:
                    raise SchemaError(f"column {column.name!r} is missing: {_give(column)}")
                taken.append((field, column.default))
        return taken

    def _refuse_unknown(self, field: bytes) -> None:
        if self.is_open:
            return
        names = ", ".join(repr(each.name) for each in self.columns[:10])
        more = ", .." if len(self.columns) > 10 else ""
        raise SchemaError(
            f"there is no column {shown(field.decode('utf-8', 'backslashreplace'))}, only "
            f"{names}{more}: add it to the schema, or '*' for any other field"
        )


def _text(column: Column, value: Any) -> bytes:
    try:
        return column.type.write(value)
    except (ValueError, TypeError) as error:
        raise SchemaError(
            f"column {column.name!r} is {column.type.name}: {shown(value)} {error}; {_give(column)}"
        ) from None


def _give(column: Column) -> str:
    return f"give it a value such as {column.type.example}"


def folded(name: str) -> str:
    """A name without its case, as Spark and DuckDB compare names: character by character, as Java
    does (``ı`` is ``I`` is ``i``), which takes at least as many names for one as DuckDB does."""
    if name.isascii():
        return name.lower()
    return "".join(map(_folded, name))


def _folded(character: str) -> str:
    upper = character.upper()
    return (upper if len(upper) == 1 else character).lower()[0]


def _encoded(name: Any) -> bytes:
    encoded: bytes = name.encode("utf-8", "surrogateescape")
    return encoded
