"""Staged files: nodes that tasks wrote, and that wait for one commit that publishes them.

A stage is a pin that holds no segment, ``pins/<id>``; its files are ``pins/<id>.<random>.staged``
beside it. So what a killed job left goes with the pin: when the process that the pin is for is
gone, or when nobody renewed it for its time. A file is runs of nodes side by side, each run of one
stream: master ID and listpack of each node, as they stand in RDB, so that they are verified, and
written to the log, many at a time (``codec.NodeBatch``). What says which run is whose travels with
the job, and so does the CRC of each run: a file by itself says nothing.

Invariants: a name is never used again, so a task that is tried twice harms nothing; a file is
durable before its runs are told; nothing here is part of the store before a commit wrote it to the
log. Never imports the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from logstore.codec import ID
from logstore.crc import crc32c
from logstore.errors import CorruptionError, SnapshotExpiredError
from logstore.fs import File, FileSystem
from logstore.log import file_names, pinfile
from logstore.log.pinfile import Pin
from logstore.tuples import NamedTuple

STAGE_MS = 3_600_000  # how long a stage lives that nobody renews
_KEY = b"\x10"  # the length of a master ID
_LONG = b"\x80"  # a length in four bytes follows
NODE_BYTES = 22  # what stands in front of a listpack


class StagedRun(NamedTuple):
    """Nodes of one stream that stand side by side in a file.

    ``first`` and ``last`` are the IDs of its first and last entry; ``file`` is a name in pins/.
    Without ``own_ids`` the store is to give the IDs, and these count from 0-1 in each run.
    ``schema_at`` is the position of the schema by which the values were written; 0: of none.
    """

    stream: bytes
    own_ids: bool
    file: str
    offset: int
    size_bytes: int
    crc: int
    rows: int
    first: ID
    last: ID
    schema_at: int = 0


def begin(
    fs: FileSystem, store: Path, host: str, system: str, pid: int, start: int, now_ms: int
) -> Pin:
    """A new stage, durable, for the process that these four name, as in a pin."""
    pin = Pin(
        pinfile.new_id(),
        frozenset(),
        now_ms + STAGE_MS,
        STAGE_MS,
        pid,
        host,
        system,
        start,
        now_ms,
        "a write of Spark",
    )
    fs.make_directory(store / file_names.PINS)
    pinfile.write(fs, store, pin)
    return pin


def keep(fs: FileSystem, store: Path, stage: Pin, now_ms: int, *, again: bool) -> None:
    """Let a stage live its whole time again, once half of it is over. SnapshotExpiredError if it is
    gone.

    With ``again`` it is made again: a streaming query writes to one stage for as long as it runs,
    and may be idle for longer than a stage lives. A task of a job that was given up must not.
    """
    found = pinfile.read(fs, store, stage.id)
    if found is None:
        pinfile.require_folder(fs, store)
    if found is None and not again:
        raise SnapshotExpiredError(
            f"the stage {stage.id} of this write is gone: the job was given up, an erasure "
            "(purge=True) took it, or it stood still for an hour. Run the job again"
        )
    if found is None or found.expires_ms - now_ms <= stage.ttl_ms // 2:
        pinfile.write(fs, store, stage._replace(expires_ms=now_ms + stage.ttl_ms))


def put(out: bytearray, master: ID, lp: bytes) -> None:
    """Put one node behind others."""
    out += _KEY
    out += master[0].to_bytes(8) + master[1].to_bytes(8)
    out += _LONG
    out += len(lp).to_bytes(4)
    out += lp


def moved(data: bytes, base: ID) -> bytes:
    """The same nodes with this added to their master IDs, sequence to sequence.

    An entry stands in its node as a difference to the master ID, so the nodes of entries to which
    the store gives IDs are written before those are known.
    """
    out, at = bytearray(data), 0
    while at < len(out):
        ms, seq = int.from_bytes(out[at + 1 : at + 9]), int.from_bytes(out[at + 9 : at + 17])
        out[at + 1 : at + 17] = (ms + base[0]).to_bytes(8) + (seq + base[1]).to_bytes(8)
        at += NODE_BYTES + int.from_bytes(out[at + 18 : at + 22])
    return bytes(out)


class StageWriter:
    """One staged file; the file is made when there is something for it."""

    def __init__(self, fs: FileSystem, store: Path, stage: Pin) -> None:
        """Nothing is made yet."""
        self._fs = fs
        self._store = store
        self._name = f"{stage.id}.{pinfile.new_id()}{pinfile.STAGED}"
        self._file: File | None = None
        self._offset = 0
        self.runs: list[StagedRun] = []

    def add(
        self,
        stream: bytes,
        own_ids: bool,
        data: bytearray,
        rows: int,
        first: ID,
        last: ID,
        schema_at: int = 0,
    ) -> None:
        """Write a run of nodes, as `put` made them."""
        if self._file is None:
            path = self._store / file_names.PINS / self._name
            self._file = self._fs.open(path, write=True, exclusive=True)
        self._file.pwrite(data, self._offset)
        self.runs.append(
            StagedRun(
                stream,
                own_ids,
                self._name,
                self._offset,
                len(data),
                crc32c(data),
                rows,
                first,
                last,
                schema_at,
            )
        )
        self._offset += len(data)

    def finish(self) -> list[StagedRun]:
        """Make the file durable; what is in it."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None
            self._fs.sync_directory(self._store / file_names.PINS)
        return self.runs

    def abandon(self) -> None:
        """Remove the file, after an error."""
        if self._file is not None:
            self._file.close()
            self._fs.remove(self._store / file_names.PINS / self._name)
            self._file = None


def read(fs: FileSystem, store: Path, runs: Iterable[StagedRun]) -> Iterator[bytes]:
    """The bytes of each run, checked; SnapshotExpiredError if its file is gone, CorruptionError."""
    opened: dict[str, File] = {}
    try:
        for run in runs:
            if run.file not in opened:
                opened[run.file] = _opened(fs, store, run.file)
            data = opened[run.file].pread(run.size_bytes, run.offset)
            if len(data) != run.size_bytes or crc32c(data) != run.crc:
                raise CorruptionError(
                    f"the staged file {run.file} is damaged: nothing was written to the store; run "
                    "the job again",
                    stream=run.stream,
                )
            yield data
    finally:
        for file in opened.values():
            file.close()


def remove(fs: FileSystem, store: Path, runs: Iterable[StagedRun]) -> None:
    """Remove the files of these runs."""
    for name in {run.file for run in runs}:
        fs.remove(store / file_names.PINS / name)


def _opened(fs: FileSystem, store: Path, name: str) -> File:
    try:
        return fs.open(store / file_names.PINS / name)
    except FileNotFoundError:
        raise SnapshotExpiredError(
            f"the staged file {name} is gone, by an erasure (purge=True), or since the job stood "
            "still for an hour: nothing was written to the store; run the job again"
        ) from None
