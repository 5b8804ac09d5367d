"""``logstore tail``: print the last entries, and with ``--follow`` those that come."""

from __future__ import annotations

from pathlib import Path

import click

from logstore.tools import options
from logstore.tools.output import Output


@click.command("tail")
@options.store_argument
@options.stream_argument
@click.option("-n", "--count", type=click.IntRange(min=0), default=10, show_default=True)
@click.option("-f", "--follow", is_flag=True, help="Go on with new entries, until interrupted.")
@options.json_option
@options.pass_output
def command(output: Output, path: Path, name: str, count: int, follow: bool) -> None:
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
