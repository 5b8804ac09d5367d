"""A split on its way to a task, as Spark carries it."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from logstore.scan.snapshot_file import Split


class SplitPartition(InputPartition):
    """A split on its way to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split.offset)
        self.split = split
