"""``logstore info``: counts and sizes of a store, or of one stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from logstore.info import GroupInfo
from logstore.tools import forms, options
from logstore.tools.output import Output


@click.command("info")
@options.store_argument
@click.argument("name", metavar="[STREAM]", required=False)
@options.json_option
@options.pass_output
def command(output: Output, path: Path, name: str | None) -> None:
    """Tell what a store holds and where it stands, or all of XINFO STREAM and XINFO GROUPS about
    one stream."""
    with options.reading(path) as store:
        if name is None:
            output.report(store.info().as_dict())
            return
        stream = options.existing(store, name)
        found, groups = stream.info(), stream.groups()
    values: dict[str, Any] = {key.replace("-", "_"): at for key, at in found.as_dict().items()}
    del values["name"]
    edges = {"first_entry": found.first_entry, "last_entry": found.last_entry}
    for key, entry in edges.items():
        form = forms.entry_object if output.json else forms.entry_line
        values[key] = None if entry is None else form(entry)
    values["consumer_groups"] = [_group(output, each) for each in groups]
    named = forms.name_object(found.name) if output.json else {"name": found.name}
    output.report({**named, **values})


def _group(output: Output, group: GroupInfo[bytes]) -> dict[str, Any]:
    values = {key.replace("-", "_"): at for key, at in group.as_dict().items()}
    del values["name"]
    named = forms.name_object(group.name) if output.json else {"name": group.name}
    return {**named, **values}
