"""Planning for Spark: the one part of the source that opens the store.

Invariants: the store is closed again before anything is sent to a task; what a plan names is
durable before a task can read it, so that a task never finds other bytes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from logstore.api import arguments
from logstore.api.open_store import open_store
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.engine.shm import process
from logstore.engine.shm.process import Identity
from logstore.errors import OptionError, StreamNotFoundError
from logstore.ids import StreamID
from logstore.logger import Logger
from logstore.scan import plan
from logstore.scan.plan import Plan
from logstore.scan.snapshot import Split
from logstore.spark_io import offsets
from logstore.spark_io.options import SourceOptions

SAMPLED_STREAMS = 16
SAMPLED_ENTRIES = 20
TOLD_STREAMS = 3
_log = Logger("logstore.spark")


def driver() -> Identity:
    """The process whose end ends the plans made here: Spark's driver.

    A planner is a process of its own that ends with the plan. Spark's driver is the Java virtual
    machine above it, which also ends when the Python script that started it does.
    """
    return process.identity(process.ancestor("java"))


def open_for(options: SourceOptions) -> Store[bytes]:
    """The store of a load."""
    readonly = bool(options.snapshot_dir)
    return open_store(Path(options.path), create=False, background=False, readonly=readonly)


def check_streams(options: SourceOptions) -> None:
    """StreamNotFoundError, naming it, for a stream that is not there; OptionError for an offset of
    another one, or a group that is not there."""
    with open_for(options) as store:
        _ranges(options, store, stream_names(options, store))


def _ranges(
    options: SourceOptions, store: Store[bytes], names: Sequence[bytes]
) -> dict[offsets.Range, list[bytes]]:
    """The streams of a load, by what is read of them."""
    offsets.check("startingOffsets", options.starts, names)
    offsets.check("endingOffsets", options.ends, names)
    group = options.group
    behind = {name: offsets.of_group(store, name, group) for name in names} if group else {}
    every = options.start, options.end
    return offsets.ranges(names, every, options.starts, options.ends, behind)


def stream_names(options: SourceOptions, store: Store[bytes]) -> list[bytes]:
    """The streams of a load, by name or pattern; StreamNotFoundError for an unknown name."""
    for wanted in options.streams:
        if wanted not in store:
            raise StreamNotFoundError(
                f"there is no such stream in {options.path}; see store.streams()",
                stream=arguments.stream_name(wanted),
            )
    names = [arguments.stream_name(name) for name in options.streams]
    if names and not options.patterns:
        return names
    for name in store.streams():
        text = name.decode("utf-8", "replace")
        every = not options.patterns
        if name not in names and (every or any(fnmatchcase(text, p) for p in options.patterns)):
            names.append(name)
    return names


def splits(options: SourceOptions, cores: int, fields: Sequence[str]) -> list[Split]:
    """The splits of a new plan, in the order of the streams and their IDs.

    OptionError for one of the ``fields`` that entries have under a name of other case only.
    """
    found: list[Plan] = []
    with open_for(options) as store:
        names = stream_names(options, store)
        for name in names[:SAMPLED_STREAMS]:
            _check_case(store.stream(name), options, fields)
        ranges = _ranges(options, store, names)
        for (start, end), some in ranges.items():
            made = plan.make(
                opened_of(store).engine(),
                some,
                start,
                end,
                min_partitions=options.min_partitions,
                cores=cores,
                ttl_ms=options.pin_ms,
                home=Path(options.snapshot_dir) if options.snapshot_dir else None,
                owner=driver(),
                purpose="spark",
            )
            found.append(made)
            _tell(options, made, some, start, end)
        if not options.snapshot_dir:
            store.sync()
    return [split for made in found for split in made.splits]


def _tell(
    options: SourceOptions, made: Plan, names: Sequence[bytes], start: StreamID, end: StreamID
) -> None:
    """One line a plan."""
    first = ", ".join(repr(name.decode("utf-8", "replace")) for name in names[:TOLD_STREAMS])
    more = f" and {len(names) - TOLD_STREAMS} more" if len(names) > TOLD_STREAMS else ""
    _log.info(
        "planned %s: %d streams (%s%s) from %s to %s: %d splits, %.1f MB, pin %s",
        options.path,
        len(names),
        first,
        more,
        start,
        end,
        len(made.splits),
        made.data_bytes / 1e6,
        made.pin_id or "none",
    )


def _check_case(stream: Stream[bytes], options: SourceOptions, fields: Sequence[str]) -> None:
    """By the first and last entries; a column of nulls would not tell that the case differs."""
    if not fields:
        return
    first = stream.range(options.start, options.end, count=SAMPLED_ENTRIES)
    last = stream.range(options.start, options.end, count=SAMPLED_ENTRIES, reverse=True)
    seen = {name.decode("utf-8", "replace") for each in (*first, *last) for name in each.fields}
    for name in set(fields) - seen:
        other = next((each for each in sorted(seen) if each.lower() == name.lower()), None)
        if other is not None:
            raise OptionError(
                f"column {name!r}: entries of stream {stream.name!r} have a field {other!r}, and "
                f"names of fields differ by case: write {other!r} in the schema, or read "
                f"fields[{name!r}]"
            )
