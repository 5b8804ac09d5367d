"""Where the rows of an import get their IDs from.

Three ways: a field of each row holds the ID; a field holds its time, and the sequence is the rank
among the rows of the same millisecond; or none, and the store gives IDs of now. Knows nothing of
stores, nor of the form of the rows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from logstore.errors import InvalidIDError
from logstore.ids import StreamID, datetime_ms, parse_id

DEFAULT_FIELD = "id"
TIME_MAX = 1 << 64
TIME_FORMATS = ("iso", "s", "ms")


class RowIDs:
    """The rule of one import; it counts ranks, so it is good for one reading of one input."""

    def __init__(
        self, *, id_field: str | None = None, time_field: str | None = None,
        time_format: str = "iso", auto: bool = False,
    ) -> None:  # fmt: skip
        self.required = id_field is not None
        self.field = None if auto or time_field is not None else id_field or DEFAULT_FIELD
        self._time_field = None if time_field is None else time_field.encode()
        self._time_format = time_format
        self._ms = -1
        self._next_rank = 0

    @property
    def hint(self) -> str:
        """What to do about an ID that is none."""
        if self._time_field is not None:
            return "see --time-field and --time-format"
        return "or name another field with --id-field, or none with --auto-id"

    def check_given(self, given: str | None) -> None:
        """InvalidIDError if a row lacks the field that was named for its ID."""
        if given is None and self.required:
            raise InvalidIDError(f"there is no field {self.field!r}")

    def by_time(self, pairs: list[tuple[bytes, bytes]]) -> StreamID | None:
        """The ID by the row's time and its rank; None if IDs do not come from times."""
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
            return parse_id(int(number * (1000 if time_format == "s" else 1))).ms
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
