"""Files of a store beside the log: STORE, BOOT, WAKE, hints, checkpoints, pins, heads of segments.

An input is a byte that says which, one that says whether its checksums are set right, then its
content. What is odd is refused by a typed error, or counts as not there.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgpack

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.engine.shm import commit_words
from logstore.errors import CorruptFrameError, Error
from logstore.fs import LOCAL
from logstore.log import checkpoint_file, file_names, hint, pinfile, segment, storefile
from logstore.log.chain import Link
from logstore.log.checkpoint_file import CheckpointHead
from logstore.log.frame import Create, Node, encode
from logstore.log.log_reader import LogFrame
from logstore.log.segment import SegmentHead
from logstore.options import StoreLimits
from logstore.recovery import index_validity

UUID = bytes(range(16))
SEGMENT, POSITION = 2, 2 << 32 | 900
PIN = "ab" * 16
LINK = Link(SEGMENT, 64, 900, 900, 5)


def _store() -> bytes:
    return storefile.pack(storefile.StoreFile(UUID, StoreLimits(4096, 100, 1 << 26), 5))


def _boot() -> bytes:
    body: bytes = msgpack.packb({
        "generation": 3, "identity": ["boot", 1, 2, 3, 4], "clean": [5, 6, 7, 8, 9],
        "durable": 10, "format": fmt.FORMAT_VERSION,
    })  # fmt: skip
    return bytes(4) + body


def _wake() -> bytes:
    return commit_words.MAGIC + bytes(range(200))


def _hint() -> bytes:
    frames = [
        LogFrame(SEGMENT, 64, 12, 1, 0, 0, 2, 0, 9, encode(Create(1, b"name"))),
        LogFrame(SEGMENT, 120, 60, 1, 0, 1, 6, 1, 9, encode(Node(1, 5, 0, 5, 1, 2, b"listpack"))),
    ]
    body, count = hint.pack(iter(frames))
    body = zlib.compress(body)
    return fmt.HINT_HEAD.pack(
        fmt.HINT_MAGIC, fmt.FORMAT_VERSION, 0, SEGMENT, 0, 900, count, len(body), UUID, 0
    ) + body  # fmt: skip


def _checkpoint() -> bytes:
    chunks = [msgpack.packb(each) for each in ({"streams": [[1, b"s", 3]]}, [1, 2, [b"x"]], 7)]
    head = fmt.CHECKPOINT_HEAD.pack(
        fmt.CHECKPOINT_MAGIC, fmt.FORMAT_VERSION, 0, UUID, POSITION, 4, 64, 9, len(chunks), 0
    )
    return head + b"".join(fmt.CHUNK_HEAD.pack(len(each), 0) + each for each in chunks)


def _pin() -> bytes:
    body: bytes = msgpack.packb({
        "id": PIN, "segments": [1, 2], "expires_ms": 9, "ttl_ms": 5, "pid": 1, "host": "h",
        "made_ms": 1, "purpose": "p",
    })  # fmt: skip
    return fmt.PIN_HEAD.pack(fmt.PIN_MAGIC, fmt.FORMAT_VERSION, 0) + body


def _head() -> bytes:
    return segment.pack_head(SegmentHead(1, SEGMENT, UUID, 800, 3, 5))


# -- checksums ------------------------------------------------------------------------------------
def _of_store(data: bytes) -> bytes:
    head = fmt.STORE_HEAD
    if len(data) < head.size:
        return data
    magic, version, reserved, _, _ = head.unpack_from(data)
    body = data[head.size :]
    return head.pack(magic, version, reserved, len(body), crc32c(body)) + body


def _of_boot(data: bytes) -> bytes:
    return crc32c(data[4:]).to_bytes(4, "little") + data[4:]


def _of_hint(data: bytes) -> bytes:
    head, size = data[: fmt.HINT_HEAD.size], fmt.HINT_HEAD.size
    if len(head) < size:
        return data
    fields = list(fmt.HINT_HEAD.unpack(head))
    fields[7], fields[8] = len(data) - size, UUID
    front = fmt.HINT_HEAD.pack(*fields)[:-4]
    return front + crc32c(data[size:], crc32c(front)).to_bytes(4, "little") + data[size:]


def _of_checkpoint(data: bytes) -> bytes:
    size = fmt.CHECKPOINT_HEAD.size
    if len(data) < size:
        return data
    front = data[: size - 4]
    crc = crc32c(front)
    parts, at, number = [front, crc.to_bytes(4, "little")], size, 0
    while at + fmt.CHUNK_HEAD.size <= len(data):
        length, _ = fmt.CHUNK_HEAD.unpack_from(data, at)
        at += fmt.CHUNK_HEAD.size
        body = data[at : at + length]
        own = crc32c(body, crc32c(number.to_bytes(4, "little"), crc))
        parts += [fmt.CHUNK_HEAD.pack(length, own), body]
        at, number = at + length, number + 1
    return b"".join(parts)


def _of_pin(data: bytes) -> bytes:
    size = fmt.PIN_HEAD.size
    body = data[size:]
    return data[: size - 4] + crc32c(body).to_bytes(4, "little") + body if body else data


def _of_head(data: bytes) -> bytes:
    return data[:60] + crc32c(data[:60]).to_bytes(4, "little") + data[64:]


# -- reading --------------------------------------------------------------------------------------
def _read_wake(store: Path) -> None:
    path = store / "WAKE"
    commit_words.Wake.peek(LOCAL, path)
    commit_words.Wake.last_failure(LOCAL, path)
    commit_words.Wake.last_compaction(LOCAL, path)


def _read_hint(store: Path) -> None:
    for joined in (False, True):
        for found in hint.read(LOCAL, store, UUID, LINK, joined=joined) or ():
            try:
                found.body()
            except CorruptFrameError:
                continue


def _read_head(store: Path) -> None:
    file = LOCAL.open(file_names.segment(store, SEGMENT))
    try:
        segment.read_head(file, SEGMENT, UUID)
    finally:
        file.close()


def _read_checkpoint(store: Path) -> None:
    head, chunks = checkpoint_file.read(LOCAL, store, UUID, POSITION)
    assert isinstance(head, CheckpointHead)
    assert isinstance(chunks, list)


FILES: list[tuple[Callable[[], bytes], Callable[[bytes], bytes], Callable[[Path], object]]] = [
    (_store, _of_store, lambda store: storefile.read(LOCAL, store)),
    (_boot, _of_boot, lambda store: index_validity.read_marker(LOCAL, store)),
    (_wake, bytes, _read_wake),
    (_hint, _of_hint, _read_hint),
    (_checkpoint, _of_checkpoint, _read_checkpoint),
    (_pin, _of_pin, lambda store: pinfile.read(LOCAL, store, PIN)),
    (_head, _of_head, _read_head),
]


def _paths(store: Path) -> list[Path]:
    return [
        store / file_names.STORE,
        store / file_names.BOOT,
        store / "WAKE",
        file_names.hint(store, SEGMENT),
        file_names.checkpoint(store, POSITION),
        pinfile.path(store, PIN),
        file_names.segment(store, SEGMENT),
    ]


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="logstore-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in _paths(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
    return folder


SEEDS = [bytes((which, how)) + make() for which, (make, *_) in enumerate(FILES) for how in (0, 1)]


def one(data: bytes) -> None:
    """It is what was written, or refused."""
    which, how = (*data[:2], 0, 0)[:2]
    which %= len(FILES)
    _, seal, read = FILES[which]
    content = seal(data[2:]) if how & 1 else data[2:]
    store = _folder()
    _paths(store)[which].write_bytes(content)
    try:
        read(store)
    except Error:
        return
