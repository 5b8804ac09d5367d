"""Conditions of a scan: comparisons of columns as a filter, and where that filter can hold.

A condition is ``(column, operator, value)``; all of them must hold. A column of the scan keeps its
type; a field that is no column of it is read as the type of the value. ``id`` is compared as IDs
are, not as text.

One rule for all operators, as in Spark, DuckDB and Polars: ``in [x]`` answers as ``== x``; no
comparison holds for null, nor does ``not in``, except a comparison with None; -0.0 equals 0.0; NaN
equals NaN, and is larger than any number. pyarrow compares otherwise: see `_compared`, `_one_of`.

A filter is an expression of pyarrow, whose parts cannot be read. But the data sets of pyarrow can
tell whether an expression can hold where another one is known to hold: that is how they skip files.
So `FilterRange` asks about intervals of IDs until it finds the first and the last ID that can have
a row.

Invariants: every condition is checked before anything is read, and an error names it; no value is
rounded before it is compared, but to the precision of a float. An interval is left out only if
pyarrow proved that the filter holds nowhere in it. Neither the engine nor the index may be imported
here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from operator import and_
from typing import Any

from logstore.codec import ARROW_COLUMNS
from logstore.errors import OptionError, shown
from logstore.ids import U64_MAX, StreamID, parse_id
from logstore.scan.scan_columns import Target, standard_columns, typed_columns

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
        more = {each.name: each for each in standard_columns() if each.name not in known}
        found = where
    else:
        if isinstance(where, str | bytes) or not isinstance(where, Sequence) or not where:
            raise OptionError(f"{FORM}, not {shown(where)}")
        found = reduce(operator.and_, [_parsed_condition(each, known, more) for each in where])
    _check(found, [*known.values(), *more.values()])
    return found, named([*more.values()], found)


def named(targets: Sequence[Target], found: Any) -> list[Target]:
    """The columns that a filter may name: those whose name is in its text."""
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


def _parsed_condition(each: Any, known: Mapping[str, Target], more: dict[str, Target]) -> Any:
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
    """A comparison by the rule; for NaN pyarrow's own holds with ``!=`` only."""
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
    """``in`` and ``not in`` by the rule. pyarrow's own tells -0.0 from 0.0 and one NaN from
    another, and has null ``not in`` any values."""
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
    """The column that values are compared with, and the values as its type."""
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
    """Values as an array of a type; ValueError for one that would change, or become null."""
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
    """Whether pyarrow kept a value: it takes 2.5 for an integer, for example."""
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
    """OptionError for a value that would be compared as another one."""
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
    """The column of a name; one that the scan has not is added to ``more``."""
    found = known.get(column) or more.get(column)
    if found is None:
        wanted = None if column in ARROW_COLUMNS else _field_type(column, kind)
        found = more[column] = typed_columns({column: wanted})[0]
    return found


def _field_type(column: str, kind: type) -> Any:
    """The Arrow type as which a field is read to be compared with values of a Python type."""
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


I64_MAX = (1 << 63) - 1
TS_MAX_MS = 253_402_300_799_999  # the end of the year 9999: the column ``ts`` is null after it
ID_COLUMNS = ("ms", "ts", "id_key")


class FilterRange:
    """Finds where a filter can hold. ``schema`` has all columns that the filter names, and
    ``stream``, ``ms``, ``ts``, ``id_key``."""

    def __init__(self, condition: Any, schema: Any) -> None:
        from pyarrow import dataset, fs

        self._condition = condition
        self._schema = schema
        self._dataset = dataset
        self._format = dataset.IpcFileFormat()  # no file is ever opened
        self._files = fs.LocalFileSystem()

    def _can_hold(self, known: Iterable[Any]) -> bool:
        """Whether the filter can hold where one of some expressions holds."""
        fragments = [
            self._format.make_fragment("none", self._files, partition_expression=each)
            for each in known
        ]
        made = self._dataset.FileSystemDataset(fragments, self._schema, self._format, self._files)
        return any(True for _ in made.get_fragments(filter=self._condition))

    def streams(self, names: Iterable[bytes]) -> list[bytes]:
        """The streams that can have rows."""
        import pyarrow.compute as pc

        found = []
        for name in names:
            try:
                known = pc.equal(pc.field("stream"), name.decode())
            except UnicodeDecodeError:  # the column shows such a name with other letters
                known = None
            if known is None or self._can_hold([known]):
                found.append(name)
        return found

    def interval(self, start: StreamID, end: StreamID) -> tuple[StreamID, StreamID] | None:
        """The part of a closed interval that can have rows; None: none of it can."""
        if not self._between(start, end):
            return None
        # By milliseconds first; only ``id_key`` tells more.
        low_ms = _smallest(
            start.ms, end.ms, lambda ms: self._between(start, min(end, StreamID(ms, U64_MAX)))
        )
        first = max(start, StreamID(low_ms, 0))
        down = _smallest(
            0, end.ms - low_ms, lambda by: self._between(max(first, StreamID(end.ms - by, 0)), end)
        )
        last = min(end, StreamID(end.ms - down, U64_MAX))
        if "id_key" in str(self._condition):
            first, last = self._by_sequence(first, last)
        # Each end alone may leave an interval in which both leave nothing: ms > 1 and ms < 2.
        return (first, last) if self._between(first, last) else None

    def _by_sequence(self, first: StreamID, last: StreamID) -> tuple[StreamID, StreamID]:
        """Move both ends within their milliseconds."""
        top = last.seq if first.ms == last.ms else U64_MAX
        low = _smallest(first.seq, top, lambda seq: self._between(first, StreamID(first.ms, seq)))
        found = StreamID(first.ms, low)
        bottom = low if first.ms == last.ms else 0
        down = _smallest(
            0,
            last.seq - bottom,
            lambda by: self._between(StreamID(last.ms, last.seq - by), last),
        )
        return found, StreamID(last.ms, last.seq - down)

    def _between(self, start: StreamID, end: StreamID) -> bool:
        known, at = [], start
        for edge in (TS_MAX_MS, I64_MAX, U64_MAX):
            until = min(end, StreamID(edge, U64_MAX))
            if at <= until:
                known.append(self._facts(at, until))
                if until == end:
                    break
                at = until.next()
        return self._can_hold(known)

    def _facts(self, low: StreamID, high: StreamID) -> Any:
        """What holds for each ID of a closed interval that crosses none of the edges."""
        import pyarrow as pa
        import pyarrow.compute as pc

        key, ms, ts = (pc.field(name) for name in ("id_key", "ms", "ts"))
        known = [key >= _key(low), key <= _key(high)]
        if self._schema.field("ms").type == pa.int64():
            known += [ms.is_null()] if low.ms > I64_MAX else [ms >= low.ms, ms <= high.ms]
        if low.ms > TS_MAX_MS:
            known.append(ts.is_null())
        else:
            kind = self._schema.field("ts").type
            known += [ts >= pa.scalar(low.ms * 1000, kind), ts <= pa.scalar(high.ms * 1000, kind)]
        return reduce(and_, known)


def _smallest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number for which ``holds`` is true, by halving; it is for ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _key(id: StreamID) -> bytes:
    return id.ms.to_bytes(8) + id.seq.to_bytes(8)
