"""``logstore retain``: drop what streams no longer keep by their settings."""

from __future__ import annotations

from pathlib import Path

import click

from logstore.api.open_store import open_store
from logstore.tools import options
from logstore.tools.output import Output


@click.command("retain")
@options.store_argument
@options.json_option
@options.pass_output
def command(output: Output, path: Path) -> None:
    """Drop what is older, or more, than streams keep by their settings, in whole nodes.

    A process that has the store open does this by itself every second, unless it was opened with
    background=False. 'logstore compact' gives the space back at once.
    """
    with open_store(path, create=False, background=False) as store:
        dropped = store.retain()
    output.report({"entries_dropped": dropped})
