"""The log as of a moment, for what copies it or relies on it: none of its files is shorter than the
store knows, and what is copied is read and found sound.

A handle that only reads has it, too, also one on a read-only mount: its moment is that up to which
it has followed the log, which has all that was acknowledged before it looked. LOCK is not needed
for that, as what is published never changes. What keeps compaction away is the maintenance lock,
which needs no permission to write; another mount of the same file system shares it.

Invariants: the maintenance lock is held, so no segment goes meanwhile; what is found damaged is a
DamagedStoreError, before anything is made of it; nothing is changed here.
"""

from __future__ import annotations

import errno
from contextlib import closing
from pathlib import Path

from logstore import format as fmt
from logstore.engine.commit import durability
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import (
    CorruptFrameError,
    DamagedStoreError,
    FileSystemError,
    UnreadableError,
)
from logstore.fs import File
from logstore.log import chain, file_names, hint, log_reader
from logstore.tuples import NamedTuple


class LogPiece(NamedTuple):
    """A segment, up to the moment."""

    link: chain.Link  # frames end at its ``end_offset``
    role: int
    size_bytes: int  # as much of the file as belongs to it


class LogMoment(NamedTuple):
    """What is published and durable at one moment."""

    position: int
    active: int  # the segment that was written to
    pieces: list[LogPiece]
    others: list[Path]  # hints and checkpoints, which are copied whole


def now(engine: Engine, committer: Committer) -> LogMoment:
    """The log as it is now; DamagedStoreError if a part of it is missing."""
    fs, store = engine.fs, engine.path
    holding: set[int] = set()
    if engine.options.readonly:
        applied, active, holding = snapshot.read(engine, _followed)
        _sync(engine, active)
    else:
        with committer.locked() as words:
            applied, active = words.applied, words.active_segment
        durability.flush(engine, committer)
    # Nothing was ever committed: the first segment's header.
    position = applied or fmt.position(active, fmt.SEGMENT_HEAD_BYTES)
    pieces = upto(engine, position)
    for number in sorted(holding - {piece.link.number for piece in pieces}):
        raise damaged(number, 0, "a segment is missing; did another machine remove it just now?")
    active = fmt.segment_of(position)
    hints = [
        file_names.hint(store, piece.link.number) for piece in pieces if piece.link.number != active
    ]
    checkpoints = [
        file_names.checkpoint(store, each)
        for each in file_names.checkpoints(fs, store)
        if each <= applied
    ]
    return LogMoment(applied, active, pieces, [*filter(fs.exists, hints), *checkpoints])


def _followed(view: Snapshot) -> tuple[int, int, set[int]]:
    """Up to where a handle that only reads has taken the log in, the active segment there, and the
    segments in which nodes live."""
    rows = view.index.segment_rows().items()
    return (
        view.meta.applied,
        view.meta.active_segment,
        {number for number, row in rows if row.live_nodes},
    )


def _sync(engine: Engine, number: int) -> None:
    """Make a segment durable that may not be written here: whoever has a copy of what a crash took
    from the store could not tell that both differ. Sealed segments are durable."""
    with closing(engine.fs.open(file_names.segment(engine.path, number))) as file:
        try:
            file.sync()
        except FileSystemError as exc:
            if exc.errno not in (errno.EINVAL, errno.EROFS):
                raise  # else the file system is one that nobody can write to


def upto(engine: Engine, position: int) -> list[LogPiece]:
    """Every segment that exists at a position, the main one there cut off; compacted ones may have
    higher numbers. DamagedStoreError for one that is shorter than it was."""
    active, end = fmt.position_parts(position)
    mains = {link.number: link for link in chain.main_links(engine.fs, engine.path, engine.uuid)}
    pieces: list[LogPiece] = []
    for number, (head, size) in chain.heads(engine.fs, engine.path, engine.uuid).items():
        if head.role == fmt.Role.MAIN:
            if number > active or number not in mains:
                continue  # begun, and nothing of it is published
            link = mains[number]
            if number == active:
                link = link._replace(end_offset=end)
            piece = LogPiece(link, head.role, end if number == active else size)
            expected = link.end_offset
        else:
            link = chain.Link(number, fmt.SEGMENT_HEAD_BYTES, size, size, head.created_ms)
            piece = LogPiece(link, head.role, size)
            expected = hint.told_bytes(engine.fs, engine.path, engine.uuid, number, size)
        if size < expected:
            raise damaged(number, size, f"it ends where it had {expected} bytes")
        pieces.append(piece)
    return pieces


def verify(engine: Engine, file: File, link: chain.Link, start_offset: int = 0) -> None:
    """Read the frames of a segment from an offset on; DamagedStoreError for what is none,
    UnreadableError for what the disk does not give back."""
    start = max(start_offset, link.start_offset)
    good = start
    try:
        for found in log_reader.scan(
            file, engine.seed, link.number, start, link.end_offset, bodies=False
        ):
            good = found.end_offset
    except UnreadableError:
        raise
    except CorruptFrameError as exc:
        raise damaged(link.number, good, exc.message) from exc


def damaged(segment: int, offset: int, why: str) -> DamagedStoreError:
    """The error of a segment that is not what was written."""
    return DamagedStoreError(
        f"the log is damaged: {why}; nothing is made of it. Run 'logstore check' to see what is "
        "affected; restore the segment from a backup, or take what is left into a new store: "
        "'logstore recover --salvage NEW'",
        segment=segment,
        offset=offset,
    )
