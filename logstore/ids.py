"""Entry IDs: ``<ms>-<seq>``, two unsigned 64-bit numbers.

Invariants: a :class:`StreamID` holds 0 <= ms, seq < 2**64 and sorts as the pair; its text form is
canonical. Parsing follows the peers: at most 127 characters, leading zeros are accepted, a
missing sequence is 0 for a start and 2**64-1 for an end, "(" excludes. A bare number is no ID:
taken for milliseconds, one of seconds is a moment of 1970. Knows nothing of streams.

A moment stands for IDs, too: a length of time ago, a day, a date and time. ``moment_span`` reads
all of them, for the API, the command line and Spark alike. Text without a time zone, and days, are
of UTC; a ``datetime`` without one is refused, for it is what the machine's clock shows. Both ends
belong to an interval; of a day all of it does.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from logstore.clock import read_length
from logstore.errors import InvalidIDError, OptionError, shown
from logstore.loading import load
from logstore.tuples import NamedTuple

U64_MAX = 2**64 - 1
ID_TEXT_MAX = 127
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PACK = struct.Struct(">QQ")
When: TypeAlias = timedelta | datetime | date | str
_DAY_MS = 86_400_000


class StreamID(NamedTuple):
    """An entry's ID; ``str(id)`` gives ``"<ms>-<seq>"``."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    def __repr__(self) -> str:
        return f"StreamID({self.ms}-{self.seq})"

    def __bytes__(self) -> bytes:
        return b"%d-%d" % (self.ms, self.seq)

    @property
    def time(self) -> datetime:
        """The millisecond part as an aware UTC datetime; OverflowError past year 9999."""
        return _EPOCH + timedelta(milliseconds=self.ms)

    def next(self) -> StreamID:
        """The smallest ID above this one; InvalidIDError after the last possible one."""
        if self.seq < U64_MAX:
            return StreamID(self.ms, self.seq + 1)
        if self.ms < U64_MAX:
            return StreamID(self.ms + 1, 0)
        raise InvalidIDError("invalid start ID for the interval")

    def previous(self) -> StreamID:
        """The largest ID below this one; InvalidIDError before 0-0."""
        if self.seq > 0:
            return StreamID(self.ms, self.seq - 1)
        if self.ms > 0:
            return StreamID(self.ms - 1, U64_MAX)
        raise InvalidIDError("invalid end ID for the interval")

    def packed(self) -> bytes:
        """16 bytes, big endian: sorts as the ID does (the peers' radix tree key)."""
        return _PACK.pack(self.ms, self.seq)

    @classmethod
    def unpacked(cls, data: bytes, offset: int = 0) -> StreamID:
        """The ID in the 16 bytes at ``offset``."""
        return cls(*_PACK.unpack_from(data, offset))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """How pydantic takes and gives IDs: anything that is an ID is taken, JSON has its text."""
        schemas = load("pydantic_core.core_schema")  # only pydantic calls this
        return schemas.no_info_plain_validator_function(
            _of_user,
            json_schema_input_schema=schemas.str_schema(),
            serialization=schemas.to_string_ser_schema(),
        )


def _of_user(value: Any) -> StreamID:
    """An ID of a model's field; ValueError, as pydantic wants it, for another value."""
    try:
        return parse_id(value)
    except InvalidIDError as error:
        raise ValueError(error.message) from error


ZERO_ID = StreamID(0, 0)
MAX_ID = StreamID(U64_MAX, U64_MAX)

IDLike: TypeAlias = StreamID | str | bytes | tuple[int, int] | datetime


def _invalid(value: object) -> InvalidIDError:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return InvalidIDError(
            f"a bare number is no ID: {shown(value)}. It could be milliseconds, seconds or the "
            "number of a row: give milliseconds as text, '<ms>' or '<ms>-<seq>', or (ms, seq), and "
            "a time as an aware datetime"
        )
    return InvalidIDError(
        f"Invalid stream ID specified as stream command argument: {shown(value)}; "
        "give '<ms>-<seq>', '<ms>', (ms, seq), a StreamID or an aware datetime"
    )


def _number(text: str, value: object) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _invalid(value)
    number = int(text)
    if number > U64_MAX:
        raise _invalid(value)
    return number


def datetime_ms(moment: datetime) -> int:
    """Milliseconds since the epoch of an aware datetime, rounded down."""
    if moment.tzinfo is None:
        raise InvalidIDError("a naive datetime is no ID: give it a time zone")
    ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if ms < 0:
        raise InvalidIDError(f"{moment.isoformat()} is before 1970 and has no ID")
    return ms


def parse_id(value: IDLike, *, missing_seq: int = 0) -> StreamID:
    """A strict ID ("-" and "+" are refused).

    ``missing_seq`` stands in where only milliseconds are given (also for a datetime).
    """
    if type(value) is StreamID:  # as most are, and need no look at what else they could be
        ms, seq = value
        if type(ms) is type(seq) is int and 0 <= ms <= U64_MAX and 0 <= seq <= U64_MAX:
            return value
    if isinstance(value, (str, bytes)):
        return _parse_text(value, missing_seq)
    if isinstance(value, datetime):
        return StreamID(datetime_ms(value), missing_seq)
    if not isinstance(value, tuple) or len(value) != 2:
        raise _invalid(value)
    for part in value:
        if not isinstance(part, int) or isinstance(part, bool) or not 0 <= part <= U64_MAX:
            raise _invalid(value)
    return value if type(value) is StreamID else StreamID(*value)


def _parse_text(value: str | bytes, missing_seq: int) -> StreamID:
    try:
        text = value if isinstance(value, str) else value.decode("ascii")
    except UnicodeDecodeError:
        raise _invalid(value) from None
    if len(text) > ID_TEXT_MAX:
        raise _invalid(text[:32] + "...")
    ms, dash, seq = text.partition("-")
    return StreamID(_number(ms, text), _number(seq, text) if dash else missing_seq)


def parse_auto(text: str) -> int:
    """The milliseconds of ``"<ms>-*"``."""
    if len(text) > ID_TEXT_MAX:
        raise _invalid(text[:32] + "...")
    return _number(text.removesuffix("-*"), text)


def parse_start(value: IDLike) -> StreamID:
    """The first ID of an interval: "-", an ID, or "(" and an ID that is left out."""
    id, excluded = _interval_end(value, missing_seq=0)
    return id.next() if excluded else id


def parse_end(value: IDLike) -> StreamID:
    """The last ID of an interval: "+", an ID (a missing sequence means all of them), or "("."""
    id, excluded = _interval_end(value, missing_seq=U64_MAX)
    return id.previous() if excluded else id


def _interval_end(value: IDLike, missing_seq: int) -> tuple[StreamID, bool]:
    """An end of an interval, and whether it is left out."""
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if value == "-":
        return ZERO_ID, False
    if value == "+":
        return MAX_ID, False
    if isinstance(value, str) and value.startswith("("):
        return parse_id(value[1:], missing_seq=missing_seq), True
    return parse_id(value, missing_seq=missing_seq), False


# -- moments as people say them ---------------------------------------------------------------
def since_id(when: When, now_ms: int, name: str = "since") -> StreamID:
    """The first ID of a moment, or of a day. OptionError."""
    first_ms, _ = moment_span(when, now_ms, name)
    return StreamID(first_ms, 0)


def until_id(when: When, now_ms: int, name: str = "until") -> StreamID:
    """The last ID of a moment's millisecond, or of a day. OptionError."""
    _, last_ms = moment_span(when, now_ms, name)
    return StreamID(last_ms, U64_MAX)


def moment_of(text: str, now_ms: int, name: str) -> datetime:
    """The moment that a text says, which may be one to come; a day begins it. OptionError.

    How long ago is none here: of what is to come it says the wrong side.
    """
    said = _read_moment(text, now_ms, name)
    if isinstance(said, timedelta) and text == "now":
        return _EPOCH + timedelta(milliseconds=now_ms)
    if isinstance(said, datetime):
        return said
    if isinstance(said, date):
        return datetime(said.year, said.month, said.day, tzinfo=UTC)
    raise OptionError(
        f"{name} must be a moment: give 'now', '2027-01-31', '2027-01-31T12:00Z' or the like, not "
        f"{shown(text)}; a length of time is given as after"
    )


def moment_span(when: When, now_ms: int, name: str) -> tuple[int, int]:
    """The first and the last millisecond of what was said. OptionError; ``name`` said it."""
    given: object = when
    if isinstance(given, str):
        given = _read_moment(given, now_ms, name)
    if isinstance(given, timedelta):
        if given < timedelta(0):
            raise OptionError(f"{name} is how long ago, and not negative: {shown(when)}")
        moment_ms = max(0, now_ms - given // timedelta(milliseconds=1))
        return moment_ms, moment_ms
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise OptionError(f"{name} is a naive datetime: give it a time zone: {shown(when)}")
        moment_ms = _moment_ms(given, name)
        return moment_ms, moment_ms
    if isinstance(given, date):
        first_ms = _moment_ms(datetime(given.year, given.month, given.day, tzinfo=UTC), name)
        return first_ms, first_ms + _DAY_MS - 1
    raise OptionError(
        f"{name} is a timedelta (how long ago), an aware datetime, a date, or text such as '-1h', "
        f"'now', 'today', '2026-01-31' or '2026-01-31T12:00:00Z', not {shown(when)}; IDs are given "
        "as start and end"
    )


def _moment_ms(moment: datetime, name: str) -> int:
    try:
        return datetime_ms(moment)
    except InvalidIDError as error:
        raise OptionError(f"{name}: {error.message}") from error


def _read_moment(text: str, now_ms: int, name: str) -> timedelta | date | str:
    """What a text says; the text itself if it says nothing."""
    if text == "now":
        return timedelta(0)
    if text == "today":
        return (_EPOCH + timedelta(milliseconds=now_ms)).date()
    if text[-1:].isalpha():  # how long ago, with "-" or without: "-1h", "1h"; or ends with "Z"
        try:
            return read_length(text.removeprefix("-"))
        except OverflowError:
            raise OptionError(f"{name} is longer ago than any entry: {shown(text)}") from None
        except ValueError:
            pass
    try:
        if len(text) == len("2026-01-31"):
            return date.fromisoformat(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
