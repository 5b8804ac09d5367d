"""The values of a column for which alone a filter can hold, as that of ``name = 'x'`` or of ``in``.

A filter's parts cannot be read (see ``filter_range``), but it can be asked where it can hold. So
the smallest value that it can hold for is looked for by halving, digit by digit and letter by
letter, then the next one behind it.

Invariants: values are given only if it was proved that the filter holds nowhere before the first,
between two, behind the last, and where the column is null. A filter that is asked in vain, as that
of a range, is given up soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

CanHold = Callable[[Iterable[Any]], bool]
POINTS_MAX: Final = 16
LETTERS_MAX: Final = 128
NEIGHBOURS_MAX: Final = 3  # whole numbers, one behind the other: a range, more likely than a list
_ASCII: Final = 0x80
_SURROGATES, _SURROGATES_COUNT = 0xD800, 0x800
_LETTERS: Final = 0x110000 - _SURROGATES_COUNT


def points(can_hold: CanHold, name: str, kind: Any) -> list[Any] | None:
    """The values of a column of an Arrow type for which alone a filter can hold; None: they are not
    known, or many."""
    from pyarrow import types

    asked = _Asked(can_hold, name, kind)
    if types.is_integer(kind):
        unsigned = types.is_unsigned_integer(kind)
        bits = kind.bit_width - (not unsigned)
        least, most = (0 if unsigned else -(1 << bits)), (1 << bits) - 1
        return _found(
            asked,
            lambda above: _whole(asked, above, least, most),
            lambda value: _numbers_follow(asked, value, most),
        )
    if types.is_string(kind) or types.is_large_string(kind):
        return _found(
            asked,
            lambda above: _text(asked, above),
            lambda value: asked.between(value, upto=value + "\0"),
        )
    return None


class _Asked:
    """Asks where the filter can hold."""

    def __init__(self, can_hold: CanHold, name: str, kind: Any) -> None:
        import pyarrow.compute as pc

        self._can_hold = can_hold
        self._field = pc.field(name)
        self._kind = kind

    def null(self) -> bool:
        """Where the column is null."""
        return self._can_hold([self._field.is_null()])

    def between(self, above: Any, below: Any = None, upto: Any = None) -> bool:
        """Where values are above one, and below another, or up to it; None: no such end."""
        import pyarrow as pa

        known = self._field.is_valid()
        for value, compare in (
            (above, self._field.__gt__), (below, self._field.__lt__), (upto, self._field.__le__)
        ):  # fmt: skip
            if value is not None:
                known = known & compare(pa.scalar(value, self._kind))
        return self._can_hold([known])


def _found(
    asked: _Asked,
    smallest: Callable[[Any], Any],
    follow: Callable[[Any], bool],
) -> list[Any] | None:
    """``smallest``: of the possible values above one; ``follow``: whether many may come behind."""
    found: list[Any] = []
    last = None
    if asked.null():
        return None
    while asked.between(last):
        if len(found) == POINTS_MAX:
            return None
        value = smallest(last)
        if value is None or asked.between(last, below=value) or follow(value):
            return None
        found.append(value)
        last = value
    return found


def _whole(asked: _Asked, above: int | None, least: int, most: int) -> int | None:
    low, high = least if above is None else above + 1, most
    if low > high:
        return None
    while low < high:
        middle = (low + high) // 2
        if asked.between(above, upto=middle):
            high = middle
        else:
            low = middle + 1
    return low


def _numbers_follow(asked: _Asked, value: int, most: int) -> bool:
    """Whether all of the next numbers are possible."""
    return value <= most - NEIGHBOURS_MAX and all(
        asked.between(value + by, upto=value + by + 1) for by in range(NEIGHBOURS_MAX)
    )


def _text(asked: _Asked, above: str | None) -> str | None:
    """The smallest possible text; None if it is long."""
    text = ""
    while not asked.between(above, upto=text):
        if len(text) == LETTERS_MAX:
            return None
        low, high = 0, _LETTERS - 1
        if asked.between(above, below=text + _letter(_ASCII)):
            high = _ASCII - 1
        while low < high:
            middle = (low + high) // 2
            if asked.between(above, below=text + _letter(middle + 1)):
                high = middle
            else:
                low = middle + 1
        text += _letter(low)
    return text


def _letter(number: int) -> str:
    """The letter of a number, without surrogates, which no UTF-8 has."""
    return chr(number if number < _SURROGATES else number + _SURROGATES_COUNT)
