"""``logstore range``: print the entries of an interval of IDs."""

from __future__ import annotations

from pathlib import Path

import click

from logstore.tools import options
from logstore.tools.output import Output


@click.command("range")
@options.store_argument
@options.stream_argument
@options.interval
@click.option("-n", "--count", type=click.IntRange(min=0), help="At most this many.")
@click.option("--reverse", is_flag=True, help="The last one first.")
@options.json_option
@options.pass_output
def command(
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
