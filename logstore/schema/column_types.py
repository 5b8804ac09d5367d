"""Types of columns: which values they have, and the one text by which each value is stored.

A text is what other clients, Arrow and Spark read, so a number is written as Arrow writes it, a
time in UTC with six digits behind the second. A value has one text: equal values are equal bytes.

Invariants: ``read(write(value)) == value``, and ``write(read(text))`` is the one text of the value.
What ``read`` takes, Arrow's casts take too, and they make the same value of it; so a value that a
type took is never null in a scan. A refusal is a ValueError that says what would fit.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import isfinite
from numbers import Real
from typing import Any, ClassVar, Final
from uuid import UUID

INT_BITS, LONG_BITS = 32, 64
DECIMAL_DIGITS_MAX = 38
ENUM_VALUES_MAX = 1000
# Doubles of these exponents of ten are written without one, as Arrow does.
_PLAIN_EXPONENTS = range(-6, 10)


class ColumnType(ABC):
    """A type of columns. ``name`` is how a schema spells it; types of one name are equal."""

    name: str
    example: ClassVar[str]  # what fits, for a message

    @abstractmethod
    def read(self, text: bytes) -> Any:
        """The value of a stored text. ValueError if it has none."""

    @abstractmethod
    def write(self, value: Any) -> bytes:
        """The text of a value, or of another text of it. ValueError, TypeError for what is none."""

    @property
    def takes_empty(self) -> bool:
        """Whether the empty text has a value."""
        try:
            self.read(b"")
        except ValueError:
            return False
        return True

    def reads_all_of(self, other: ColumnType) -> bool:
        """Whether every text of another type has a value of this one."""
        return other == self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnType) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


_COMMA = re.compile(rb"-?[0-9]{0,40},[0-9]{1,40}")


class _Spelled(ColumnType):
    """A type whose values are given as objects of Python, or as text."""

    def write(self, value: Any) -> bytes:
        if isinstance(value, str):
            value = self.read(value.encode())
        elif isinstance(value, bytes):
            value = self.read(value)
        elif hasattr(value, "dtype"):  # a scalar of numpy
            value = value.item()
        return self._text(value).encode()

    @abstractmethod
    def _text(self, value: Any) -> str:
        """The text of a value. TypeError for what is none."""


class Bool(_Spelled):
    """``True`` or ``False``."""

    name, example = "bool", "True, or the text 'false'"
    _VALUES: Final = {b"true": True, b"false": False, b"1": True, b"0": False}

    def read(self, text: bytes) -> bool:
        """The value; upper and lower case are one, as to Arrow."""
        found = self._VALUES.get(text.lower())
        if found is None:
            raise ValueError("is neither true nor false")
        return found

    def _text(self, value: Any) -> str:
        if not isinstance(value, bool):
            raise TypeError(f"is {_kind_of(value)}")
        return "true" if value else "false"


class Whole(_Spelled):
    """A whole number of so many bits: ``int`` has 32, ``long`` 64."""

    example = "21"
    _TEXT: Final = re.compile(rb"-?[0-9]{1,40}")

    def __init__(self, name: str, bits: int) -> None:
        self.name = name
        self.most: int = (1 << (bits - 1)) - 1
        self._least: int = -self.most - 1

    def read(self, text: bytes) -> int:
        """The number."""
        if self._TEXT.fullmatch(text) is None:
            raise ValueError("is no whole number")
        return self._checked(int(text))

    def _text(self, value: Any) -> str:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"is {_kind_of(value)}")
        return str(self._checked(value.__index__()))

    def reads_all_of(self, other: ColumnType) -> bool:
        """So it is of a number with no more bits."""
        return isinstance(other, Whole) and other.most <= self.most

    def _checked(self, value: int) -> int:
        if not self._least <= value <= self.most:
            raise ValueError(f"is not within {self._least} and {self.most}")
        return value


class Double(_Spelled):
    """A floating point number of 64 bits."""

    name, example = "double", "21.5"
    _TEXT: Final = re.compile(
        rb"-?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf(?:inity)?)",
        re.IGNORECASE,
    )
    _TEXT_MAX_BYTES: Final = 400

    def read(self, text: bytes) -> float:
        """The number."""
        if len(text) > self._TEXT_MAX_BYTES or self._TEXT.fullmatch(text) is None:
            raise ValueError("is no number" + _comma_hint(text))
        return float(text)

    def _text(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"is {_kind_of(value)}")
        try:
            return double_text(float(value))
        except OverflowError:
            raise ValueError("is too large") from None

    def reads_all_of(self, other: ColumnType) -> bool:
        """So it is of all numbers; of large ones the last digits are lost."""
        return isinstance(other, Double | Whole | Fixed)


def double_text(value: float) -> str:
    """The shortest text that is read as this number, as Arrow writes it."""
    text = repr(value)
    if -1e10 < value < 1e10 and "e" not in text:
        return text.removesuffix(".0")
    if not isfinite(value):
        return text
    sign, digits, shift = Decimal(text).normalize().as_tuple()
    assert isinstance(shift, int)
    exponent = len(digits) - 1 + shift
    if exponent in _PLAIN_EXPONENTS:
        plain = f"{Decimal(text):f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    head, rest = str(digits[0]), "".join(map(str, digits[1:]))
    return f"{'-' * sign}{head}{'.' * bool(rest)}{rest}e{exponent:+}".replace("e+-", "e-")


class Fixed(_Spelled):
    """A decimal number with so many digits in all, and so many behind the point."""

    example = "Decimal('21.50')"
    _TEXT: Final = re.compile(rb"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
    _TEXT_MAX_BYTES: Final = 200

    def __init__(self, digits: int, scale: int) -> None:
        if not 1 <= digits <= DECIMAL_DIGITS_MAX or not 0 <= scale <= digits:
            raise ValueError(
                f"decimal({digits}, {scale}) is none: it has 1 to {DECIMAL_DIGITS_MAX} digits, and "
                "no more than those behind the point"
            )
        self.digits, self.scale = digits, scale
        self.name = f"decimal({digits}, {scale})"
        self._unit = Decimal(1).scaleb(-scale)
        self._context = Context(prec=digits, traps=[Inexact, InvalidOperation])

    def read(self, text: bytes) -> Decimal:
        """The number, with all of its digits behind the point."""
        if len(text) > self._TEXT_MAX_BYTES or self._TEXT.fullmatch(text) is None:
            raise ValueError("is no decimal number" + _comma_hint(text))
        return self._fitted(Decimal(text.decode()))

    def _text(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, Decimal | int | float):
            raise TypeError(f"is {_kind_of(value)}")
        if isinstance(value, float):  # as it is shown: 0.1 is 0.1
            value = Decimal(repr(value))
        return f"{self._fitted(Decimal(value)):f}"

    def reads_all_of(self, other: ColumnType) -> bool:
        """So it is of numbers with no more digits, before the point and behind it."""
        room = self.digits - self.scale
        if isinstance(other, Whole):
            return bool(10**room > other.most)
        return (
            isinstance(other, Fixed)
            and other.scale <= self.scale
            and other.digits - other.scale <= room
        )

    def _fitted(self, value: Decimal) -> Decimal:
        if not value.is_finite():
            raise ValueError("is no finite number")
        try:
            fitted = value.quantize(self._unit, context=self._context)
        except (Inexact, InvalidOperation):
            raise ValueError(
                f"has more digits than {self.name} keeps: round it, or widen the column"
            ) from None
        return fitted or abs(fitted)  # no zero has a sign


class String(ColumnType):
    """Text."""

    name, example = "string", "'text'"

    def read(self, text: bytes) -> str:
        """The text."""
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise ValueError("is no UTF-8") from None

    def write(self, value: Any) -> bytes:
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise ValueError("has half of a surrogate pair, which no UTF-8 can be") from None
        if isinstance(value, bytes):
            self.read(value)
            return value
        raise TypeError(f"is {_kind_of(value)}")

    def reads_all_of(self, other: ColumnType) -> bool:
        """So it is of all but bytes."""
        return not isinstance(other, Binary)


class Binary(ColumnType):
    """Bytes."""

    name, example = "binary", r"b'\x00'"

    def read(self, text: bytes) -> bytes:
        """The bytes."""
        return text

    def write(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"is {_kind_of(value)}")
        return bytes(value)

    def reads_all_of(self, other: ColumnType) -> bool:  # noqa: ARG002
        """Always: a text is bytes."""
        return True


class Date(_Spelled):
    """A day of the years 1 to 9999."""

    name, example = "date", "date(2026, 11, 26), or '2026-11-26'"
    TEXT: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")

    def read(self, text: bytes) -> date:
        """The day."""
        if self.TEXT.fullmatch(text) is None:
            raise ValueError("is no day")
        return date.fromisoformat(text.decode())

    def _text(self, value: Any) -> str:
        if not isinstance(value, date) or isinstance(value, datetime):
            raise TypeError(f"is {_kind_of(value)}")
        return value.isoformat()


class Timestamp(_Spelled):
    """A moment of the years 1 to 9999, in microseconds. A text without a zone is in UTC."""

    name = "timestamp"
    example = "datetime.now(UTC), or '2026-11-26 12:00:00Z'"
    _TEXT: Final = re.compile(
        rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
        rb"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
    )
    _FINER: Final = re.compile(r"(\.[0-9]{6})[0-9]+")

    def read(self, text: bytes) -> datetime:
        """The moment, in UTC; what is finer than a microsecond is cut off, as scans do."""
        if self._TEXT.fullmatch(text) is None:
            raise ValueError("is no moment")
        found = datetime.fromisoformat(self._FINER.sub(r"\1", text.decode()))
        if found.tzinfo is None:
            return found.replace(tzinfo=UTC)
        return self._utc(found)

    def write(self, value: Any) -> bytes:
        """Of a day its first moment, in UTC, too."""
        if isinstance(value, str | bytes):
            text = value.encode() if isinstance(value, str) else value
            value = text + b" 00:00" if Date.TEXT.fullmatch(text) else text
        return super().write(value)

    def _text(self, value: Any) -> str:
        if not isinstance(value, datetime):
            raise TypeError(f"is {_kind_of(value)}")
        if value.tzinfo is None:
            raise ValueError("has no time zone: give it one, such as datetime.now(UTC)")
        plain = self._utc(value).replace(tzinfo=None)
        return f"{plain.isoformat(' ', 'microseconds')}Z"

    def _utc(self, value: datetime) -> datetime:
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise ValueError("is not within the years 1 and 9999 in UTC") from None


class Time(_Spelled):
    """A time of day, in microseconds, without a zone."""

    name, example = "time", "time(12, 30), or '12:30:00'"
    _TEXT: Final = re.compile(rb"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?")

    def read(self, text: bytes) -> time:
        """The time."""
        if self._TEXT.fullmatch(text) is None:
            raise ValueError("is no time of day")
        return time.fromisoformat(text.decode())

    def _text(self, value: Any) -> str:
        if not isinstance(value, time):
            raise TypeError(f"is {_kind_of(value)}")
        if value.tzinfo is not None:
            raise ValueError("has a time zone, which a time of day cannot have")
        return value.isoformat("microseconds")


class Uuid(_Spelled):
    """A UUID."""

    name, example = "uuid", "uuid.uuid4()"
    _TEXT: Final = re.compile(
        rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
    )

    def read(self, text: bytes) -> UUID:
        """The UUID."""
        if self._TEXT.fullmatch(text) is None:
            raise ValueError("is no UUID")
        return UUID(text.decode())

    def _text(self, value: Any) -> str:
        if not isinstance(value, UUID):
            raise TypeError(f"is {_kind_of(value)}")
        return str(value)


class Json(ColumnType):
    """Whatever JSON holds. A ``str`` is a value of its own; bytes are a JSON text."""

    name, example = "json", "{'room': 'a'}, or the bytes of a JSON text"

    def read(self, text: bytes) -> Any:
        """The value."""
        try:
            return _READ_JSON(text.decode())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is no JSON text: {error}") from None

    def write(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            value = self.read(value)
        try:
            return _WRITE_JSON(value).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"cannot be JSON: {error}") from None


class Enum(ColumnType):
    """One of some texts."""

    def __init__(self, values: Sequence[str]) -> None:
        if not 1 <= len(values) <= ENUM_VALUES_MAX or len(set(values)) != len(values):
            raise ValueError(f"an enum has 1 to {ENUM_VALUES_MAX} texts, each of them once")
        self.values = tuple(values)
        quoted = ", ".join("'" + each.replace("'", "''") + "'" for each in values)
        self.name = f"enum({quoted})"
        self.texts = {each.encode(): each for each in values}

    @property
    def example(self) -> str:  # type: ignore[override]
        """One that fits."""
        return repr(self.values[0])

    def read(self, text: bytes) -> str:
        """The text."""
        found = self.texts.get(text)
        if found is None:
            raise ValueError(f"is none of {self.name}")
        return found

    def write(self, value: Any) -> bytes:
        if not isinstance(value, str | bytes):
            raise TypeError(f"is {_kind_of(value)}")
        text = value.encode() if isinstance(value, str) else value
        self.read(text)
        return text

    def reads_all_of(self, other: ColumnType) -> bool:
        """So it is of an enum whose texts are all among its own."""
        return isinstance(other, Enum) and set(other.values) <= set(self.values)


def _not_finite(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


# Made once: json makes an encoder a call wherever anything is asked of it.
_WRITE_JSON: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode
_READ_JSON: Callable[[str], Any] = json.JSONDecoder(parse_constant=_not_finite).decode


def _comma_hint(text: bytes) -> str:
    """What is told of a number with a decimal comma."""
    is_one = _COMMA.fullmatch(text) is not None
    return ", for its decimal comma is to be a point" if is_one else ""


def _kind_of(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"


BOOL, STRING, BINARY, DATE = Bool(), String(), Binary(), Date()
INT, LONG, DOUBLE = Whole("int", INT_BITS), Whole("long", LONG_BITS), Double()
TIMESTAMP, TIME, UUID_TYPE, JSON = Timestamp(), Time(), Uuid(), Json()
PLAIN_TYPES: Final[dict[str, ColumnType]] = {
    each.name: each
    for each in (BOOL, INT, LONG, DOUBLE, STRING, BINARY, DATE, TIMESTAMP, TIME, UUID_TYPE, JSON)
}
