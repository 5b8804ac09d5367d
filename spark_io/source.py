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
    damage_table,
    places,
    sink,
    sink_options,
    source_options,
    split_batches,
    stream_options,
    tables,
    telling,
)
from logstore.spark_io import schema as columns
from logstore.spark_io.partition import SplitPartition
from logstore.spark_io.source_options import SourceOptions

NAME = "logstore"


class LogstoreSource(DataSource):
    """``spark.read.format("logstore")``; made known to a session by ``register``."""

    # What `register` knows of the session:
    cores: ClassVar[int] = 0  # Spark's default parallelism; 0: ask the machine
    log_level: ClassVar[int] = telling.UNKNOWN

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.given = source_options.given_by_user(dict(options))
        self.of_table = source_options.is_table(dict(options))

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> Any:
        """The standard columns; the options are checked first, for Spark asks when it loads."""
        from logstore.spark_io import planning  # with LMDB, which tasks must not need

        if "table" in self.given:
            table, parsed = tables.parse(self.given)
            if self.of_table:
                raise OptionError(
                    "option 'table' is not kept with a table of Spark: create a temporary view"
                )
            planning.check_streams(parsed)
            return tables.ddl(table, several=places.several(self.given))
        if stream_options.is_streaming(self.given):
            planning.check_streams(stream_options.parse(self.given).source)
        else:
            planning.check_streams(_parsed(self.given))
        if self.of_table:
            return columns.of_table(self.given)
        if places.several(self.given):
            name = self.given.get("storecolumn", source_options.STORE_COLUMN)
            return columns.ddl_of_several(name)
        return columns.DDL

    def reader(self, schema: Any) -> Any:
        """The reader of the standard columns or of those that the user named."""
        telling.listen(self.log_level)
        cores = self.cores or os.cpu_count() or 1
        if "table" in self.given:
            table, about = tables.parse(self.given)
            if table == tables.DAMAGE:
                return damage_table.DamageReader(table, about, schema, cores)
            return tables.TableReader(table, about, schema)
        parsed = _parsed(self.given or columns.table_options(schema))
        return LogstoreReader(parsed, columns.columns(schema, parsed), cores)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802  (Spark's name)
        """The reader of a streaming query; one that only raises where there can be none.

        Spark hides an error that is raised here itself behind one of its own.
        """
        try:
            return self._stream_reader(schema)
        except Error as error:
            return RefusedReader(error)

    def _stream_reader(self, schema: Any) -> Any:
        try:
            from logstore.spark_io.stream_source import LogstoreStreamReader
        except ImportError:
            raise _needs("4.2", "reading") from None
        parsed = stream_options.parse(self.given)
        wanted = columns.columns(schema, parsed.source)
        return LogstoreStreamReader(parsed, wanted, self.cores or os.cpu_count() or 1)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """The batch sink; everything that can be is checked here, before a task begins."""
        given = self.given or sink_options.of_table(columns.table_options(schema))
        parsed = sink_options.parse(given, streaming=False)
        sink.check_columns(schema, parsed)
        from logstore.spark_io import publishing

        stage = publishing.begin(parsed, overwrite=overwrite)
        return sink.BatchSink(parsed, stage, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        """The streaming sink."""
        parsed = sink_options.parse(self.given, streaming=True)
        if overwrite:
            raise OptionError("outputMode is 'append' or 'update': a stream is never written anew")
        sink.check_columns(schema, parsed)
        from logstore.spark_io import publishing

        try:
            from logstore.spark_io import stream_sink
        except ImportError:
            raise _needs("4.1", "writing") from None
        return stream_sink.StreamSink(parsed, publishing.begin(parsed, overwrite=False))


def _needs(version: str, doing: str) -> OptionError:
    return OptionError(
        f"{doing} by a streaming query needs pyspark {version} or later, and this is "
        f"{pyspark.__version__}: use a batch, or a newer Spark"
    )


def _parsed(given: dict[str, str]) -> SourceOptions:
    if not given:
        raise OptionError(
            "no options: give at least 'path' and 'stream'. (Of a table that was created with "
            "columns of its own Spark hands none over: create a temporary view instead)"
        )
    return source_options.parse(given)


class RefusedReader(DataSourceStreamReader):
    """In the place of a streaming query's reader: an error that Spark shows as it is."""

    def __init__(self, error: Error) -> None:
        self.error = error

    def initialOffset(self) -> Any:  # noqa: N802  (Spark's names)
        """It raises the error."""
        raise self.error

    def latestOffset(self, *_: Any, **__: Any) -> Any:  # noqa: N802
        """As does this, where a query is started again."""
        raise self.error

    def partitions(self, start: Any, end: Any) -> Any:  # noqa: ARG002
        """And this, where it first does a batch again."""
        raise self.error

    def read(self, partition: InputPartition) -> Any:  # noqa: ARG002
        """Never called."""
        raise self.error


class LogstoreReader(DataSourceReader):
    """Plans on the driver's side, reads in tasks."""

    def __init__(
        self, options: SourceOptions, wanted: tuple[columns.Column, ...], cores: int
    ) -> None:
        self.options = options
        self.wanted = wanted
        self.cores = cores

    def partitions(self) -> list[InputPartition]:
        """The splits of a new plan, pinned."""
        from logstore.spark_io import planning

        fields = columns.fields(self.wanted, self.options)
        hidden = columns.hidden(self.wanted, self.options)
        counting = not self.wanted and self.options.fail_on_loss
        splits = planning.splits(self.options, self.cores, fields, hidden, counting=counting)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one split, as `reading.batches` says."""
        if not isinstance(partition, SplitPartition):
            return  # Spark's way to say that there are no partitions
        yield from split_batches.batches(partition.split, self.wanted, self.options)
