"""``logstore add``, ``range`` and ``tail``: entries in and out."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.errors import StreamNotFoundError
from logstore.tools import options
from logstore.tools.durations import LENGTH
from logstore.tools.output import Output

if TYPE_CHECKING:
    from logstore.options import Sync


def wanted(pairs: tuple[str, ...]) -> dict[bytes, bytes] | None:
    """What --where asks for: a field cannot have two values."""
    where = dict(split_pair(pair) for pair in pairs)
    if len(where) < len(pairs):
        raise click.BadParameter("a field is given twice: all conditions must hold")
    return where or None


def split_pair(pair: str) -> tuple[bytes, bytes]:
    """FIELD=VALUE of the command line, as the bytes that were typed."""
    field, equals, value = pair.partition("=")
    if not equals:
        raise click.BadParameter(f"{pair!r} is not FIELD=VALUE", param_hint="FIELD=VALUE")
    return os.fsencode(field), os.fsencode(value)


where_option = click.option(
    "--where", metavar="FIELD=VALUE", multiple=True, help="Only entries that have it; repeatable."
)


@options.command("add")
@options.stream_argument
@click.argument("pairs", metavar="FIELD=VALUE...", nargs=-1, required=True)
@click.option("--id", "id", default="*", show_default=True, help="The ID: MS-SEQ, MS-* or *.")
@click.option("--maxlen", type=click.IntRange(min=0), help="Then trim to about this many entries.")
@click.option("--minid", help="Then trim what is below this ID, about.")
@click.option("--exact", is_flag=True, help="Trim exactly, not whole nodes only.")
@click.option("--ttl", type=LENGTH, help="How long the entry lives: 90s, 1h30m, 7d.")
@click.option("--no-create", is_flag=True, help="The store and the stream must be there.")
@options.sync_option
def add(
    output: Output,
    path: Path,
    name: str,
    pairs: tuple[str, ...],
    id: str,
    maxlen: int | None,
    minid: str | None,
    exact: bool,
    ttl: timedelta | None,
    no_create: bool,
    sync: Sync,
) -> None:
    """Add one entry to STREAM and print its ID.

    Makes the store and the stream if they are missing. A field name may repeat.
    """
    fields = [split_pair(pair) for pair in pairs]
    # Closed at once, which makes it durable: it needs no thread for that, nor for anything else.
    with options.opened(path, sync=sync, create=not no_create, background=False) as store:
        added = store.stream(name).add(
            fields,
            id,
            maxlen=maxlen,
            minid=minid,
            approximate=not exact,
            ttl=ttl,
            create=not no_create,
        )
    if added is None:
        raise StreamNotFoundError("no such stream: leave out --no-create to make it")
    if output.json:
        output.json_object({"id": str(added)})
    else:
        output.line(str(added))


@options.command("range")
@options.stream_argument
@options.interval
@options.moments
@where_option
@click.option("-n", "--count", type=click.IntRange(min=0), help="At most this many.")
@click.option("--reverse", is_flag=True, help="The last one first.")
def range_(
    output: Output,
    path: Path,
    name: str,
    start: str,
    end: str,
    since: str | None,
    until: str | None,
    where: tuple[str, ...],
    count: int | None,
    reverse: bool,
) -> None:
    """Print entries from START to END, both included.

    An ID is MS-SEQ or MS; "-" and "+" are the first and the last; "(" before an ID leaves it out.
    START is the smaller one, also with --reverse.
    """
    moments = {"since": since, "until": until}
    match = wanted(where)
    with options.reading(path) as store:
        stream = options.existing(store, name)
        for entry in stream.range(start, end, **moments, where=match, count=count, reverse=reverse):
            output.entry(entry)


@options.command("tail")
@options.stream_argument
@click.option("-n", "--count", type=click.IntRange(min=0), default=10, show_default=True)
@click.option("--since", help="All from this moment on, whatever -n says: -1h, 2026-01-31.")
@where_option
@click.option("-f", "--follow", is_flag=True, help="Go on with new entries, until interrupted.")
def tail(
    output: Output,
    path: Path,
    name: str,
    count: int,
    since: str | None,
    where: tuple[str, ...],
    follow: bool,
) -> None:
    """Print the last entries of STREAM, the newest at the end."""
    match = wanted(where)
    with options.reading(path) as store:
        stream = options.existing(store, name)
        seen = stream.last_id
        if since is not None:
            for entry in stream.range(since=since, where=match):
                if entry.id > seen:
                    break  # it is for those that follow
                output.entry(entry)
        else:
            newest = stream.range(end=seen, where=match, count=count, reverse=True)
            for entry in reversed(list(newest)):
                output.entry(entry)
        if follow:
            output.flush()
            for entry in stream.follow(seen, where=match):
                output.entry(entry)
                output.flush()
