"""Conditions of a scan: comparisons of columns as a filter of pyarrow.

A condition is a text (`where`), or ``(column, operator, value)``, of which all must hold. A column
of the scan keeps its type; a field that is no column of it is read as the type of the value. ``id``
is compared as IDs are, not as text.

One rule for all operators, as in Spark, DuckDB and Polars: ``in [x]`` answers as ``== x``; no
comparison holds for null, nor does ``not in``, except a comparison with None; -0.0 equals 0.0; NaN
equals NaN, and is larger than any number. pyarrow compares otherwise: see `_compared`, `_one_of`.

Invariants: every condition is checked before anything is read, and an error names it; no value is
rounded before it is compared, but to the precision of a float. Neither the engine nor the index may
be imported here.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import partial, reduce
from typing import Any

from logstore.codec import ARROW_COLUMNS
from logstore.errors import OptionError, shown
from logstore.ids import parse_id
from logstore.scan.scan_columns import (
    Target,
    arrow_type_of,
    column_type_of,
    is_exact,
    standard_columns,
    typed_columns,
)
from logstore.schema.column_types import LONG, ColumnType, Uuid
from logstore.schema.stream_schema import Schema
from logstore.tuples import NamedTuple
from logstore.where.condition_binding import STANDARD, Binding, Column, Test, listed
from logstore.where.condition_tree import All, Always, Either, all_of
from logstore.where.condition_values import parsed_json, picked, step_into
from logstore.where.entry_conditions import characters_of
from logstore.where.filter_conditions import FilterTest, filter_test
from logstore.where.node_conditions import NodeTest, node_test

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
    "conditions are a text, such as 'speed > 30', a list of (column, operator, value), such as "
    f"[('speed', '>', 30)], with one of {', '.join((*OPERATORS, *SETS))}; or an expression of "
    "pyarrow"
)


class ScanCondition(NamedTuple):
    """``filter``: an expression of pyarrow; ``columns``: those that it needs besides the known
    ones; ``tree``: the same bound, where it was no expression."""

    filter: Any
    columns: list[Target]
    tree: Any

    def node_test(self, columns: Sequence[tuple[bytes, str]]) -> NodeTest | None:
        """What asks nodes with the ranges of these columns; see ``node_conditions``."""
        return None if self.tree is None else node_test(self.tree, columns)

    def filter_test(self, columns: Sequence[tuple[bytes, str]]) -> FilterTest | None:
        """What asks nodes with filters of these columns; see ``filter_conditions``."""
        return None if self.tree is None else filter_test(self.tree, columns)


def condition(where: Any, known: Mapping[str, Target], kept: Schema | None = None) -> ScanCondition:
    """The condition of a scan; OptionError, SchemaError.

    ``kept``: the schema that is kept with the streams.
    """
    import pyarrow.compute as pc

    more: dict[str, Target] = {}
    tree: Any = None
    if isinstance(where, str):
        found, tree = _of_text(where, known, kept, more)
    elif isinstance(where, pc.Expression):
        more = {each.name: each for each in standard_columns() if each.name not in known}
        found = where
    else:
        if isinstance(where, bytes) or not isinstance(where, Sequence) or not where:
            raise OptionError(f"{FORM}, not {shown(where)}")
        parsed = [_parsed_condition(each, known, more) for each in where]
        found = reduce(operator.and_, [each for each, _ in parsed])
        tree = all_of([test for _, test in parsed])
    _check(found, [*known.values(), *more.values()])
    return ScanCondition(found, named([*more.values()], found), tree)


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


def _parsed_condition(
    each: Any, known: Mapping[str, Target], more: dict[str, Target]
) -> tuple[Any, Any]:
    """The filter of one condition, and the same as a test."""
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
        found = _one_of(pc.field(target.name), sign, values)
        return found, _test_of(target, sign, values.to_pylist())
    if value is None:
        if sign not in ("==", "=", "!="):
            raise OptionError(f"None is compared by == or != only: {shown(each)}")
        target = _target(column, str, known, more)
        field = pc.field(target.name)
        if sign == "!=":
            return field.is_valid(), _test_of(target, "not null", None)
        return field.is_null(), _test_of(target, "null", None)
    target, values = _values(column, [value], known, more)
    found = _compared(pc.field(target.name), sign, values[0])
    return found, _test_of(target, "=" if sign == "==" else sign, values[0].as_py())


def _test_of(target: Target, sign: str, operand: Any) -> Any:
    """A test of a column; one that is always true of a column whose ranges are not known."""
    kind = None if target.standard or target.read is not None else column_type_of(target.type)
    if kind is None or not is_exact(target.type):
        return Always(True)
    field = target.read_from.encode()
    return Test(Column(target.name, kind, field=field, typed=True), sign, operand)


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
        return target, pa.array([key.packed() for key in keys])
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


# -- conditions of text -----------------------------------------------------------------------
def _of_text(
    text: str, known: Mapping[str, Target], kept: Schema | None, more: dict[str, Target]
) -> tuple[Any, Any]:
    """The filter of a text, and the bound tree. OptionError, SchemaError."""
    from logstore.where.condition_text import parse

    columns = _ScanColumns(known, kept)
    names = [each.name for each in known.values() if not each.standard]
    binding = Binding(columns.find, listed(names), kept=kept is not None)
    tree = binding.bound(text, parse(text))
    return _ArrowFilter(known, more).of(tree), tree


class _ScanColumns:
    """The columns that a scan has, and the fields that it could have."""

    def __init__(self, known: Mapping[str, Target], kept: Schema | None) -> None:
        self._known = known
        self._kept = kept

    def find(self, name: str) -> Column | None:
        """What a name stands for; None: nothing."""
        if name in STANDARD:
            target = self._known.get(name)
            kind = STANDARD[name]
            if target is not None and kind == LONG:
                kind = column_type_of(target.type) or kind
            return Column(name, kind, standard=name)
        target = self._known.get(name)
        if target is None:
            if self._kept is not None and not self._kept.is_open:
                return None
            return Column(name, field=name.encode())
        field = target.read_from.encode()
        if target.of_value is not None:  # of the values that were looked at: others are compared
            return Column(name, field=field)
        column = None if self._kept is None else self._kept.column(field)
        if column is not None and target.type == arrow_type_of(column.type):
            return Column(name, column.type, field=field, typed=True)
        kind = column_type_of(target.type)
        exact = is_exact(target.type)
        return Column(name, kind, field=field, typed=kind is not None, exact=exact)


class _ArrowFilter:
    """Makes an expression of pyarrow of a bound tree."""

    def __init__(self, known: Mapping[str, Target], more: dict[str, Target]) -> None:
        self._known = known
        self._more = more

    def of(self, node: Any) -> Any:
        """The expression, which is true where the condition is."""
        import pyarrow.compute as pc

        match node:
            case Always(holds=holds):
                return pc.scalar(bool(holds))
            case All(parts=parts):
                return _balanced(operator.and_, [self.of(each) for each in parts])
            case Either(parts=parts):
                return _balanced(operator.or_, [self.of(each) for each in parts])
            case _:
                return self._test(node)

    def _test(self, test: Test) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        column, sign, operand = test
        target = self._target_of(column)
        field = pc.field(target.name)
        if sign in ("null", "not null"):
            return field.is_null() if sign == "null" else field.is_valid()
        if sign in ("like", "not like"):
            found = pc.match_substring_regex(field, _regex(*operand))
            return found if sign == "like" else ~found
        if isinstance(column.kind, Uuid):  # what is there may have upper case
            field = pc.ascii_lower(field)
        values = operand if sign in SETS else [operand]
        if column.standard == "id":
            given = pa.array([each.packed() for each in values])
        else:
            try:
                given = _converted(values, target.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise OptionError(
                    f"where: column {column.name!r} of {target.type} cannot be compared with "
                    f"{shown(values[0])}: {error}"
                ) from error
        return _one_of(field, sign, given) if sign in SETS else _compared(field, sign, given[0])

    def _target_of(self, column: Column) -> Target:
        """The column of the scan; one that it has not is added."""
        if column.standard:
            name = "id_key" if column.standard == "id" else column.standard
            return _target(name, str, self._known, self._more)
        if column.typed and column.path is None:
            return self._known[column.name]
        kind = column.kind
        assert kind is not None
        name = f"\0{column.name}\0{kind.name}"
        in_value = partial(_in_value, column.path or (), kind)
        read = None if column.path is None else partial(_in_json, in_value)
        made = Target(
            name, arrow_type_of(kind), field=column.field.decode(), read=read, of_value=in_value
        )
        return self._more.setdefault(name, made)


def _in_value(path: tuple[str | int, ...], kind: ColumnType, value: Any) -> Any:
    return picked(step_into(value, path), kind)


def _in_json(in_value: Callable[[Any], Any], text: bytes | None) -> Any:
    return None if text is None else in_value(parsed_json(text))


def _balanced(combine: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    """All parts combined, no deeper than must be: pyarrow goes down into expressions by calls."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [*(combine(one, other) for one, other in pairs), *odd]
    return parts[0]


def _regex(pattern: str, escape: str) -> str:
    """A pattern of ``like`` as a regular expression of RE2."""
    signs = {"%": ".*", "_": "."}
    made = [
        re.escape(sign) if is_plain else signs[sign]
        for sign, is_plain in characters_of(pattern, escape)
    ]
    return rf"(?s)\A{''.join(made)}\z"
