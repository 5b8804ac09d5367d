"""A source of Spark that hands over ready record batches: no source in Python can be faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

PARTS = 2


class HandOver(DataSource):
    """``format("handover")``: a batch, in hex as an Arrow stream, until there are ``rows``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "handover"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002  (Spark gives it)
        """The reader; what the schema names is in the batch."""
        return HandOverReader(bytes.fromhex(self.options["batch"]), int(self.options["rows"]))


class HandOverReader(DataSourceReader):
    """Two partitions of ready batches."""

    def __init__(self, batch: bytes, rows: int) -> None:
        self.batch = batch
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        """One for each core."""
        return [InputPartition(part) for part in range(PARTS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batch, until there are enough rows."""
        import pyarrow as pa

        with pa.ipc.open_stream(self.batch) as stream:
            batch = stream.read_next_batch()
        left = (self.rows + partition.value) // PARTS
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows
