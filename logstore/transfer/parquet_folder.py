"""The folder of a Parquet export: the names in it, and files that get theirs when they are whole.

``stream=<name>/day=<UTC day>/<first ID>_<last ID>.parquet``, as Spark, DuckDB, Polars and pyarrow
read partitions; a stream's name is percent-encoded.

Invariants: who holds the folder's lock is the only one that writes in it. A file with such a name
is whole and durable: it is written under a name that begins with ``_``, which readers of such
folders pass over, synced, renamed, and its directory synced before the next file of its stream is
begun. So the highest ID in the names of a stream tells how far it was exported, whoever was killed
and when. What a killed export left under a name with ``_`` is removed by the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from logstore.errors import UsageError
from logstore.fs import LOCAL, File
from logstore.ids import StreamID
from logstore.transfer.parquet_rows import NO_DAY

NAME_MAX_BYTES = 255  # of a file system
_PART = ".part"
_FILE = re.compile(r"(\d{1,20})-(\d{1,20})_(\d{1,20})-(\d{1,20})\.parquet")
_HALF = re.compile(r"_\d{1,20}-\d{1,20}\.parquet" + re.escape(_PART))


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

    def begin(self, name: bytes, day: str, first: StreamID) -> Half:
        """A new file of a stream and a day, under a temporary name."""
        folder = self.stream(name) / f"day={day}"
        for each in (folder.parent, folder):
            if not each.is_dir():
                LOCAL.make_directory(each)
                LOCAL.sync_directory(each.parent)
        return Half(folder / f"_{first}.parquet{_PART}", folder, first)


class Half:
    """A file that is written; it takes its name by ``finish``, or goes by ``abandon``."""

    def __init__(self, path: Path, folder: Path, first: StreamID) -> None:
        self._path = path
        self._folder = folder
        self._first = first
        self.sink = Sink(LOCAL.open_new(path))

    def finish(self, last: StreamID) -> None:
        """It is whole, and ends with this ID."""
        finish(self.sink, self._path, self._folder / f"{self._first}_{last}.parquet")

    def abandon(self) -> None:
        """Nothing is left of it."""
        self.sink.end()
        LOCAL.remove(self._path)


def finish(sink: Sink, part: Path, path: Path) -> None:
    """What was written is durable, then it has its name, and then that is durable."""
    try:
        sink.file.sync()
    finally:
        sink.end()
    LOCAL.rename(part, path)
    LOCAL.sync_directory(path.parent)


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

    def end(self) -> None:
        """Close the file itself."""
        self.file.close()
