"""The Spark data source "logstore".

Planned in a process beside the driver, which opens the store, makes a plan and pins it; read by
executors from the segments and the plan's snapshot file. There is no filter pushdown on purpose:
in released Spark versions it gives wrong results; ranges are options.

Invariants: nothing that is sent anywhere holds an open file or the index; importing this needs no
LMDB; a task gives all rows of its split or raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from logstore.errors import Error, OptionError
from logstore.spark_io import (
    sink,
    spark_columns,
    spark_jar,
    spark_log,
    spark_options,
    split_tasks,
    store_paths,
    tables,
)
from logstore.spark_io.spark_log import log
from logstore.spark_io.spark_options import SourceOptions
from logstore.spark_io.split_tasks import SplitPartition

NAME = "logstore"


class LogstoreSource(DataSource):
    """``spark.read.format("logstore")``; made known to a session by ``register``."""

    # Of the session; `register` sets them:
    cores: ClassVar[int] = 0  # Spark's default parallelism; 0: ask the machine
    log_level: ClassVar[int] = spark_log.UNKNOWN
    for_jvm: ClassVar[bool] = False  # it only says what the reader in the JVM is to read

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.given = spark_options.given_by_user(dict(options))
        self.of_table = spark_options.is_table(dict(options))

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> Any:
        """The columns of the schema that is kept with the streams, and the standard columns. The
        options are checked first, for Spark calls this first."""
        from logstore.spark_io import planning  # with LMDB, which tasks must not need

        if "table" in self.given:
            table, parsed = tables.parse(self.given)
            self._check_reader(parsed)
            if self.of_table:
                raise OptionError(
                    "option 'table' is not kept with a table of Spark: create a temporary view"
                )
            planning.kept_schema(parsed)
            return tables.ddl(table, several=store_paths.several(self.given))
        parsed = any_read(self.given)
        self._check_reader(parsed)
        return spark_columns.schema_of(
            planning.kept_schema(parsed),
            parsed,
            table=self.given if self.of_table else None,
            several=store_paths.several(self.given) and not self.of_table,
        )

    def reader(self, schema: Any) -> Any:
        """The reader of the standard columns, or of those that the user named."""
        spark_log.listen(self.log_level)
        cores = self.cores or os.cpu_count() or 1
        if "table" in self.given:
            table, about = tables.parse(self.given)
            self._check_reader(about)
            if table == tables.DAMAGE:
                return tables.DamageReader(table, about, schema, cores)
            return tables.TableReader(table, about, schema)
        parsed = self.parsed_read(schema)
        self._check_reader(parsed)
        if parsed.reader == spark_options.AUTO:
            log.info(
                "the Python source reads, as the reader in the JVM is not there: %s", spark_jar.HOW
            )
        return LogstoreReader(parsed, spark_columns.columns(schema, parsed), cores)

    def parsed_read(self, schema: Any) -> SourceOptions:
        """The options of a batch read, checked; of a table those that are kept in its schema."""
        return _parsed_read(self.given_for(schema))

    def given_for(self, schema: Any) -> dict[str, str]:
        """The options of a batch read, unchecked; of a table those that are kept in its schema."""
        return spark_options.of_load(self.given, spark_columns.table_options(schema or ()))

    def _check_reader(self, parsed: SourceOptions) -> None:
        """OptionError if the reader in the JVM is to read: it would not have asked this source."""
        if parsed.reader == spark_options.JVM and not self.for_jvm:
            raise OptionError(
                f"option 'reader' is jvm, and this session has no reader in the JVM: "
                f"{spark_jar.HOW}; or leave 'reader' out"
            )

    def streamReader(self, schema: Any) -> Any:  # noqa: N802  (Spark's name)
        """The reader of a streaming query; for wrong options one that raises the error later, since
        Spark hides an error that is raised here behind one of its own."""
        try:
            return self._stream_reader(schema)
        except Error as error:
            return RefusedReader(error)

    def _stream_reader(self, schema: Any) -> Any:
        try:
            from logstore.spark_io.stream_source import LogstoreStreamReader
        except ImportError:
            raise _needs_spark("4.2", "reading") from None
        parsed = spark_options.parse_stream_read(self.given)
        self._check_reader(parsed.source)
        wanted = spark_columns.columns(schema, parsed.source)
        return LogstoreStreamReader(parsed, wanted, self.cores or os.cpu_count() or 1)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """The batch sink. All that can be checked before a task begins is checked here."""
        given = self.given or spark_options.written_of_table(spark_columns.table_options(schema))
        parsed = spark_options.parse_write(given, streaming=False)
        sink.check_columns(schema, parsed)
        from logstore.spark_io import publishing

        stage = publishing.begin(parsed, overwrite=overwrite)
        return sink.BatchSink(parsed, stage, sink.renamed(schema), overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        """The streaming sink."""
        parsed = spark_options.parse_write(self.given, streaming=True)
        if overwrite:
            raise OptionError("outputMode is 'append' or 'update': a stream is never written anew")
        sink.check_columns(schema, parsed)
        from logstore.spark_io import publishing

        if not sink.HAS_STREAM_SINK:
            raise _needs_spark("4.1", "writing")
        stage = publishing.begin(parsed, overwrite=False)
        return sink.StreamSink(parsed, stage, sink.renamed(schema))


def _needs_spark(version: str, doing: str) -> OptionError:
    return OptionError(
        f"{doing} by a streaming query needs pyspark {version} or later, and this is "
        f"{pyspark.__version__}: use a batch, or a newer Spark"
    )


def any_read(given: dict[str, str]) -> SourceOptions:
    """The options of a read of which it is not known yet whether it is a batch or a stream."""
    if spark_options.is_stream_read(given):
        return spark_options.parse_stream_read(given).source
    return _parsed_read(given)


def _parsed_read(given: dict[str, str]) -> SourceOptions:
    if not given.keys() - {"reader"}:  # which a session may say, too
        raise OptionError(
            "no options: give at least 'path' and 'stream'. (Of a table that was created with "
            "columns of its own Spark hands none over: create a temporary view instead)"
        )
    return spark_options.parse_read(given)


class RefusedReader(DataSourceStreamReader):
    """Stands for the reader of a streaming query; its error is shown by Spark as it is."""

    def __init__(self, error: Error) -> None:
        self.error = error

    def initialOffset(self) -> Any:  # noqa: N802  (Spark's names)
        """Raise the error, in a new query."""
        raise self.error

    def latestOffset(self, *_: Any, **__: Any) -> Any:  # noqa: N802
        """Raise the error, in a query that is started again."""
        raise self.error

    def partitions(self, start: Any, end: Any) -> Any:  # noqa: ARG002
        """Raise the error, in a query that first repeats a batch."""
        raise self.error

    def read(self, partition: InputPartition) -> Any:  # noqa: ARG002
        """Never called."""
        raise self.error


class LogstoreReader(DataSourceReader):
    """Reads entries: plans beside the driver, reads in tasks."""

    def __init__(
        self, options: SourceOptions, wanted: tuple[spark_columns.Column, ...], cores: int
    ) -> None:
        self.options = options
        self.wanted = wanted
        self.cores = cores

    def partitions(self) -> list[InputPartition]:
        """The splits of a new plan, pinned."""
        from logstore.spark_io import planning

        fields = spark_columns.fields(self.wanted, self.options)
        hidden = spark_columns.hidden(self.wanted, self.options)
        counting = not self.wanted and self.options.fail_on_loss
        made = planning.plan(self.options, self.cores, fields, hidden, counting=counting)
        return [SplitPartition(split) for split in made.splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one split."""
        if not isinstance(partition, SplitPartition):
            return  # Spark's way to say that there are no partitions
        yield from split_tasks.batches(partition.split, self.wanted, self.options)
