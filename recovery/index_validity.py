"""Is the index to be trusted, and does the log reach as far as it must?

Invariants: whether an index is opened at all is decided from outside, by BOOT and what the system
tells of its files; an index is held against the log, and is evidence about it in one respect only:
a segment in which a trusted index knows the last commit was there.
"""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore.engine.runtime.engine import Engine
from logstore.errors import CorruptionError, DamagedStoreError
from logstore.fs import FileSystem
from logstore.index.env import Generation
from logstore.index.txn import IndexTxn
from logstore.log import chain, names
from logstore.recovery import shutdown_marker


def why_not(engine: Engine, known: shutdown_marker.Boot | None) -> str:
    """Why the index that BOOT names must not be opened; empty if it may."""
    if known is None:
        return shutdown_marker.why_distrust(None, None)
    data = names.generation(engine.path, known.generation) / "data.mdb"
    try:
        file = engine.fs.stat(data)
    except FileNotFoundError:
        return shutdown_marker.why_distrust(known, None)
    return shutdown_marker.why_distrust(known, shutdown_marker.identity(data), file)


def promised(fs: FileSystem, store: Path, known: shutdown_marker.Boot | None) -> int:
    """The largest position that a clean close or a checkpoint recorded as durable."""
    recorded = names.checkpoints(fs, store)[-1:]
    return max([0, *recorded, known.durable if known is not None else 0])


def check_log_reaches(engine: Engine, position: int) -> None:
    """A log that ends before what was recorded of it, once it was durable, is damaged."""
    if engine.accept_loss:
        return
    number, offset = fmt.position_parts(position)
    try:
        size = engine.fs.stat(names.segment(engine.path, number)).size_bytes
    except FileNotFoundError:
        if chain.main_links(engine.fs, engine.path, engine.uuid, number + 1):
            return  # dropped, in a later commit; the rebuild checks the chain
        size = -1
    if size < offset:
        raise DamagedStoreError(
            "the log ends before the position that a clean close or a checkpoint recorded: restore "
            "it from a backup, or accept the loss with 'logstore recover'",
            segment=number,
            offset=max(0, size),
        )


def check_applied(engine: Engine, generation: Generation, known: shutdown_marker.Boot) -> None:
    """The index names a commit that the log must hold, by the header of its last frame.

    DamagedStoreError if the segment of that commit is missing: a trusted index is of the same boot,
    or was closed cleanly, and no segment is dropped before the index knows a later commit. To build
    the index anew would forget without a word what was acknowledged in that segment.
    """
    with generation.env.begin() as txn:
        meta = IndexTxn(generation, txn).meta()
    if known.clean_applied and (meta.applied, meta.commit, meta.last_crc) != known[2:5]:
        raise CorruptionError("the index is not as it was when it was closed")
    if not meta.last_frame:
        return
    number, offset = fmt.position_parts(meta.last_frame)
    try:
        file = engine.fs.open(names.segment(engine.path, number))
    except FileNotFoundError:
        raise DamagedStoreError(
            f"segment {number} is missing, and the index is ahead of the log: the last commit that "
            "it knows was there; restore the segment from a backup, or accept the loss with "
            "'logstore recover'",
            segment=number,
        ) from None
    try:
        head = file.pread(fmt.FRAME_HEAD_BYTES, offset)
    finally:
        file.close()
    if len(head) < fmt.FRAME_HEAD_BYTES:
        raise CorruptionError("the index is ahead of the log")
    crc, _, commit, *_ = fmt.FRAME_HEAD.unpack(head)
    if (crc, commit) != (meta.last_crc, meta.commit):
        raise CorruptionError("the index is of another log")
