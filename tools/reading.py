"""``logstore range``, ``tail`` and ``streams``: print entries, and which streams there are."""

from __future__ import annotations

from pathlib import Path

import click

from logstore.tools import options
from logstore.tools.output import Output, name_object


@click.command("range")
@options.store_argument
@options.stream_argument
@options.interval
@click.option("-n", "--count", type=click.IntRange(min=0), help="At most this many.")
@click.option("--reverse", is_flag=True, help="The last one first.")
@options.json_option
@options.pass_output
def range_(
    output: Output, path: Path, name: str, start: str, end: str, count: int | None, reverse: bool
) -> None:
    """Print entries from START to END, both included.

    An ID is MS-SEQ or MS; "-" and "+" are the first and the last; "(" before an ID leaves it out.
    START is the smaller one, also with --reverse.
    """
    with options.reading(path) as store:
        stream = options.existing(store, name)
        for entry in stream.range(start, end, count=count, reverse=reverse):
            output.entry(entry)


@click.command("tail")
@options.store_argument
@options.stream_argument
@click.option("-n", "--count", type=click.IntRange(min=0), default=10, show_default=True)
@click.option("-f", "--follow", is_flag=True, help="Go on with new entries, until interrupted.")
@options.json_option
@options.pass_output
def tail(output: Output, path: Path, name: str, count: int, follow: bool) -> None:
    """Print the last entries of STREAM, the newest at the end."""
    with options.reading(path) as store:
        stream = options.existing(store, name)
        seen = stream.last_id
        for entry in reversed(list(stream.range(end=seen, count=count, reverse=True))):
            output.entry(entry)
        if follow:
            output.flush()
            for entry in stream.follow(seen):
                output.entry(entry)
                output.flush()


@click.command("streams")
@options.store_argument
@options.json_option
@options.pass_output
def streams(output: Output, path: Path) -> None:
    """List the streams: their names, how many entries they hold, their last IDs."""
    with options.reading(path) as store:
        handles = (store.stream(name) for name in store.streams())
        rows = ((stream.name, len(stream), str(stream.last_id)) for stream in handles)
        if not output.json:
            output.table(("stream", "entries", "last ID"), rows)
            return
        for name, entries, last_id in rows:
            output.json_object({**name_object(name), "entries": entries, "last_id": last_id})
