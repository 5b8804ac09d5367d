"""The chain of main segments: where each begins and ends.

Invariants: a main segment ends where the header of the next one says, whatever bytes stand behind;
the last one ends with its file. Compacted segments are not part of the chain. Never imports the
index.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from logstore import format as fmt
from logstore.fs import FileSystem
from logstore.log import file_names, segment
from logstore.tuples import NamedTuple


class Link(NamedTuple):
    """One main segment; offsets of its first frame and of its end."""

    number: int
    start_offset: int
    end_offset: int
    file_bytes: int
    created_ms: int
    previous_end: int = 0  # position where the main segment before ends
    previous_commit: int = 0  # with which commit


def heads(fs: FileSystem, store: Path, uuid: bytes) -> dict[int, tuple[segment.SegmentHead, int]]:
    """Header and file size of every segment on disk."""
    return dict(_heads(fs, store, uuid, file_names.segments(fs, store)))


def _heads(
    fs: FileSystem, store: Path, uuid: bytes, numbers: list[int]
) -> Iterator[tuple[int, tuple[segment.SegmentHead, int]]]:
    """Header and file size of these segments; those that were dropped since are left out."""
    for number in numbers:
        try:
            file = fs.open(file_names.segment(store, number))
        except FileNotFoundError:
            continue
        try:
            head = segment.read_head(file, number, uuid), file.size_bytes()
        finally:
            file.close()
        yield number, head


def main_links(fs: FileSystem, store: Path, uuid: bytes, from_segment: int = 0) -> list[Link]:
    """The chain from a segment on, ascending."""
    links: list[Link] = []
    wanted = [number for number in file_names.segments(fs, store) if number >= from_segment]
    for number, (head, size) in _heads(fs, store, uuid, wanted):
        if head.role != fmt.Role.MAIN:
            continue
        if links:
            before, end = fmt.position_parts(head.previous_end)
            if before == links[-1].number:  # also if the file is shorter: its reader finds that
                links[-1] = links[-1]._replace(end_offset=end)
        links.append(
            Link(
                number,
                fmt.SEGMENT_HEAD_BYTES,
                size,
                size,
                head.created_ms,
                head.previous_end,
                head.previous_commit,
            )
        )
    return links
