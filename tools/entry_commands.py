"""``logstore add``, ``range`` and ``tail``: adding and reading entries.

Invariant: what only reads opens the store read-only. Entries are printed as they come.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.errors import OptionError, StreamNotFoundError
from logstore.tools import command_options as options
from logstore.tools.command_options import LENGTH
from logstore.tools.command_output import Output

if TYPE_CHECKING:
    from logstore.api.entry import Entry
    from logstore.api.entry_reads import Where
    from logstore.api.stream import Stream
    from logstore.options import Sync


_PLAIN_PAIR = re.compile(r"""[^\s=<>!'"()]+(?:=[^\s'"()]*)?""")


def wanted(given: tuple[str, ...]) -> dict[bytes, bytes] | str | None:
    """What --where asks for, all of it; None: nothing. FIELD=VALUE is what is stored, and all else
    a condition."""
    texts = [each for each in given if not _is_pair(each)]
    pairs = [split_pair(each) for each in given if each not in texts]
    if len(dict(pairs)) < len(pairs):
        raise click.BadParameter("a field is given twice: all conditions must hold")
    if not texts:
        return dict(pairs) or None
    if pairs:
        raise click.BadParameter(
            "a condition and FIELD=VALUE do not go together: write the latter as one, "
            f"{_said(pairs)}"
        )
    return " and ".join(f"({each})" for each in texts) if len(texts) > 1 else texts[0]


def asked(stream: Stream[Any], given: dict[bytes, bytes] | str | None) -> Where | None:
    """What --where asks of a stream, which may have a codec."""
    if given is None or isinstance(given, str):
        return given
    return dict(options.typed_fields(stream, list(given.items())))


def _said(pairs: list[tuple[bytes, bytes]]) -> str:
    field, value = (part.decode("utf-8", "replace") for part in pairs[0])
    return f"{field} = " + "'" + value.replace("'", "''") + "'"


def _is_pair(text: str) -> bool:
    """Whether a text is FIELD=VALUE, or was meant to be: a word with or without a value, or what
    is no condition and has no quotes."""
    if _PLAIN_PAIR.fullmatch(text):
        return True
    from logstore.where.condition_text import parse  # here, for help must load fast

    try:
        parse(text)
    except OptionError:
        field, equals, value = text.partition("=")
        is_spaced = field != field.strip() or value != value.lstrip()  # as conditions are written
        return bool(equals) and not is_spaced and not any(sign in text for sign in "'<>")
    return False


def split_pair(pair: str) -> tuple[bytes, bytes]:
    """FIELD=VALUE of the command line, as the bytes that were typed."""
    field, equals, value = pair.partition("=")
    if not equals:
        raise click.BadParameter(f"{pair!r} is not FIELD=VALUE", param_hint="FIELD=VALUE")
    return os.fsencode(field), os.fsencode(value)


where_option = click.option(
    "--where",
    metavar="CONDITION",
    multiple=True,
    help="Only entries for which it holds: FIELD=VALUE, or such as \"temp > 20 and room = 'a'\"; "
    "repeatable.",
)


@options.command("add")
@options.stream_argument
@click.argument("pairs", metavar="FIELD=VALUE...", nargs=-1, required=True)
@click.option("--id", "id", default="*", show_default=True, help="The ID: MS-SEQ, MS-* or *.")
@click.option("--max-entries", type=options.number(0), help="Then trim to about this many entries.")
@click.option("--min-id", help="Then trim what is below this ID, about.")
@click.option("--exact", is_flag=True, help="Trim exactly, not whole nodes only.")
@click.option("--ttl", type=LENGTH, help="How long the entry lives: 90s, 1h30m, 7d.")
@options.no_create_option
@options.sync_option
def add(
    output: Output,
    /,
    path: Path,
    name: str,
    pairs: tuple[str, ...],
    exact: bool,
    no_create: bool,
    sync: Sync,
    **more: Any,
) -> None:
    """Add one entry to STREAM and print its ID.

    Makes the store and the stream if they are missing. A field name may repeat. To a stream with
    a codec a VALUE is what it is as JSON, n=8 or 'tags=["a"]', else text.
    """
    fields = [split_pair(pair) for pair in pairs]
    # Closing makes the entry durable, so no background thread is needed.
    with options.opened(path, sync=sync, create=not no_create, background=False) as store:
        stream = options.by_codec(store, store.stream(name))
        row = options.typed_fields(stream, fields)
        added = stream.add(row, approximate=not exact, create=not no_create, **more)
    if added is None:
        raise StreamNotFoundError("no such stream: leave out --no-create to make it")
    if output.json:
        output.json_object({"id": str(added)})
    else:
        output.line(str(added))


@options.command("range")
@options.stream_argument
@click.argument("start", default="-")
@click.argument("end", default="+")
@click.option("--since", help="From this moment on: 1h (ago), today, 2026-01-31T12:00Z.")
@click.option("--until", help="Up to this moment, likewise; of a day all of it.")
@where_option
@options.count_option("At most this many.", default=None)
@click.option("--reverse", is_flag=True, help="The last one first.")
@options.raw_option
def range_(
    output: Output, /, path: Path, name: str, where: tuple[str, ...], **interval: Any
) -> None:
    """Print entries from START to END, both included.

    An ID is MS-SEQ or MS; "-" and "+" are the first and the last; "(" before an ID leaves it out.
    START is the smaller one, also with --reverse.
    """
    match = wanted(where)
    with options.reading(path) as store:
        stream = options.with_codec(store, name)
        schema = options.schema_for_json(output, stream)
        for entry in stream.range(where=asked(stream, match), **interval):
            output.entry(entry, schema)


@options.command("tail")
@options.stream_argument
@options.count_option(None, default=10)
@click.option("--since", help="All from this moment on, whatever -n says: 1h, today.")
@where_option
@click.option("-f", "--follow", is_flag=True, help="Go on with new entries, until interrupted.")
@options.raw_option
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
    given = wanted(where)
    with options.reading(path) as store:
        stream = options.with_codec(store, name)
        match = asked(stream, given)
        schema = options.schema_for_json(output, stream)
        seen = stream.last_id  # later entries are for --follow
        if since is not None:
            begun = stream.range(since=since, where=match)
            shown: Iterable[Entry[bytes]] = takewhile(lambda entry: entry.id <= seen, begun)
        else:
            newest = stream.range(end=seen, where=match, count=count, reverse=True)
            shown = reversed(list(newest))
        for entry in shown:
            output.entry(entry, schema)
        if follow:
            output.flush()
            for entry in stream.follow(seen, where=match):
                output.entry(entry, schema)
                output.flush()
