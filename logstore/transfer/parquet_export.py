"""Exporting streams to Parquet: a folder of files by stream and day, or one file of one stream.

Invariants: everything is refused before a file is made, where it can be known then. A stream goes
in the order of its IDs, file by file; ``parquet_files`` says why the names tell how far it is, so
that a resumed export has each entry once. Entries that are deleted later stay in what was exported.
Memory holds the rows of one row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logstore.api import arguments
from logstore.api.names import stream_names
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.errors import StreamNotFoundError, UsageError, typed
from logstore.fs import LOCAL
from logstore.ids import ZERO_ID, IDLike, StreamID
from logstore.loading import needing
from logstore.scan import counting, live
from logstore.scan.arrow import Gather
from logstore.transfer.job import Progress, unwatched
from logstore.transfer.parquet_files import DayRows, Folder, Half, Rows, Sink, finish

if TYPE_CHECKING:
    import pyarrow as pa

FILE_MAX_BYTES = 256 << 20
GROUP_MAX_ROWS = 1 << 18
GROUP_MAX_BYTES = 64 << 20
_NAMES = ("stream", "day")
_PART = ".part"


@dataclass(slots=True)
class ParquetReport:
    """What an export did."""

    streams: int = 0  # of which there was something to write
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
        schema: columns behind ``id`` and ``ts``, as for ``Stream.scan``; None: ``fields``, a map.
        start: as in ``Stream.range``.
        end: as in ``Stream.range``.
        resume: go on behind the highest ID that the folder has of each stream.
        report: what is counted into, also if the export fails.
        progress: is told rows, so many done and in all.
        file_max_bytes: a file that is larger is the last but one of its day.

    Returns:
        The counts.

    Raises:
        UsageError: the folder cannot be, or has files of another schema, or of another stream of
            the same name; text is no UTF-8; pyarrow is not installed.
        StreamNotFoundError: a stream is not there.
        OptionError: a column cannot be, or the interval is reversed.
        InvalidIDError: an end is no ID.
        FileSystemError: the folder cannot be written to; what has its name is whole.
    """
    low, high = arguments.interval(start, end)
    names = stream_names(opened_of(store), streams)()
    rows = needing("arrow", lambda: _rows(schema, _NAMES))
    report = ParquetReport() if report is None else report
    folder = Path(folder)
    with Folder.locked(folder, resume=resume) as found:
        behind = {name: max(low, _behind(store, found, name, rows)) for name in names}
        run = _Run(store, rows, report, progress)
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
    progress: Progress = unwatched,
) -> ParquetReport:
    """Write one stream to one Parquet file, which takes its name when it is whole.

    Args:
        store: an open store.
        path: the file; one that is there gives way.
        stream: its name.
        schema: as for ``export_parquet``.
        start: as in ``Stream.range``.
        end: as in ``Stream.range``.
        progress: as for ``export_parquet``.

    Returns:
        The counts.

    Raises:
        UsageError: the file cannot be; text is no UTF-8; pyarrow is not installed.
        StreamNotFoundError: the stream is not there.
        OptionError: a column cannot be, or the interval is reversed.
        InvalidIDError: an end is no ID.
        FileSystemError: the file cannot be written.
    """
    low, high = arguments.interval(start, end)
    opened = opened_of(store)
    name = arguments.stream_name(stream, opened.encoding)
    if opened.record(name) is None:
        raise StreamNotFoundError("there is no such stream", stream=name)
    rows = needing("arrow", lambda: _rows(schema, ()))
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{path} cannot be a file: name one in a directory that is there")
    run = _Run(store, rows, ParquetReport(), progress)
    run.total = run.count(name, low, high)
    part = path.with_name(f"_{path.name}{_PART}")
    sink = Sink(LOCAL.open_new(part))
    try:
        writer = _Writer(rows.schema, sink)
        entries = 0
        for found in run.days(name, low, high):
            writer.add(found.batch)
            entries += found.batch.num_rows
        writer.close()
        finish(sink, part, path)
    except BaseException:
        sink.end()
        LOCAL.remove(part)
        raise
    run.wrote(entries)
    run.report.streams = 1
    return run.report


def _rows(schema: Any, reserved: tuple[str, ...]) -> Rows:
    from logstore.scan.query import types_of

    return Rows(None if schema is None else types_of(schema), reserved)


def _behind(store: Store[Any], folder: Folder, name: bytes, rows: Rows) -> StreamID:
    """The first ID that the folder does not have yet; UsageError."""
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
    if not there.equals(rows.schema):
        raise UsageError(
            f"{newest.path} has other columns ({', '.join(there.names)}): give the same schema, or "
            "another folder"
        )
    return newest.last.next()


class _Run:
    """One export: what it reads, and what it counts."""

    def __init__(
        self, store: Store[Any], rows: Rows, report: ParquetReport, progress: Progress
    ) -> None:
        self._engine = opened_of(store).engine()
        self._rows = rows
        self.report = report
        self._progress = progress
        self._done = 0
        self.total = 0

    def count(self, name: bytes, start: StreamID, end: StreamID) -> int:
        """How many entries there are."""
        return counting.count_stream(self._engine, name, start, end)

    def days(self, name: bytes, start: StreamID, end: StreamID) -> Iterator[DayRows]:
        """The rows of a stream; what the caller took is done when it comes for more."""
        gather = Gather(self._rows.sources)
        for gathered in live.batches(self._engine, [name], start, end, gather):
            yield from self._rows.days(gathered)
            self._done += gathered.num_rows
            self._progress(self._done, max(self._done, self.total))

    def folder(
        self, folder: Folder, name: bytes, interval: tuple[StreamID, StreamID], most: int
    ) -> None:
        """Write a stream's files. The one that is not whole when something fails goes."""
        file: _DayFile | None = None
        before = self.report.files
        try:
            for found in self.days(name, *interval):
                if file is not None and (found.day != file.day or file.size_bytes >= most):
                    file = self._finish(file)
                if file is None:
                    file = _DayFile.begun(folder, name, found, self._rows.schema)
                file.add(found)
            if file is not None:
                file = self._finish(file)
        finally:
            if file is not None:
                file.half.abandon()
        self.report.streams += self.report.files > before

    def _finish(self, file: _DayFile) -> _DayFile | None:
        """It has its name; what is being written then."""
        file.finish()
        self.wrote(file.rows)
        return None

    def wrote(self, entries: int) -> None:
        """A file is whole."""
        self.report.files += 1
        self.report.entries += entries
        self.report.malformed = dict(self._rows.malformed)


class _DayFile:
    """A file of a day that is being written."""

    def __init__(self, half: Half, schema: Any) -> None:
        self.half = half
        self.day = ""
        self.rows = 0
        self._last = ZERO_ID
        self._writer = _Writer(schema, half.sink)

    @classmethod
    def begun(cls, folder: Folder, name: bytes, found: DayRows, schema: Any) -> _DayFile:
        """A new one for rows; also its first bytes may find the disk full."""
        half = folder.begin(name, found.day, found.first)
        try:
            return cls(half, schema)
        except BaseException:
            half.abandon()
            raise

    @property
    def size_bytes(self) -> int:
        """What was written so far."""
        return self.half.sink.size_bytes

    def add(self, found: DayRows) -> None:
        """More rows of the day."""
        self._writer.add(found.batch)
        self.day, self._last = found.day, found.last
        self.rows += found.batch.num_rows

    def finish(self) -> None:
        """There are no more."""
        self._writer.close()
        self.half.finish(self._last)


class _Writer:
    """A Parquet file, by row groups of bounded size."""

    def __init__(self, schema: Any, sink: Sink) -> None:
        from pyarrow import parquet

        # IDs and times are all different: a dictionary of them costs twice, and helps nobody.
        coded = [each for each in schema.names if each not in ("id", "ts", "id_key")]
        self._writer = parquet.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            use_dictionary=coded or False,
            write_page_checksum=True,
        )
        self._held: list[Any] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: Any) -> None:
        """More rows."""
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_MAX_ROWS or self._bytes >= GROUP_MAX_BYTES:
            self._group()

    def _group(self) -> None:
        import pyarrow as pa

        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held))
        self._held, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        """All rows are with the file."""
        self._group()
        self._writer.close()
