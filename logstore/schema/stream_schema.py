"""The schema of a stream: its columns, and rows held against them.

A column is a field of the entries. An entry has each column that is not nullable; a column with a
default is filled where a row lacks it. Fields beyond the columns are refused, unless the schema is
open, which its text says with ``*`` at the end.

Invariants: a row that was taken has for each column the one text of its value, in the order in
which it was given. A schema and its text are the same thing: equal schemas have equal texts. No two
columns have names that differ by case only, as Spark and DuckDB take them for one.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from logstore.errors import EntryTypeError, OptionError, SchemaError, shown
from logstore.schema.column_types import ColumnType
from logstore.tuples import NamedTuple

COLUMNS_MAX: Final = 1000
TEXT_MAX_BYTES: Final = 256 << 10  # of a schema, as it is stored
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]*")


class Column(NamedTuple):
    """A field and what it holds. ``default``: the text of the value of rows that lack it."""

    name: str
    type: ColumnType
    nullable: bool = False
    default: bytes | None = None

    @property
    def field(self) -> bytes:
        """The name, as entries have it."""
        return _encoded(self.name)

    @property
    def is_needed(self) -> bool:
        """Whether no row may lack it."""
        return not self.nullable and self.default is None

    @property
    def text(self) -> str:
        """The column as it stands in the text of a schema."""
        name = self.name
        if _BARE.fullmatch(name) is None:
            name = '"' + name.replace('"', '""') + '"'
        text = f"{name} {self.type.name}{'?' * self.nullable}"
        if self.default is None:
            return text
        default = self.default.decode("utf-8", "surrogateescape").replace("'", "''")
        return f"{text} = '{default}'"

    @property
    def null_refused(self) -> str:
        """Why a null is refused."""
        return f"column {self.name!r} is not nullable: {_give(self)}"

    def written(self, value: Any) -> bytes:
        """The one text of a value. SchemaError for what is none of the column's type."""
        return _text(self, value)


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
        _check_text(self.text)
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

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Schema {self.text}>"

    @property
    def text(self) -> str:
        """The one text of the schema, which ``schema_text.parse`` reads."""
        parts = [column.text for column in self.columns]
        return ", ".join([*parts, "*"] if self.is_open else parts)

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
                self.check_field(field)
                taken.append((field, value))
                continue
            there.add(field)
            if value is not None:
                taken.append((field, _text(column, value)))
            elif not column.nullable:
                raise SchemaError(column.null_refused)
        taken += self.filled(there)
        return taken

    def filled(self, there: Container[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """What a row gets that has only these fields: the defaults of other columns. SchemaError if
        one has none, and is not nullable."""
        for field, column in self._filled.items():
            if field not in there:
                if column.default is None:
                    raise SchemaError(f"column {column.name!r} is missing: {_give(column)}")
                yield field, column.default

    def condition(self, pairs: Iterable[tuple[Any, Any]]) -> list[tuple[bytes, Any]]:
        """Values that columns are compared with, as they are stored. SchemaError for one of another
        type, and for a field that is no column."""
        taken: list[tuple[bytes, Any]] = []
        for name, value in pairs:
            field = name if isinstance(name, bytes) else _encoded(name)
            column = self._by_field.get(field)
            if column is None and not self.is_open:
                raise SchemaError(f"there is no column {_said(field)}, only {self._named}"
                                  f"{self._path_hint(field)}")  # fmt: skip
            taken.append((field, value if column is None else _text(column, value)))
        return taken

    def unsure_of(self, other: Schema | None) -> list[Column]:
        """The columns that an entry may not fit which is in a stream of another schema, or of none.
        All that are new are among them: entries may be older than the other schema, and have fields
        beyond its columns."""
        return [each for each in self.columns if other is None or not _is_wider(each, other)]

    def refusals(self, before: Schema) -> list[str]:
        """Why rows that another schema took can be refused by this one, in some words each."""
        found: list[str] = []
        for column in before.columns:
            now = self._by_field.get(column.field)
            if now is None and not self.is_open:
                found.append(f"{column.name!r} goes")
            elif now is not None and not now.type.reads_all_of(column.type):
                found.append(f"{column.name!r} becomes {now.type.name}")
        found += [
            f"{column.name!r} must be there"
            for column in self.columns
            if column.is_needed and not ((was := before.column(column.field)) and was.is_needed)
        ]
        if before.is_open and not self.is_open:
            found.append("no other field may be there")
        return found

    def check_field(self, field: bytes) -> None:
        """SchemaError for a field that no entry can have."""
        if self.is_open or field in self._by_field:
            return
        raise SchemaError(
            f"there is no column {shown(field.decode('utf-8', 'backslashreplace'))}, only "
            f"{self._named}: add it to the schema, or '*' for any other field"
        )

    @property
    def _named(self) -> str:
        names = ", ".join(repr(each.name) for each in self.columns[:10])
        return names + (", .." if len(self.columns) > 10 else "")

    def _path_hint(self, field: bytes) -> str:
        column = self._by_field.get(field.partition(b".")[0])
        if column is None or column.type.name != "json":
            return ""
        path = field.decode("utf-8", "backslashreplace")
        return f"; what is in json is asked for by a condition, such as \"{path} = 'a text'\""


def _check_text(text: str) -> None:
    """OptionError for a schema that cannot be stored: what is read again is bounded, and UTF-8."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise OptionError("the names of columns are UTF-8: one has a byte that is not") from None
    if size > TEXT_MAX_BYTES:
        raise OptionError(f"a schema's text has at most {TEXT_MAX_BYTES} bytes, not {size}")


def _is_wider(column: Column, schema: Schema) -> bool:
    """Whether a column can hold what entries of another schema have under its name."""
    before = schema.column(column.field)
    if before is None:
        return False
    return before.nullable <= column.nullable and column.type.reads_all_of(before.type)


def fault_of(flat: Sequence[bytes], columns: Mapping[bytes, Column]) -> str | None:
    """Why a stored entry cannot be read by some columns, which are given by their fields; None: it
    can. Other fields do not matter.

    ``flat``: names and texts by turns; of a repeated name the last one counts.
    """
    stored = dict(zip(flat[::2], flat[1::2], strict=True))
    for field, column in columns.items():
        text = stored.get(field)
        if text is None:
            if not column.nullable:
                return f"it has no column {column.name!r}, which is not nullable without a '?'"
            continue
        try:
            column.type.read(text)
        except ValueError as error:
            return f"its {column.name!r} is {_said(text)}, which {error}"
    return None


def _text(column: Column, value: Any) -> bytes:
    try:
        return column.type.write(value)
    except (ValueError, TypeError) as error:
        raise SchemaError(
            f"column {column.name!r} is {column.type.name}: {_said(value)} {error}; {_give(column)}"
        ) from None


def _said(value: Any) -> str:
    """A value for a message: bytes as the text that they are."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return shown(value.decode())
    return shown(value)


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
    """The name of a field, as an add without a schema stores it."""
    if isinstance(name, int | float) and not isinstance(name, bool):
        name = repr(name)
    if not isinstance(name, str):
        raise EntryTypeError(
            f"the name of a field is str, bytes, int or float, not {type(name).__name__}"
        )
    return name.encode("utf-8", "surrogateescape")
