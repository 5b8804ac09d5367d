"""``logstore recover``: do what opening does after a crash, and say what was done."""

from __future__ import annotations

from pathlib import Path

import click

from logstore.recovery import recover
from logstore.tools import options
from logstore.tools.output import Output


@click.command("recover")
@options.store_argument
@options.json_option
@options.pass_output
def command(output: Output, path: Path) -> None:
    """Make a store whole after a crash, and tell what was found and done.

    Opening a store does the same by itself. Needed only where opening says so.
    """
    with output.progress("Recovering") as progress:
        found = recover.recover(path, progress=progress)
    output.report(found.as_dict())
