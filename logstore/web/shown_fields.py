"""How fields of entries are shown: as a line in a list, and whole, with their types, on a page.

Invariants: what is shown of a value is bounded, and says how long it is where it was cut. A value
is told by the column of the schema or by the codec that the stream has; what neither can read, and
what is no text, is shown as it is stored. Nothing is markup but what `json_markup` made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from markupsafe import Markup

from logstore.api import showing
from logstore.api.entry import Entry, codec_of, stored_pairs
from logstore.api.info import plain_text
from logstore.api.stream import Stream
from logstore.schema.column_types import ColumnType, Fixed
from logstore.schema.stream_schema import Schema
from logstore.tuples import NamedTuple
from logstore.web.json_markup import indented

VALUE_MAX_CHARACTERS = 400  # of a value in a list
FIELDS_MAX = 100
CODED_MAX_BYTES = 64 << 10  # of a value that a codec is asked to read
WHOLE_MAX_BYTES = 64 << 10  # of a value on a page
PAGE_MAX_BYTES = 512 << 10  # of all of them
FOLDED_CHARACTERS = 1000  # behind which a value on a page is folded
FOLDED_LINES = 25
DUMPED_MAX_BYTES = 4 << 10  # of what is no text
_DUMP_LINE = 16
# What has no picture of its own, for which a character is there that stands for it.
_PICTURES: Final = {at: 0x2400 + at for at in range(32) if chr(at) not in "\t\n\r"} | {127: 0x2421}


class Shown(NamedTuple):
    """A field in a list; ``kind``: number, time, json, or empty for text; ``cut``: how many bytes a
    value has that is not shown whole, else 0."""

    name: str
    value: str
    kind: str = ""
    cut: int = 0


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry in a list."""

    id: str
    time: datetime | None
    fields: list[Shown]
    left_out: int  # how many more fields there are


@dataclass(frozen=True, slots=True)
class WholeField:
    """A field on the page of its entry."""

    name: str
    type: str
    note: str  # what does not fit
    kind: str  # as of `Shown`, or bytes
    first: str  # what is seen of a value that is folded; else empty
    body: str | Markup
    size_bytes: int
    shown_bytes: int  # how much of it the body has


# -- in a list --------------------------------------------------------------------------------
_NUMBERS = ("int", "long", "double")
_TIMES = ("date", "timestamp", "time")


def kinds_of(stream: Stream[Any]) -> dict[bytes, str]:
    """How the columns of a schema are shown."""
    schema = stream.schema
    columns = () if schema is None else schema.columns
    return {column.field: _kind_of_type(column.type) for column in columns}


def _kind_of_type(kind: ColumnType) -> str:
    if kind.name in _NUMBERS or isinstance(kind, Fixed):
        return "number"
    if kind.name in _TIMES:
        return "time"
    return "json" if kind.name == "json" else ""


def entry_row(entry: Entry[Any], kinds: dict[bytes, str], most: int | None = None) -> EntryRow:
    """A line of a list; ``kinds`` are those of the stream, ``most`` how many fields it may have."""
    pairs = stored_pairs(entry)[:most]
    codec = codec_of(entry)
    shown = [_shown(name, value, kinds, codec) for name, value in pairs[:FIELDS_MAX]]
    return EntryRow(str(entry.id), showing.at(entry.id.ms), shown, max(0, len(pairs) - FIELDS_MAX))


def _shown(name: bytes, stored: bytes, kinds: dict[bytes, str], codec: Any) -> Shown:
    """A field, by its type or its codec; what a codec cannot read, and what is long, as it is."""
    text: str | None = None
    kind = kinds.get(name, "")
    if codec is not None and len(stored) <= CODED_MAX_BYTES:
        text, kind = _coded(codec, stored)
    if text is None:
        text = plain_text(stored[: 4 * VALUE_MAX_CHARACTERS])
    is_cut = len(text) > VALUE_MAX_CHARACTERS or len(stored) > 4 * VALUE_MAX_CHARACTERS
    return Shown(
        short_name(name),
        _visible(text[:VALUE_MAX_CHARACTERS]),
        kind,
        len(stored) if is_cut else 0,
    )


def short_name(name: bytes) -> str:
    """The name of a field, cut if it is long."""
    text = _visible(plain_text(name[: 4 * VALUE_MAX_CHARACTERS]))
    return text if len(text) <= VALUE_MAX_CHARACTERS else f"{text[:VALUE_MAX_CHARACTERS]}…"


def _coded(codec: Any, stored: bytes) -> tuple[str | None, str]:
    """The text of what a codec stored, and how it is shown; None for what it did not store."""
    from logstore.api.values import typed_text

    text = typed_text(codec, stored)
    return text, "" if text is None else _kind_of_value(codec.decode(stored))


def _kind_of_value(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    if isinstance(value, date):
        return "time"
    return "" if isinstance(value, str | bytes) else "json"


def _visible(text: str) -> str:
    """A text in which characters without a picture have one."""
    return text.translate(_PICTURES)


# -- whole ------------------------------------------------------------------------------------
class _Read(NamedTuple):
    """What is known of a value before it is laid out; ``text`` is None for what is no text."""

    type: str
    kind: str
    text: str | None
    note: str = ""


def whole_fields(entry: Entry[Any], schema: Schema | None) -> tuple[list[WholeField], int]:
    """The fields of an entry with types, and how many more there are. ``schema``: the stream's."""
    pairs, codec = stored_pairs(entry), codec_of(entry)
    left = PAGE_MAX_BYTES
    fields: list[WholeField] = []
    for name, stored in pairs[:FIELDS_MAX]:
        part = stored[: min(WHOLE_MAX_BYTES, left)]
        left -= len(part)
        read = (
            _typed(name, stored, part, schema) if codec is None else _decoded(stored, part, codec)
        )
        fields.append(_laid_out(name, stored, part, read))
    return fields, max(0, len(pairs) - FIELDS_MAX)


def _typed(name: bytes, stored: bytes, part: bytes, schema: Schema | None) -> _Read:
    """A value by the column of the schema, if it has one."""
    column = None if schema is None else schema.column(name)
    text = _text(part, is_cut=len(part) < len(stored))
    if column is None:
        plain = "bytes" if text is None else "text"
        return _Read(plain, "", text, "" if schema is None else "not in the schema")
    note = ""
    if len(part) == len(stored):
        try:
            column.type.read(stored)
        except ValueError:
            note = "does not fit: it reads as null"
    return _Read(column.type.name, _kind_of_type(column.type), text, note)


def _decoded(stored: bytes, part: bytes, codec: Any) -> _Read:
    """A value by the codec, if it is not too long for it."""
    as_stored = _text(part, is_cut=len(part) < len(stored))
    if len(part) < len(stored):
        return _Read(codec.name, "", as_stored, f"too long to be read as {codec.name} here")
    text, kind = _coded(codec, stored)
    if text is None:
        return _Read("bytes", "", as_stored, f"is no {codec.name}")
    return _Read(type_word(codec.decode(stored)), kind, text)


_WORDS: Final[Sequence[tuple[type, str]]] = (
    (bool, "bool"), (int, "int"), (float, "double"), (str, "text"), (bytes, "bytes"),
    (datetime, "timestamp"), (date, "date"), (list, "list"), (dict, "object"),
)  # fmt: skip


def type_word(value: object) -> str:
    """The type of a value that a codec gave, in a word."""
    found = (word for kind, word in _WORDS if isinstance(value, kind))
    return "null" if value is None else next(found, type(value).__name__)


def _text(part: bytes, *, is_cut: bool) -> str | None:
    """The text of bytes; None if they are none. Of a part the last character may be half."""
    if b"\0" in part:
        return None
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.end == len(part) and len(part) - error.start < 4:
            return part[: error.start].decode()
        return None


def _laid_out(name: bytes, stored: bytes, part: bytes, read: _Read) -> WholeField:
    kind, text = read.kind, read.text
    body: str | Markup
    if text is None:
        kind, part = "bytes", part[:DUMPED_MAX_BYTES]
        body = hex_dump(part)
    else:
        laid_out = indented(text)
        kind = "json" if laid_out is not None else kind
        body = _visible(text) if laid_out is None else laid_out
    is_long = (len(text or "") > FOLDED_CHARACTERS) or body.count("\n") >= FOLDED_LINES
    first = ""
    if is_long:
        first = body.partition("\n")[0] if text is None else " ".join(_visible(text[:200]).split())
    return WholeField(
        short_name(name), read.type, read.note, kind, first, body, len(stored), len(part)
    )


def hex_dump(data: bytes) -> str:
    """Bytes as lines: where they stand, their hex, and what of them is ASCII."""
    lines: list[str] = []
    for at in range(0, len(data), _DUMP_LINE):
        some = data[at : at + _DUMP_LINE]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in some)
        lines.append(f"{at:06x}  {some.hex(' '):<{3 * _DUMP_LINE}} {letters}")
    return "\n".join(lines)
