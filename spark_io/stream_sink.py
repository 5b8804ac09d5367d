"""The streaming sink: as the batch sink, and each batch once.

A query keeps the number of its last batch in the store, in the same commit: a batch that Spark
repeats after a crash is known, and not written again. Needs a Spark that has Arrow here, 4.1.

Invariants: as of `sink`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from logstore.spark_io.sink import Tasks, runs_of


class StreamSink(Tasks, DataSourceStreamArrowWriter):
    """``df.writeStream.format("logstore")``."""

    again = True

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Publish a batch, unless it is there already."""
        from logstore.spark_io import publishing

        publishing.commit_batch(self.options, runs_of(messages), batchId)

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: ARG002, N803
        """Nothing is published, and the files go."""
        from logstore.spark_io import publishing

        publishing.discard(self.options.path, runs_of([each for each in messages if each]))
