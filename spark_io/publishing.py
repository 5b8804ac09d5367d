"""Publishing for Spark: the part of the sinks that opens the store, beside the driver.

Crash order: the stage (a pin) is durable before a task writes a file. Tasks sync their files before
they report them. Then one commit publishes everything. Then the files are removed, and the stage of
a batch write with them. A kill before the commit leaves files that are removed with the stage, when
the driver is gone; a kill after it leaves files that nobody needs, which are removed likewise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from logstore.api import arguments
from logstore.api.opening import opened_of
from logstore.api.store import open_store
from logstore.engine.dump import publish
from logstore.engine.dump.publish import Progress, StagedEntries
from logstore.engine.dump.restore import INSTALL_MAX_BYTES
from logstore.engine.runtime import pins
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import OptionError, StreamExistsError, TooLargeError
from logstore.features.schema_rows import SchemaRows
from logstore.fs import LOCAL
from logstore.log import stagefile
from logstore.log.stagefile import StagedRun
from logstore.scan.intake import StreamTyping
from logstore.spark_io.planning import driver
from logstore.spark_io.spark_options import ERROR, SinkOptions, WriteStage

PROGRESS = "spark:sink:"  # with the producer behind it: the stream with the last batch
_METADATA_BYTES = 1 << 16


def begin(options: SinkOptions, *, overwrite: bool) -> WriteStage:
    """Begin a stage for a write; StreamExistsError if that is known before it. A store that is not
    there is made, if the options allow that."""
    if overwrite and options.if_exists != publish.APPEND:
        raise OptionError("option 'ifExists' goes with mode 'append' only")
    path = Path(options.path)
    with open_store(path, create=options.create, background=False) as store:
        if options.if_exists == ERROR and options.stream and options.stream in store:
            raise StreamExistsError(
                "there is a stream of this name already, and option 'ifExists' is 'error'",
                stream=arguments.stream_name(options.stream),
            )
        now_ms = opened_of(store).engine().clock.now_ms()
        pins.living(LOCAL, path, now_ms)  # removes what killed jobs left
        typed = opened_of(store).view(partial(_typed, only=options.stream))
        return WriteStage(stagefile.begin(LOCAL, path, *driver(), now_ms), typed)


def _typed(view: Snapshot, only: str) -> dict[bytes, StreamTyping]:
    """The schemas by which rows are to be written: of one stream, or of all."""
    rows = SchemaRows(view.index)
    if only:
        record = view.record(arguments.stream_name(only))
        found = [] if record is None or not record.schema_at else [record]
    else:
        numbers = [number for number, _ in rows.rows()]
        records = (view.index.record(number) for number in numbers)
        found = [record for record in records if record is not None and record.schema_at]
    texts: dict[str, str] = {}  # a text that many streams have is sent once
    typed: dict[bytes, StreamTyping] = {}
    for record in found:
        text = rows.text(record.number)
        if text is not None:  # else the index lost it: the commit refuses the rows
            typed[record.name] = StreamTyping(texts.setdefault(text, text), record.schema_at)
    return typed


def commit(
    options: SinkOptions,
    tasks: Sequence[Sequence[StagedRun]],
    *,
    overwrite: bool,
    progress: Progress | None = None,
) -> int:
    """Publish what the tasks staged, in the order of the tasks; how many entries these are."""
    path = Path(options.path)
    runs = [run for task in tasks for run in task]
    mode = publish.OVERWRITE if overwrite else options.if_exists
    size = sum(run.size_bytes for run in runs)
    if size > INSTALL_MAX_BYTES:
        raise TooLargeError(
            f"{size} bytes of nodes cannot be written as one commit ({INSTALL_MAX_BYTES} "
            "at most): nothing was written; write the DataFrame in parts"
        )
    with open_store(path, create=False, background=False) as store:
        streams = _streams(path, runs)
        if overwrite and options.stream and not streams:
            streams = [StagedEntries(arguments.stream_name(options.stream), False, ())]
        step = partial(publish.publish, streams=streams, mode=mode, progress=progress)
        rows: int = opened_of(store).commit(step, "always")
    stagefile.remove(LOCAL, path, runs)
    return rows


def commit_batch(options: SinkOptions, tasks: Sequence[Sequence[StagedRun]], batch: int) -> int:
    """Publish a batch of a streaming query, unless it was published; how many entries these are."""
    name, query = PROGRESS + options.producer, query_of(options.checkpoint)
    progress = Progress(arguments.stream_name(name), query.encode(), batch)
    return commit(options, tasks, overwrite=False, progress=progress)


def _streams(path: Path, runs: Iterable[StagedRun]) -> list[StagedEntries]:
    """The staged nodes, by stream."""
    runs = list(runs)
    found: dict[bytes, list[tuple[StagedRun, bytes]]] = {}
    for run, data in zip(runs, stagefile.read(LOCAL, path, runs), strict=True):
        found.setdefault(run.stream, []).append((run, data))
    return [
        publish.staged(name, some, own_ids=all(run.own_ids for run, _ in some))
        for name, some in found.items()
    ]


def end(path: str, stage: WriteStage) -> None:
    """End a write: remove its stage, with the files that are left."""
    with suppress(FileNotFoundError):
        pins.release(LOCAL, Path(path), stage.pin.id)


def discard(path: str, tasks: Iterable[Iterable[StagedRun]]) -> None:
    """Remove what tasks staged, unpublished."""
    stagefile.remove(LOCAL, Path(path), [run for task in tasks for run in task])


def query_of(checkpoint: str) -> str:
    """The ID of the streaming query whose checkpoint this is; empty where it cannot be read."""
    path = checkpoint.removeprefix("file://") if checkpoint.startswith("file:/") else checkpoint
    path = path.removeprefix("file:")
    if not path or "://" in path:
        return checkpoint
    try:
        found = json.loads(LOCAL.read_named(Path(path) / "metadata", _METADATA_BYTES))
        return str(found["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return checkpoint
