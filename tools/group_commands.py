"""``logstore groups``, ``pending``, ``ack`` and ``claim``: consumer groups from a shell.

Invariants: a stream and a group must be there; nothing is read on behalf of a consumer.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from pathlib import Path

import click

from logstore.tools import options
from logstore.tools.durations import LENGTH, told
from logstore.tools.output import Output, dated, name_object, readable

HEAD = ("stream", "group", "consumers", "pending", "lag", "last delivered")


@options.command("groups")
@options.optional_stream_argument
def groups(output: Output, path: Path, name: str | None) -> None:
    """List groups, of all streams or of one: how far they are, and what is pending."""
    rows: list[tuple[object, ...]] = []
    with options.reading(path) as store:
        names = store.streams() if name is None else [options.existing(store, name).name]
        for stream_name in names:
            for each in store.stream(stream_name).groups():
                if output.json:
                    values = {key.replace("-", "_"): value for key, value in each.as_dict().items()}
                    values |= name_object(each.name)
                    output.json_object({"stream": readable(stream_name), **values})
                rows.append(
                    (
                        stream_name,
                        each.name,
                        each.consumers,
                        each.pending,
                        "unknown" if each.lag is None else each.lag,
                        dated(each.last_delivered_id),
                    )
                )
    if not output.json:
        output.table(HEAD, rows, narrow=("last delivered", "consumers"), none="no group")


@options.command("pending")
@options.stream_argument
@options.group_argument
@click.option("--consumer", help="Of this consumer only.")
@click.option("--min-idle", type=LENGTH, default="0", help="Idle for so long: 30s, 5m.")
@click.option("-n", "--count", type=click.IntRange(min=0), default=100, show_default=True,
              help="At most this many; 0: all.")  # fmt: skip
def pending(
    output: Output,
    path: Path,
    name: str,
    group_name: str,
    consumer: str | None,
    min_idle: timedelta,
    count: int,
) -> None:
    """List what was delivered and not acknowledged, the smallest IDs first, as XPENDING."""
    with options.reading(path) as store:
        group = options.existing_group(options.existing(store, name), group_name)
        entries = islice(group.pending_entries(consumer=consumer, min_idle=min_idle), count or None)
        if output.json:
            for each in entries:
                values = each.as_dict()
                output.json_object({key.replace("-", "_"): value for key, value in values.items()})
            return
        rows = [
            (str(each.id), each.consumer, told(each.idle), each.delivery_count) for each in entries
        ]
    narrowed = bool(consumer or min_idle)
    none = "nothing that is pending is like that" if narrowed else "nothing is pending"
    head = ("ID", "consumer", "idle", "deliveries")
    output.table(head, rows, narrow=("deliveries",), none=none)


@options.command("ack")
@options.stream_argument
@options.group_argument
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def ack(output: Output, path: Path, name: str, group_name: str, ids: tuple[str, ...]) -> None:
    """Say that entries of a group are done, as XACK."""
    with options.changing(path) as store:
        group = options.existing_group(options.existing(store, name), group_name)
        output.report({"acknowledged": group.ack(*ids)})


@options.command("claim")
@options.stream_argument
@options.group_argument
@click.argument("consumer")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--min-idle", type=LENGTH, required=True, help="Only what is idle for so long: 5m.")
@click.option("-n", "--count", type=click.IntRange(min=1), default=100, show_default=True,
              help="Without IDs: at most this many, the smallest.")  # fmt: skip
def claim(
    output: Output,
    path: Path,
    name: str,
    group_name: str,
    consumer: str,
    ids: tuple[str, ...],
    min_idle: timedelta,
    count: int,
) -> None:
    """Give pending entries to CONSUMER and print them, as XCLAIM; without IDs as XAUTOCLAIM."""
    with options.changing(path) as store:
        group = options.existing_group(options.existing(store, name), group_name)
        if ids:
            claimed = group.claim(consumer, ids, min_idle=min_idle)
        else:
            claimed = group.autoclaim(consumer, min_idle=min_idle, count=count).entries
        for each in claimed:
            output.entry(each)
