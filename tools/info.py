"""``logstore info``: counts and sizes of a store, or of one stream.

Text is for people: sizes, dates and ages. JSON has the raw numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.api import units
from logstore.ids import ZERO_ID, StreamID
from logstore.settings import GroupSettings, StreamSettings
from logstore.tools import options
from logstore.tools.durations import told
from logstore.tools.output import Output, dated, entry_line, entry_object, name_object, readable

if TYPE_CHECKING:
    from logstore.api.entry import Entry
    from logstore.api.info import (
        FullConsumerInfo,
        FullGroupInfo,
        FullPendingEntry,
        FullStreamInfo,
        GroupInfo,
        StoreInfo,
        StreamInfo,
    )
    from logstore.api.stream import Stream


@options.command("info")
@options.optional_stream_argument
@click.option("--full", is_flag=True, help="Of a stream: entries, consumers, what is pending, too.")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="With --full: how many of each list, the smallest IDs; 0: all.",
)
def command(output: Output, path: Path, name: str | None, full: bool, count: int) -> None:
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
        stream = options.existing(store, name)
        if full:
            output.report(_full(output, stream.info_full(count)))
        elif output.json:
            output.json_object(_short(output, stream))
        else:
            _tell_stream(output, stream)


# -- for people --------------------------------------------------------------------------------
def _of_store(found: StoreInfo) -> Iterator[tuple[str, str]]:
    log = f"{units.size(found.log_bytes)} in {units.counted(found.segments, 'segment')}"
    live = f"{units.size(found.live_node_bytes)} in {units.counted(found.nodes, 'sealed node')}"
    deleted = "nothing that is still in the log"
    if found.deleted_bytes:
        since = units.ago(units.at(found.oldest_deleted_segment_ms))
        deleted = f"{units.size(found.deleted_bytes)} still in the log, in segments from {since} on"
    back = units.size(found.reclaimable_bytes)
    if found.reclaimable_bytes:
        part = units.share(found.reclaimable_bytes, found.log_bytes)
        back += f", {part} of the log: 'logstore compact' gives it back"
    pins = "none"
    if found.pins:
        pins = f"{found.pins:,}, which keep {units.size(found.pinned_bytes)}"
        if found.oldest_pin_ms:
            pins += f"; the oldest was made {units.ago(units.at(found.oldest_pin_ms))}"
    applied = (found.applied_segment, found.applied_offset)
    durable = (found.durable_segment, found.durable_offset)
    yield "path", found.path
    yield "uuid", found.uuid
    yield "streams", f"{found.streams:,}"
    if found.scheduled:
        yield "scheduled", units.counted(found.scheduled, "entry waits", "entries wait")
    yield "log", log
    yield "live", live
    yield "deleted", deleted
    yield "reclaimable", back
    yield "pins", pins
    yield "index", f"{units.size(found.index_bytes)}, generation {found.index_generation}"
    yield "on disk", units.size(found.disk_bytes)
    yield "log ends at", _position(applied)
    yield "durable up to", "all of it" if durable == applied else _position(durable)
    if found.compacted_ms:
        when = units.ago(units.at(found.compacted_ms))
        yield "compacted", f"{when}; {units.size(found.compacted_bytes)} since it is open"
    if found.shipped_ms:
        behind = "all of it"
        if found.unshipped_bytes:
            behind = f"all but {units.size(found.unshipped_bytes)}"
        when = units.ago(units.at(found.shipped_ms))
        yield "shipped", f"{when}, {behind}, to {found.shipped_to}"
    yield "format", str(found.format_version)
    yield "runs as", f"{found.codec} codec, {found.core} core"


def _position(place: tuple[int, int]) -> str:
    segment, offset = place
    return f"segment {segment}, offset {offset:,}" if segment else "not known"


def _tell_stream(output: Output, stream: Stream[bytes]) -> None:
    found = stream.info()
    output.table(("", ""), _of_stream(found))
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


def _of_stream(found: StreamInfo[bytes]) -> Iterator[tuple[str, str]]:
    yield "name", readable(found.name)
    added = f", of {found.entries_added:,} ever added" if found.entries_added > found.length else ""
    yield "length", f"{units.counted(found.length, 'entry', 'entries')}{added}"
    whole = units.size(found.node_bytes + found.open_node_bytes)
    nodes = units.counted(found.radix_tree_keys, "node")
    yield "size", f"{whole} in {nodes}, {units.size(found.open_node_bytes)} in the open one"
    for name, entry in (("first entry", found.first_entry), ("last entry", found.last_entry)):
        yield name, "none" if entry is None else f"{_when(entry.id)}{entry_line(entry)}"
    yield "last ID", dated(found.last_generated_id)
    if found.max_deleted_entry_id != ZERO_ID:
        yield "last deleted ID", dated(found.max_deleted_entry_id)
    yield "settings", _settings(found.settings) or "none: everything is kept"
    if found.scheduled:
        due = units.ago(found.next_due)
        yield "scheduled", f"{units.counted(found.scheduled, 'entry', 'entries')}, the next {due}"
    if found.expires_at is not None:
        yield "expires", f"{units.date(found.expires_at)}, {units.ago(found.expires_at)}"
    if found.iids_added or found.iids_duplicates:
        yield (
            "idempotent adds",
            (
                f"{found.iids_added:,}, and {found.iids_duplicates:,} duplicates; "
                f"{units.counted(found.pids_tracked, 'producer')}"
            ),
        )
    yield "groups", f"{found.groups:,}"


def _when(at: StreamID) -> str:
    moment = units.clock(at.ms)
    return "" if moment is None else f"({units.ago(moment)}) "


def _settings(settings: StreamSettings | GroupSettings[bytes]) -> str:
    """What is set otherwise than by default."""
    return ", ".join(
        f"{name.replace('_', ' ').removesuffix(' ms').removesuffix(' s')} {_setting(name, value)}"
        for name, value in settings._asdict().items()
        if value is not None and value != type(settings)._field_defaults[name]
    )


def _setting(name: str, value: Any) -> str:
    if name.endswith("_ms"):
        return told(timedelta(milliseconds=value))
    if name.endswith("_s"):
        return told(timedelta(seconds=value))
    if name.endswith("_bytes"):
        return units.size(value)
    return (
        readable(value)
        if isinstance(value, bytes)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


# -- for programs ------------------------------------------------------------------------------


def _short(output: Output, stream: Stream[bytes]) -> dict[str, Any]:
    found = stream.info()
    values = _values(found.as_dict())
    for key, entry in {"first_entry": found.first_entry, "last_entry": found.last_entry}.items():
        values[key] = None if entry is None else entry_object(entry)
    values["consumer_groups"] = [_group(output, each) for each in stream.groups()]
    return {**_name(output, found.name), **values}


def _values(told: dict[str, Any]) -> dict[str, Any]:
    """By names as JSON has them elsewhere; what is named goes by ``_name``."""
    return {
        key.replace("-", "_"): _values(value) if key == "settings" else value
        for key, value in told.items()
        if key != "name"
    }


def _name(output: Output, name: bytes) -> dict[str, Any]:
    return dict(name_object(name)) if output.json else {"name": name}


def _entry(output: Output, entry: Entry[bytes]) -> Any:
    return entry_object(entry) if output.json else entry_line(entry)


def _group(output: Output, group: GroupInfo[bytes]) -> dict[str, Any]:
    return {**_name(output, group.name), **_values(group.as_dict())}


# -- the full form ------------------------------------------------------------------------------
def _full(output: Output, found: FullStreamInfo[bytes]) -> dict[str, Any]:
    values = _values(found.as_dict())
    values["entries"] = [_entry(output, each) for each in found.entries]
    values["groups"] = [_full_group(output, each) for each in found.group_infos]
    return {**_name(output, found.name), **values}


def _full_group(output: Output, group: FullGroupInfo[bytes]) -> dict[str, Any]:
    values = _group(output, group)
    values["pending"] = [_pending(output, each) for each in group.pending_entries]
    values["consumers"] = [_full_consumer(output, each) for each in group.consumer_infos]
    return values


def _full_consumer(output: Output, consumer: FullConsumerInfo[bytes]) -> dict[str, Any]:
    values = _values(consumer.as_dict())
    values["pending"] = [
        {key: value for key, value in _values(each.as_dict()).items() if key != "consumer"}
        for each in consumer.pending_entries
    ]
    return {**_name(output, consumer.name), **values}


def _pending(output: Output, entry: FullPendingEntry[bytes]) -> dict[str, Any]:
    values = _values(entry.as_dict())
    if entry.consumer is not None:
        named = _name(output, entry.consumer)
        del values["consumer"]
        values |= {key.replace("name", "consumer"): value for key, value in named.items()}
    return values
