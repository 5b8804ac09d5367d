"""Schemas as people write them: ``temp double, note string?, level enum('a', 'b') = 'a'``.

A column is a name, a type, ``?`` if it is nullable, and ``=`` with the value of rows that lack it.
A name stands bare, or in "double quotes" or `backticks` with its own quote doubled; a text stands
in 'single quotes'. ``*`` at the end lets entries have other fields, too.

The names of types are ``column_types``' own, and what Spark, SQL and Arrow call them.

Invariants: ``parse(schema.text) == schema``. A text that cannot be understood is refused whole,
with the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from logstore.errors import OptionError, SchemaError, shown
from logstore.schema.column_types import PLAIN_TYPES, ColumnType, Enum, Fixed
from logstore.schema.stream_schema import COLUMNS_MAX, TEXT_MAX_BYTES, Column, Schema
from logstore.tuples import NamedTuple

EXAMPLE: Final = 'temp double, at timestamp, note string?, "a name" long = 0'
OTHER_NAMES: Final = {
    "boolean": "bool",
    "integer": "int",
    "int32": "int",
    "bigint": "long",
    "int64": "long",
    "float64": "double",
    "text": "string",
    "varchar": "string",
    "bytes": "binary",
    "blob": "binary",
    "date32": "date",
    "timestamptz": "timestamp",
    "time64": "time",
}
_TOKEN = re.compile(
    r"""\s*(?:
        "(?P<quoted>(?:[^"]|"")+)"
      | `(?P<ticked>(?:[^`]|``)+)`
      | '(?P<text>(?:[^']|'')*)'
      | (?P<sign>[(),?=*])
      | (?P<bare>[^\s,"`'()?=*]+)
    )""",
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str  # quoted, ticked, text, sign, bare; end
    text: str
    at: int


class _Tokens:
    """The tokens of a schema's text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.next: _Token = self._found()

    def take(self) -> _Token:
        """The next one, which is used up."""
        taken = self.next
        self.next = self._found()
        return taken

    def took(self, sign: str) -> bool:
        """Whether the next one is this sign, which is used up then."""
        if self.next.kind != "sign" or self.next.text != sign:
            return False
        self.take()
        return True

    def refused(self, wanted: str) -> SchemaError | OptionError:
        """What is wrong here: ``wanted`` is not there."""
        rest = self._text[self.next.at :][:40] or "the end"
        return OptionError(f"no {wanted} at {rest!r}: give names and types, as in '{EXAMPLE}'")

    def _found(self) -> _Token:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :]
            if rest.strip():
                return _Token("", rest, self._at)
            return _Token("end", "", len(self._text))
        self._at = match.end()
        kind = str(match.lastgroup)
        text = match[kind]
        quote = {"quoted": '"', "ticked": "`", "text": "'"}.get(kind)
        if quote is not None:
            text = text.replace(quote * 2, quote)
        return _Token(kind, text, match.start(kind))


def parse(text: object) -> Schema:
    """The schema of a text. OptionError for what is none."""
    if not isinstance(text, str):
        raise OptionError(f"a schema is a text such as '{EXAMPLE}', not {shown(text)}")
    if len(text) > TEXT_MAX_BYTES:
        raise OptionError(f"a schema's text has at most {TEXT_MAX_BYTES} bytes")
    tokens, columns = _Tokens(text), dict[str, Column]()
    while True:
        if tokens.took("*"):
            if tokens.next.kind != "end":
                raise tokens.refused("end of the schema, which '*' is,")
            return Schema(list(columns.values()), is_open=True)
        column = _column(tokens)
        if column.name in columns:
            raise OptionError(f"a column is named twice: {column.name}")
        columns[column.name] = column
        if len(columns) > COLUMNS_MAX:
            raise OptionError(f"a schema has at most {COLUMNS_MAX} columns")
        if tokens.next.kind == "end":
            return Schema(list(columns.values()))
        if not tokens.took(","):
            raise tokens.refused("comma")


def _column(tokens: _Tokens) -> Column:
    if tokens.next.kind not in {"bare", "quoted", "ticked"}:
        raise tokens.refused("name of a column")
    name = tokens.take().text
    if tokens.next.kind != "bare":
        raise tokens.refused(f"type of column {name!r}")
    made = _type(tokens, name)
    nullable = tokens.took("?")
    default: bytes | None = None
    if tokens.took("="):
        if tokens.next.kind not in {"bare", "text"}:
            raise tokens.refused(f"default of column {name!r}")
        given = tokens.take().text
        try:
            default = made.write(given.encode())
        except (ValueError, TypeError) as error:
            raise OptionError(f"the default of column {name!r}, {given!r}, {error}") from None
    return Column(name, made, nullable, default)


def _type(tokens: _Tokens, column: str) -> ColumnType:
    word = tokens.take().text.lower()
    word = OTHER_NAMES.get(word, word)
    plain = PLAIN_TYPES.get(word)
    if plain is not None:
        return plain
    make = _WITH_ARGUMENTS.get(word)
    if make is None:
        known = ", ".join(PLAIN_TYPES)
        raise OptionError(
            f"column {column!r} cannot be {word}, only {known}, decimal(digits, scale) or "
            "enum('a', 'b')"
        )
    try:
        return make(_arguments(tokens))
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"column {column!r}: {error}") from None


def _arguments(tokens: _Tokens) -> list[str]:
    found: list[str] = []
    if not tokens.took("("):
        return found
    while True:
        if tokens.next.kind not in {"bare", "text"}:
            raise tokens.refused("argument of a type")
        found.append(tokens.take().text)
        if tokens.took(")"):
            return found
        if not tokens.took(","):
            raise tokens.refused("comma, or ')',")


def _decimal(arguments: list[str]) -> Fixed:
    if len(arguments) not in {1, 2} or not all(re.fullmatch("[0-9]{1,2}", a) for a in arguments):
        raise ValueError(
            "decimal is written decimal(10, 2): its digits, and those behind the point"
        )
    return Fixed(int(arguments[0]), int((*arguments, "0")[1]))


_WITH_ARGUMENTS: Final[dict[str, Callable[[list[str]], ColumnType]]] = {
    "decimal": _decimal,
    "numeric": _decimal,
    "decimal128": _decimal,
    "enum": Enum,
}
