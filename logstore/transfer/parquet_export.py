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
from logstore.ids import ZERO_ID, IDLike, StreamID
from logstore.loading import needing
from logstore.scan import live
from logstore.scan.record_batches import Gather
from logstore.transfer.job import Progress, unwatched
from logstore.transfer.parquet_files import PART, Columns, DayRows, Folder, NewFile

if TYPE_CHECKING:
    import pyarrow as pa

FILE_MAX_BYTES = 256 << 20
_NAMES = ("stream", "day")


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
    columns = needing("arrow", lambda: _columns(schema, _NAMES))
    report = ParquetReport() if report is None else report
    folder = Path(folder)
    with Folder.locked(folder, resume=resume) as found:
        behind = {name: max(low, _behind(store, found, name, columns)) for name in names}
        run = _Export(store, columns, report, progress)
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
    columns = needing("arrow", lambda: _columns(schema, ()))
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{path} cannot be a file: name one in a directory that is there")
    run = _Export(store, columns, ParquetReport(), progress)
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


def _columns(schema: Any, reserved: tuple[str, ...]) -> Columns:
    from logstore.scan.scan_columns import types_of

    return Columns(None if schema is None else types_of(schema), reserved)


def _behind(store: Store[Any], folder: Folder, name: bytes, columns: Columns) -> StreamID:
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
    if not there.equals(columns.schema):
        raise UsageError(
            f"{newest.path} has other columns ({', '.join(there.names)}): give the same schema, or "
            "another folder"
        )
    return newest.last.next()


class _Export:
    """One export: what it reads, and what it counts."""

    def __init__(
        self, store: Store[Any], columns: Columns, report: ParquetReport, progress: Progress
    ) -> None:
        self._engine = opened_of(store).engine()
        self._columns = columns
        self.schema = columns.schema
        self.report = report
        self._progress = progress
        self._done = 0
        self.total = 0

    def count(self, name: bytes, start: StreamID, end: StreamID) -> int:
        """How many entries there are."""
        return live.count_stream(self._engine, name, start, end)

    def days(self, name: bytes, start: StreamID, end: StreamID) -> Iterator[DayRows]:
        """The rows of a stream; what the caller took is done when it comes for more."""
        gather = Gather(self._columns.sources)
        for gathered in live.batches(self._engine, [name], start, end, gather):
            yield from self._columns.days(gathered)
            self._done += gathered.num_rows
            self._progress(self._done, max(self._done, self.total))

    def folder(
        self, folder: Folder, name: bytes, interval: tuple[StreamID, StreamID], most: int
    ) -> None:
        """Write a stream's files. The one that is not whole when something fails goes."""
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
        """A file is whole: it takes its name, and is counted."""
        file.finish(path)
        self.report.files += 1
        self.report.entries += file.rows
        self.report.malformed = dict(self._columns.malformed)
