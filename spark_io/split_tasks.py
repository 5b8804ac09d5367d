"""What a task of Spark does: it reads one split, alike in batch and streaming reads.

Invariants: all rows of the split are given, or an error says which are missing; with
``failOnDataLoss=false`` a warning in the log says so instead. Needs no LMDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from logstore.scan import split_reads
from logstore.scan.record_batches import Loss, Losses
from logstore.scan.snapshot_file import Split
from logstore.spark_io import spark_columns
from logstore.spark_io.spark_log import log
from logstore.spark_io.spark_options import SourceOptions
from logstore.store_path import shown

ADVICE = (
    ". The table that option('table', 'damage') reads lists all that is damaged, and "
    "failOnDataLoss=false reads the rest"
)
LOGGED_LOSSES = 3


def batches(
    split: Split, wanted: Sequence[spark_columns.Column], options: SourceOptions
) -> Iterator[Any]:
    """The record batches of a split. SnapshotExpiredError if its pin is over; CorruptionError for
    entries that cannot be read, unless losses are allowed."""
    losses = Losses(allowed=not options.fail_on_loss, advice=ADVICE)
    shape, gather = spark_columns.shape_and_gather(wanted, options, shown(split.store))
    try:
        for batch in split_reads.batches(split, gather, losses=losses):
            yield shape.batch(batch)
    finally:  # also where Spark wants no more rows
        if not options.fail_on_loss:
            log_losses(shown(split.store), losses.found, "a task left out")


def log_losses(path: str, found: Sequence[Loss], who: str) -> None:
    """Log one line for the losses of a store, if there are any."""
    if not found:
        return
    first = "; ".join(str(each.as_error()) for each in found[:LOGGED_LOSSES])
    more = f"; and {len(found) - LOGGED_LOSSES} places more" if len(found) > LOGGED_LOSSES else ""
    count = sum(each.entries for each in found)
    log.warning("%s %d entries, at most, of %s: %s%s", who, count, path, first, more)


class SplitPartition(InputPartition):
    """A split for a task, as Spark carries it."""

    def __init__(self, split: Split) -> None:
        super().__init__(split.offset)
        self.split = split
