"""RDB files: exporting streams to one, importing one, or a file with the payload of a DUMP.

An exported file is loaded by Redis from 7.2 on and by every Valkey; for a newer Redis it can hold
more.

Invariants of an export: the file takes its name when it is whole and durable: written under another
name, synced, renamed, its directory synced. So a killed export leaves the file that had the name
before. Streams are written one by one, each as it was at one moment, in memory of some hundred
kilobytes and the locators of one stream's nodes.

Invariants of an import: the checksum of the whole file is checked before anything is imported, so a
file that was cut off or damaged leaves the store as it was. Of a file without a checksum whole
streams are imported up to the damage. Nodes come in as they are, many verified at a time. A node
that lies across two reads of the file, is compressed, or is damaged, is verified alone, and its
error says what is wrong. A thread of its own reads the pieces of a large stream, at most ``AHEAD``
before the commits; its errors come where its pieces would, and it ends with the import, however
that ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.codec import listpack
from logstore.engine.dump import export as exports
from logstore.engine.dump import restore
from logstore.engine.dump.payloads import TYPES_OF, Peer
from logstore.engine.dump.restore import VerifiedNodes, VerifiedPart
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import (
    FileSystemError,
    InvalidPayloadError,
    OptionError,
    StreamNotFoundError,
    UsageError,
)
from logstore.fs import LOCAL, File
from logstore.index.keys import StreamRecord
from logstore.rdb import dump_payload
from logstore.rdb.codes import crc64
from logstore.rdb.file_reader import ENVELOPE_MAGIC, FileReader, StreamKey, plain
from logstore.rdb.rdb_writer import FileWriter
from logstore.rdb.value import Node, StreamInfoValue
from logstore.transfer.job import (
    NAME_SHOWN,
    Job,
    Progress,
    Report,
    StreamIdentity,
    Wanted,
    readable_name,
    unwatched,
)
from logstore.transfer.stream_intake import CANNOT_TAKE, PIECE_BYTES, Intake, Piece

PART = ".part"


def wanted_streams(store: Store[Any], wanted: Wanted) -> list[StreamRecord]:
    """The streams of a store that are wanted, by name; an unfinished import is left out."""

    def find(view: Snapshot) -> list[StreamRecord]:
        return [record for record in view.listed() if wanted.wants(record.name)]

    found: list[StreamRecord] = snapshot.read(opened_of(store).engine(), find)
    return sorted(found, key=lambda record: record.name)


def expires_ms(store: Store[Any], name: bytes) -> int | None:
    """When a stream expires (unix ms); None: never."""
    record = snapshot.read(opened_of(store).engine(), lambda view: view.record(name))
    return None if record is None else record.expires_ms or None


def spelt(nodes: Iterable[Node], peer: Peer | None) -> Iterable[Node]:
    """The nodes as that server writes them."""
    if peer is None:
        return nodes
    valkey = peer == "valkey"
    return ((key, listpack.respell(lp, valkey=valkey)) for key, lp in nodes)


def export_file(
    store: Store[Any],
    path: Path,
    wanted: Wanted | None = None,
    *,
    peer: Peer | None = None,
    report: Report | None = None,
    progress: Progress = unwatched,
) -> Report:
    """Write the streams that are wanted to an RDB file; one that is there is replaced only if
    ``wanted`` says so.

    ``peer``: as for ``Stream.dump``. ``progress`` gets bytes of nodes. The store must have been
    opened for writing, for the export makes pins. FileSystemError, UsageError; SnapshotExpiredError
    if entries were erased meanwhile.
    """
    job = Job.of(store, wanted, report, progress)
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{path} cannot be a file: name one in a directory that is there")
    if path.exists() and not job.wanted.replace:
        raise UsageError(f"{path} is there already: replace it, or name another")
    part = path.with_name(path.name + PART)
    file = LOCAL.open_new(part)
    try:
        _write(job, file, peer)
        file.sync()
    except BaseException:
        LOCAL.remove(part)
        raise
    finally:
        file.close()
    LOCAL.rename(part, path)
    LOCAL.sync_directory(path.parent)
    return job.report


def _write(job: Job, file: File, peer: Peer | None) -> None:
    found = wanted_streams(job.store, job.wanted)
    total = sum(record.node_bytes for record in found)
    at = 0

    def write(data: bytes) -> None:
        nonlocal at
        file.pwrite(data, at)
        at += len(data)
        job.progress(min(at, total), total)

    writer = FileWriter(write, [(b"logstore", b"1")], TYPES_OF[peer])
    engine = opened_of(job.store).engine()
    for name in (record.name for record in found):
        expires = expires_ms(job.store, name)
        try:
            with exports.pinned(engine, name) as export:
                nodes = spelt(export.nodes(engine), peer)
                target = job.wanted.target(name)
                node_count, info, schema = export.node_count, export.info, export.schema
                writer.stream(target, node_count, nodes, info, expires, schema)
        except StreamNotFoundError:
            continue  # it was dropped, or expired, before it was written
        job.report.streams += 1
        job.report.entries += export.info.length
    writer.finish()


READ_BYTES = 1 << 18
_HEADS = (b"REDIS", b"VALKEY", ENVELOPE_MAGIC)
_HEAD_BYTES, _CRC_BYTES, _CRC_SINCE = 9, 8, 5


def import_file(
    store: Store[Any],
    path: Path,
    wanted: Wanted | None = None,
    *,
    name: bytes | None = None,
    database: int = 0,
    report: Report | None = None,
    progress: Progress = unwatched,
) -> Report:
    """Import the streams of an RDB file that are wanted, of one database; or, with ``name``, the
    one stream of a file that holds a DUMP payload.

    ``progress`` gets bytes. InvalidPayloadError, CorruptNodeError: the file; StreamExistsError;
    FileSystemError; OptionError. What was imported before an error stays.
    """
    job = Job.of(store, wanted, report, progress)
    intake = Intake(job)
    try:
        file = LOCAL.open_named(path)
    except FileNotFoundError:
        raise FileSystemError(f"there is no file {path}") from None
    try:
        if not file.pread(_HEAD_BYTES, 0).startswith(_HEADS):
            _payload(intake, job.wanted, _whole(file), name)
        elif name is not None:
            raise OptionError("an RDB file has the names of its streams: leave out the name")
        else:
            _check_sum(file)
            importing = _Import(file, intake, job, database)
            try:
                importing.run()
                intake.flush()
            finally:  # what was imported before an error stays
                importing.set_schemas()
        intake.flush()
    finally:
        file.close()
    return job.report


def _whole(file: File) -> bytes:
    size = file.size_bytes()
    if size > dump_payload.PAYLOAD_MAX_BYTES:
        raise InvalidPayloadError(
            f"{file.path} is no RDB file, and with {size} bytes too large for a DUMP payload"
        )
    return file.pread(size, 0)


def _payload(intake: Intake, wanted: Wanted, data: bytes, name: bytes | None) -> None:
    value = dump_payload.decode(data)
    if name is None:
        raise OptionError("a DUMP payload has no name in it: give one with --name")
    info = value.info
    if intake.takes(wanted.target(name), StreamIdentity.of(info)):
        intake.value(wanted.target(name), value)


def _check_sum(file: File) -> None:
    """Check the checksum at the end of a file. An envelope is read whole for that: its codec checks
    its own checksums."""
    end = max(0, file.size_bytes() - _CRC_BYTES)
    compressed = file.pread(_HEAD_BYTES, 0).startswith(ENVELOPE_MAGIC)
    if not compressed and not any(file.pread(_CRC_BYTES, end)):
        return  # there is none
    fill = plain(partial(_next, file, [0]))
    head, held, found = b"", b"", 0
    while data := fill(READ_BYTES):
        head += data[: _HEAD_BYTES - len(head)]
        held += data
        found, held = crc64(held[:-_CRC_BYTES], found), held[-_CRC_BYTES:]
    digits = head.lstrip(b"REDISVALKY")
    if not digits.isdigit() or int(digits) < _CRC_SINCE:
        return  # the reader refuses the version, or it has no checksum
    if any(held) and found != int.from_bytes(held, "little"):
        raise InvalidPayloadError(
            f"the checksum of {file.path} is wrong: it was cut off or damaged, or commands follow "
            "behind it, as in an append-only file; nothing was imported"
        )


def _next(file: File, at: list[int], _size: int) -> bytes:
    """The next bytes of a file."""
    data = file.pread(READ_BYTES, at[0])
    at[0] += len(data)
    return data


class _Import:
    """The import of one RDB file."""

    def __init__(self, file: File, intake: Intake, job: Job, database: int) -> None:
        self._file = file
        self._at = 0
        self._size = file.size_bytes()
        self._intake = intake
        self._job = job
        self._database = database
        self._now_ms = intake.now_ms()
        self._schemas: dict[bytes, bytes] = {}  # of streams that came, or were there, by name

    def set_schemas(self) -> None:
        """Set the schemas that the file has for its streams, once their entries were held against
        them. One that does not fit is left out, with a note: a stream without one has all of its
        entries."""
        for name, text in self._schemas.items():
            stream = self._job.store.stream(name)
            if self._intake.record(name) is None or stream.schema is not None:
                continue
            try:
                stream.configure(schema=text.decode("utf-8", "backslashreplace"), create=False)
            except (UsageError, StreamNotFoundError) as error:
                self._job.report.note(
                    f"{readable_name(name[:NAME_SHOWN])}: the schema of the file was left out: "
                    f"{error.message}"
                )

    def _fill(self, _size: int) -> bytes:
        data = self._file.pread(READ_BYTES, self._at)
        self._at += len(data)
        self._job.progress(self._at, self._size)
        return data

    def run(self) -> None:
        """Import the streams one after the other."""
        report, reader = self._job.report, FileReader(self._fill)
        if reader.newer is not None:
            report.note(reader.newer)
        for key in reader.streams():
            if not self._job.wanted.wants(key.name):
                continue
            if key.database != self._database:
                report.other_databases += 1
            elif key.expires_ms is not None and key.expires_ms <= self._now_ms:
                report.expired += 1  # a server would not load it either
            else:
                self._take(key)
        report.other_keys += reader.skipped

    def _take(self, key: StreamKey) -> None:
        kept = self._job.report.kept
        try:
            self._stream(key)
        except CANNOT_TAKE as exc:
            if key.failed:
                raise
            self._job.report.leave_out(key.name, exc)
            return
        if key.schema and self._job.report.kept == kept:
            self._schemas[self._job.wanted.target(key.name)] = key.schema

    def _stream(self, key: StreamKey) -> None:
        name, intake = self._job.wanted.target(key.name), self._intake
        if not self._job.wanted.replace and intake.record(name) is not None:
            edge = VerifiedNodes()
            for piece, _ in _pieces(key, PIECE_BYTES):
                edge = piece.after
            info = self._counted(key, edge)
            intake.takes(name, StreamIdentity.of(info))  # it counts the stream, or raises
            return
        found = _pieces(key, PIECE_BYTES)
        piece, more = next(found)
        if not more:
            info = self._counted(key, piece.after)
            if intake.takes(name, StreamIdentity.of(info)):
                prepared = restore.settled(piece.parts, piece.after, info)
                intake.whole(name, prepared, key.expires_ms)
            return
        with intake.piecewise(name) as temporary, _ahead(found) as pieces:
            edge = intake.extend(temporary, VerifiedNodes(), piece)
            for piece, _ in pieces:
                edge = intake.extend(temporary, edge, piece)
            intake.finish(temporary, edge, name, self._counted(key, edge), key.expires_ms)

    def _counted(self, key: StreamKey, edge: VerifiedNodes) -> StreamInfoValue:
        """What follows the nodes of a stream. Of its length the nodes are the truth: servers load
        one that says another, and show the entries that are there."""
        info = key.info()
        if info.length != edge.length:
            self._job.report.note(
                f"{readable_name(key.name[:NAME_SHOWN])}: the file says {info.length} entries and "
                f"has {edge.length}; those were imported"
            )
            info.length = edge.length
            if info.entries_added is not None:
                info.entries_added = max(info.entries_added, edge.length)
        return info


# -- the nodes of one stream, in pieces -----------------------------------------------------------
def _pieces(key: StreamKey, most_bytes: int) -> Iterator[tuple[Piece, bool]]:
    """Pieces of about ``most_bytes``, each with whether more may follow; at least one, which may be
    empty. InvalidPayloadError, CorruptNodeError."""
    parts: list[VerifiedPart] = []
    edge = VerifiedNodes()
    size = 0
    for part, after in _parts(key):
        parts.append(part)
        edge = after
        size += restore.part_bytes(part)
        if size >= most_bytes:
            yield Piece(parts, edge), True
            parts, size = [], 0
    yield Piece(parts, edge), False


def _parts(key: StreamKey) -> Iterator[tuple[VerifiedPart, VerifiedNodes]]:
    edge = VerifiedNodes()
    nodes = key.nodes()
    while True:
        batch = key.batch(edge.top)
        if len(batch):
            edge = restore.behind(edge, batch)
            yield batch, edge
            continue
        node = next(nodes, None)
        if node is None:
            return
        sealed, edge = restore.verify([node], edge)
        yield sealed, edge


# -- reading ahead of the commits -----------------------------------------------------------------
T = TypeVar("T")
AHEAD = 2
_END = object()


@contextmanager
def _ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """Iterate over ``items`` while a thread makes the next ones."""
    pool = ThreadPoolExecutor(1, "logstore-ahead")

    def made() -> Future[Any]:
        return pool.submit(next, items, _END)

    def taken() -> Iterator[T]:
        waiting = deque(made() for _ in range(AHEAD))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(made())
            yield item

    try:
        yield taken()
    finally:
        pool.shutdown(cancel_futures=True)
