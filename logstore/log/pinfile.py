"""Pin files: what a reader that outlives its snapshot asks compaction to leave alone.

A pin is ``pins/<id>``; what it was read into is ``pins/<id>.snap`` beside it. Writer and reader of
the bytes stand here, so that a reader without an index can check and renew its pin; when pins are
made and what they hold back is decided in engine.pins.

Invariants: a pin appears whole and durable or not at all, also when two processes renew it at
once; one that cannot be read, or is past its end, counts as gone. Never imports the index.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import FileSystemError, SnapshotExpired
from logstore.fs import FileSystem
from logstore.log import names, version

PIN_MAX_BYTES = 64 << 20
ID_BYTES = 16
SNAPSHOT = ".snap"


class Pin(NamedTuple):
    """``segments`` are not to be unlinked before ``expires_ms``; None: all there are."""

    id: str
    segments: frozenset[int] | None
    expires_ms: int
    ttl_ms: int
    pid: int


def path(store: Path, pin_id: str) -> Path:
    """The file of a pin."""
    return store / names.PINS / pin_id


def snapshot_path(store: Path, pin_id: str) -> Path:
    """The snapshot file that a pin keeps."""
    return store / names.PINS / (pin_id + SNAPSHOT)


def new_id() -> str:
    """A random name for a pin."""
    return os.urandom(ID_BYTES).hex()


def is_id(name: str) -> bool:
    """Whether a file name in pins/ is that of a pin."""
    return len(name) == 2 * ID_BYTES and all(digit in "0123456789abcdef" for digit in name)


def is_ours(name: str) -> bool:
    """Whether a name in pins/ is one that we give: a pin, its snapshot file, or half of one."""
    stem, dot, rest = name.partition(".")
    half = rest.removesuffix(names.TEMPORARY)
    return is_id(stem) and (not dot or dot + rest == SNAPSHOT or (half != rest and is_id(half)))


def write(fs: FileSystem, store: Path, pin: Pin) -> None:
    """Write or replace a pin, durably; SnapshotExpired if an erasure came in between.

    Crash order: temporary name of its own, sync, rename, directory sync.
    """
    body = msgpack.packb({
        "id": pin.id, "segments": None if pin.segments is None else sorted(pin.segments),
        "expires_ms": pin.expires_ms, "ttl_ms": pin.ttl_ms, "pid": pin.pid,
    })  # fmt: skip
    target = path(store, pin.id)
    temporary = target.with_name(f"{pin.id}.{new_id()}{names.TEMPORARY}")
    file = fs.open(temporary, write=True, exclusive=True)
    try:
        file.pwrite(fmt.PIN_HEAD.pack(fmt.PIN_MAGIC, fmt.FORMAT_VERSION, crc32c(body)) + body, 0)
        file.sync()
    finally:
        file.close()
    try:
        fs.rename(temporary, target)
    except FileNotFoundError:  # erasure removes whatever it finds among the pins
        raise SnapshotExpired(
            f"the pin {pin.id} was taken away by an erasure while it was written: load again"
        ) from None
    fs.sync_directory(target.parent)


def read(fs: FileSystem, store: Path, pin_id: str) -> Pin | None:
    """A pin; None if it is gone or its bytes are not what was written."""
    try:
        data = fs.read(path(store, pin_id), PIN_MAX_BYTES)
    except FileNotFoundError:
        return None
    if len(data) < fmt.PIN_HEAD.size:
        return None
    magic, of_format, crc = fmt.PIN_HEAD.unpack_from(data)
    body = data[fmt.PIN_HEAD.size :]
    if magic != fmt.PIN_MAGIC or not version.readable(of_format) or crc32c(body) != crc:
        return None
    found: dict[str, Any] = msgpack.unpackb(body)
    if found["id"] != pin_id:
        return None
    segments = None if found["segments"] is None else frozenset(found["segments"])
    return Pin(pin_id, segments, found["expires_ms"], found["ttl_ms"], found["pid"])


def check(fs: FileSystem, store: Path, pin_id: str, now_ms: int) -> Pin:
    """The pin, if it still holds; SnapshotExpired if not."""
    pin = read(fs, store, pin_id)
    if pin is None or pin.expires_ms <= now_ms:
        why = "was given back" if pin is None else "ran out"
        raise SnapshotExpired(
            f"the pin {pin_id} of this snapshot {why}, so that compaction may have removed what it "
            "names: load again, with a longer pinHours if the work takes that long"
        )
    return pin


def renew(fs: FileSystem, store: Path, pin_id: str, now_ms: int) -> Pin:
    """Check a pin, and let it live its whole time again once half of that is over.

    Who may not write there reads on under the time that is left.
    """
    pin = check(fs, store, pin_id, now_ms)
    if pin.expires_ms - now_ms > pin.ttl_ms // 2:
        return pin
    longer = pin._replace(expires_ms=now_ms + pin.ttl_ms)
    try:
        write(fs, store, longer)
    except (FileNotFoundError, FileSystemError):
        return pin
    return longer
