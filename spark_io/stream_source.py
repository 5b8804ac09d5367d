"""The streaming source in Python: ``spark.readStream.format("logstore")``.

`stream_query` has offsets, plans and pins; this module has Spark's names for them, some of which
came with Spark 4.2, and the reading in tasks.

Invariants: as of ``source``, and of ``stream_query``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logstore.spark_io import spark_columns, split_tasks
from logstore.spark_io.spark_options import StreamOptions
from logstore.spark_io.split_tasks import SplitPartition
from logstore.spark_io.stream_query import StreamQuery


class LogstoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and plans on the driver's side, reading in tasks."""

    def __init__(
        self, options: StreamOptions, wanted: tuple[spark_columns.Column, ...], cores: int
    ) -> None:
        self.options = options
        self.wanted = wanted
        self.query = StreamQuery(options, cores)

    # -- on the driver's side -----------------------------------------------------------------
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's names)
        """Where a new query begins."""
        return self.query.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a batch, by the options."""
        if self.options.max_rows:
            return ReadMaxRows(self.options.max_rows)
        if self.options.max_bytes:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the entries that there are now."""
        self.query.prepare_for_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; ``start`` if there is nothing new."""
        return self.query.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the streams ended when the last batch was looked for."""
        return self.query.reported()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The splits of a batch, pinned until it is committed."""
        return [SplitPartition(split) for split in self.query.splits(start, end)]

    def commit(self, end: dict[str, Any]) -> None:
        """Release the pins of the batch that ends there, and of all before it."""
        self.query.commit(end)

    def stop(self) -> None:
        """Release all pins at the end of the query."""
        self.query.stop()

    # -- in tasks -----------------------------------------------------------------------------
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one split."""
        if not isinstance(partition, SplitPartition):
            return
        yield from split_tasks.batches(partition.split, self.wanted, self.options.source)
