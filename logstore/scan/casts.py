"""Text of fields to the types that a user names.

Invariants: what a text becomes does not depend on its neighbours: a batch that does not convert as
a whole is halved until each value is judged alone, by the same conversion. An empty text is null in
every type but text itself. Never returns fewer values than it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.errors import UsageError


def cast(array: Any, target: Any, column: str, *, strict: bool) -> Any:
    """A text array as ``target``; what is none is null, or a UsageError if ``strict``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.type.equals(target):
        return array
    convert = _converter(pa, target)
    try:
        return convert(array)
    except pa.ArrowInvalid:
        pass
    coded = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    coded = coded.dictionary_encode()
    values = _halve(pa, coded.dictionary, convert, target, column, strict)
    return values.take(coded.indices)


def malformed(array: Any, found: Any) -> Any:
    """Which values of a text array became null in ``found`` because they are none of its type.

    A boolean array without nulls; None if there is no such value.
    """
    import pyarrow.compute as pc

    if found.null_count == array.null_count:
        return None
    empty = pc.fill_null(pc.equal(array, ""), True)
    return pc.and_(pc.invert(empty), found.is_null())


def _converter(pa: Any, target: Any) -> Callable[[Any], Any]:
    if not pa.types.is_timestamp(target) or target.tz is None:
        return lambda array: array.cast(target)

    def timestamps(array: Any) -> Any:
        """With an offset; or without one, which is UTC."""
        try:
            return array.cast(target)
        except pa.ArrowInvalid:
            return array.cast(pa.timestamp(target.unit)).cast(target)

    return timestamps


def _halve(
    pa: Any, array: Any, convert: Callable[[Any], Any], target: Any, column: str, strict: bool
) -> Any:
    try:
        return convert(array)
    except pa.ArrowInvalid:
        pass
    if len(array) == 1:
        if strict:
            raise UsageError(
                f"a value of field {column!r} is no {target}: {array[0].as_py()[:100]!r}; read the "
                "column as string, or with mode=PERMISSIVE, which makes it null"
            )
        return pa.nulls(1, target)
    middle = len(array) // 2
    halves = (array.slice(0, middle), array.slice(middle))
    return pa.concat_arrays([_halve(pa, half, convert, target, column, strict) for half in halves])
