"""``logstore info``, ``streams`` and ``du``: what a store holds, and what takes its space.

Text is for people: sizes, dates and ages. JSON has the raw numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.api import showing
from logstore.api.showing import readable, short_length
from logstore.ids import ZERO_ID, StreamID
from logstore.options import GroupSettings, StreamSettings
from logstore.telemetry.segment_parts import segment_marks
from logstore.telemetry.stream_lines import SORTS, StreamLine, stream_lines
from logstore.tools import command_options as options
from logstore.tools.command_output import Output
from logstore.tools.text_tables import ByteCount
from logstore.tools.wording import by_json_names, dated, entry_for_json, entry_line, name_object

if TYPE_CHECKING:
    from logstore.api.entry import Entry
    from logstore.api.info import StoreInfo, StreamInfo
    from logstore.api.stream import Stream
    from logstore.compaction.usage import SegmentUse, SpaceUsage, StreamUse
    from logstore.log.pinfile import Pin
    from logstore.schema.stream_schema import Schema


@options.command("info")
@options.optional_stream_argument
@click.option("--full", is_flag=True, help="Of a stream: entries, consumers, what is pending, too.")
@click.option(
    "--count",
    type=options.number(0),
    default=10,
    show_default=True,
    help="With --full: how many of each list, the smallest IDs; 0: all.",
)
def info(output: Output, path: Path, name: str | None, full: bool, count: int) -> None:
    """Tell what a store holds and where it stands, or all of XINFO STREAM and XINFO GROUPS about
    one stream; with --full, of XINFO STREAM FULL."""
    if full and name is None:
        raise click.UsageError("--full is about a stream: name one")
    with options.reading(path) as store:
        if name is None:
            found = store.info()
            if output.json:
                output.json_object(found.as_dict())
            else:
                output.table(("", ""), _of_store(found))
            return
        stream = options.with_codec(store, name)
        if full:
            output.report(_values(output, stream.info_full(count)))
        elif output.json:
            groups = [_values(output, each) for each in stream.groups()]
            output.json_object({**_values(output, stream.info()), "consumer_groups": groups})
        else:
            _show_stream(output, stream)


# -- for people --------------------------------------------------------------------------------
def _of_store(found: StoreInfo) -> Iterator[tuple[str, str]]:
    log = f"{showing.size(found.log_bytes)} in {showing.counted(found.segments, 'segment')}"
    deleted = "no entry that is still in the log"
    if found.deleted_bytes:
        since = showing.ago(showing.at(found.oldest_deleted_segment_ms))
        size = showing.size(found.deleted_bytes)
        deleted = f"{size} still in the log, in segments from {since} on"
    back = showing.size(found.reclaimable_bytes)
    if found.reclaimable_bytes:
        part = showing.share(found.reclaimable_bytes, found.log_bytes)
        back += f", {part} of the log: 'logstore compact' gives it back"
    pins = "none"
    if found.pins:
        pins = f"{found.pins:,}, which keep {showing.size(found.pinned_bytes)}"
        if found.oldest_pin_ms:
            pins += f"; the oldest was made {showing.ago(showing.at(found.oldest_pin_ms))}"
    applied = (found.applied_segment, found.applied_offset)
    durable = (found.durable_segment, found.durable_offset)
    yield "path", found.path
    yield "uuid", found.uuid
    yield "streams", f"{found.streams:,}"
    if found.scheduled:
        yield "scheduled", showing.counted(found.scheduled, "entry waits", "entries wait")
    yield "log", log
    yield from _parts_of_log(found)
    yield "reclaimable", back
    yield "deleted", deleted
    yield "pins", pins
    yield "index", f"{showing.size(found.index_bytes)}, generation {found.index_generation}"
    yield "on disk", showing.size(found.disk_bytes)
    yield "log ends at", _position(applied)
    yield "durable up to", "all of it" if durable == applied else _position(durable)
    if found.compacted_ms:
        when = showing.ago(showing.at(found.compacted_ms))
        yield "compacted", f"{when}; {showing.size(found.compacted_bytes)} since it is open"
    if found.shipped_ms:
        behind = "all of it"
        if found.unshipped_bytes:
            behind = f"all but {showing.size(found.unshipped_bytes)}"
        when = showing.ago(showing.at(found.shipped_ms))
        yield "shipped", f"{when}, {behind}, to {found.shipped_to}"
    yield "format", str(found.format_version)
    yield "runs as", f"{found.codec} codec, {found.core} core"


def _position(place: tuple[int, int]) -> str:
    segment, offset = place
    return f"segment {segment}, offset {offset:,}" if segment else "not known"


def _show_stream(output: Output, stream: Stream[bytes]) -> None:
    found = stream.info()
    output.table(("", ""), facts_of_stream(found))
    rows = [
        (
            group.name,
            group.consumers,
            group.pending,
            "unknown" if group.lag is None else group.lag,
            dated(group.last_delivered_id),
            _settings(group.settings),
        )
        for group in stream.groups()
    ]
    if rows:
        output.line("")
        head = ("group", "consumers", "pending", "lag", "last delivered", "settings")
        output.table(head, rows, narrow=("settings", "last delivered", "consumers"))


def facts_of_stream(found: StreamInfo[bytes]) -> Iterator[tuple[str, str]]:
    """What is told of a stream, line by line: the name and the text of each."""
    yield "name", readable(found.name)
    added = f", of {found.entries_added:,} ever added" if found.entries_added > found.length else ""
    yield "length", f"{showing.counted(found.length, 'entry', 'entries')}{added}"
    whole = showing.size(found.node_bytes + found.open_node_bytes)
    nodes = showing.counted(found.radix_tree_keys, "node")
    yield "size", f"{whole} in {nodes}, {showing.size(found.open_node_bytes)} in the open one"
    for name, entry in (("first entry", found.first_entry), ("last entry", found.last_entry)):
        yield name, "none" if entry is None else f"{_when(entry.id)}{entry_line(entry)}"
    yield "last ID", dated(found.last_generated_id)
    if found.max_deleted_entry_id != ZERO_ID:
        yield "last deleted ID", dated(found.max_deleted_entry_id)
    yield "settings", _settings(found.settings) or "none: everything is kept"
    if found.schema is not None:
        yield "schema", found.schema.text
    if found.scheduled:
        due = showing.ago(found.next_due)
        yield "scheduled", f"{showing.counted(found.scheduled, 'entry', 'entries')}, the next {due}"
    if found.expires_at is not None:
        yield "expires", f"{showing.date(found.expires_at)}, {showing.ago(found.expires_at)}"
    if found.iids_added or found.iids_duplicates:
        producers = showing.counted(found.pids_tracked, "producer")
        added = f"{found.iids_added:,}, and {found.iids_duplicates:,} duplicates; {producers}"
        yield "idempotent adds", added
    yield "groups", f"{found.groups:,}"


def _when(at: StreamID) -> str:
    moment = showing.clock(at.ms)
    return "" if moment is None else f"({showing.ago(moment)}) "


def _settings(settings: StreamSettings | GroupSettings[bytes]) -> str:
    """The settings that are not the default."""
    return ", ".join(
        f"{name.replace('_', ' ').removesuffix(' ms').removesuffix(' s')} {_setting(name, value)}"
        for name, value in settings._asdict().items()
        if value is not None and value != type(settings)._field_defaults[name]
    )


def _setting(name: str, value: Any) -> str:
    if name.endswith("_ms"):
        return short_length(timedelta(milliseconds=value))
    if name.endswith("_s"):
        return short_length(timedelta(seconds=value))
    if name.endswith("_bytes"):
        return showing.size(value)
    if isinstance(value, bytes):
        return readable(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


# -- for programs -------------------------------------------------------------------------------


# What of an object has more objects below a name of XINFO.
BELOW = {"groups": "group_infos", "pending": "pending_entries", "consumers": "consumer_infos"}


def _values(output: Output, found: Any) -> dict[str, Any]:
    """What is known of a stream, a group, a consumer or a pending entry, by names as JSON has them
    elsewhere. The entries that are pending with a consumer do not name it once more."""
    values: dict[str, Any] = {}
    for key, value in by_json_names(found).items():
        if value is None:
            values[key] = None
        elif key == "name":
            values |= _name(output, found.name)
        elif key == "consumer":
            named = _name(output, found.consumer)
            values |= {each.replace("name", key): text for each, text in named.items()}
        elif key in BELOW and isinstance(value, list):
            values[key] = [_values(output, each) for each in getattr(found, BELOW[key])]
        elif key == "entries":
            values[key] = [_entry(output, each, found.schema) for each in found.entries]
        elif key in {"first_entry", "last_entry"}:
            values[key] = _entry(output, getattr(found, key), found.schema)
        elif key == "settings":
            values[key] = {each.replace("-", "_"): value[each] for each in value}
        else:
            values[key] = value
    for each in values["pending"] if "active_time" in values else ():
        for key in ("consumer", "consumer_base64"):
            each.pop(key, None)
    return values


def _name(output: Output, name: bytes) -> dict[str, Any]:
    return dict(name_object(name)) if output.json else {"name": name}


def _entry(output: Output, found: Entry[bytes], schema: Schema | None) -> Any:
    return entry_for_json(found, schema) if output.json else entry_line(found)


# -- streams --------------------------------------------------------------------------------------
STREAMS_HEAD = ("stream", "entries", "size", "last ID", "age", "groups", "lag", "pending")
STREAMS_NARROW = ("last ID", "groups", "size", "age", "pending")


@options.command("streams")
@click.argument(
    "pattern", metavar="[PATTERN]", required=False, shell_complete=options.complete_streams
)
@click.option(
    "--sort",
    type=click.Choice(list(SORTS)),
    default="name",
    show_default=True,
    help="What comes first: the largest, or newest.",
)
@options.count_option("At most this many; all if left out.", default=None)
def streams(output: Output, path: Path, pattern: str | None, sort: str, count: int | None) -> None:
    """List the streams: how long and large they are, their last IDs, how far their groups are.

    With PATTERN those whose names match it: 'race:*', '?', '[a-c]*'. The lag is that of the group
    that is furthest behind; what is pending is of all groups.
    """
    from logstore.api.opening import opened_of

    with options.reading(path) as store:
        names = [name for name in store.streams() if pattern is None or _matches(name, pattern)]
        known = names[: count or None] if sort == "name" else names
        found = list(stream_lines(opened_of(store), known))
    if sort != "name":
        found.sort(key=SORTS[sort])  # those that are alike stay by name
        found = found[: count or None]
    none = "no stream" if pattern is None else f"no stream is called like {pattern!r}"
    shown = {"narrow": STREAMS_NARROW, "whole": ("last ID",), "none": none}
    output.listing(found, _summary_object, STREAMS_HEAD, _summary_row, **shown)
    _tell_of_more(output, len(names) - len(found))


def _matches(name: bytes, pattern: str) -> bool:
    return fnmatchcase(name.decode("utf-8", "surrogateescape"), pattern)


def _tell_of_more(output: Output, left_out: int) -> None:
    if left_out > 0 and not output.json:
        output.line(f"and {showing.counted(left_out, 'more stream')}: -n 0 shows all")


def _summary_object(found: StreamLine) -> dict[str, Any]:
    return {
        **name_object(found.name),
        "entries": found.entries,
        "last_id": str(found.last_id),
        "first_id": str(found.first_id),
        "size_bytes": found.size_bytes,
        "groups": found.groups,
        "lag": found.lag,
        "pending": found.pending,
    }


def _summary_row(found: StreamLine) -> tuple[object, ...]:
    lag: object = "unknown" if found.lag is None else found.lag
    groups = (found.groups, lag, found.pending) if found.groups else ("", "", "")
    moment = showing.clock(found.last_id.ms)
    return (
        found.name,
        found.entries,
        ByteCount(found.size_bytes),
        str(found.last_id),
        showing.age(moment),
        *groups,
    )


# -- what takes the space -------------------------------------------------------------------------
STREAMS_SHOWN = 20
OF_STREAMS = ("stream", "entries", "live", "tombstoned", "nodes", "segments")
OF_STREAMS_NARROW = (
    "segments",
    "nodes",
    "entries",
    "tombstoned",
)  # what a narrow terminal does without
OF_SEGMENTS = ("segment", "size", "live", "tombstoned", "dead", "age", "")


def measured_usage(path: Path) -> SpaceUsage:
    """The usage of the space of the store at a path."""
    from logstore.api.info import living_pins
    from logstore.api.opening import opened_of
    from logstore.compaction.usage import usage

    with options.reading(path) as store:
        engine = opened_of(store).engine()
        return usage(engine, living_pins(engine))


@options.command("du")
@click.option("--segments", is_flag=True, help="Also a line about each segment.")
@options.count_option(
    f"At most so many streams, the largest; 0: all. Without it {STREAMS_SHOWN}, and "
    "all with --json.",
    default=None,
)
def du(output: Output, path: Path, segments: bool, count: int | None) -> None:
    """Tell what takes the space: streams, the dead share of the log, pins, all beside the log.

    Live are entries that are there, tombstoned deleted ones in nodes that live, dead is the rest of
    the log. 'logstore map' draws it, 'logstore compact' gives back what is dead.
    """
    found = measured_usage(path)
    most = count if count is not None else 0 if output.json else STREAMS_SHOWN
    shown = list(islice(found.streams, most or None))
    if output.json:
        output.json_object(_usage_object(path, found, shown))
        return
    if shown:
        output.table(OF_STREAMS, map(_usage_row, shown), narrow=OF_STREAMS_NARROW)
        _tell_of_more(output, len(found.streams) - len(shown))
        output.line("")
    if segments:
        rows = map(segment_row, found.segments)
        output.table(OF_SEGMENTS, rows, narrow=("age", "tombstoned", "size"))
        output.line("")
    output.table(("", ""), _usage_sums(found))


def _usage_row(use: StreamUse) -> tuple[Any, ...]:
    sizes = (ByteCount(use.live_bytes), ByteCount(use.tombstoned_bytes))
    return (use.name, use.entries, *sizes, use.nodes, len(use.segments))


def segment_row(use: SegmentUse) -> tuple[Any, ...]:
    """A line about a segment."""
    return (
        use.number,
        ByteCount(use.size_bytes),
        *(showing.share(part, use.size_bytes) for part in _bytes_of(use, PARTS).values()),
        showing.age(showing.at(use.created_ms)),
        ", ".join(segment_marks(use)),
    )


def _usage_sums(found: SpaceUsage) -> Iterator[tuple[str, str]]:
    from logstore.engine.runtime import pins

    whole = found.log_bytes
    yield "log", f"{showing.size(whole)} in {showing.counted(len(found.segments), 'segment')}"
    yield from _parts_of_log(found)
    kept = [use.size_bytes for use in found.segments if use.pins]
    if found.pins:
        yield "  pinned", f"{showing.size(sum(kept))} in {showing.counted(len(kept), 'segment')}"
    for name, part in found.other_bytes.items():
        yield name, showing.size(part)
    free = f"{showing.size(found.free_bytes)}, {showing.share(found.free_bytes, found.disk_bytes)}"
    yield "free on the disk", free
    for pin in found.pins:
        yield "pin", pins.description(pin)


PARTS = ("live", "tombstoned", "dead")


def _parts_of_log(found: StoreInfo | SpaceUsage) -> Iterator[tuple[str, str]]:
    """What is in the log, in the words that all views of it have."""
    for name, part in zip(PARTS, _bytes_of(found, PARTS).values(), strict=True):
        yield f"  {name}", f"{showing.size(part)}, {showing.share(part, found.log_bytes)}"


def _bytes_of(found: Any, parts: Sequence[str]) -> dict[str, int]:
    return {name: getattr(found, name) for name in map("{}_bytes".format, parts)}


def _usage_object(path: Path, found: SpaceUsage, shown: list[StreamUse]) -> dict[str, Any]:
    return {
        "path": str(path),
        **_bytes_of(found, ("log", *PARTS)),
        **{f"{name}_bytes": part for name, part in found.other_bytes.items()},
        "free_bytes": found.free_bytes,
        "file_system_bytes": found.disk_bytes,
        "streams": [
            {
                **name_object(use.name),
                "entries": use.entries,
                **_bytes_of(use, PARTS[:2]),
                "nodes": use.nodes,
                "segments": sorted(use.segments),
            }
            for use in shown
        ],
        "segments": [segment_object(use) for use in found.segments],
        "pins": [_pin_object(pin) for pin in found.pins],
    }


def segment_object(use: SegmentUse) -> dict[str, Any]:
    """A segment for JSON."""
    return {
        "segment": use.number,
        "created_ms": use.created_ms,
        "active": use.active,
        "compacted": use.compacted,
        **_bytes_of(use, ("size", *PARTS)),
        "streams": [
            {**name_object(name), "live_bytes": part} for name, part in sorted(use.streams.items())
        ],
        "pins": use.pins,
    }


def _pin_object(pin: Pin) -> dict[str, Any]:
    segments = None if pin.segments is None else sorted(pin.segments)
    return {"id": pin.id, "purpose": pin.purpose, "pid": pin.pid, "segments": segments}
