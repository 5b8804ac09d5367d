"""The files of a Parquet export: their names in a folder, their columns, rows of one day.

``stream=<name>/day=<UTC day>/<first ID>_<last ID>.parquet``, as Spark, DuckDB, Polars and pyarrow
read partitions; a stream's name is percent-encoded.

Invariants: who holds the folder's lock is the only one that writes in it. A file with such a name
is whole and durable: it is written under a name that begins with ``_``, which readers of such
folders pass over, synced, renamed, and its directory synced before the next file of its stream is
begun. So the highest ID in the names of a stream tells how far it was exported, whoever was killed
and when. What a killed export left under a name with ``_`` is removed by the next one. The columns
are checked before anything is read; text is UTF-8 as it was stored, or the export is refused with
the ID, never a replacement character; a value that is none of its column's type is null, and
counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from logstore.errors import OptionError, UsageError
from logstore.fs import LOCAL, File
from logstore.ids import StreamID
from logstore.scan.conversion import Shape, cast, malformed
from logstore.scan.record_batches import ColumnSource
from logstore.scan.scan_columns import Target, folded, typed
from logstore.tuples import NamedTuple

NAME_MAX_BYTES = 255  # of a file system
PART = ".part"
GROUP_MAX_ROWS = 1 << 18
GROUP_MAX_BYTES = 64 << 20
_FILE = re.compile(r"(\d{1,20})-(\d{1,20})_(\d{1,20})-(\d{1,20})\.parquet")
_HALF = re.compile(r"_\d{1,20}-\d{1,20}\.parquet" + re.escape(PART))


class Exported:
    """A file that the folder has of a stream."""

    def __init__(self, path: Path, last: StreamID) -> None:
        self.path = path
        self.last = last


class Folder:
    """A folder that is being exported to, locked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextmanager
    def locked(cls, path: Path, *, resume: bool) -> Iterator[Folder]:
        """The folder, made if it is missing, while no other export writes in it.

        UsageError: it is no folder, another export writes to it, or it has files and ``resume`` is
        off.
        """
        if (path.exists() and not path.is_dir()) or not path.parent.is_dir():
            raise UsageError(f"{path} cannot be a folder: name one in a directory that is there")
        if not path.exists():
            LOCAL.make_directory(path)
            LOCAL.sync_directory(path.parent)
        file = LOCAL.open(path)
        try:
            if not file.try_lock(exclusive=True):
                raise UsageError(f"another export writes to {path}: wait for its end")
            found = cls(path)
            if not resume and any(not name.startswith("_") for name in LOCAL.names(path)):
                raise UsageError(
                    f"{path} has files already: resume to go on behind them, or name another"
                )
            yield found
        finally:
            file.close()

    def stream(self, name: bytes) -> Path:
        """The folder of a stream; UsageError for a name that cannot be one of a folder."""
        text = quote(name, safe="")
        why = ""
        if name == NO_DAY.encode():
            why = "stands for none"
        elif len(text) + len("stream=") > NAME_MAX_BYTES:
            why = "is too long for a folder"
        else:
            try:
                name.decode()
            except UnicodeDecodeError:
                why = "is no UTF-8"
        if why:
            raise UsageError(
                f"the stream's name {why}: export it by itself, into a file", stream=name
            )
        return self.path / f"stream={text}"

    def newest(self, name: bytes) -> Exported | None:
        """The file with a stream's highest ID; what a killed export left half is removed."""
        found: Exported | None = None
        for day in self._days(self.stream(name)):
            for each in LOCAL.names(day):
                match = _FILE.fullmatch(each)
                if match is None:
                    if _HALF.fullmatch(each):
                        LOCAL.remove(day / each)
                    continue
                last = StreamID(int(match[3]), int(match[4]))
                if found is None or last > found.last:
                    found = Exported(day / each, last)
        return found

    @staticmethod
    def _days(path: Path) -> list[Path]:
        if not path.is_dir():
            return []
        return [path / each for each in LOCAL.names(path) if (path / each).is_dir()]

    def part(self, name: bytes, day: str, first: StreamID) -> Path:
        """The temporary name of a new file of a stream and a day, in a folder that is there."""
        folder = self.stream(name) / f"day={day}"
        for each in (folder.parent, folder):
            if not each.is_dir():
                LOCAL.make_directory(each)
                LOCAL.sync_directory(each.parent)
        return folder / f"_{first}.parquet{PART}"


class NewFile:
    """A file that is written, by row groups of bounded size, under a temporary name. It takes its
    own by ``finish``, or goes by ``abandon``."""

    def __init__(self, part: Path, schema: Any) -> None:
        self._part = part
        self._sink = Sink(LOCAL.open_new(part))
        self._held: list[Any] = []
        self._held_rows = self._held_bytes = 0
        self._ends: tuple[StreamID, StreamID] | None = None
        self.rows = 0
        try:
            self._writer = _parquet_writer(self._sink, schema)
        except BaseException:  # its first bytes may find the disk full
            self.abandon()
            raise

    @property
    def size_bytes(self) -> int:
        """What was written so far."""
        return self._sink.size_bytes

    def add(self, found: DayRows) -> None:
        """More rows."""
        first, _ = self._ends or (found.first, None)
        self._ends = first, found.last
        self.rows += found.batch.num_rows
        self._held.append(found.batch)
        self._held_rows += found.batch.num_rows
        self._held_bytes += found.batch.nbytes
        if self._held_rows >= GROUP_MAX_ROWS or self._held_bytes >= GROUP_MAX_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held))
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def finish(self, path: Path | None = None) -> None:
        """All rows are there: they are durable, then the file has its name, and then that is
        durable. ``path``: the name; else that of the IDs that it has."""
        self._write_group()
        self._writer.close()
        try:
            self._sink.file.sync()
        finally:
            self._sink.file.close()
        if path is None and self._ends is not None:
            path = self._part.with_name("{}_{}.parquet".format(*self._ends))
        assert path is not None
        LOCAL.rename(self._part, path)
        LOCAL.sync_directory(path.parent)

    def abandon(self) -> None:
        """Nothing is left of it."""
        self._sink.file.close()
        LOCAL.remove(self._part)


def _parquet_writer(sink: Sink, schema: Any) -> Any:
    from pyarrow import parquet

    # IDs and times are all different: a dictionary of them costs twice, and helps nobody.
    coded = [each for each in schema.names if each not in ("id", "ts", "id_key")]
    return parquet.ParquetWriter(
        sink, schema, compression="zstd", use_dictionary=coded or False, write_page_checksum=True
    )


class Sink:
    """A file of ours as one that pyarrow writes to: it only grows."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.size_bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Add bytes; nothing behind the end: a writer that is freed adds the foot of a file that
        was given up."""
        if self.file.fd >= 0:
            self.file.pwrite(data, self.size_bytes)
        self.size_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        """How many there are."""
        return self.size_bytes

    def flush(self) -> None:
        """They are with the system already."""

    def writable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """pyarrow has nothing more to write; the file is still to be synced."""
        self.closed = True


DAY_MS = 86_400_000
NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # past the year 9999, where ``ts`` is null, too
ALWAYS = ("id", "ts")
WITHOUT_SCHEMA = ("fields",)
_REPLACEMENT = "\ufffd"
_IDS = (ColumnSource("ms_exact", standard=True), ColumnSource("seq_exact", standard=True))


class DayRows(NamedTuple):
    """Rows that follow each other, all of one day (UTC): its text, the rows, their ends."""

    day: str
    batch: Any
    first: StreamID
    last: StreamID


class Columns:
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
