"""Whether the index may be used as it is, and whether the log reaches as far as it must.

Whose index it is, and where the log ended at the last clean close, stands in the file BOOT: the
*shutdown marker*.

Invariants: whether an index is opened at all is decided from outside, by the marker and by what the
system tells of the files. It is used only if it was closed cleanly, or if this is still the same
boot of the same machine, and the same mount, device, inode and creation time; where the system
cannot tell, it is rebuilt, and so is an index that was built for another format. The clean mark is
removed, durably, before the first write to the index. An index is compared with the log and is
evidence about it in one respect only: the segment of the last commit that a valid index knows was
there.
"""

from __future__ import annotations

from pathlib import Path

import msgpack

from logstore import format as fmt
from logstore import fsinfo
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm import process_identity
from logstore.errors import (
    CorruptionError,
    DamagedStoreError,
    DiskFullError,
    UnreadableError,
)
from logstore.fs import FileStat, FileSystem
from logstore.index.env import Generation
from logstore.index.keys import Meta
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, log_reader, versioned
from logstore.tuples import NamedTuple

MARKER_MAX_BYTES = 4096
_LEFT_BEHIND = "the index was left behind before it was used"


# -- the shutdown marker ----------------------------------------------------------------------
class Identity(NamedTuple):
    """What must be the same for an index that was not closed cleanly."""

    boot_id: str
    mount_id: int
    device: int
    inode: int
    born_ns: int

    @property
    def known(self) -> bool:
        """Whether the system gave every part of the identity."""
        return bool(self.boot_id and self.mount_id and self.inode and self.born_ns)


class ShutdownMarker(NamedTuple):
    """The content of BOOT."""

    generation: int
    identity: Identity
    clean_applied: int  # 0: not closed cleanly
    clean_commit: int
    clean_crc: int
    clean_bytes: int = 0  # size of the index file, and when it was last written: an older copy that
    clean_modified_ns: int = 0  # is put in its place keeps the inode
    durable: int = 0  # a position that a clean close once recorded: the log must reach it
    version: int = fmt.FORMAT_VERSION  # for which the index was built


def identity(data_file: Path) -> Identity:
    """The identity of an index file here and now."""
    return Identity(process_identity.boot_id(), *fsinfo.file_identity(data_file))


def read_marker(fs: FileSystem, store: Path) -> ShutdownMarker | None:
    """The shutdown marker; None if it is missing or not whole, which counts as none."""
    try:
        body = versioned.unsealed(fs.read(store / file_names.BOOT, MARKER_MAX_BYTES))
    except (FileNotFoundError, UnreadableError):
        return None
    if body is None:
        return None
    try:
        fields = versioned.unpack_map(body, file_names.BOOT)
        marker = ShutdownMarker(
            fields["generation"], Identity(*fields["identity"]), *fields["clean"]
        )
        version = fields.get("format", fmt.OLDEST_VERSION)  # the first format did not say
        return marker._replace(durable=fields["durable"], version=version)
    except (CorruptionError, KeyError, TypeError):
        return None  # of another version


def marker_is_damaged(fs: FileSystem, store: Path) -> bool:
    """Whether BOOT is there and is not what was written; no crash leaves that, for it is replaced
    as a whole."""
    try:
        data = fs.read(store / file_names.BOOT, MARKER_MAX_BYTES)
    except FileNotFoundError:
        return False
    except UnreadableError:
        return True
    return versioned.unsealed(data) is None


def _packed(marker: ShutdownMarker) -> bytes:
    body = msgpack.packb(
        {
            "generation": marker.generation,
            "identity": list(marker.identity),
            "clean": list(marker[2:7]),
            "durable": marker.durable,
            "format": marker.version,
        }
    )
    return versioned.sealed(body)


def prepare_marker(fs: FileSystem, path: Path, marker: ShutdownMarker) -> None:
    """Write what BOOT is to say, synced, for a rename that puts it in its place."""
    file = fs.open_new(path)
    try:
        file.pwrite(_packed(marker), 0)
        file.sync()
    finally:
        file.close()


def write_marker(fs: FileSystem, store: Path, marker: ShutdownMarker) -> None:
    """Replace BOOT, durably."""
    data = _packed(marker)
    path = store / file_names.BOOT
    try:
        fs.write_atomic(path, data)
    except DiskFullError:
        # The old file gives its block back. Without BOOT the next opener rebuilds the index.
        fs.remove(path)
        fs.sync_directory(store)
        fs.write_atomic(path, data)


def clean_marker(generation: int, here: Identity, meta: Meta, file: FileStat) -> ShutdownMarker:
    """The marker that the last process leaves as it closes the store."""
    return ShutdownMarker(
        generation,
        here,
        meta.applied,
        meta.commit,
        meta.last_crc,
        file.size_bytes,
        file.modified_ns,
        meta.applied,
    )


def dirty_marker(generation: int, here: Identity, durable: int) -> ShutdownMarker:
    """The marker that an opener leaves before it writes to the index."""
    return ShutdownMarker(generation, here, 0, 0, 0, durable=durable)


def invalid_marker(durable: int) -> ShutdownMarker:
    """What a process leaves that closes the store and found the index damaged: no opener uses that
    index, also not one of this boot."""
    return dirty_marker(0, Identity("", 0, 0, 0, 0), durable)


def name_generation(engine: Engine, number: int) -> None:
    """Let the marker name an index generation, whose files have their final names."""
    store = engine.index_home
    here = identity(file_names.generation(store, number) / "data.mdb")
    write_marker(engine.fs, store, dirty_marker(number, here, engine.promised))


# -- from outside: may the index be opened? ----------------------------------------------------
def why_not(engine: Engine, marker: ShutdownMarker | None) -> str:
    """Why the index that the marker names must not be opened, in words; empty if it may be."""
    if marker is None:
        return why_invalid(None, None)
    data = file_names.generation(engine.path, marker.generation) / "data.mdb"
    try:
        file = engine.fs.stat(data)
    except FileNotFoundError:
        return why_invalid(marker, None)
    return why_invalid(marker, identity(data), file)


def why_invalid(
    marker: ShutdownMarker | None, here: Identity | None, file: FileStat | None = None
) -> str:
    """The same, of a marker and what the system says: ``here`` is None if the file is gone."""
    if marker is None:
        return "there is no record of whose index it is"
    if marker.version != fmt.FORMAT_VERSION:
        return f"it was built for format {marker.version}"
    if here is None:
        return "the index directory is gone"
    if marker.clean_applied:
        return _why_not_as_closed(marker, here, file)
    if not here.known:
        return "the system does not tell boots and mounts apart"
    if here.boot_id != marker.identity.boot_id:
        return "the machine was restarted while the store was open"
    if here != marker.identity:
        return "the index files were moved, copied or remounted"
    return ""


def _why_not_as_closed(marker: ShutdownMarker, here: Identity, file: FileStat | None) -> str:
    if (here.device, here.inode) != (marker.identity.device, marker.identity.inode):
        return "the index files are not those that were closed"
    if file is None or (file.size_bytes, file.modified_ns) != marker[5:7]:
        return "the index files were written to after they were closed"
    return ""


def power_was_cut(marker: ShutdownMarker | None, here: Identity) -> bool:
    """Whether the power may have gone while the store was open: the marker is of another boot,
    mount or device. A process that was killed loses nothing that the system was given.
    """
    if marker is None or marker.clean_applied:
        return False
    return not here.known or here[:3] != marker.identity[:3]


# -- the log: does it reach far enough? ---------------------------------------------------------
def promised(fs: FileSystem, store: Path, marker: ShutdownMarker | None) -> int:
    """The largest position that a clean close or a checkpoint recorded as durable."""
    recorded = file_names.checkpoints(fs, store)[-1:]
    return max([0, *recorded, marker.durable if marker is not None else 0])


def check_log_reaches(engine: Engine, position: int) -> None:
    """DamagedStoreError if the log ends before a position that was recorded as durable."""
    if engine.accept_loss:
        return
    number, offset = fmt.position_parts(position)
    try:
        size = engine.fs.stat(file_names.segment(engine.path, number)).size_bytes
    except FileNotFoundError:
        if chain.main_links(engine.fs, engine.path, engine.uuid, number + 1):
            return  # a later commit dropped it; the rebuild checks that the segments follow
        size = -1
    if size < offset:
        raise DamagedStoreError(
            "the log ends before the position that a clean close or a checkpoint recorded: restore "
            "it from a backup, or accept the loss with 'logstore recover'",
            segment=number,
            offset=max(0, size),
        )


def check_applied(engine: Engine, generation: Generation, marker: ShutdownMarker) -> None:
    """The index names a commit that the log must hold, by the header of its last frame.

    CorruptionError if the log does not hold it, also where the segment of that commit, or one that
    followed it, is missing and others stand behind. Then the marker names an index that nobody went
    on with: who built it was killed before it was used, and the one that was used knew of the drop.
    Whether the segments that are there follow each other is seen when the index is built anew.
    DamagedStoreError if nothing stands behind a missing one: an index that is built anew would
    silently forget what was acknowledged in it.
    """
    with generation.env.begin() as txn:
        meta = IndexTxn(generation, txn).meta()
    closed = (marker.clean_applied, marker.clean_commit, marker.clean_crc)
    if marker.clean_applied and (meta.applied, meta.commit, meta.last_crc) != closed:
        raise CorruptionError("the index is not as it was when it was closed")
    if not meta.last_frame:
        return
    number, offset = fmt.position_parts(meta.last_frame)
    try:
        file = engine.fs.open(file_names.segment(engine.path, number))
    except FileNotFoundError:
        if chain.main_links(engine.fs, engine.path, engine.uuid, number + 1):
            raise CorruptionError(_LEFT_BEHIND) from None
        raise DamagedStoreError(
            f"segment {number} is missing, and the index is ahead of the log: the last commit that "
            "it knows was there; restore the segment from a backup, or accept the loss with "
            "'logstore recover'",
            segment=number,
        ) from None
    try:
        head = log_reader.head_of(file.pread(fmt.FRAME_HEAD_BYTES, offset))
    finally:
        file.close()
    if head is None:
        raise CorruptionError("the index is ahead of the log")
    if (head.crc, head.commit) != (meta.last_crc, meta.commit):
        raise CorruptionError("the index is of another log")
    before = number
    for link in chain.main_links(engine.fs, engine.path, engine.uuid, number + 1):
        if fmt.segment_of(link.previous_end) != before:  # dropped before this index knew of it
            raise CorruptionError(_LEFT_BEHIND)
        before = link.number
