"""Planning for Spark: the one part of the source that opens the store.

Invariants: the store is closed again before anything is sent to a task; what a plan names is
durable before a task can read it, so that a task never finds other bytes there.
"""

from __future__ import annotations

from pathlib import Path

from logstore import arguments
from logstore.errors import StreamNotFoundError
from logstore.scan import plan
from logstore.scan.split import Split
from logstore.spark_io.options import SourceOptions
from logstore.store import Store, open_store


def _open(options: SourceOptions) -> Store[bytes]:
    readonly = bool(options.snapshot_dir)
    return open_store(Path(options.path), create=False, background=False, readonly=readonly)


def check_streams(options: SourceOptions) -> None:
    """StreamNotFoundError, naming it, for a stream that is not there."""
    with _open(options) as store:
        for name in options.streams:
            if name not in store:
                raise StreamNotFoundError(
                    f"there is no such stream in {options.path}; see store.streams()",
                    stream=arguments.stream_name(name),
                )


def splits(options: SourceOptions, cores: int) -> list[Split]:
    """The splits of a new plan, in the order of the streams and their IDs."""
    with _open(options) as store:
        names = [arguments.stream_name(name) for name in options.streams] or store.streams()
        made = plan.make(
            store._engine(), names, options.start, options.end,  # noqa: SLF001
            min_partitions=options.min_partitions, cores=cores, ttl_ms=options.pin_ms,
            home=Path(options.snapshot_dir) if options.snapshot_dir else None,
        )  # fmt: skip
        if not options.snapshot_dir:
            store.sync()
    return made.splits
