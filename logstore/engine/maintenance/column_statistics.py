"""Makes the statistics of sealed segments: of the nodes of streams that have a schema.

They are made beside hints, by whoever keeps the store tidy. A store without schemas has none, and
nobody looks for them. A segment without a node of such a stream has an empty file, so that it is
looked at once. When a stream gets another schema, the files of segments with its nodes go
(``schema_changes``), and are made again; also one that was being written while a schema came.

A segment that cannot be read has none, and is not tried again by this process until its file is
another one: 'check' reports it.

Invariants: only of segments that were sealed, which means synced. Each node of a stream with a
schema is told of; of a node that cannot be read it is told that nothing is known.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from logstore import format as fmt
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.background import Pause, no_pause
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import CorruptFrameError, CorruptNodeError
from logstore.features.schema_rows import SchemaRows
from logstore.format import Kind
from logstore.log import chain, file_names, log_reader

MOST_BYTES = 1 << 30  # of the log that are read at once: some seconds
MOST_BYTES_AT_CLOSE = 256 << 20
_KINDS = (Kind.NODE, Kind.OPEN)
_HEAD = fmt.NODE_BODY


def write_missing(
    engine: Engine,
    but: Collection[int] = (),
    *,
    most_bytes: int = MOST_BYTES,
    renew: bool = True,
    pause: Pause = no_pause,
) -> int:
    """Write the statistics that sealed segments lack, ``but`` those of some, of so many bytes of
    the log; how many. Of more than that, they are made the next time. ``renew``: also in place of
    those in an older form, which takes a look into each file, once by a process."""
    texts = snapshot.read(engine, _schemas)
    if not texts:
        return 0
    present = set(engine.fs.names(engine.path / file_names.LOG))
    lacking = [
        number
        for number in file_names.segments(engine.fs, engine.path)
        if number not in but
        and (
            file_names.statistics(engine.path, number).name not in present
            or (renew and _is_outdated(engine, number))
        )
    ]
    links = _sealed(engine, lacking) if lacking else []
    written = 0
    for link in links:
        if most_bytes <= 0:
            break
        if _is_known_bad(engine, link.number):
            continue
        most_bytes -= link.end_offset
        written += _write(engine, link, texts, pause)
    return written


def write(engine: Engine, link: chain.Link) -> None:
    """Write the statistics of a segment that was just made, if any stream has a schema."""
    texts = snapshot.read(engine, _schemas)
    if texts:
        _write(engine, link, texts, no_pause)


def _is_outdated(engine: Engine, number: int) -> bool:
    """Whether the statistics of a segment have an older form; each is looked at once."""
    if number in engine.seen_statistics:
        return False
    from logstore.log import statsfile

    found = statsfile.is_outdated(engine.fs, engine.path, number)
    if not found:
        engine.seen_statistics.add(number)
    return found


def _is_known_bad(engine: Engine, number: int) -> bool:
    """Whether the file of a segment is one that could not be read before."""
    found = engine.unread_segments.get(number)
    return found is not None and found == _identity(engine, number)


def _identity(engine: Engine, number: int) -> Any:
    """What tells the file of a segment from another one; None if it is gone."""
    try:
        return engine.fs.stat(file_names.segment(engine.path, number))[:4]
    except FileNotFoundError:
        return None


def _schemas(view: Snapshot) -> dict[int, str]:
    return dict(SchemaRows(view.index).rows())


def _sealed(engine: Engine, numbers: Collection[int]) -> list[chain.Link]:
    """Those of some segments that do not change any more."""
    active = engine.wake.log().active_segment
    main = chain.main_links(engine.fs, engine.path, engine.uuid, min(numbers))
    found = [each for each in main if each.number in numbers and each.number < active]
    others = set(numbers) - {each.number for each in main}
    adopted = snapshot.read(engine, _adopted, others)
    for number in sorted(adopted):
        try:
            found.append(maintenance_locks.compacted_link(engine, number))
        except FileNotFoundError:
            continue  # dropped meanwhile
    return found


def _adopted(view: Snapshot, numbers: Collection[int]) -> list[int]:
    """The compacted segments that are whole: their nodes were taken over."""
    rows = {number: view.index.segment(number) for number in numbers}
    return [
        number for number, row in rows.items() if row is not None and row.role == fmt.Role.COMPACTED
    ]


def _write(engine: Engine, link: chain.Link, texts: dict[int, str], pause: Pause) -> bool:
    identity = _identity(engine, link.number)
    try:
        content = _content(engine, link, texts, pause)
    except (CorruptFrameError, FileNotFoundError):  # damaged, or dropped meanwhile
        engine.unread_segments[link.number] = identity
        return False
    from logstore.log import statsfile

    statsfile.write(engine.fs, engine.path, engine.uuid, link.number, link.end_offset, content)
    # A schema that was set meanwhile removed what was there before its commit was looked for: this
    # file came too late for it, or not. Of two looks, one sees the other's work.
    if snapshot.read(engine, _schemas) == texts:
        return True
    engine.fs.remove(file_names.statistics(engine.path, link.number))
    return False


def _content(engine: Engine, link: chain.Link, texts: dict[int, str], pause: Pause) -> bytes:
    from logstore.log import statsfile

    builder = statsfile.StatisticsBuilder()
    finders: dict[int, _StreamRanges] = {}
    file = engine.fs.open(file_names.segment(engine.path, link.number))
    try:
        for frame in log_reader.scan(
            file, engine.seed, link.number, link.start_offset, link.end_offset
        ):
            pause(fmt.FRAME_HEAD_BYTES + len(frame.payload))
            if frame.kind not in _KINDS or len(frame.payload) < _HEAD.size:
                continue
            stream = _HEAD.unpack_from(frame.payload)[0]
            if stream not in texts:
                continue
            if stream not in finders:
                finders[stream] = _StreamRanges(texts[stream])
            finder = finders[stream]
            try:
                found = finder.of(frame.payload[_HEAD.size :])
            except CorruptNodeError:
                found = 0, [None] * len(finder.columns)
            builder.add(
                stream,
                finder.columns,
                statsfile.NodePlace(frame.offset, len(frame.payload)),
                statsfile.NodeRanges(*found),
                finder.filters,
            )
    finally:
        file.close()
    return builder.pack()


class _StreamRanges:
    """Finds the ranges of a stream's nodes, by its schema. What reads schemas is loaded with the
    first one."""

    def __init__(self, text: str) -> None:
        from logstore.codec import codec
        from logstore.features.typed_rows import parsed, ranged_columns
        from logstore.log.statsfile import NamedColumn

        self.columns = [
            (NamedColumn(column.field, column.type.name), ranged)
            for column, ranged in ranged_columns(parsed(text))
        ]
        finder = codec().RangeFinder([ranged for _, ranged in self.columns], True)
        self.of, self.filters = finder.of, finder.filters
