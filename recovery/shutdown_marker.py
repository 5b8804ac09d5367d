"""BOOT: whose index it is, and where the log ended at the last clean close.

Invariants: the index is trusted only if it was closed cleanly, or if this is still the same boot of
the same machine, the same mount, device, inode and creation time; where the system cannot tell,
it is not trusted, nor is an index that was built for another format. The clean mark is removed,
durably, before the first write to the index.
"""

from __future__ import annotations

from pathlib import Path

import msgpack

from logstore import format as fmt
from logstore import fsinfo
from logstore.crc import crc32c
from logstore.engine.shm import process
from logstore.errors import CorruptionError, DiskFullError
from logstore.fs import FileStat, FileSystem
from logstore.index.keys import Meta
from logstore.log import names, packed
from logstore.tuples import NamedTuple

BOOT_MAX_BYTES = 4096


class Identity(NamedTuple):
    """What must be the same for an index that was not closed cleanly."""

    boot_id: str
    mount_id: int
    device: int
    inode: int
    born_ns: int

    @property
    def known(self) -> bool:
        """Whether the system told all of it."""
        return bool(self.boot_id and self.mount_id and self.inode and self.born_ns)


class Boot(NamedTuple):
    """The content of BOOT."""

    generation: int
    identity: Identity
    clean_applied: int  # 0: not closed cleanly
    clean_commit: int
    clean_crc: int
    clean_bytes: int = 0  # of the index file, and when it was last written: an older copy put in
    clean_modified_ns: int = 0  # its place keeps the inode
    durable: int = 0  # a position that a clean close once recorded: the log must reach it
    version: int = fmt.FORMAT_VERSION  # for which the index was built


def identity(data_file: Path) -> Identity:
    """The identity of an index file here and now."""
    found = fsinfo.file_identity(data_file)
    return Identity(process.boot_id(), *found)


def read(fs: FileSystem, store: Path) -> Boot | None:
    """BOOT, or None if it is missing or not whole."""
    try:
        data = fs.read(store / names.BOOT, BOOT_MAX_BYTES)
    except FileNotFoundError:
        return None
    if not _sound(data):
        return None
    try:
        found = packed.unpack_map(data[4:], names.BOOT)
        boot = Boot(found["generation"], Identity(*found["identity"]), *found["clean"])
        version = found.get("format", fmt.OLDEST_VERSION)  # the first did not say
        return boot._replace(durable=found["durable"], version=version)
    except (CorruptionError, KeyError, TypeError):
        return None  # of another version: as good as none


def damaged(fs: FileSystem, store: Path) -> bool:
    """Whether BOOT is there and is not what was written: it is replaced as a whole, so no crash
    leaves that."""
    try:
        data = fs.read(store / names.BOOT, BOOT_MAX_BYTES)
    except FileNotFoundError:
        return False
    return not _sound(data)


def _sound(data: bytes) -> bool:
    """Zeros are the checksum of nothing, and no content."""
    return len(data) > 4 and bool(crc32c(data[4:]) == int.from_bytes(data[:4], "little"))


def write(fs: FileSystem, store: Path, boot: Boot) -> None:
    """Replace BOOT, durably."""
    body = msgpack.packb({
        "generation": boot.generation, "identity": list(boot.identity), "clean": list(boot[2:7]),
        "durable": boot.durable, "format": boot.version,
    })  # fmt: skip
    data = crc32c(body).to_bytes(4, "little") + body
    path = store / names.BOOT
    try:
        fs.write_atomic(path, data)
    except DiskFullError:
        # Its own block is one that it may have. Without BOOT the next opener rebuilds the index.
        fs.remove(path)
        fs.sync_directory(store)
        fs.write_atomic(path, data)


def why_distrust(boot: Boot | None, here: Identity | None, file: FileStat | None = None) -> str:
    """Why the index must be rebuilt; empty if it can be trusted. Looks at it from outside only."""
    if boot is None:
        return "there is no record of whose index it is"
    if boot.version != fmt.FORMAT_VERSION:
        return f"it was built for format {boot.version}"
    if here is None:
        return "the index directory is gone"
    if boot.clean_applied:
        return _why_not_as_closed(boot, here, file)
    if not here.known:
        return "the system does not tell boots and mounts apart"
    if here.boot_id != boot.identity.boot_id:
        return "the machine was restarted while the store was open"
    if here != boot.identity:
        return "the index files were moved, copied or remounted"
    return ""


def _why_not_as_closed(boot: Boot, here: Identity, file: FileStat | None) -> str:
    if (here.device, here.inode) != (boot.identity.device, boot.identity.inode):
        return "the index files are not those that were closed"
    if file is None or (file.size_bytes, file.modified_ns) != boot[5:7]:
        return "the index files were written to after they were closed"
    return ""


def clean(generation: int, here: Identity, meta: Meta, file: FileStat) -> Boot:
    """What the last closer leaves."""
    return Boot(
        generation, here, meta.applied, meta.commit, meta.last_crc, file.size_bytes,
        file.modified_ns, meta.applied,
    )  # fmt: skip


def dirty(generation: int, here: Identity, durable: int) -> Boot:
    """What an opener leaves before it writes to the index."""
    return Boot(generation, here, 0, 0, 0, durable=durable)


def distrusted(durable: int) -> Boot:
    """What a closer leaves who found the index damaged: no opener trusts it, also of this boot."""
    return dirty(0, Identity("", 0, 0, 0, 0), durable)
