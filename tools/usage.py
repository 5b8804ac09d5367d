"""``logstore du``: what takes the space of a store, by stream, by segment, and beside the log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.api import units
from logstore.tools import options
from logstore.tools.output import Output, name_object

if TYPE_CHECKING:
    from logstore.compaction.usage import SegmentUse, StreamUse, Usage
    from logstore.log.pinfile import Pin

STREAMS_SHOWN = 20
OF_STREAMS = ("stream", "entries", "live", "tombstoned", "nodes", "segments")
NARROW = ("segments", "nodes", "entries", "tombstoned")  # what a narrow terminal does without
OF_SEGMENTS = ("segment", "size", "live", "tombstoned", "dead", "age", "")


def measured(path: Path) -> Usage:
    """What takes the space of the store at a path."""
    from logstore.api.opening import opened_of
    from logstore.api.store_info import living_pins
    from logstore.compaction.usage import usage

    with options.reading(path) as store:
        engine = opened_of(store).engine()
        return usage(engine, living_pins(engine))


@options.command("du")
@click.option("--segments", is_flag=True, help="Also a line about each segment.")
@click.option("-n", "--count", type=click.IntRange(min=0),
              help=f"At most so many streams, the largest; 0: all. Without it {STREAMS_SHOWN}, and "
              "all with --json.")  # fmt: skip
def command(output: Output, path: Path, segments: bool, count: int | None) -> None:
    """Tell what takes the space: streams, the dead share of the log, pins, all beside the log.

    Live are entries that are there, tombstoned deleted ones in nodes that live, dead is the rest of
    the log. 'logstore map' draws it, 'logstore compact' gives back what is dead.
    """
    found = measured(path)
    most = count if count is not None else 0 if output.json else STREAMS_SHOWN
    shown = list(islice(found.streams, most or None))
    if output.json:
        output.json_object(_object(path, found, shown))
        return
    if shown:
        output.table(OF_STREAMS, map(_stream_row, shown), narrow=NARROW)
        left_out = len(found.streams) - len(shown)
        if left_out:
            output.line(f"and {units.counted(left_out, 'more stream')}: -n 0 shows all")
        output.line("")
    if segments:
        rows = map(segment_row, found.segments)
        output.table(OF_SEGMENTS, rows, narrow=("age", "tombstoned", "size"))
        output.line("")
    output.table(("", ""), _sums(found))


def _stream_row(use: StreamUse) -> tuple[Any, ...]:
    sizes = (units.size(use.live_bytes), units.size(use.tombstoned_bytes))
    return (use.name, use.entries, *sizes, use.nodes, len(use.segments))


def segment_row(use: SegmentUse) -> tuple[Any, ...]:
    """A line about a segment."""
    return (
        use.number,
        units.size(use.size_bytes),
        units.share(use.live_bytes, use.size_bytes),
        units.share(use.tombstoned_bytes, use.size_bytes),
        units.share(use.dead_bytes, use.size_bytes),
        units.age(units.at(use.created_ms)),
        ", ".join(marks(use)),
    )


def marks(use: SegmentUse) -> Iterator[str]:
    """What is special about a segment."""
    if use.active:
        yield "active"
    if use.compacted:
        yield "compacted"
    if use.pins:
        yield "pinned"


def _sums(found: Usage) -> Iterator[tuple[str, str]]:
    from logstore.engine.runtime import pins

    whole = found.log_bytes
    yield "log", f"{units.size(whole)} in {units.counted(len(found.segments), 'segment')}"
    for name in ("live", "tombstoned", "dead"):
        part: int = getattr(found, f"{name}_bytes")
        yield f"  {name}", f"{units.size(part)}, {units.share(part, whole)}"
    kept = [use.size_bytes for use in found.segments if use.pins]
    if found.pins:
        yield "  pinned", f"{units.size(sum(kept))} in {units.counted(len(kept), 'segment')}"
    for name, part in found.other_bytes.items():
        yield name, units.size(part)
    free = f"{units.size(found.free_bytes)}, {units.share(found.free_bytes, found.disk_bytes)}"
    yield "free on the disk", free
    for pin in found.pins:
        yield "pin", pins.told(pin)


# -- for programs -------------------------------------------------------------------------------
def _object(path: Path, found: Usage, shown: list[StreamUse]) -> dict[str, Any]:
    return {
        "path": str(path),
        "log_bytes": found.log_bytes,
        "live_bytes": found.live_bytes,
        "tombstoned_bytes": found.tombstoned_bytes,
        "dead_bytes": found.dead_bytes,
        **{f"{name}_bytes": part for name, part in found.other_bytes.items()},
        "free_bytes": found.free_bytes,
        "file_system_bytes": found.disk_bytes,
        "streams": [
            {
                **name_object(use.name),
                "entries": use.entries,
                "live_bytes": use.live_bytes,
                "tombstoned_bytes": use.tombstoned_bytes,
                "nodes": use.nodes,
                "segments": sorted(use.segments),
            }
            for use in shown
        ],
        "segments": [segment_object(use) for use in found.segments],
        "pins": [_pin(pin) for pin in found.pins],
    }


def segment_object(use: SegmentUse) -> dict[str, Any]:
    """A segment for JSON."""
    return {
        "segment": use.number,
        "created_ms": use.created_ms,
        "active": use.active,
        "compacted": use.compacted,
        "size_bytes": use.size_bytes,
        "live_bytes": use.live_bytes,
        "tombstoned_bytes": use.tombstoned_bytes,
        "dead_bytes": use.dead_bytes,
        "streams": [
            {**name_object(name), "live_bytes": part} for name, part in sorted(use.streams.items())
        ],
        "pins": use.pins,
    }


def _pin(pin: Pin) -> dict[str, Any]:
    segments = None if pin.segments is None else sorted(pin.segments)
    return {"id": pin.id, "purpose": pin.purpose, "pid": pin.pid, "segments": segments}
