"""The table of what cannot be read: ``option("table", "damage")``.

Tasks read all of the streams and give a row for each run of damaged nodes, so that who reads with
``failOnDataLoss=false`` can tell what was left out, and a count of it is a query. Invariants: as of
``tables``; each damaged node is in one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from logstore.scan import split_reads as read
from logstore.scan.record_batches import Gather, Loss, Losses
from logstore.spark_io.offsets import shown as shown_name
from logstore.spark_io.partition import SplitPartition
from logstore.spark_io.source_options import SourceOptions
from logstore.spark_io.tables import TableReader
from logstore.uri_path import shown


class DamageReader(TableReader):
    """Plans as a load does, and reads in tasks."""

    def __init__(self, table: str, options: SourceOptions, schema: Any, cores: int) -> None:
        super().__init__(table, options, schema)
        self.cores = cores

    def partitions(self) -> list[InputPartition]:
        """The splits of a new plan, pinned."""
        from logstore.spark_io import planning

        return [SplitPartition(each) for each in planning.splits(self.options, self.cores, ())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """What is damaged in one split."""
        if not isinstance(partition, SplitPartition):
            return
        losses = Losses(passed_over=True)
        for _ in read.batches(partition.split, Gather(["ms"]), losses=losses):
            pass
        if losses.found:
            place = shown(partition.split.store)
            yield self.batch([(*_row(each), place) for each in losses.found])


def _row(loss: Loss) -> tuple[Any, ...]:
    ids = str(loss.first), str(loss.last)
    where = loss.segment, loss.offset
    return shown_name(loss.stream), *ids, loss.nodes, loss.entries, *where, loss.error.message
