"""INT96 timestamps of Parquet files, which Spark, Hive and Impala write: the unit to read them in.

Such a value is a day and nanoseconds: more than 64 bits of nanoseconds hold, which end in the year
2262. pyarrow does not look whether one fits. So the values are read twice before a row is: their
seconds are exact, and nanoseconds that wrapped around differ from these by a known number.

Invariants: a file is read in nanoseconds if all its values fit, else in microseconds; a value that
is in neither is refused with its column and row, before anything of the file is stored.
"""

from __future__ import annotations

from typing import Any

from logstore.errors import UsageError

BATCH_ROWS = 65536
_NS_MAX_S = 9_223_372_036  # seconds before and behind 1970 that nanoseconds of 64 bits hold
_YEAR_1, _YEAR_10000 = -62_135_596_800, 253_402_300_800
_A_SECOND_NS = 1_000_000_000


def unit(opened: Any) -> str:
    """The unit in which the INT96 columns of a file are read.

    Args:
        opened: gives the file as pyarrow opens it, with its options.

    Raises:
        UsageError: a value is not in the years 1 to 9999, or needs nanoseconds where others are not
            in the years 1678 to 2261.
    """
    plain = opened(coerce_int96_timestamp_unit="s")
    columns = _columns(plain.schema)
    if not columns:
        return "ns"
    row, fits, first_fine = 0, True, ""
    readers = (plain, opened(coerce_int96_timestamp_unit="ns"))
    batches = (each.iter_batches(batch_size=BATCH_ROWS, columns=columns) for each in readers)
    for seconds, nanoseconds in zip(*batches, strict=True):
        found = _Batch(seconds, nanoseconds)
        if found.worst(_wrong):
            raise UsageError(
                f"{found.first(_wrong, row)}: an INT96 timestamp is not in the years 1 to 9999"
            )
        fits = fits and not found.worst(_beyond)
        if not first_fine and found.worst(_fine):
            first_fine = found.first(_fine, row)
        row += seconds.num_rows
    if not fits and first_fine:
        raise UsageError(
            f"{first_fine}: an INT96 timestamp of nanoseconds, in a file with others outside of "
            "the years 1678 to 2261: write the column as microseconds, as pyspark does with "
            "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS"
        )
    return "ns" if fits else "us"


def _columns(schema: Any) -> list[str]:
    """The columns that hold INT96, at whatever depth, as paths."""
    every = (schema.column(place) for place in range(len(schema)))
    return [each.path for each in every if each.physical_type == "INT96"]


# What of each pair of seconds and nanoseconds is looked for, as masks.
def _wrong(seconds: Any, _nanoseconds: Any) -> Any:
    import pyarrow.compute as pc

    return pc.or_(pc.less(seconds, _YEAR_1), pc.greater_equal(seconds, _YEAR_10000))


def _beyond(seconds: Any, _nanoseconds: Any) -> Any:
    import pyarrow.compute as pc

    return pc.or_(pc.less(seconds, -_NS_MAX_S), pc.greater_equal(seconds, _NS_MAX_S))


def _fine(seconds: Any, nanoseconds: Any) -> Any:
    import pyarrow.compute as pc

    # Both numbers wrap around alike, so that their difference is what is behind the second.
    rest = pc.subtract(nanoseconds, pc.multiply(seconds, _A_SECOND_NS))
    return pc.not_equal(rest, pc.multiply(pc.divide(rest, 1000), 1000))


class _Batch:
    """Some rows, read as seconds and as nanoseconds."""

    def __init__(self, seconds: Any, nanoseconds: Any) -> None:
        self._both = seconds, nanoseconds

    def worst(self, test: Any) -> bool:
        """Whether a test finds something."""
        return bool(self._found(test, *self._both))

    def _found(self, test: Any, seconds: Any, nanoseconds: Any) -> str:
        """The first column in which a test finds something; empty if there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, one, other in zip(
            seconds.schema.names, seconds.columns, nanoseconds.columns, strict=True
        ):
            pairs = zip(_leaves(one), _leaves(other), strict=True)
            numbers = ((s.cast(pa.int64()), n.cast(pa.int64())) for s, n in pairs)
            if any(pc.any(test(s, n)).as_py() for s, n in numbers):
                return str(name)
        return ""

    def first(self, test: Any, row: int) -> str:
        """The first row in which a test finds something, and its column."""
        for at in range(self._both[0].num_rows):
            name = self._found(test, *(each.slice(at, 1) for each in self._both))
            if name:
                return f"row {row + at + 1}: column {name!r}"
        raise AssertionError("a batch differs from its rows")


def _leaves(array: Any) -> list[Any]:
    """The timestamps of a column, also those in lists, maps and structs."""
    import pyarrow as pa

    types, kind = pa.types, array.type
    if types.is_timestamp(kind):
        return [array]
    if types.is_struct(kind):
        return [leaf for each in array.flatten() for leaf in _leaves(each)]
    if types.is_map(kind):  # of a slice, without what is before and behind it
        begin, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        parts = (each.slice(begin, end - begin) for each in (array.keys, array.items))
        return [leaf for each in parts for leaf in _leaves(each)]
    if types.is_list(kind) or types.is_large_list(kind):
        return _leaves(array.flatten())
    return []
