"""Conditions of a scan: comparisons of columns as a filter, and the columns that it needs.

A condition is ``(column, operator, value)``; all of them must hold. A column that the scan has
keeps its type; a field that it has not is read as what it is compared with. ``id`` is compared as
IDs are, not as text.

One rule for all operators, as Spark, DuckDB and Polars have it: ``in [x]`` answers as ``== x``;
null is in no comparison, ``not in`` among them, but for that with None; -0.0 equals 0.0; NaN equals
NaN, and is larger than any number. pyarrow's own comparisons do not do so (`_compared`, `_one_of`).

Invariants: every condition is checked before anything is read, and an error names it; no value is
rounded before it is compared, but to the precision of a float.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from typing import Any

from logstore.codec import ARROW_COLUMNS
from logstore.errors import OptionError, shown
from logstore.ids import parse_id
from logstore.scan.conversion import Target, typed

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SETS = ("in", "not in")
EXACT_MAX = 1 << 53  # of integers that are read as float64
FORM = (
    "conditions are a list of (column, operator, value), such as [('speed', '>', 30)], with one of "
    f"{', '.join((*OPERATORS, *SETS))}; or an expression of pyarrow"
)


def condition(where: Any, known: Mapping[str, Target]) -> tuple[Any, list[Target]]:
    """The filter, and the columns that it needs besides ``known``; OptionError."""
    import pyarrow.compute as pc

    more: dict[str, Target] = {}
    if isinstance(where, pc.Expression):
        more = {each.name: each for each in standard() if each.name not in known}
        found = where
    else:
        if isinstance(where, str | bytes) or not isinstance(where, Sequence) or not where:
            raise OptionError(f"{FORM}, not {shown(where)}")
        found = reduce(operator.and_, [_one(each, known, more) for each in where])
    _check(found, [*known.values(), *more.values()])
    return found, named([*more.values()], found)


def standard() -> list[Target]:
    """The standard columns, as the targets that they are by themselves."""
    return typed(dict.fromkeys(ARROW_COLUMNS))


def named(targets: Sequence[Target], found: Any) -> list[Target]:
    """Those of some columns that a filter may name: its text has all names, and more."""
    text = str(found)
    return [each for each in targets if each.name in text]


def schema_of(targets: Sequence[Target]) -> Any:
    """An Arrow schema of columns."""
    import pyarrow as pa

    return pa.schema([pa.field(each.name, each.type) for each in targets])


def _check(found: Any, targets: Sequence[Target]) -> None:
    import pyarrow as pa

    try:
        schema_of(targets).empty_table().filter(found)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise OptionError(f"the filter {found} cannot be of these columns: {error}") from error


def _one(each: Any, known: Mapping[str, Target], more: dict[str, Target]) -> Any:
    import pyarrow.compute as pc

    if isinstance(each, str) or not isinstance(each, Sequence) or len(each) != 3:
        raise OptionError(f"{FORM}, not {shown(each)}")
    column, sign, value = each
    if not isinstance(column, str) or sign not in (*OPERATORS, *SETS):
        raise OptionError(f"{FORM}, not {shown(each)}")
    if sign in SETS:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence | set | frozenset):
            raise OptionError(f"{sign!r} needs a list of values, not {shown(value)}")
        if not value or any(one is None for one in value):
            raise OptionError(f"the values of {sign!r} are at least one, and not None: {each}")
        target, values = _values(column, list(value), known, more)
        return _one_of(pc.field(target.name), sign, values)
    if value is None:
        if sign not in ("==", "=", "!="):
            raise OptionError(f"None is compared by == or != only: {shown(each)}")
        target = _target(column, str, known, more)
        field = pc.field(target.name)
        return field.is_valid() if sign == "!=" else field.is_null()
    target, values = _values(column, [value], known, more)
    return _compared(pc.field(target.name), sign, values[0])


def _compared(field: Any, sign: str, value: Any) -> Any:
    """A comparison by the rule; pyarrow's has NaN in none but ``!=``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(value.type):
        return OPERATORS[sign](field, value)
    if not math.isnan(value.as_py()):
        found = OPERATORS[sign](field, value)
        return found | pc.is_nan(field) if sign in (">", ">=") else found
    if sign in ("==", "=", ">="):
        return pc.is_nan(field)
    if sign in ("!=", "<"):
        return ~pc.is_nan(field)
    return field.is_valid() if sign == "<=" else pc.is_nan(field) & ~pc.is_nan(field)


def _one_of(field: Any, sign: str, values: Any) -> Any:
    """``in`` and ``not in`` by the rule; pyarrow's tells -0.0 from 0.0, one NaN from another, and
    takes null for a value that is not among the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(values.type):
        given = values.to_pylist()
        zeros = [0.0, -0.0] if 0.0 in given else []
        found = field.isin(pa.array([*given, *zeros], values.type))
        if any(math.isnan(each) for each in given):
            found |= pc.is_nan(field)
    else:
        found = field.isin(values)
    return field.is_valid() & (~found if sign == "not in" else found)


def _values(
    column: str, values: list[Any], known: Mapping[str, Target], more: dict[str, Target]
) -> tuple[Target, Any]:
    """What values are compared with, and they as its type."""
    import pyarrow as pa

    if column == "id":
        keys = [parse_id(value) for value in values]
        target = _target("id_key", bytes, known, more)
        return target, pa.array([key.ms.to_bytes(8) + key.seq.to_bytes(8) for key in keys])
    target = _target(column, type(values[0]), known, more)
    _check_values(column, values, exact=target.type != pa.float64())
    try:
        return target, _converted(values, target.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise OptionError(
            f"column {column!r} of {target.type} cannot be compared with {shown(values[0])}: "
            f"fields are text unless schema says otherwise, as in schema={{{column!r}: "
            "pa.float64()}"
        ) from error


def _converted(values: list[Any], kind: Any) -> Any:
    """Values as an array of a type; ValueError for one that would become another value, or null."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and all(isinstance(each, datetime) for each in values):
        found = pa.array(values, pa.timestamp("us", tz="UTC")).cast(kind)
    else:
        found = pa.array(values, kind)
    for value, made in zip(values, found, strict=True):
        if not made.is_valid or not _is_same(value, made.as_py(), kind):
            raise ValueError(f"{value!r} is no {kind}")
    return found


def _is_same(value: Any, made: Any, kind: Any) -> bool:
    """Whether a value is what pyarrow made of it; it takes 2.5 for an integer, for example."""
    from pyarrow import types

    if isinstance(value, bool) != types.is_boolean(kind):
        return False
    if types.is_timestamp(kind):
        return isinstance(value, datetime)
    if types.is_date(kind):
        return not isinstance(value, datetime)
    if types.is_integer(kind):
        return bool(made == value)
    return not types.is_floating(kind) or not math.isinf(made) or math.isinf(value)


def _check_values(column: str, values: list[Any], *, exact: bool) -> None:
    """OptionError for what would be compared as another value than it is."""
    for value in values:
        if isinstance(value, int) and abs(value) > EXACT_MAX and not exact:
            raise OptionError(
                f"{value} is too large to be compared as float64: name the type of column "
                f"{column!r} in schema"
            )
        if isinstance(value, datetime) and value.tzinfo is None:
            raise OptionError(f"{column!r} is compared with a naive datetime: give it a time zone")


def _target(
    column: str, kind: type, known: Mapping[str, Target], more: dict[str, Target]
) -> Target:
    """The column of a name; one that the scan has not is added."""
    found = known.get(column) or more.get(column)
    if found is None:
        wanted = None if column in ARROW_COLUMNS else _type(column, kind)
        found = more[column] = typed({column: wanted})[0]
    return found


def _type(column: str, kind: type) -> Any:
    """What a field is read as that is compared with values of a Python type."""
    import pyarrow as pa

    types: list[tuple[type, Any]] = [
        (str, pa.string()),
        (bytes, pa.binary()),
        (bool, pa.bool_()),
        (int, pa.float64()),
        (float, pa.float64()),
        (datetime, pa.timestamp("us", tz="UTC")),
        (date, pa.date32()),
    ]
    for each, found in types:
        if issubclass(kind, each):
            return found
    raise OptionError(
        f"field {column!r} is compared with a value of {kind.__name__}: name its type in schema"
    )
