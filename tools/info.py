"""``logstore info``: counts and sizes of a store, or of one stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from logstore.api.entry import Entry
from logstore.api.info import (
    FullConsumerInfo,
    FullGroupInfo,
    FullPendingEntry,
    FullStreamInfo,
    GroupInfo,
)
from logstore.api.stream import Stream
from logstore.tools import options
from logstore.tools.output import Output, entry_line, entry_object, name_object


@click.command("info")
@options.store_argument
@click.argument("name", metavar="[STREAM]", required=False)
@click.option("--full", is_flag=True, help="Of a stream: entries, consumers, what is pending, too.")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="With --full: how many of each list, the smallest IDs; 0: all.",
)
@options.json_option
@options.pass_output
def command(output: Output, path: Path, name: str | None, full: bool, count: int) -> None:
    """Tell what a store holds and where it stands, or all of XINFO STREAM and XINFO GROUPS about
    one stream; with --full, of XINFO STREAM FULL."""
    if full and name is None:
        raise click.UsageError("--full is about a stream: name one")
    with options.reading(path) as store:
        if name is None:
            output.report(store.info().as_dict())
            return
        stream = options.existing(store, name)
        output.report(_full(output, stream.info_full(count)) if full else _short(output, stream))


def _short(output: Output, stream: Stream[bytes]) -> dict[str, Any]:
    found = stream.info()
    values = _values(found.as_dict())
    for key, entry in {"first_entry": found.first_entry, "last_entry": found.last_entry}.items():
        values[key] = None if entry is None else _entry(output, entry)
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
