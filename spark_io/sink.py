"""The Spark sinks: tasks pack rows to nodes in staged files, the driver publishes all at once.

A task that is tried again, or runs twice, writes a file of another name, and only the files that a
task named when it ended are published. So a batch write is in the store as a whole or not at all. A
streaming query keeps the number of its last batch in the store, in the same commit: a batch that
Spark repeats after a crash is not written again.

Invariants: nothing that is sent anywhere holds an open file or the index; tasks need no LMDB.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logstore.errors import SchemaError
from logstore.fs import LOCAL
from logstore.log import stagefile
from logstore.log.stagefile import StagedRun
from logstore.scan import intake
from logstore.spark_io.spark_columns import named_field
from logstore.spark_io.spark_options import SinkOptions, WriteStage

# Spark 4.0 has none; `HAS_STREAM_SINK` says so.
_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)
HAS_STREAM_SINK = _StreamWriter is not object


class StagedRuns(WriterCommitMessage):
    """What a task staged, for the driver."""

    def __init__(self, runs: list[StagedRun]) -> None:
        self.runs = runs


def check_columns(schema: Any, options: SinkOptions) -> None:
    """OptionError for columns that cannot be written, before a task begins."""
    from pyspark.sql.pandas.types import to_arrow_schema

    known = inspect.signature(to_arrow_schema).parameters  # before Spark 4.2 it is always UTC
    more: dict[str, Any] = {"timezone": "UTC"} if "timezone" in known else {}
    arrow = to_arrow_schema(schema, **more)
    intake.layout(arrow, options.id_column, streams=not options.stream)


def renamed(schema: Any) -> dict[str, str]:
    """The fields of columns that have another name, as the source gave them."""
    named = ((field.name, named_field(field)) for field in schema)
    return {name: field for name, field in named if field is not None}


class SinkTasks:
    """The work of a task, alike in both sinks."""

    again: ClassVar[bool] = False  # a stage that is gone is made again

    def __init__(
        self, options: SinkOptions, stage: WriteStage, renamed: dict[str, str] | None = None
    ) -> None:
        self.options = options
        self.stage = stage
        self.renamed = renamed

    def write(self, iterator: Iterator[Any]) -> StagedRuns:
        """Pack the batches of one partition to a staged file."""
        options, path = self.options, Path(self.options.path)
        pin, typed = self.stage
        typing = typed.get(options.stream.encode())
        writer = stagefile.StageWriter(LOCAL, path, pin)
        packer: intake.Packer | None = None
        try:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                now_ms = time.time_ns() // 1_000_000
                stagefile.keep(LOCAL, path, pin, now_ms, again=self.again)
                if packer is None:
                    wanted = intake.layout(
                        batch.schema,
                        options.id_column,
                        streams=not options.stream,
                        typed=None if typing is None else typing.schema,
                        renamed=self.renamed,
                    )
                    packer = intake.Packer(
                        wanted, options.stream.encode(), options.limits, writer.add, typed
                    )
                packer.add(batch)
            if packer is not None:
                packer.finish()
            return StagedRuns(writer.finish())
        except BaseException as error:
            writer.abandon()
            if isinstance(error, SchemaError) and error.stream is None:
                error.stream = options.stream.encode()
            raise


def runs_of(messages: Any) -> list[list[StagedRun]]:
    """What each task staged, in the order of the tasks; nothing for one without a partition."""
    return [each.runs if isinstance(each, StagedRuns) else [] for each in messages]


class BatchSink(SinkTasks, DataSourceArrowWriter):
    """``df.write.format("logstore")``."""

    def __init__(
        self,
        options: SinkOptions,
        stage: WriteStage,
        renamed: dict[str, str] | None = None,
        *,
        overwrite: bool,
    ) -> None:
        super().__init__(options, stage, renamed)
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


class StreamSink(SinkTasks, _StreamWriter):
    """``df.writeStream.format("logstore")``, from Spark 4.1 on."""

    again = True

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Publish a batch, unless it is there already."""
        from logstore.spark_io import publishing

        publishing.commit_batch(self.options, runs_of(messages), batchId)

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: ARG002, N803
        """Nothing is published, and the files go."""
        from logstore.spark_io import publishing

        publishing.discard(self.options.path, runs_of([each for each in messages if each]))
