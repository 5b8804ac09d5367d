"""``logstore retain`` and ``compact``: drop what is not kept, give its space back."""

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
def retain(output: Output, path: Path) -> None:
    """Drop what is older, or more, than streams keep by their settings, in whole nodes.

    A process that has the store open does this by itself every second, unless it was opened with
    background=False. 'logstore compact' gives the space back at once.
    """
    with open_store(path, create=False, background=False) as store:
        dropped = store.retain()
    output.report({"entries_dropped": dropped})


@click.command("compact")
@options.store_argument
@click.option("--purge", is_flag=True, help="Rewrite all that still holds a deleted entry.")
@click.option(
    "--threshold", type=click.FloatRange(0, 1), default=0.5, show_default=True,
    help="Rewrite nodes and segments that are dead by more than this share.",
)  # fmt: skip
@options.json_option
@options.pass_output
def compact(output: Output, path: Path, purge: bool, threshold: float) -> None:
    """Rewrite nodes with many tombstones and drop segments that are mostly dead.

    Safe beside readers and writers, and safe to interrupt. After --purge no file of the store
    holds a byte of a deleted entry; backups and copies are out of reach.
    """
    with open_store(path, create=False) as store:
        found = store.compact(purge=purge, threshold=threshold)
    output.report(found.as_dict())
