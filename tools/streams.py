"""``logstore streams``: a line about each stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from logstore.api import units
from logstore.tools import options
from logstore.tools.output import Output, name_object

if TYPE_CHECKING:
    from logstore.api.summary import StreamSummary

HEAD = ("stream", "entries", "size", "last ID", "age", "groups", "lag", "pending")
NARROW = (
    "last ID",
    "groups",
    "size",
    "age",
    "pending",
)  # what a narrow terminal does without, the first first


@options.command("streams")
def command(output: Output, path: Path) -> None:
    """List the streams: how long and large they are, their last IDs, how far their groups are.

    The lag is that of the group that is furthest behind; what is pending is of all groups.
    """
    from logstore.api.opening import opened_of
    from logstore.api.summary import summaries

    with options.reading(path) as store:
        found = summaries(opened_of(store), store.streams())
        if not output.json:
            output.table(HEAD, map(_row, found), narrow=NARROW, none="no stream")
            return
        for each in found:
            output.json_object(
                {
                    **name_object(each.name),
                    "entries": each.length,
                    "last_id": str(each.last_id),
                    "first_id": str(each.first_id),
                    "size_bytes": each.size_bytes,
                    "groups": len(each.groups),
                    "lag": each.lag,
                    "pending": each.pending,
                }
            )


def _row(found: StreamSummary) -> tuple[object, ...]:
    lag: object = "unknown" if found.lag is None else found.lag
    groups = (len(found.groups), lag, found.pending) if found.groups else ("", "", "")
    moment = units.clock(found.last_id.ms)
    return (
        found.name,
        found.length,
        units.size(found.size_bytes),
        str(found.last_id),
        units.age(moment),
        *groups,
    )
