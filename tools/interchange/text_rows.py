"""A row of an import: what a text of JSON or a record of CSV means, and where its ID comes from.

The ID is in a field, or in the fields ``ms`` and ``seq``. Or a field holds the time, and the
sequence is the rank among the rows of the same millisecond. Or there is none, and the store gives
IDs of now. A bare number in ``id``, if nobody named that field for the ID, is an ID only if it can
be a time in milliseconds: other numbers are seconds or row numbers, and would make entries of 1970,
which retention drops. In JSON a null is a field that is left out, and nested values become JSON
without spaces.

Most rows are flat: an ID, and fields that are text, numbers, true, false or null. These come in
blocks, in a tenth of the time.

Invariants: the rows of a block are those that ``attempt`` makes of the same lines, none left out; a
line for which that is not certain is in no block. A line that cannot be read is given as the
InputLineError that names it, and the caller decides whether to stop. Numbers of JSON keep their
text. Knows nothing of stores, nor of how an input becomes lines.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from logstore.errors import InputLineError, InvalidIDError
from logstore.ids import StreamID, datetime_ms, parse_id
from logstore.tools.interchange.file_formats import is_utf8
from logstore.tuples import NamedTuple

DEFAULT_FIELD = "id"
TIME_MAX = 1 << 64
# A smaller bare number is a row number, or seconds up to the year 5138; a larger one is no time.
BARE_MIN_MS, BARE_END_MS = 10**11, 253_402_300_800_000
TIME_FORMATS = ("iso", "s", "ms")


def is_time(number: int) -> bool:
    """Whether a bare number is a time in milliseconds, not in seconds or a row number."""
    return BARE_MIN_MS <= number < BARE_END_MS


class RowIDs:
    """Where the IDs of one import come from. It counts ranks, so it serves one reading of one
    input.

    And how fields are read of which a schema is known: in those of ``json_fields`` a text is a
    value of JSON, as a number is. With ``keeps_null`` null is kept as None, not left out. Of a
    stream with a codec ``written`` is what it stores of a text of JSON; ValueError, TypeError.
    """

    def __init__(
        self,
        *,
        id_field: str | None = None,
        time_field: str | None = None,
        time_format: str = "iso",
        auto: bool = False,
    ) -> None:
        self.required = id_field is not None
        self.default = not auto and id_field is None and time_field is None
        self.field = None if auto or time_field is not None else id_field or DEFAULT_FIELD
        self.of_times = time_field is not None
        self.json_fields: frozenset[str] = frozenset()
        self.keeps_null = False
        self.written: Callable[[bytes], bytes] | None = None
        self._time_field = None if time_field is None else time_field.encode()
        self._time_format = time_format
        self._ms = -1
        self._next_rank = 0

    @property
    def hint(self) -> str:
        """What a user can do about an ID that is not valid."""
        if self._time_field is not None:
            return "see --time-field and --time-format"
        return "or name another field with --id-field, or none with --auto-id"

    def take_out(self, fields: dict[str, Any]) -> None:
        """Take what is the ID out of the fields of a row."""
        given = None if self.field is None else fields.pop(self.field, None)
        if given is None and self.default and all(name in fields for name in NUMBERS):
            for name in NUMBERS:
                del fields[name]

    def surely_meant(self, given: str) -> bool:
        """Whether a text in ``id``, which nobody named, is meant as an ID, if it is one; if not,
        ``check_meant`` decides."""
        return not self.default or "-" in given or (12 <= len(given) <= 14 and given[0] != "0")

    def check_meant(self, given: str, found: StreamID) -> None:
        """InvalidIDError for a bare number in ``id`` that is no time, if nobody named the field."""
        if self.surely_meant(given) or is_time(found.ms):
            return
        raise InvalidIDError(
            f"{DEFAULT_FIELD!r} has {given!r}, which is no time of today in milliseconds, but "
            f"looks like seconds, or the number of a row: give --auto-id, and {DEFAULT_FIELD!r} is "
            f"a field and the store makes the IDs; or --id-field {DEFAULT_FIELD}, and it is the ID"
        )

    def by_time(self, pairs: list[tuple[bytes, bytes]]) -> StreamID | None:
        """The ID of a row by its time and rank; None if IDs do not come from times."""
        if self._time_field is None:
            return None
        text = next((value for name, value in pairs if name == self._time_field), None)
        if text is None:
            raise InvalidIDError(f"there is no field {self._time_field.decode()!r}")
        ms = parse_ms(text.decode("utf-8", "replace"), self._time_format)
        if ms != self._ms:
            self._ms, self._next_rank = ms, 0
        self._next_rank += 1
        return StreamID(ms, self._next_rank - 1)


def parse_ms(text: str, time_format: str) -> int:
    """Milliseconds since 1970 of a time: ISO 8601, "s", "ms", or a pattern of strptime."""
    try:
        if time_format in {"s", "ms"}:
            number = Decimal(text)
            if not -TIME_MAX < number < TIME_MAX:  # before it is an int: 1E9999999 has many digits
                raise InvalidIDError(f"{text!r} is no time of an ID")
            return parse_id((int(number * (1000 if time_format == "s" else 1)), 0)).ms
        moment = (
            datetime.fromisoformat(text)
            if time_format == "iso"
            else datetime.strptime(text, time_format)  # noqa: DTZ007  (UTC unless it says)
        )
        return datetime_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except InvalidIDError:
        raise InvalidIDError(f"{text!r} is no time of an ID") from None
    except (ValueError, OverflowError, InvalidOperation):
        raise InvalidIDError(f"{text!r} is no time in the format {time_format!r}") from None


Pairs: TypeAlias = list[tuple[bytes, bytes]]
NUMBERS = ("ms", "seq")
WRAPPERS = ("fields", "pairs", "pairs_base64")


class ImportRow(NamedTuple):
    """A row that becomes an entry: its line, its ID if it has one, its pairs."""

    line: int
    id: StreamID | None
    pairs: Pairs
    unit: str = "line"  # what is counted: lines, or rows of an array

    def bad(self, why: str) -> InputLineError:
        """The error for a row that cannot be added."""
        return InputLineError(why, line_number=self.line, unit=self.unit)


class _Object(list[tuple[str, Any]]):
    """A JSON object as it was written: in order, repeated names included."""


class _Number(str):
    """A number of JSON, as it was written."""

    __slots__ = ()


class _BadLineError(ValueError):
    """Why a line cannot be read."""


def attempt(
    number: int, parse: Callable[[], tuple[str | None, Pairs]], ids: RowIDs, unit: str = "line"
) -> ImportRow | InputLineError:
    """A row of the ID's text, if there is one, and the pairs; or the error of its line."""
    try:
        given, pairs = parse()
        if not pairs:
            raise _BadLineError("no fields: an entry has one or more")
        try:
            found = parse_id(given) if given is not None else ids.by_time(pairs)
        except InvalidIDError as error:
            raise _BadLineError(f"{error}; {ids.hint}") from None
        if given is not None and found is not None:
            ids.check_meant(given, found)
    except (InvalidIDError, ValueError) as error:
        return InputLineError(str(error), line_number=number, unit=unit)
    return ImportRow(number, found, pairs, unit)


# -- JSON ---------------------------------------------------------------------------------------
def _refuse_constant(name: str) -> Any:
    raise _BadLineError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object,
    parse_float=_Number,
    parse_int=_Number,
    parse_constant=_refuse_constant,
)


def json_pairs(line: bytes, ids: RowIDs) -> tuple[str | None, Pairs]:
    """The ID's text and the pairs of a text of JSON."""
    try:
        found = _DECODER.decode(line.decode("utf-8-sig").strip())
    except UnicodeDecodeError as error:
        raise _BadLineError(f"no UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _BadLineError(f"no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise _BadLineError("no entry: nested too deeply") from None
    if not isinstance(found, _Object):
        raise _BadLineError("no entry: give a JSON object")
    given, rest = _identified(found, ids)
    if len(rest) == 1 and rest[0][0] in WRAPPERS and isinstance(rest[0][1], list):
        return given, _wrapped(*rest[0], ids)
    return given, _pairs(rest, ids)


def _identified(
    found: Iterable[tuple[str, Any]], ids: RowIDs
) -> tuple[str | None, list[tuple[str, Any]]]:
    """The ID's text, if there is one, and the other fields."""
    given: str | None = None
    rest: list[tuple[str, Any]] = []
    for name, value in found:
        if name == ids.field and given is None and value is not None:
            given = _value_text(name, value)
        else:
            rest.append((name, value))
    if given is None and ids.default:
        return _of_numbers(rest)
    if given is None and ids.required:
        raise InvalidIDError(f"there is no field {ids.field!r}")
    return given, rest


def _of_numbers(found: list[tuple[str, Any]]) -> tuple[str | None, list[tuple[str, Any]]]:
    """The ID of the fields ``ms`` and ``seq``, if there are both, and the other fields."""
    numbers = {name: value for name, value in found if name in NUMBERS and isinstance(value, str)}
    if len(numbers) < len(NUMBERS):
        return None, found
    rest = [(name, value) for name, value in found if name not in NUMBERS]
    return f"{numbers['ms']}-{numbers['seq']}", rest


def _pairs(found: list[tuple[str, Any]], ids: RowIDs) -> Pairs:
    """Fields as they are stored; those with null are left out, unless it is kept."""
    pairs: list[tuple[bytes, Any]] = []
    if ids.written is not None:
        return [
            (_utf8(name, name), _written(ids.written, name, _json_text(name, value)))
            for name, value in found
        ]
    for name, value in found:
        if value is not None:
            text = _json_text(name, value) if name in ids.json_fields else _value_text(name, value)
            pairs.append((_utf8(name, name), _utf8(name, text)))
        elif ids.keeps_null:
            pairs.append((_utf8(name, name), None))
    return pairs


def _wrapped(kind: str, value: list[Any], ids: RowIDs) -> Pairs:
    """The pairs below "fields", "pairs" or "pairs_base64"."""
    if kind == "fields" and isinstance(value, _Object):
        return _pairs(value, ids)
    if kind == "fields" or isinstance(value, _Object):
        wanted = "an object" if kind == "fields" else "a list of [field, value]"
        raise _BadLineError(f'"{kind}" must be {wanted}')
    found: list[tuple[str, Any]] = []
    for pair in value:
        if not isinstance(pair, list) or isinstance(pair, _Object) or len(pair) != 2:
            raise _BadLineError(f'"{kind}" must be a list of [field, value]')
        if not isinstance(pair[0], str):
            raise _BadLineError(f'a field of "{kind}" has a name that is no text')
        found.append((pair[0], pair[1]))
    if kind == "pairs":
        return _pairs(found, ids)
    pairs: list[tuple[bytes, Any]] = []
    for name, data in found:
        if data is not None:
            text = b64decode(_value_text(name, data), validate=True)
            pairs.append((b64decode(name, validate=True), text))
        elif ids.keeps_null:
            pairs.append((b64decode(name, validate=True), None))
    return pairs


def _written(written: Callable[[bytes], bytes], name: str, text: str) -> bytes:
    """What a codec stores of a value."""
    try:
        return written(_utf8(name, text))
    except (ValueError, TypeError, OverflowError) as error:
        raise _BadLineError(f"the codec cannot hold field {name!r}: {error}") from None


def _value_text(name: str, value: Any) -> str:
    """A value other than null as text; a nested one as JSON without spaces."""
    return value if isinstance(value, str) else _json_text(name, value)


def _json_text(name: str, value: Any) -> str:
    """A value as JSON without spaces."""
    try:
        return _compact(value)
    except RecursionError:
        raise _BadLineError(f"field {name!r} is nested too deeply") from None


def _compact(value: Any) -> str:
    # The module json would change numbers, and drop repeated names: test_the_forms_of_a_json_line.
    if isinstance(value, _Number):
        return value
    if isinstance(value, _Object):
        items = (f"{_quoted(name)}:{_compact(each)}" for name, each in value)
        return f"{{{','.join(items)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_compact, value))}]"
    return _quoted(value)


def _quoted(value: Any) -> str:
    """Text, true, false or null."""
    return json.dumps(value, ensure_ascii=False)


def _utf8(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise _BadLineError(f"field {name!r} is no UTF-8") from None


# -- CSV ----------------------------------------------------------------------------------------
def csv_pairs(header: Sequence[str], cells: Sequence[str], ids: RowIDs) -> tuple[str | None, Pairs]:
    """The ID's text and the pairs of a record of CSV."""
    if len(cells) != len(header):
        raise _BadLineError(f"{len(cells)} cells under a header of {len(header)}")
    given, rest = _identified(zip(header, cells, strict=True), ids)
    if ids.written is not None:
        written = ids.written
        full = ((name, text) for name, text in rest if text)
        return given, [(_utf8(name, name), _written(written, name, text)) for name, text in full]
    return given, [(_utf8(name, name), _utf8(name, value)) for name, value in rest]


Fields: TypeAlias = dict[str, str] | list[tuple[str, str]]  # a list where a name repeats
R = TypeVar("R")
PlainRow: TypeAlias = Fields | tuple[str, Fields]  # with the text of its ID, if it has one
OPEN = "*"  # for a sequence that the store gives: an add takes such an ID, an import does not
_name = itemgetter(0)


class Block(NamedTuple):
    """Rows as ``add_many`` takes them: all have the texts of their IDs, which nobody has looked at,
    or none has one; and their lines."""

    lines: Sequence[int]
    rows: Sequence[PlainRow]
    ids: RowIDs

    @property
    def with_ids(self) -> bool:
        """Whether the rows have IDs."""
        return isinstance(self.rows[0], tuple)

    def row(self, at: int) -> ImportRow | InputLineError:
        """One row as ``attempt`` makes it, or the error of its line."""
        found = self.rows[at]
        given, fields = found if isinstance(found, tuple) else (None, found)
        pairs = fields.items() if isinstance(fields, dict) else fields
        stored = [(name.encode(), value.encode()) for name, value in pairs]
        return attempt(self.lines[at], lambda: (given, stored), self.ids)


def one_by_one(
    found: Iterable[ImportRow | InputLineError | Block],
) -> Iterator[ImportRow | InputLineError]:
    """The rows of blocks one by one, with the rows and errors between blocks, in order."""
    for each in found:
        if isinstance(each, Block):
            yield from map(each.row, range(len(each.rows)))
        else:
            yield each


def blocks(
    found: Iterable[tuple[int, R, PlainRow | None]],
    other: Callable[[int, R], ImportRow | InputLineError | None],
    ids: RowIDs,
) -> Iterator[ImportRow | InputLineError | Block]:
    """Plain rows put together, of the numbers of lines, what stands there, and what plain row that
    is; where there is none, what ``other`` makes of it, which is nothing where nothing stands."""
    lines: list[int] = []
    rows: list[PlainRow] = []
    with_ids = False
    for number, read, row in found:
        if row is None or (row.__class__ is tuple) is not with_ids:
            if rows:
                yield Block(lines, rows, ids)
                lines, rows = [], []
            if row is None:
                one = other(number, read)
                if one is not None:
                    yield one
                continue
            with_ids = not with_ids
        lines.append(number)
        rows.append(row)
    if rows:
        yield Block(lines, rows, ids)


# -- many rows of JSON ----------------------------------------------------------------------------
# Objects are tuples here, so that they are no lists; numbers are their text.
_scan: Callable[[str, int], tuple[Any, int]] = vars(
    json.JSONDecoder(
        object_pairs_hook=tuple, parse_float=str, parse_int=str, parse_constant=_refuse_constant
    )
)["scan_once"]
_ENDS = frozenset({"\n", "\r\n", ""})


def plain_json(ids: RowIDs) -> Callable[[bytes], PlainRow | None]:
    """A function that makes a plain row of a line of JSON; None if `json_pairs` must read it."""
    if ids.of_times or ids.written is not None:
        return lambda _line: None
    field, required = ids.field, ids.required
    # An object without any of these names has no ID.
    of_ids = {field, NUMBERS[0]} if ids.default else {field}
    fields_of = partial(_cautious, ids) if ids.json_fields or ids.keeps_null else _fields

    def row(line: bytes) -> PlainRow | None:
        try:
            text = line.decode()
            found, end = _scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            return None
        if found.__class__ is not tuple or not found:
            return None
        if end + 1 != len(text) and text[end:] not in _ENDS:
            return None
        if b"\\u" in line and (b"\\ud" in line or b"\\uD" in line):
            return None  # it may be half of a surrogate pair, which is not UTF-8
        name, given = found[0]
        if name != field:
            free = not required and of_ids.isdisjoint(map(_name, found))
            return fields_of(found) if free else None
        if given.__class__ is not str or OPEN in given or not ids.surely_meant(given):
            return None
        rest = found[1:]
        if len(rest) == 1 and rest[0][0] == "fields" and rest[0][1].__class__ is tuple:
            rest = rest[0][1]
        fields = fields_of(rest)
        return None if fields is None else (given, fields)

    return row


def _cautious(ids: RowIDs, found: Sequence[tuple[str, Any]]) -> Fields | None:
    """The same where some fields are read in another way: None if one of these is there."""
    if any(name in ids.json_fields or value is None for name, value in found):
        return None
    return _fields(found)


def _fields(found: Sequence[tuple[str, Any]]) -> Fields | None:
    """Fields with their values as text, without those that are null; None if one is nested, or
    there is none."""
    fields: dict[str, Any] = dict(found)
    if len(fields) < len(found) or {*map(type, fields.values())} != {str}:
        texts: list[tuple[str, str]] = []
        for name, value in found:
            text = {True: "true", False: "false"}[value] if isinstance(value, bool) else value
            if text is not None and not isinstance(text, str):
                return None
            if text is not None:
                texts.append((name, text))
        fields = dict(texts)
        if len(fields) < len(texts):
            return texts
    return fields or None


# -- many rows of CSV -----------------------------------------------------------------------------
def id_place(header: Sequence[str], ids: RowIDs) -> int | None:
    """The column of a header with the IDs; -1: there are none. None if records under it are not
    plain."""
    id_at = header.index(ids.field) if ids.field in header else -1
    missing = id_at < 0 and (ids.required or (ids.default and NUMBERS[0] in header))
    fields = len(header) - (id_at >= 0)
    if ids.of_times or ids.written is not None or missing or not fields or not is_utf8(header):
        return None
    return id_at


def plain_csv(header: Sequence[str], ids: RowIDs) -> Callable[[list[str]], PlainRow | None]:
    """A function that makes a plain row of a record of UTF-8; None if `csv_pairs` must read it."""
    width = len(header)
    id_at = id_place(header, ids)
    if id_at is None:
        return lambda _cells: None
    names = [name for at, name in enumerate(header) if at != id_at]
    repeated = len(set(names)) < len(names)

    def row(cells: list[str]) -> PlainRow | None:
        if len(cells) != width:
            return None
        given = None
        if id_at >= 0:
            given = cells[id_at]
            if OPEN in given or not ids.surely_meant(given):
                return None
            cells = cells[:id_at] + cells[id_at + 1 :]
        pairs = zip(names, cells, strict=True)
        fields: Fields = list(pairs) if repeated else dict(pairs)
        return fields if given is None else (given, fields)

    return row
