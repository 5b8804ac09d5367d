"""A node whose frame was lost, put together from the frames that its entries came by.

Single adds are in the log twice: in the OPEN and APPEND frames of the open node, and in the NODE
frame that sealed it. Invariants: an append is taken only if it was encoded against the node's own
master ID; a delete only if it names the version that is put together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.txn import nodes
from logstore.errors import CorruptFrameError, CorruptNodeError
from logstore.format import Kind
from logstore.fs import FileSystem
from logstore.ids import StreamID
from logstore.log import chain, names, reader
from logstore.log import frame as frames
from logstore.recovery.replay_guard import own_ids

_KINDS = (Kind.OPEN, Kind.APPEND, Kind.TOMBSTONE)


@dataclass(slots=True)
class Wanted:
    """A node that is looked for: as it stood before a position (of its lost frame)."""

    stream: int
    master: StreamID
    before: int
    version: int = 0
    lp: bytes = b""
    skeleton: bytes = b""
    deleted: set[int] = field(default_factory=set)

    def as_sealed(self, live: int | None) -> tuple[bytes, bool]:
        """The listpack, and whether it is the node as it was sealed, with so many live entries.

        If entries are missing in it, ordinals say nothing: deletes are not carried out.
        """
        size = sum(codec().counts(self.lp))
        marked = codec().mark_deleted(self.lp, sorted(each for each in self.deleted if each < size))
        if live is None:
            return marked, False
        return (marked, True) if codec().counts(marked)[0] == live else (self.lp, False)


def find(
    fs: FileSystem, store: Path, uuid: bytes, seed: int, wanted: list[Wanted]
) -> dict[tuple[int, StreamID], Wanted]:
    """Those of which an OPEN frame is left; entries may be missing in them."""
    by_stream: dict[int, list[Wanted]] = {}
    for each in wanted:
        by_stream.setdefault(each.stream, []).append(each)
    if by_stream:
        for link in chain.main_links(fs, store, uuid):
            file = fs.open(names.segment(store, link.number))
            try:
                for found in reader.next_valid(
                    file, seed, link.number, fmt.SEGMENT_HEAD_BYTES, link.end_offset
                ):
                    if found.kind in _KINDS:
                        _take(found, by_stream)
            finally:
                file.close()
    return {(each.stream, each.master): each for each in wanted if each.lp}


def _take(found: reader.LogFrame, by_stream: dict[int, list[Wanted]]) -> None:
    here = by_stream.get(int.from_bytes(found.payload[:8], "little"))
    if here is None:
        return
    try:
        body = found.body()
        for each in here:
            if found.position >= each.before:
                continue
            if isinstance(body, frames.Open):
                _begin(each, found.position, body)
            elif isinstance(body, frames.Append) and each.lp:
                if own_ids(each.skeleton, each.master, body) is not None:
                    each.lp = codec().extend(each.lp, body.data or b"", body.entries, body.elements)
            elif isinstance(body, frames.Tombstone) and body.version == each.version:
                each.deleted.update(body.ordinals)
    except (CorruptFrameError, CorruptNodeError):
        return


def _begin(wanted: Wanted, at: int, body: frames.Open) -> None:
    if (body.master_ms, body.master_seq) != wanted.master or body.data is None:
        return
    codec().validate(body.data, *wanted.master)
    wanted.version, wanted.lp, wanted.deleted = at, body.data, set()
    wanted.skeleton = nodes.skeleton(body.data)
