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
from typing import Any

import msgpack

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import CorruptionError, FileSystemError, NotAStoreError, SnapshotExpiredError
from logstore.fs import FileSystem
from logstore.log import file_names, versioned
from logstore.tuples import NamedTuple

PIN_MAX_BYTES = 64 << 20
ID_BYTES = 16
SNAPSHOT = ".snap"
STAGED = ".staged"  # files of ``log.stagefile``
_NAMES = ("id", "segments", "expires_ms", "ttl_ms", "pid")
RENEWALS = 10  # how often in the time of a pin who reads looks at it


class Pin(NamedTuple):
    """``segments`` are not to be unlinked before ``expires_ms``; None: all there are.

    A lease of ``ttl_ms``, for a process: its ``pid`` counts together with ``start`` (clock ticks
    since boot) and only in ``system``, a boot and pid namespace. Older versions wrote the pid only.
    """

    id: str
    segments: frozenset[int] | None
    expires_ms: int
    ttl_ms: int
    pid: int
    host: str = ""
    system: str = ""
    start: int = 0
    made_ms: int = 0  # 0: not known
    purpose: str = ""
    plan: str = ""  # names what was planned, at which position, for whom; empty: not to be shared
    table_at: int = 0  # where in the snapshot file the splits of the plan are listed
    table_bytes: int = 0


def path(store: Path, pin_id: str) -> Path:
    """The file of a pin."""
    return store / file_names.PINS / pin_id


def snapshot_path(store: Path, pin_id: str) -> Path:
    """The snapshot file that a pin keeps."""
    return store / file_names.PINS / (pin_id + SNAPSHOT)


def new_id() -> str:
    """A random name for a pin."""
    return os.urandom(ID_BYTES).hex()


def is_id(name: str) -> bool:
    """Whether a file name in pins/ is that of a pin."""
    return len(name) == 2 * ID_BYTES and all(digit in "0123456789abcdef" for digit in name)


def is_ours(name: str) -> bool:
    """Whether a name in pins/ is one that we give: a pin or half of one, or a file beside one."""
    stem, dot, rest = name.partition(".")
    for end in (file_names.TEMPORARY, STAGED):
        own = rest.removesuffix(end)
        if own != rest and is_id(stem) and is_id(own):
            return True
    return is_id(stem) and (not dot or dot + rest == SNAPSHOT)


def write(fs: FileSystem, store: Path, pin: Pin) -> None:
    """Write or replace a pin, durably; SnapshotExpiredError if an erasure came in between.

    Crash order: temporary name of its own, sync, rename, directory sync.
    """
    segments = None if pin.segments is None else sorted(pin.segments)
    body = msgpack.packb({**pin._asdict(), "segments": segments})
    target = path(store, pin.id)
    temporary = target.with_name(f"{pin.id}.{new_id()}{file_names.TEMPORARY}")
    file = fs.open(temporary, write=True, exclusive=True)
    try:
        file.pwrite(fmt.PIN_HEAD.pack(fmt.PIN_MAGIC, fmt.FORMAT_VERSION, crc32c(body)) + body, 0)
        file.sync()
    finally:
        file.close()
    try:
        fs.rename(temporary, target)
    except FileNotFoundError:  # erasure removes whatever it finds among the pins
        raise SnapshotExpiredError(
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
    if magic != fmt.PIN_MAGIC or not versioned.is_readable(of_format) or crc32c(body) != crc:
        return None
    try:
        content = versioned.unpack_map(body, pin_id, _NAMES)
        if content["id"] != pin_id:
            return None
        segments = None if content["segments"] is None else frozenset(content["segments"])
    except (CorruptionError, TypeError):
        return None
    known: dict[str, Any] = {name: content[name] for name in Pin._fields if name in content}
    known["segments"] = segments
    return Pin(**known)


def check(fs: FileSystem, store: Path, pin_id: str, now_ms: int) -> Pin:
    """The pin, if it still holds; SnapshotExpiredError if not."""
    pin = read(fs, store, pin_id)
    if pin is None:
        require_folder(fs, store)
    if pin is None or pin.expires_ms <= now_ms:
        why = "was given back" if pin is None else "ran out"
        raise SnapshotExpiredError(
            f"the pin {pin_id} of this snapshot {why}, so that compaction may have removed what it "
            "names. It is kept while tasks read, and ends when nothing reads for an hour, or with "
            "the driver: load again, or create the temporary view again; a table always shows the "
            "present"
        )
    return pin


def check_planned(fs: FileSystem, store: Path, pin_id: str, now_ms: int) -> Pin:
    """The pin of a plan, if it still holds; SnapshotExpiredError if not.

    A reader that was renewing it may have put the pin back after an erasure took it; but its
    snapshot file is made once, and went with it.
    """
    pin = check(fs, store, pin_id, now_ms)
    if not fs.exists(snapshot_path(store, pin_id)):
        raise SnapshotExpiredError(f"the snapshot of the pin {pin_id} was taken away: load again")
    return pin


def require_folder(fs: FileSystem, store: Path) -> None:
    """NotAStoreError on a host that does not see the directory where pins are."""
    if not fs.exists(store / file_names.PINS):
        raise NotAStoreError(
            f"{store} is not the store's directory on the host {os.uname().nodename}: executors "
            "need it under the path that the driver has, as by a mount"
        )


class Lease:
    """Keeps a pin while somebody reads what it names: renewed at once, and by ``keep``."""

    def __init__(self, fs: FileSystem, store: Path, pin_id: str, now_ms: int) -> None:
        """Renew the pin; SnapshotExpiredError if it is over."""
        self._fs = fs
        self._store = store
        self._id = pin_id
        self._next_ms = now_ms
        self.keep(now_ms)

    def keep(self, now_ms: int) -> None:
        """Renew the pin if it is time. SnapshotExpiredError if it is over."""
        if now_ms >= self._next_ms:
            pin = renew(self._fs, self._store, self._id, now_ms)
            self._next_ms = now_ms + max(1, pin.ttl_ms // RENEWALS)


def renew(fs: FileSystem, store: Path, pin_id: str, now_ms: int) -> Pin:
    """Check a pin, and let it live its whole time again once half of that is over.

    A process that may not write there reads on under the time that is left.
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
