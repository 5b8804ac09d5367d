"""The rows of a stream as a Parquet file has them: typed columns, and runs of rows of one day.

Invariants: the columns are checked before anything is read; text is UTF-8 as it was stored, or the
export is refused with the ID, never a replacement character; a value that is none of its column's
type is null, and counted. It writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any

from logstore.errors import OptionError, UsageError
from logstore.ids import StreamID
from logstore.scan.arrow import Source
from logstore.scan.column_names import folded
from logstore.scan.conversion import Shape, Target, cast, malformed, typed
from logstore.tuples import NamedTuple

DAY_MS = 86_400_000
NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # past the year 9999, where ``ts`` is null, too
ALWAYS = ("id", "ts")
WITHOUT_SCHEMA = ("fields",)
_REPLACEMENT = "\ufffd"
_IDS = (Source("ms_exact", standard=True), Source("seq_exact", standard=True))


class DayRows(NamedTuple):
    """Rows that follow each other, all of one day (UTC): its text, the rows, their ends."""

    day: str
    batch: Any
    first: StreamID
    last: StreamID


class Rows:
    """What the columns of an export are, and what was counted of their values."""

    def __init__(self, columns: Mapping[str, Any] | None, reserved: tuple[str, ...] = ()) -> None:
        given: dict[str, Any] = dict(dict.fromkeys(WITHOUT_SCHEMA) if columns is None else columns)
        wanted: dict[str, Any] = {name: given.pop(name, None) for name in ALWAYS}
        _check_alike(given, reserved)
        self._targets = [_exact(each) for each in typed(wanted | given)]
        self._gathered = [_in_bytes(each) for each in self._targets]
        shape = Shape(self._targets)
        self._shape = Shape(self._gathered)
        self.sources = [*_IDS, *self._shape.sources]
        self.schema = shape.schema
        self.malformed: Counter[str] = Counter()

    def days(self, gathered: Any) -> Iterator[DayRows]:
        """The rows of a gathered batch, cut where a day ends; UsageError for text not in UTF-8."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ms, seq = gathered.column(0), gathered.column(1)
        arrays = [
            self._array(gathered.column(at), target, inner, ms, seq)
            for at, (target, inner) in enumerate(
                zip(self._targets, self._gathered, strict=True), len(_IDS)
            )
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        runs = pc.run_end_encode(pc.divide(ms, pa.scalar(DAY_MS, pa.uint64())))
        start = 0
        for day, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            first, last = (_id(ms, seq, at) for at in (start, end - 1))
            yield DayRows(_day(day), batch.slice(start, end - start), first, last)
            start = end

    def _array(self, array: Any, target: Target, inner: Target, ms: Any, seq: Any) -> Any:
        """A column as its type."""
        import pyarrow as pa

        if target.standard in {"fields", "pairs"}:
            array = self._shape.array(array, inner)
            _check_names(array, ms, seq)
            if array.type == target.type:
                return array
            return _utf8(array, target, ms, seq)
        if target.standard:
            return self._shape.array(array, inner)
        if target.type == pa.binary():
            return array
        text = _utf8(array, Target(target.name, pa.string()), ms, seq)
        found = cast(text, target.type, target.name, strict=False)
        none = malformed(text, found)
        if none is not None and none.true_count:
            self.malformed[target.name] += none.true_count
        return found


def _check_alike(given: Iterable[str], reserved: tuple[str, ...]) -> None:
    """OptionError for columns that readers of the files take for one: Spark then refuses a file,
    and DuckDB gives the column another name."""
    seen = {folded(name): name for name in ALWAYS}
    for name in given:
        key = folded(str(name))
        if key in reserved:
            raise OptionError(
                f"a column {name!r} is in the names of the folders already: leave it out, or "
                "export one stream into one file"
            )
        if key in seen:
            raise OptionError(
                f"columns {seen[key]!r} and {name!r} differ by case only, and what reads Parquet "
                "takes them for one: leave one out, and take fields, which has all"
            )
        seen[key] = name


def _exact(target: Target) -> Target:
    """``pairs`` keep their bytes: they are what holds an entry that no other column can."""
    import pyarrow as pa

    if target.standard != "pairs":
        return target
    pair = pa.struct([("field", pa.string()), ("value", pa.binary())])
    return target._replace(type=pa.list_(pair))


def _in_bytes(target: Target) -> Target:
    """The column as it is gathered: values in bytes, so that nothing is replaced in them."""
    import pyarrow as pa

    if not target.standard:
        return target._replace(type=pa.binary())
    if target.standard == "fields" and target.type == pa.map_(pa.string(), pa.string()):
        return target._replace(type=pa.map_(pa.string(), pa.binary()))
    return target


def _utf8(array: Any, target: Target, ms: Any, seq: Any) -> Any:
    """Bytes as text; UsageError names the first entry whose bytes are not UTF-8."""
    import pyarrow as pa

    try:
        return array.cast(target.type)
    except pa.ArrowInvalid:
        for row in range(len(array)):
            try:
                array.slice(row, 1).cast(target.type)
            except pa.ArrowInvalid:
                what = "a value" if target.standard else f"field {target.name!r}"
                raise UsageError(
                    f"{what} of {_id(ms, seq, row)} is no UTF-8: name the column as binary in the "
                    "schema, or 'pairs', which keeps bytes"
                ) from None
        raise


def _check_names(array: Any, ms: Any, seq: Any) -> None:
    """UsageError for a field's name that is no UTF-8, which no column could tell from another."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_map = pa.types.is_map(array.type)
    names = array.keys if is_map else array.values.field(0)
    odd = pc.match_substring(names, _REPLACEMENT)
    if not odd.true_count:
        return
    place = pc.index(odd, True).as_py()
    row = next(at for at, end in enumerate(array.offsets.to_pylist()[1:]) if place < end)
    raise UsageError(
        f"the name of a field of {_id(ms, seq, row)} is no UTF-8, or has U+FFFD: name the fields "
        "that you want in the schema, or export JSON lines"
    )


def _id(ms: Any, seq: Any, row: int) -> StreamID:
    return StreamID(ms[row].as_py(), seq[row].as_py())


def _day(number: int) -> str:
    """A day by its number since 1970."""
    try:
        return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
    except OverflowError:
        return NO_DAY
