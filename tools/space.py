"""``logstore retain``, ``compact`` and ``pins``: give space back, and see what keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.api import units
from logstore.tools import options
from logstore.tools.output import Output

if TYPE_CHECKING:
    from logstore.api.info import PinInfo

ID_LENGTH = 32  # of a pin: one that is broken cannot be copied


@options.command("retain")
def retain(output: Output, path: Path) -> None:
    """Drop what is older, or more, than streams keep by their settings, in whole nodes.

    A process that has the store open does this by itself every second, unless it was opened with
    background=False. 'logstore compact' gives the space back at once.
    """
    with options.opened(path, create=False, background=False) as store:
        dropped = store.retain()
    output.report({"entries_dropped": dropped})


@options.command("compact")
@click.option("--purge", is_flag=True, help="Rewrite all that still holds a deleted entry.")
@click.option("--full", is_flag=True, help="Rewrite what is dead by a hundredth, and the index.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Rewrite nodes and segments that are dead by more than this share.",
)
def compact(output: Output, path: Path, purge: bool, full: bool, threshold: float) -> None:
    """Rewrite nodes with many tombstones and drop segments that are mostly dead.

    Safe beside readers and writers, and safe to interrupt. After --purge no file of the store
    holds a byte of a deleted entry; backups and copies are out of reach.
    """
    with options.opened(path, create=False) as store:
        found = store.compact(purge=purge, full=full, threshold=threshold)
    output.report(found.as_dict())


@options.command("pins")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--release", is_flag=True, help="Give back the pins named, or all of them.")
def pins(output: Output, path: Path, ids: tuple[str, ...], release: bool) -> None:
    """List pins: which process keeps segments from compaction, since when, and how much.

    With --release they are given back; what still reads by them, such as a Spark job, ends with an
    error. Then 'logstore compact' gives the space back.
    """
    if ids and not release:
        raise click.UsageError("IDs are for --release")
    if release:
        with options.opened(path, create=False, background=False) as store:
            output.report({"released": store.release_pins(*ids)})
        return
    with options.reading(path) as store:
        found = store.pins()
    if output.json:
        for each in found:
            output.json_object(each.as_dict())
        return
    head = ("ID", "for", "process", "since", "until", "segments", "keeps")
    narrow = ("until", "segments", "since")
    output.table(
        head, (_row(each) for each in found), narrow=narrow, none="no pin", folded=ID_LENGTH
    )


def _row(pin: PinInfo) -> tuple[object, ...]:
    return (
        pin.id,
        pin.purpose,
        f"{pin.pid} on {pin.host}" if pin.host else pin.pid,
        "" if pin.since is None else units.ago(pin.since),
        units.ago(pin.until),
        "all" if pin.segments is None else pin.segments,
        units.size(pin.segment_bytes + pin.snapshot_bytes),
    )
