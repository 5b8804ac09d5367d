"""The Spark sink: tasks pack rows to nodes in staged files, the driver publishes all at once.

A task that is tried again, or run twice, writes a file of another name, and only what a task told
when it ended is published. So a job is in the store as a whole or not at all.

Invariants: nothing that is sent anywhere holds an open file or the index; tasks need no LMDB.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logstore.fs import LOCAL
from logstore.log import stagefile
from logstore.log.pinfile import Pin
from logstore.log.stagefile import StagedRun
from logstore.scan import intake
from logstore.spark_io.sink_options import SinkOptions


class Wrote(WriterCommitMessage):
    """What a task staged."""

    def __init__(self, runs: list[StagedRun]) -> None:
        self.runs = runs


def check_columns(schema: Any, options: SinkOptions) -> None:
    """OptionError for columns that cannot be written, before a task begins."""
    from pyspark.sql.pandas.types import to_arrow_schema

    known = inspect.signature(to_arrow_schema).parameters  # before 4.2 it is always UTC
    more: dict[str, Any] = {"timezone": "UTC"} if "timezone" in known else {}
    arrow = to_arrow_schema(schema, **more)
    intake.layout(arrow, options.id_column, streams=not options.stream)


class Tasks:
    """What a task does, alike in both sinks."""

    again: ClassVar[bool] = False  # whether a stage that is gone is made again

    def __init__(self, options: SinkOptions, stage: Pin) -> None:
        self.options = options
        self.stage = stage

    def write(self, iterator: Iterator[Any]) -> Wrote:
        """Pack the batches of one partition to a staged file."""
        options, path = self.options, Path(self.options.path)
        writer = stagefile.StageWriter(LOCAL, path, self.stage)
        packer: intake.Packer | None = None
        try:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                now_ms = time.time_ns() // 1_000_000
                stagefile.keep(LOCAL, path, self.stage, now_ms, again=self.again)
                if packer is None:
                    wanted = intake.layout(
                        batch.schema, options.id_column, streams=not options.stream
                    )
                    packer = intake.Packer(
                        wanted, options.stream.encode(), options.limits, writer.add
                    )
                packer.add(batch)
            if packer is not None:
                packer.finish()
            return Wrote(writer.finish())
        except BaseException:
            writer.abandon()
            raise


def runs_of(messages: Any) -> list[list[StagedRun]]:
    """What the tasks told, in their order; one without a partition tells nothing."""
    return [each.runs if isinstance(each, Wrote) else [] for each in messages]


class BatchSink(Tasks, DataSourceArrowWriter):
    """``df.write.format("logstore")``."""

    def __init__(self, options: SinkOptions, stage: Pin, *, overwrite: bool) -> None:
        super().__init__(options, stage)
        self.overwrite = overwrite

    def commit(self, messages: Any) -> None:
        """Publish everything, in one commit."""
        from logstore.spark_io import publishing  # with LMDB, which tasks must not need

        publishing.commit(self.options, runs_of(messages), overwrite=self.overwrite)
        publishing.end(self.options.path, self.stage)

    def abort(self, messages: Any) -> None:  # noqa: ARG002  (some of them may be None)
        """Nothing is published, and the files go."""
        from logstore.spark_io import publishing

        publishing.end(self.options.path, self.stage)
