"""``logstore schema``: the columns of a stream, shown, inferred, set and dropped.

Invariants: inferring changes nothing; a schema that does not fit what is stored changes nothing.
"""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.tools import command_options as options
from logstore.tools.command_output import Output

if TYPE_CHECKING:
    from logstore.schema.stream_schema import Schema

INFERRED_ENTRIES = 10_000


@click.group("schema", cls=options.CommandGroup)
def schema() -> None:
    """Show, infer, set or drop the columns of a stream.

    A schema is a text: 'temp double, at timestamp, note string?'. Each add is held against it.
    """


@options.command("show", group=schema)
@options.stream_argument
def show(output: Output, path: Path, name: str) -> None:
    """Tell the columns of STREAM."""
    with options.reading(path) as store:
        _tell(output, options.existing(store, name).schema)


@options.command("describe", group=schema)
@options.stream_argument
def describe(output: Output, path: Path, name: str) -> None:
    """Tell what the columns of STREAM hold: values, nulls, the least and the most."""
    with options.reading(path) as store:
        found = options.existing(store, name).describe()
    told = found.as_dict()
    if output.json:
        output.json_object(told)
        return
    output.table(
        ("column", "type", "values", "nulls", "least", "most"),
        [
            (column, each["type"], each["count"], each["nulls"], each["least"], each["most"])
            for column, each in told["columns"].items()
        ],
        title=f"{found.entries:,} entries; {found.nodes_read:,} of {found.nodes:,} nodes were read",
    )


@options.command("infer", group=schema)
@options.stream_argument
@click.option(
    "--count",
    type=options.number(1),
    default=INFERRED_ENTRIES,
    show_default=True,
    help="Look at so many of the newest entries.",
)
def infer(output: Output, path: Path, name: str, count: int) -> None:
    """Tell the columns that the entries of STREAM have; nothing is set."""
    from logstore.api.entry import stored_pairs
    from logstore.schema import schema_inference

    with options.reading(path) as store:
        newest = options.existing(store, name).range(reverse=True, count=count)
        rows = ([*chain.from_iterable(stored_pairs(entry))] for entry in newest)
        found = schema_inference.infer(islice(rows, count))
    if output.json:
        _tell(output, found)
    else:
        output.line(found.text)


@options.command("set", group=schema)
@options.stream_argument
@click.argument("text", metavar="SCHEMA")
@options.yes_option
def set_(output: Output, path: Path, name: str, text: str) -> None:
    """Set the columns of STREAM, once every entry was held against them.

    Asks first if rows that were taken so far can be refused then, as where a column goes.
    """
    from logstore.schema.schema_text import parse

    wanted = parse(text)
    with options.changing(path) as store:
        stream = options.existing(store, name)
        before = stream.schema
        refusals = [] if before is None else wanted.refusals(before)
        if refusals:
            why = ", ".join(refusals)
            options.confirm(output, f"Refuse rows of {name!r} that were taken so far? {why}.")
        stream.configure(schema=wanted)
        _tell(output, stream.schema)


@options.command("drop", group=schema)
@options.stream_argument
@options.yes_option
def drop(output: Output, path: Path, name: str) -> None:
    """Take the columns of STREAM away; its entries stay as they are."""
    with options.changing(path) as store:
        stream = options.existing(store, name)
        options.confirm(output, f"Let anybody add anything to {name!r}?")
        stream.configure(schema=None)
        _tell(output, stream.schema)


def _tell(output: Output, found: Schema | None) -> None:
    if output.json:
        output.json_object({"schema": None if found is None else found.text})
        return
    if found is None:
        output.line("no schema: any entry can be added")
        return
    output.table(
        ("column", "type", "nullable", "default"),
        [
            (
                each.name,
                each.type.name,
                "yes" if each.nullable else "no",
                "" if each.default is None else each.default.decode("utf-8", "backslashreplace"),
            )
            for each in found.columns
        ],
    )
    if found.is_open:
        output.line("and any other field")
