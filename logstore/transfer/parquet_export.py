"""Exporting streams to Parquet: a folder of files by stream and day, or one file of one stream.

A file of a folder is ``stream=<name>/day=<UTC day>/<first ID>_<last ID>.parquet``, as Spark,
DuckDB, Polars and pyarrow read partitions; a stream's name is percent-encoded.

Invariants: all that can be refused is refused before a file is made. Only the holder of the
folder's lock writes in it. A stream goes in the order of its IDs, file by file. A file with such a
name is whole and durable: it is written under a name that begins with ``_``, which readers of such
folders ignore, synced, renamed, and its directory is synced before the next file of its stream is
begun. So the highest ID in the names of a stream tells how far it was exported, and a resumed
export has each entry once. The next export removes the files with ``_`` that a killed one left.
Text is UTF-8 as it was stored, or the export is refused with the ID, never with a replacement
character. A value that is not of its column's type is null, and counted. Entries that are deleted
later stay in the files. Memory holds the rows of one row group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from logstore.api import arguments
from logstore.api.configuring import stream_decoder, stream_schema
from logstore.api.entry_reads import stream_names
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.errors import OptionError, StreamNotFoundError, UsageError, typed
from logstore.fs import LOCAL, File
from logstore.ids import ZERO_ID, IDLike, StreamID
from logstore.loading import needing
from logstore.scan import conditions, live
from logstore.scan.conversion import Decode, Shape, cast, malformed
from logstore.scan.record_batches import ColumnSource, Gather
from logstore.scan.scan_columns import Target, schema_columns, typed_columns
from logstore.schema.stream_schema import Schema, folded
from logstore.transfer.job import Progress, unwatched
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


FILE_MAX_BYTES = 256 << 20
_NAMES = ("stream", "day")


@dataclass(slots=True)
class ParquetReport:
    """What an export did."""

    streams: int = 0  # with entries to write
    entries: int = 0
    files: int = 0
    malformed: dict[str, int] = field(default_factory=dict)  # by column: values that became null

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        found: dict[str, Any] = {
            "streams": self.streams,
            "entries": self.entries,
            "files": self.files,
        }
        return found | ({"malformed": dict(self.malformed)} if self.malformed else {})


def export_parquet(
    store: Store[Any],
    folder: Path,
    streams: str | bytes | Sequence[str | bytes] | None = None,
    *,
    schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
    start: IDLike = "-",
    end: IDLike = "+",
    where: str | None = None,
    resume: bool = False,
    report: ParquetReport | None = None,
    progress: Progress = unwatched,
    file_max_bytes: int = FILE_MAX_BYTES,
) -> ParquetReport:
    """Write streams to a folder of Parquet files, by stream and day (UTC).

    Args:
        store: an open store.
        folder: made if it is missing; it has nothing in it, unless ``resume``.
        streams: names, or patterns such as ``"race:*"``; None: all.
        schema: columns behind ``id`` and ``ts``, as for ``Stream.scan``; None: those of the schema
            that all of the streams have, before ``id`` and ``ts``, else ``fields``, a map.
        start: as in ``Stream.range``.
        end: as in ``Stream.range``.
        where: only entries for which this condition holds, as in ``Stream.range``.
        resume: begin behind the highest ID that the folder has of each stream.
        report: what is counted into, also if the export fails.
        progress: gets rows, done and in all.
        file_max_bytes: a file that is larger is followed by another one of its day.

    Returns:
        The counts.

    Raises:
        UsageError: the folder cannot be, or has files of another schema, or of another stream of
            the same name; text is no UTF-8; pyarrow is not installed.
        StreamNotFoundError: a stream is not there.
        OptionError: a column cannot be, ``where`` is no condition, or the interval is reversed.
        SchemaError: ``where`` does not fit the schema.
        InvalidIDError: an end is no ID.
        FileSystemError: the folder cannot be written to; what has its name is whole.
    """
    low, high = arguments.interval(start, end)
    names = stream_names(opened_of(store), streams)()
    kept = _kept_schema(store, names) if schema is None else None
    if kept is not None and any(folded(column.name) in _NAMES for column in kept.columns):
        kept = None  # in the names of the folders already
    columns = needing("arrow", lambda: _columns(schema, _NAMES, kept))
    sieves = {name: _sieve(store, name, where) for name in names}
    report = ParquetReport() if report is None else report
    folder = Path(folder)
    with Folder.locked(folder, resume=resume) as found:
        behind = {name: max(low, _first_missing(store, found, name, columns)) for name in names}
        run = _Export(store, columns, sieves, report, progress)
        run.total = sum(run.count(name, first, high) for name, first in behind.items())
        for name, first in behind.items():
            run.folder(found, name, (first, high), file_max_bytes)
    return report


def export_parquet_file(
    store: Store[Any],
    path: Path,
    stream: str | bytes,
    *,
    schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
    start: IDLike = "-",
    end: IDLike = "+",
    where: str | None = None,
    progress: Progress = unwatched,
) -> ParquetReport:
    """Write one stream to one Parquet file, which takes its name when it is whole.

    Args:
        store: an open store.
        path: the file; one that is there is replaced.
        stream: its name.
        schema: as for ``export_parquet``.
        start: as in ``Stream.range``.
        end: as in ``Stream.range``.
        where: as for ``export_parquet``.
        progress: as for ``export_parquet``.

    Returns:
        The counts.

    Raises:
        UsageError: the file cannot be; text is no UTF-8; pyarrow is not installed.
        StreamNotFoundError: the stream is not there.
        OptionError: a column cannot be, ``where`` is no condition, or the interval is reversed.
        SchemaError: ``where`` does not fit the schema.
        InvalidIDError: an end is no ID.
        FileSystemError: the file cannot be written.
    """
    low, high = arguments.interval(start, end)
    opened = opened_of(store)
    name = arguments.stream_name(stream, opened.encoding)
    if opened.record(name) is None:
        raise StreamNotFoundError("there is no such stream", stream=name)
    kept = _kept_schema(store, [name]) if schema is None else None
    columns = needing("arrow", lambda: _columns(schema, (), kept))
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{path} cannot be a file: name one in a directory that is there")
    sieves = {name: _sieve(store, name, where)}
    run = _Export(store, columns, sieves, ParquetReport(), progress)
    run.total = run.count(name, low, high)
    file = NewFile(path.with_name(f"_{path.name}{PART}"), columns.schema)
    try:
        for found in run.days(name, low, high):
            file.add(found)
        run.finish(file, path)
    except BaseException:
        file.abandon()
        raise
    run.report.streams = 1
    return run.report


def _kept_schema(store: Store[Any], names: Sequence[bytes]) -> Schema | None:
    """The schema that all of these streams have; None if they have not the same."""
    opened = opened_of(store)
    found = {stream_schema(opened, name) for name in names}
    return found.pop() if len(found) == 1 else None


def _sieve(store: Store[Any], name: bytes, where: str | None) -> Sieve:
    opened = opened_of(store)
    decode = stream_decoder(opened, name)
    return needing("arrow", lambda: Sieve(where, stream_schema(opened, name), decode))


def _columns(schema: Any, reserved: tuple[str, ...], kept: Schema | None) -> Columns:
    from logstore.scan.scan_columns import types_of

    return Columns(None if schema is None else types_of(schema), reserved, kept)


def _first_missing(store: Store[Any], folder: Folder, name: bytes, columns: Columns) -> StreamID:
    """The first ID that the folder does not have; UsageError."""
    import pyarrow as pa
    from pyarrow import parquet

    newest = folder.newest(name)
    if newest is None:
        folder.stream(name)
        return ZERO_ID
    last = opened_of(store).record(name)
    if last is None or last.last < newest.last:
        raise UsageError(
            f"{newest.path} goes up to {newest.last}, and the stream does not: it is another one; "
            "export it to another folder",
            stream=name,
        )
    try:
        there = parquet.read_schema(newest.path)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{newest.path} is damaged: remove it, and resume: {error}") from None
    except OSError as error:
        raise typed(error, newest.path, "reading") from error
    if not there.equals(columns.schema):
        raise UsageError(
            f"{newest.path} has other columns ({', '.join(there.names)}): give the same schema, or "
            "another folder"
        )
    return newest.last.next()


_ROW = "\0row"


class Sieve:
    """Leaves the rows of a stream for which a condition holds. Its columns are gathered behind
    those of the export. ``decode``: what decodes the values of the stream's codec."""

    def __init__(self, where: str | None, kept: Schema | None, decode: Decode | None) -> None:
        self.decode = decode
        known = {} if kept is None else {each.name: each for each in schema_columns(kept)}
        self._condition: Any = None
        named: list[Target] = []
        if where is not None:
            condition = conditions.condition(where, known, kept)
            self._condition = condition.filter
            named = conditions.named([*known.values(), *condition.columns], condition.filter)
        self._shape = Shape(named, decode=decode)
        self.sources = self._shape.sources

    def sift(self, gathered: Any) -> Any:
        """The rows that are left."""
        import pyarrow as pa

        if self._condition is None:
            return gathered
        first = gathered.num_columns - len(self.sources)
        rows = pa.array(range(gathered.num_rows))
        asked = gathered.select(list(range(first, gathered.num_columns)))
        arrays = self._shape.batch(asked).columns
        names = [*self._shape.schema.names, _ROW]
        found = pa.RecordBatch.from_arrays([*arrays, rows], names=names)
        return gathered.take(found.filter(self._condition).column(_ROW))


class _Export:
    """One export: reads rows, and counts."""

    def __init__(
        self,
        store: Store[Any],
        columns: Columns,
        sieves: Mapping[bytes, Sieve],
        report: ParquetReport,
        progress: Progress,
    ) -> None:
        self._engine = opened_of(store).engine()
        self._columns = columns
        self._sieves = sieves
        self.schema = columns.schema
        self.report = report
        self._progress = progress
        self._done = 0
        self.total = 0

    def count(self, name: bytes, start: StreamID, end: StreamID) -> int:
        """How many entries there are."""
        return live.count_stream(self._engine, name, start, end)

    def days(self, name: bytes, start: StreamID, end: StreamID) -> Iterator[DayBatch]:
        """The rows of a stream; rows are counted as done when the caller asks for more."""
        sieve = self._sieves[name]
        gather = Gather([*self._columns.sources, *sieve.sources])
        for gathered in live.batches(self._engine, [name], start, end, gather):
            left = sieve.sift(gathered)
            if left.num_rows:
                yield from self._columns.days(left, sieve.decode)
            self._done += gathered.num_rows
            self._progress(self._done, max(self._done, self.total))

    def folder(
        self, folder: Folder, name: bytes, interval: tuple[StreamID, StreamID], most: int
    ) -> None:
        """Write a stream's files. After an error the unfinished file is removed."""
        file: NewFile | None = None
        before = self.report.files
        day = ""
        try:
            for found in self.days(name, *interval):
                if file is not None and (found.day != day or file.size_bytes >= most):
                    self.finish(file)
                    file = None
                if file is None:
                    file = NewFile(folder.part(name, found.day, found.first), self.schema)
                file.add(found)
                day = found.day
            if file is not None:
                self.finish(file)
                file = None
        finally:
            if file is not None:
                file.abandon()
        self.report.streams += self.report.files > before

    def finish(self, file: NewFile, path: Path | None = None) -> None:
        """Finish a file, and count it."""
        file.finish(path)
        self.report.files += 1
        self.report.entries += file.rows
        self.report.malformed = dict(self._columns.malformed)


NAME_MAX_BYTES = 255  # of a file system
PART = ".part"
GROUP_MAX_ROWS = 1 << 18
GROUP_MAX_BYTES = 64 << 20
_FILE = re.compile(r"(\d{1,20})-(\d{1,20})_(\d{1,20})-(\d{1,20})\.parquet")
_UNFINISHED = re.compile(r"_\d{1,20}-\d{1,20}\.parquet" + re.escape(PART))


class Exported:
    """A file of a stream in the folder."""

    def __init__(self, path: Path, last: StreamID) -> None:
        self.path = path
        self.last = last


class Folder:
    """A folder for an export, locked."""

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
        """The folder of a stream; UsageError for a name that cannot be a folder's."""
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
        """The file with a stream's highest ID. Files that a killed export left are removed."""
        found: Exported | None = None
        for day in self._days(self.stream(name)):
            for each in LOCAL.names(day):
                match = _FILE.fullmatch(each)
                if match is None:
                    if _UNFINISHED.fullmatch(each):
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
        """The temporary name of a new file of a stream and a day; its folder is made."""
        folder = self.stream(name) / f"day={day}"
        for each in (folder.parent, folder):
            if not each.is_dir():
                LOCAL.make_directory(each)
                LOCAL.sync_directory(each.parent)
        return folder / f"_{first}.parquet{PART}"


class NewFile:
    """A file that is written under a temporary name, by row groups of bounded size. ``finish``
    gives it its own name, ``abandon`` removes it."""

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
        """Bytes written so far."""
        return self._sink.size_bytes

    def add(self, found: DayBatch) -> None:
        """Add rows."""
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
        """End the file: sync it, rename it, sync the name. ``path``: its name; None: by its IDs."""
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
        """Remove the file."""
        self._sink.file.close()
        LOCAL.remove(self._part)


def _parquet_writer(sink: Sink, schema: Any) -> Any:
    from pyarrow import parquet

    # IDs and times are all different: a dictionary of them would cost bytes, and save none.
    coded = [each for each in schema.names if each not in ("id", "ts", "id_key")]
    return parquet.ParquetWriter(
        sink, schema, compression="zstd", use_dictionary=coded or False, write_page_checksum=True
    )


class Sink:
    """A file as pyarrow writes to it; it only grows."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.size_bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Add bytes. A closed file takes none: the writer of an abandoned file still writes a
        footer when it is freed."""
        if self.file.fd >= 0:
            self.file.pwrite(data, self.size_bytes)
        self.size_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        """How many bytes there are."""
        return self.size_bytes

    def flush(self) -> None:
        """Nothing is buffered here."""

    def writable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """pyarrow has written all; the file is not synced or closed yet."""
        self.closed = True


DAY_MS = 86_400_000
NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # after the year 9999, where ``ts`` is null
ALWAYS = ("id", "ts")
METADATA = b"logstore.schema"  # of a file: the text of the schema of its stream
WITHOUT_SCHEMA = ("fields",)
_REPLACEMENT = "\ufffd"
_IDS = (ColumnSource("ms_exact", standard=True), ColumnSource("seq_exact", standard=True))


class DayBatch(NamedTuple):
    """Consecutive rows of one day (UTC), with their first and last ID."""

    day: str
    batch: Any
    first: StreamID
    last: StreamID


class Columns:
    """The columns of an export, and how many of their values were malformed."""

    def __init__(
        self,
        columns: Mapping[str, Any] | None,
        reserved: tuple[str, ...] = (),
        kept: Schema | None = None,
    ) -> None:
        if kept is not None:
            self._targets = _kept_columns(kept)
        else:
            given = dict(dict.fromkeys(WITHOUT_SCHEMA) if columns is None else columns)
            wanted: dict[str, Any] = {name: given.pop(name, None) for name in ALWAYS}
            _check_alike(given, reserved)
            self._targets = [_exact(each) for each in typed_columns(wanted | given)]
        self._gathered = [_in_bytes(each) for each in self._targets]
        shape = Shape(self._targets)
        self._shape = Shape(self._gathered)
        self.sources = [*_IDS, *self._shape.sources]
        self.schema = shape.schema
        if kept is not None:
            self.schema = self.schema.with_metadata({METADATA: kept.text})
        self.malformed: Counter[str] = Counter()

    def days(self, gathered: Any, decode: Decode | None = None) -> Iterator[DayBatch]:
        """The rows of a gathered batch, cut where a day ends; UsageError for text not in UTF-8.
        ``decode``: as of `Sieve`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ms, seq = gathered.column(0), gathered.column(1)
        arrays = [
            self._array(_values(gathered.column(at), target, decode), target, inner, ms, seq)
            for at, (target, inner) in enumerate(
                zip(self._targets, self._gathered, strict=True), len(_IDS)
            )
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        runs = pc.run_end_encode(pc.divide(ms, pa.scalar(DAY_MS, pa.uint64())))
        start = 0
        for day, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            first, last = (_id(ms, seq, at) for at in (start, end - 1))
            yield DayBatch(_day(day), batch.slice(start, end - start), first, last)
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


def _values(array: Any, target: Target, decode: Decode | None) -> Any:
    """A column of fields as what a codec stored in it."""
    if decode is None or target.standard:
        return array
    return Shape([_in_bytes(target)], decode=decode).array(array, _in_bytes(target))


def _kept_columns(kept: Schema) -> list[Target]:
    """The columns of a schema that is kept with the stream, and the standard ones behind them; with
    ``pairs`` if there can be other fields. A dead letter can lack any."""
    behind = (*ALWAYS, "pairs") if kept.is_open else ALWAYS
    typed = [each._replace(nullable=True) for each in schema_columns(kept)]
    return [*typed, *map(_exact, typed_columns(dict.fromkeys(behind)))]


def _check_alike(given: Iterable[str], reserved: tuple[str, ...]) -> None:
    """OptionError for columns that differ by case only: Spark refuses such a file, and DuckDB gives
    one of the columns another name."""
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
    """``pairs`` with values in bytes: so they hold any entry, which no other column does."""
    import pyarrow as pa

    if target.standard != "pairs":
        return target
    pair = pa.struct([("field", pa.string()), ("value", pa.binary())])
    return target._replace(type=pa.list_(pair))


def _in_bytes(target: Target) -> Target:
    """The column as it is gathered: values in bytes, in which nothing is replaced."""
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
    """UsageError for a field's name that is not UTF-8: a column of it could be that of another."""
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
