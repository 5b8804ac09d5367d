"""The log as of a moment, for what copies it or relies on it: none of its files is shorter than the
store knows, and what is copied is read and found sound.

Invariants: the maintenance lock is held, so no segment goes meanwhile; what is found damaged is a
DamagedStoreError, before anything is made of it; nothing is changed here.
"""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore.engine.commit import durability
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine
from logstore.errors import CorruptFrameError, DamagedStoreError, UnreadableError
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
    with committer.locked() as words:
        pass
    durability.flush(engine, committer)
    # Nothing was ever committed: the first segment's header.
    position = words.applied or fmt.position(words.active_segment, fmt.SEGMENT_HEAD_BYTES)
    pieces = upto(engine, position)
    active = fmt.segment_of(position)
    hints = [
        file_names.hint(store, piece.link.number) for piece in pieces if piece.link.number != active
    ]
    checkpoints = [
        file_names.checkpoint(store, each)
        for each in file_names.checkpoints(fs, store)
        if each <= words.applied
    ]
    return LogMoment(words.applied, active, pieces, [*filter(fs.exists, hints), *checkpoints])


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
