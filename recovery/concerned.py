"""Whose entries stood in damaged bytes of the log: what ``check`` says beside where they are.

The hint of a sealed segment lists its frames in another file, so it still tells what stood in bytes
that are damaged, or that the disk does not give back. Without one, the entries beside them do: what
is missing of a stream has IDs between those.

Invariants: it is told of damage only, and where nothing is known, nothing is said. What it says is
no evidence that an entry is gone: a node may be stored more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from logstore import format as fmt
from logstore.errors import CorruptionError
from logstore.format import Kind
from logstore.fs import FileSystem
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import file_names, hint, log_reader
from logstore.log.chain import Link
from logstore.log.segment_writer import crc_seed
from logstore.recovery.report import Damage, Gone
from logstore.tuples import NamedTuple

_BY_HINT = "as the segment's hint says"
_BETWEEN = "perhaps: not known, but for the entries beside the damage"


class _Span(NamedTuple):
    """What a frame adds to a stream: entries up to ``last``; from ``first`` on, if it says so."""

    stream: int
    first: StreamID | None
    last: StreamID
    entries: int


def concerned(
    fs: FileSystem,
    path: Path,
    uuid: bytes,
    damage: list[Damage],
    links: Mapping[int, Link],
    known: Mapping[int, bytes],
) -> list[Gone]:
    """Entries of streams, by the damage that they stood in; ``known``: names of streams."""
    found: list[Gone] = []
    for each in damage:
        link = links.get(each.segment)
        if link is None or each.to_offset <= max(each.from_offset, link.start_offset):
            continue
        kept = hint.read(fs, path, uuid, link)
        if kept is not None:
            later = (links[number] for number in sorted(links) if number > each.segment)
            spans, why = _listed(kept, each, _nodes(fs, path, uuid, later)), _BY_HINT
        else:
            spans, why = _between(fs, path, uuid, link, each), _BETWEEN
        for stream, first, last, entries, offset in spans:
            name = known.get(stream)
            if name is not None:  # else it was dropped
                found.append(Gone(name, first, last, entries, each.segment, offset, why))
    return found


_Told = tuple[int, StreamID, StreamID, int | None, int]


def _span(frame: log_reader.LogFrame) -> _Span | None:
    if frame.kind in (Kind.NODE, Kind.OPEN):
        stream, ms, seq, last_ms, last_seq, entries = fmt.NODE_BODY.unpack_from(frame.payload)
        return _Span(stream, StreamID(ms, seq), StreamID(last_ms, last_seq), entries)
    if frame.kind == Kind.APPEND:
        stream, ms, seq, entries, _ = fmt.APPEND_BODY.unpack_from(frame.payload)
        return _Span(stream, None, StreamID(ms, seq), entries)
    return None


def _nodes(fs: FileSystem, path: Path, uuid: bytes, links: Iterable[Link]) -> Iterator[_Span]:
    """The sealed nodes of segments, as their hints list them."""
    for link in links:
        for frame in hint.read(fs, path, uuid, link) or ():
            span = _span(frame) if frame.kind == Kind.NODE else None
            if span is not None:
                yield span


def _listed(
    kept: list[log_reader.LogFrame], damage: Damage, later: Iterable[_Span]
) -> Iterator[_Told]:
    """By the hint. What was added to an open node, and is sealed elsewhere, is not told."""
    spans = [(frame, span) for frame in kept if (span := _span(frame)) is not None]
    hit = [(frame, span) for frame, span in spans if _hit(frame, damage)]
    sealed: list[_Span] = []
    if any(frame.kind != Kind.NODE for frame, _ in hit):
        streams = {span.stream for _, span in hit}
        here = (
            each for frame, each in spans if frame.kind == Kind.NODE and (frame, each) not in hit
        )
        sealed = [each for each in chain(here, later) if each.stream in streams]
    before: dict[int, StreamID] = {}
    for frame, span in spans:
        stream, first, last, entries = span
        if (frame, span) in hit and (frame.kind == Kind.NODE or not _in_one(span, sealed)):
            if first is None:
                first = min(last, before.get(stream, ZERO_ID).next())
            yield stream, first, last, entries, frame.offset
        before[stream] = max(last, before.get(stream, ZERO_ID))


def _in_one(span: _Span, nodes: list[_Span]) -> bool:
    return any(
        each.stream == span.stream and (each.first or ZERO_ID) <= span.last <= each.last
        for each in nodes
    )


def _hit(frame: log_reader.LogFrame, damage: Damage) -> bool:
    return frame.offset < damage.to_offset and damage.from_offset < frame.end_offset


def _between(
    fs: FileSystem, path: Path, uuid: bytes, link: Link, damage: Damage
) -> Iterator[_Told]:
    """By the frames beside the damage, of each stream that has one in the segment."""
    before: dict[int, StreamID] = {}
    behind: dict[int, StreamID] = {}
    file = fs.open(file_names.segment(path, link.number))
    try:
        for frame in log_reader.next_valid(
            file, crc_seed(uuid), link.number, link.start_offset, link.end_offset
        ):
            span = _span(frame)
            if span is None:
                continue
            if frame.offset < damage.from_offset:
                before[span.stream] = span.last
            else:
                behind.setdefault(span.stream, span.first or span.last)
    except CorruptionError:
        return
    finally:
        file.close()
    for stream in sorted({*before, *behind}):
        first = before.get(stream, ZERO_ID).next()
        last = behind[stream].previous() if stream in behind else MAX_ID
        if first <= last:
            yield stream, first, last, None, damage.from_offset
