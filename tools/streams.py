"""``logstore streams``: list the streams of a store."""

from __future__ import annotations

from pathlib import Path

import click

from logstore.tools import forms, options
from logstore.tools.output import Output


@click.command("streams")
@options.store_argument
@options.json_option
@options.pass_output
def command(output: Output, path: Path) -> None:
    """List the streams: their names, how many entries they hold, their last IDs."""
    with options.reading(path) as store:
        handles = (store.stream(name) for name in store.streams())
        rows = ((stream.name, len(stream), str(stream.last_id)) for stream in handles)
        if not output.json:
            output.table(("stream", "entries", "last ID"), rows)
            return
        for name, entries, last_id in rows:
            output.json_object({**forms.name_object(name), "entries": entries, "last_id": last_id})
