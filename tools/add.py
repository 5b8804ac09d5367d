"""``logstore add``: add one entry."""

from __future__ import annotations

import os
from pathlib import Path

import click

from logstore.api.open_store import open_store
from logstore.errors import StreamNotFoundError
from logstore.options import Sync
from logstore.tools import options
from logstore.tools.output import Output


def split_pair(pair: str) -> tuple[bytes, bytes]:
    """FIELD=VALUE of the command line, as the bytes that were typed."""
    field, equals, value = pair.partition("=")
    if not equals:
        raise click.BadParameter(f"{pair!r} is not FIELD=VALUE", param_hint="FIELD=VALUE")
    return os.fsencode(field), os.fsencode(value)


@click.command("add")
@options.store_argument
@options.stream_argument
@click.argument("pairs", metavar="FIELD=VALUE...", nargs=-1, required=True)
@click.option("--id", "id", default="*", show_default=True, help="The ID: MS-SEQ, MS-* or *.")
@click.option("--maxlen", type=click.IntRange(min=0), help="Then trim to about this many entries.")
@click.option("--minid", help="Then trim what is below this ID, about.")
@click.option("--exact", is_flag=True, help="Trim exactly, not whole nodes only.")
@click.option("--no-create", is_flag=True, help="The store and the stream must be there.")
@options.sync_option
@options.json_option
@options.pass_output
def command(
    output: Output, path: Path, name: str, pairs: tuple[str, ...], id: str, maxlen: int | None,
    minid: str | None, exact: bool, no_create: bool, sync: Sync,
) -> None:  # fmt: skip
    """Add one entry to STREAM and print its ID.

    Makes the store and the stream if they are missing. A field name may repeat.
    """
    fields = [split_pair(pair) for pair in pairs]
    # Closed at once, which makes it durable: it needs no thread for that, nor for anything else.
    with open_store(path, sync=sync, create=not no_create, background=False) as store:
        added = store.stream(name).add(
            fields, id, maxlen=maxlen, minid=minid, approximate=not exact, create=not no_create
        )
    if added is None:
        raise StreamNotFoundError("no such stream: leave out --no-create to make it")
    if output.json:
        output.json_object({"id": str(added)})
    else:
        output.line(str(added))
