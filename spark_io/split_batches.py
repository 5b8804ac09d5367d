"""Reading one split in a task, alike in batch and streaming reads; what is lost is told.

Invariants: all rows of the split are given, or an error says which are not there; with
``failOnDataLoss=false`` a line of the log says so instead. Needs no LMDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from logstore.scan import split_reads
from logstore.scan.record_batches import Loss, Losses
from logstore.scan.snapshot_file import Split
from logstore.spark_io import schema as columns
from logstore.spark_io.source_options import SourceOptions
from logstore.spark_io.telling import log
from logstore.uri_path import shown

ADVICE = (
    ". The table that option('table', 'damage') reads lists all that is damaged, and "
    "failOnDataLoss=false reads the rest"
)
TOLD_LOSSES = 3


def batches(
    split: Split, wanted: Sequence[columns.Column], options: SourceOptions
) -> Iterator[Any]:
    """The record batches of a split. SnapshotExpiredError if its pin is over; CorruptionError for
    what cannot be read, unless that is passed over."""
    losses = Losses(passed_over=not options.fail_on_loss, advice=ADVICE)
    rows, gather = columns.rows(wanted, options, shown(split.store))
    try:
        for batch in split_reads.batches(split, gather, losses=losses):
            yield rows.batch(batch)
    finally:  # also where somebody has rows enough
        if not options.fail_on_loss:
            tell(shown(split.store), losses.found, "a task left out")


def tell(place: str, found: Sequence[Loss], who: str) -> None:
    """One line for what was lost of a store, if anything was."""
    if not found:
        return
    first = "; ".join(str(each.as_error()) for each in found[:TOLD_LOSSES])
    more = f"; and {len(found) - TOLD_LOSSES} places more" if len(found) > TOLD_LOSSES else ""
    count = sum(each.entries for each in found)
    log.warning("%s %d entries, at most, of %s: %s%s", who, count, place, first, more)
