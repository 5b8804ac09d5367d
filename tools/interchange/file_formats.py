"""The format of a file and its compression, by its name and its first bytes; the encoding and the
delimiter of text by its beginning; and whether text is UTF-8.

Invariants: a name says one format, or is refused. First bytes that say another format are an error
with both. A file is unpacked as it is read and packed as it is written, in memory of some buffers.
Needs pyarrow for compressed files only.
"""

from __future__ import annotations

import csv
import io
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from logstore.errors import UsageError
from logstore.loading import needing

TEXTS = ("jsonl", "csv")
TABLES = ("parquet", "arrow")
ENDINGS = {
    "": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
# First bytes that no text begins with.
MAGICS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # a stream of messages
}
MAGIC_BYTES = 6
SAMPLE_BYTES = 1 << 20  # of a file; of a pipe what is there
SNIFFED_RECORDS = 100


# -- names ------------------------------------------------------------------------------------
def unpacked_name(name: str) -> str:
    """A name without the ending that says how it is compressed."""
    return name[: -len(ending)] if (ending := Path(name).suffix.lower()) in COMPRESSED else name


def compression(name: str) -> str | None:
    """How a file of this name is compressed, if it is."""
    return COMPRESSED.get(Path(name).suffix.lower())


def guess_format(name: str) -> str:
    """The format by the ending of a file's name; without one JSON lines.

    UsageError for an ending of which nobody knows what it stands for.
    """
    ending = Path(unpacked_name(name)).suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(
            f"{name} ends in {ending}, which is not supported: name a file .jsonl, .json, .csv, "
            ".tsv, .parquet or .arrow, also with .gz or .zst behind it, or say with --format what "
            "it is to be"
        )
    return ENDINGS[ending]


def guess_delimiter(name: str) -> str:
    """The delimiter by the name of a file: a tab if it says so, else a comma."""
    return "\t" if unpacked_name(name).lower().endswith(".tsv") else ","


def stream_name(name: str) -> str:
    """The name of a stream for what is in a file: the file's, without its endings. UsageError."""
    stem = Path(unpacked_name(name)).name
    stem = stem[: -len(ending)] if (ending := Path(stem).suffix) else stem
    if not stem:
        raise UsageError("what comes from stdin has no name: say with --stream where it goes")
    return stem


# -- text, by its beginning -------------------------------------------------------------------
_MARKS = {
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
DELIMITERS = ",;\t|"


def guess_encoding(sample: bytes) -> str:
    """The encoding of a text by its beginning: by a byte order mark, or by the zeros that ASCII has
    in UTF-16; else UTF-8, in which other bytes stay as they are."""
    for mark, encoding in _MARKS.items():
        if sample.startswith(mark):
            return encoding
    head = sample[:1000]
    if len(head) >= 4 and b"\0" in head:
        pairs = len(head) // 2
        if head[1::2].count(0) * 10 >= pairs * 9:
            return "utf-16-le"
        if head[::2].count(0) * 10 >= pairs * 9:
            return "utf-16-be"
    return "utf-8"


def sniffed_delimiter(sample: str, name: str) -> str:
    """The delimiter of a CSV by its first records: the one under which all have as many cells, and
    the most of them; where that is none, as its name says."""
    best, most = guess_delimiter(name), 1
    for delimiter in DELIMITERS:
        widths: set[int] = set()
        lines = io.StringIO(sample, newline="")
        with suppress(csv.Error):
            records = csv.reader(lines, delimiter=delimiter, strict=True)
            widths.update(len(cells) for cells in islice(records, SNIFFED_RECORDS) if cells)
        if len(widths) == 1 and max(widths) > most:
            best, most = delimiter, max(widths)
    return best


def is_utf8(parts: Iterable[str]) -> bool:
    """Whether text was UTF-8: other bytes are lone surrogates in it."""
    try:
        "".join(parts).encode()
    except UnicodeEncodeError:
        return False
    return True


# -- reading ----------------------------------------------------------------------------------
class Input:
    """A file to read, unpacked, with the format by its first bytes."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        self.seekable = source.seekable()
        self.waiting = None if self.seekable else _waiting(source)
        file, found = _peeked(source if self.waiting is None else io.BufferedReader(self.waiting))
        packed = found if found in COMPRESSED.values() else None
        named = compression(name)
        if named is not None and named != packed:
            raise UsageError(f"{name} is not compressed as {named}: name it as what it is")
        if packed is not None:
            self.seekable = False
            file, found = _peeked(cast("BinaryIO", Unpacking(file, packed)))
        self.file = file
        self.found = found if found in TABLES else None

    def sample(self) -> bytes:
        """The beginning of the input, which is read again; of a pipe what is there already."""
        if not self.seekable:
            return bytes(cast("Any", self.file).peek(SAMPLE_BYTES))
        at = self.file.tell()
        data = self.file.read(SAMPLE_BYTES)
        self.file.seek(at)
        return data

    def format(self, given: str | None, name: str) -> str:
        """The format: as given, as the first bytes say, or as the name says; UsageError."""
        wanted = given or (None if self.found else guess_format(name))
        if wanted is None or wanted == self.found:
            return str(self.found)
        if self.found is not None or wanted in TABLES:
            raise UsageError(
                f"{name or 'what comes from stdin'} is to be {wanted}, and begins as "
                f"{self.found or 'no such file does'}"
            )
        return wanted


def _peeked(source: BinaryIO) -> tuple[BinaryIO, str | None]:
    """A source at its beginning, and the format by its first bytes."""
    file = source if hasattr(source, "peek") else io.BufferedReader(cast("io.RawIOBase", source))
    head = cast("Any", file).peek(MAGIC_BYTES)[:MAGIC_BYTES]
    found = (kind for magic, kind in MAGICS.items() if head.startswith(magic))
    return file, next(found, None)


class WaitingInput(io.RawIOBase):
    """What comes through a pipe or a terminal. Before more is waited for, ``on_wait`` is called,
    and again after as many seconds as it gives, if it gives some."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self.on_wait: Callable[[], float | None] | None = None
        self._raw = raw
        self._poll = select.poll()
        self._poll.register(raw.fileno(), select.POLLIN)

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, into: Any) -> int | None:
        """Some bytes; 0 at the end."""
        ready: object = None
        while not ready:
            left_s = None if self.on_wait is None else self.on_wait()
            ready = self._poll.poll(None if left_s is None else left_s * 1000)
        count: int | None = self._raw.readinto(into)
        return count


def _waiting(source: BinaryIO) -> WaitingInput | None:
    """A source that must be waited for; None for one of which that is not known."""
    raw = getattr(source, "raw", None)
    try:
        return None if raw is None else WaitingInput(raw)
    except (OSError, AttributeError):  # it is no file of the system, or there is no poll
        return None


class Unpacking(io.RawIOBase):
    """Bytes that are unpacked as they are read; UsageError where they are damaged."""

    def __init__(self, file: BinaryIO, kind: str) -> None:
        self._kind = kind
        self._stream = needing("arrow", lambda: _unpacked(file, kind))

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, into: Any) -> int:
        """Some bytes; 0 at the end."""
        try:
            data = self._stream.read(len(into))
        except (OSError, ValueError) as error:
            raise UsageError(f"what is compressed as {self._kind} is damaged: {error}") from error
        into[: len(data)] = data
        return len(data)


def _unpacked(file: BinaryIO, kind: str) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), kind)


# -- writing ----------------------------------------------------------------------------------
class _Unclosed:
    """A file that pyarrow does not close: its user does, when the file is whole."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write
        self.flush = file.flush

    def close(self) -> None:
        """pyarrow has written all."""
        self.closed = True


@contextmanager
def packing(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """A file to write to, compressed as a name says."""
    kind = compression(name)
    if kind is None:
        yield file
        return
    packed = needing("arrow", lambda: _packed(_Unclosed(file), kind))
    try:
        yield packed
    except BaseException:
        with suppress(OSError, ValueError):  # the first error matters
            packed.close()
        raise
    packed.close()


def _packed(file: _Unclosed, kind: str) -> Any:
    import pyarrow as pa

    return pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), kind)
