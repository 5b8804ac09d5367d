"""Gathered columns to the types that a user asks for.

Invariants: every column is checked before anything is read, and an error names it; batches have
exactly the types of ``schema`` and as many rows as were gathered, also without any column. What a
field's text is none of becomes null. What a text becomes does not depend on its neighbours: a batch
that does not convert as a whole is halved until each value is judged alone, by the same conversion.
An empty text is null in every type but text itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from logstore.codec import ARROW_COLUMNS
from logstore.errors import OptionError, UsageError
from logstore.scan import moments
from logstore.scan.arrow import Source
from logstore.tuples import NamedTuple

_EXACT_DIGITS = 20  # of 2**64 - 1


class Target(NamedTuple):
    """A column that is asked for: its name and type, and the standard column that it is (empty: a
    field, of this name unless ``field`` says another one)."""

    name: str
    type: Any
    standard: str = ""
    nullable: bool = True
    field: str | None = None

    @property
    def read_from(self) -> str:
        """The field of a column that is no standard one."""
        return self.name if self.field is None else self.field


def typed(columns: Mapping[str, Any]) -> list[Target]:
    """Names and Arrow types of a user, checked; for a type that is None, that of the column."""
    import pyarrow as pa

    from logstore.codec.arrow_builder import arrow_type

    found: list[Target] = []
    for name, wanted in columns.items():
        if not isinstance(name, str):
            raise OptionError(f"the names of columns must be str: {name!r}")
        standard = name if name in ARROW_COLUMNS else ""
        kind = arrow_type(standard, binary=False) if wanted is None else wanted
        if not isinstance(kind, pa.DataType):
            raise OptionError(f"column {name!r} needs a pyarrow type, not {kind!r}")
        target = Target(name, kind, standard)
        if source(target) is None:
            raise OptionError(
                f"column {name!r} cannot be {kind}: it is {arrow_type(standard, binary=False)} here"
                if standard
                else f"field {name!r} cannot be read as {kind}, only as text, bytes, a number, "
                "boolean, timestamp, date32 or decimal128"
            )
        found.append(target)
    return found


def source(target: Target) -> Source | None:
    """What the column is gathered from; None if it cannot be of its type."""
    import pyarrow as pa

    from logstore.codec.arrow_builder import arrow_type

    name, kind = target.standard, target.type
    if not name:
        plain = Source(target.read_from, standard=False, binary=kind == pa.binary())
        return plain if _plain(kind) else None
    for binary in (False, True):
        if kind == arrow_type(name, binary):
            return Source(name, standard=True, binary=binary)
        if name == "fields" and kind == _key_values(binary):
            return Source("pairs", standard=True, binary=binary)
    if name in ("ms", "seq") and (kind == pa.uint64() or _holds_an_exact_number(kind)):
        return Source(f"{name}_exact", standard=True)
    return None


def _plain(kind: Any) -> bool:
    """Whether a field's text can be cast to a type."""
    from pyarrow import types

    return any(
        test(kind)
        for test in (
            types.is_string,
            types.is_binary,
            types.is_integer,
            types.is_float32,
            types.is_float64,
            types.is_boolean,
            types.is_timestamp,
            types.is_date32,
            types.is_decimal128,
        )
    )


def _holds_an_exact_number(kind: Any) -> bool:
    from pyarrow import types

    whole = types.is_decimal128(kind) and kind.scale == 0
    return bool(whole and kind.precision >= _EXACT_DIGITS)


def _key_values(binary: bool) -> Any:
    import pyarrow as pa

    return pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary() if binary else pa.string())])
    )


class Shape:
    """Turns gathered batches into those that are asked for; ``strict``: a value that is none of its
    type is a UsageError, and not null."""

    def __init__(self, targets: Sequence[Target], *, strict: bool = False) -> None:
        import pyarrow as pa

        self._targets = targets
        self._strict = strict
        self.sources = list(self._sources())
        self.schema = pa.schema([pa.field(each.name, each.type, each.nullable) for each in targets])

    def _sources(self) -> Iterator[Source]:
        for target in self._targets:
            found = source(target)
            assert found is not None, target
            yield found

    def batch(self, gathered: Any) -> Any:
        """The batch with the types of the schema."""
        return self.made(
            gathered,
            [
                self.array(array, target)
                for array, target in zip(gathered.columns, self._targets, strict=False)
            ],
        )

    def made(self, gathered: Any, arrays: list[Any]) -> Any:
        """A batch of arrays; without any, as many rows as were gathered."""
        import pyarrow as pa

        if not arrays:
            return gathered.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def array(self, array: Any, target: Target) -> Any:
        """A column as its type."""
        import pyarrow as pa

        if array.type == target.type:
            return array
        if not target.standard:
            return cast(array, target.type, target.name, strict=self._strict)
        if target.standard == "fields":
            inner = list(target.type.value_type)
            named = [array.values.field(at) for at in range(2)]
            pairs = pa.StructArray.from_arrays(named, fields=inner)
            return pa.ListArray.from_arrays(array.offsets, pairs, type=target.type)
        return array.cast(target.type)


def cast(array: Any, target: Any, column: str, *, strict: bool) -> Any:
    """A text array as ``target``; other values are null, or a UsageError if ``strict``."""
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
    """Which values of a text array became null in ``found`` because they are not of its type.

    A boolean array without nulls; None if there is no such value.
    """
    import pyarrow.compute as pc

    if found.null_count == array.null_count:
        return None
    empty = pc.fill_null(pc.equal(array, ""), True)
    return pc.and_(pc.invert(empty), found.is_null())


def _converter(pa: Any, target: Any) -> Callable[[Any], Any]:
    if pa.types.is_timestamp(target):
        return partial(moments.parsed, target=target)
    return lambda array: array.cast(target)


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
