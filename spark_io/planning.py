"""Planning for Spark: which streams of which stores are read, and in which splits.

`open_planned` is the one place where the stores of a load are opened: a directory with its index,
or a view of a URI, which makes an index of its own.

Invariants: stores are closed again before anything is sent to a task, and nothing that is sent
holds one. What a plan names is durable, or never changes, before a task can read it. A named stream
that no store has, a group that a stream does not have, and an offset of a stream that is not read
are errors before the first plan is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from logstore.api import arguments
from logstore.api.opening import opened_of
from logstore.api.scan import kept_by_all
from logstore.api.store import Store, open_store
from logstore.codec.node_list import read_item
from logstore.engine.shm import process_identity
from logstore.engine.shm.process_identity import Identity
from logstore.errors import CorruptionError, GroupNotFoundError, OptionError, StreamNotFoundError
from logstore.fs import LOCAL, FileSystem
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import pinfile
from logstore.log.shipped import is_shipped
from logstore.scan import snapshot_file, split_plan
from logstore.scan.moment import KeptMoment
from logstore.scan.node_skipping import NodeCondition, NodeSkipping
from logstore.scan.snapshot_file import Split
from logstore.scan.split_plan import Plan
from logstore.schema.stream_schema import Schema, folded
from logstore.spark_io import split_tasks
from logstore.spark_io.spark_log import log
from logstore.spark_io.spark_options import (
    Range,
    SourceOptions,
    check_offsets,
    ranges,
    shown_name,
    unescaped_name,
)
from logstore.store_path import path_of, shown
from logstore.tuples import NamedTuple

SAMPLED_STREAMS = 16
OPEN_STORES_MAX = 64
LOGGED_STREAMS = 3
SEVERAL = "*?[,"  # in a name that is not there: it was meant for option 'streams'


def kept_schema(options: SourceOptions) -> Schema | None:
    """The schema that is kept with all streams of a load; None if there is no such one, or it is
    not asked for. StreamNotFoundError for a stream that does not exist; OptionError for an offset
    of a stream that is not read, or a group that does not exist."""
    found = streams(options, warn=False)
    _ranges(options, found)
    kept: set[Schema | None] = set()
    for path, names in found.items():
        if not options.typed or len(kept) > 1:
            return None
        if names:
            with open_planned(options, path) as store:
                kept.add(store.kept_schema(names))
    return kept.pop() if len(kept) == 1 else None


def stream_names(
    options: SourceOptions, store: Store[bytes], *, gone: Collection[str] = (), warn: bool = False
) -> list[bytes]:
    """The streams of a load of one store; StreamNotFoundError for an unknown name, unless it is one
    of those that may be ``gone``; ``warn`` of patterns that find none."""
    path = options.paths[0]
    found, missing = _store_streams(options, PlannedStore(options, path, store))
    _check_missing(options, missing.difference(gone), warn=warn)
    return found


def _store_streams(options: SourceOptions, store: PlannedStore) -> tuple[list[bytes], set[str]]:
    """The streams of a load in one store, by name or pattern; and the names that it lacks, and the
    patterns that find none."""
    found: dict[bytes, None] = {}  # ordered, and fast to search: there may be 100,000
    missing: set[str] = set()
    for name in options.streams:
        meant = (arguments.stream_name(name), unescaped_name(name))
        there = next((each for each in meant if store.has(each)), None)
        if there is None:
            missing.add(name)
        else:
            found[there] = None
    if not options.streams and not options.patterns:
        found.update(dict.fromkeys(store.names()))
    elif options.patterns:
        missing.update(options.patterns)
        for each in store.names():
            text = shown_name(each)
            matched = [each for each in options.patterns if fnmatchcase(text, each)]
            if matched:
                found[each] = None
                missing.difference_update(matched)
    return list(found), missing


def _check_missing(options: SourceOptions, missing: Collection[str], *, warn: bool) -> None:
    """StreamNotFoundError for a name; a warning in the log for a pattern."""
    count = len(options.paths)
    where = shown(options.paths[0]) if count == 1 else f"{count} stores"
    for name in options.streams:
        if name not in missing:
            continue
        hint = "; see store.streams()"
        if any(each in name for each in SEVERAL):
            hint = ": a pattern, and several names, are given as option 'streams'"
        elif options.as_of:
            hint = " as of that moment; name it in store.moment(...), where it is there"
        raise StreamNotFoundError(
            f"there is no such stream in {where}{hint}",
            stream=arguments.stream_name(name),
        )
    for pattern in options.patterns if warn else ():
        if pattern in missing:
            log.warning("option 'streams': no stream of %s has a name like %r", where, pattern)


class _LoadStreams(dict[str, list[bytes]]):
    """The streams of a load by store. ``undelivered``: where streams begin for a group."""

    def __init__(self) -> None:
        super().__init__()
        self.undelivered: dict[tuple[str, bytes], StreamID] = {}


def streams(
    options: SourceOptions,
    fields: Sequence[str] = (),
    hidden: str | None = None,
    *,
    warn: bool = True,
) -> _LoadStreams:
    """The streams of a load by store, in the order of the stores; StreamNotFoundError for a name
    that none of them has. `_SchemaWarnings` warns about ``fields``, and about the one that is
    ``hidden``; ``warn`` of patterns that find no stream."""
    found = _LoadStreams()
    missing: set[str] | None = None
    warnings = _SchemaWarnings(options, fields, hidden)
    for path in options.paths:
        with open_planned(options, path) as store:
            found[path], absent = _store_streams(options, store)
            missing = absent if missing is None else missing & absent
            for name in found[path] if options.group else ():
                found.undelivered[path, name] = _first_undelivered(options.group, store, name)
            warnings.log(store, found[path])
    _check_missing(options, missing or (), warn=warn)
    return found


def _first_undelivered(group: str, store: PlannedStore, name: bytes) -> StreamID:
    """The first ID of a stream that a group was not given."""
    try:
        last = store.delivered(name, group)
    except GroupNotFoundError:
        raise OptionError(
            f"option 'startingGroup': stream {name!r} has no group {group!r} in {store.shown}: "
            "create it, or leave the stream out"
        ) from None
    return next_id(last)


def _ranges(options: SourceOptions, found: _LoadStreams) -> dict[str, dict[Range, list[bytes]]]:
    """The streams of each store, by the range that is read of them."""
    every = {name for names in found.values() for name in names}
    check_offsets("startingOffsets", dict(options.starts.named), every)
    check_offsets("endingOffsets", dict(options.ends.named), every)
    return {
        path: ranges(
            names,
            (options.start, options.end),
            options.starts,
            options.ends,
            {name: found.undelivered[path, name] for name in names} if options.group else {},
        )
        for path, names in found.items()
    }


class LoadPlan(NamedTuple):
    """The splits of a load. ``exact``: their ``entries`` are what a count gives, for no range ends
    inside of a node, and a count reads none."""

    splits: list[Split]
    exact: bool


def plan(
    options: SourceOptions,
    cores: int,
    fields: Sequence[str],
    hidden: str | None = None,
    *,
    counting: bool = False,
) -> LoadPlan:
    """The splits of a new plan, in the order of stores, streams and IDs. ``counting`` is that of
    `scan.split_plan.make`, errors and warnings are those of `streams`."""
    with ExitStack() as kept:  # a store that is opened again meanwhile shares its engine
        for path in options.paths[:OPEN_STORES_MAX]:
            kept.enter_context(open_planned(options, path))
        wanted = _ranges(options, streams(options, fields, hidden))
        found = _make_plans(options, cores, wanted, counting=counting)
    # Without losses only: with them each node is read, and a damaged one is not counted.
    whole = all(each == (ZERO_ID, MAX_ID) for some in wanted.values() for each in some)
    return LoadPlan(found, whole and options.fail_on_loss)


def _make_plans(
    options: SourceOptions,
    cores: int,
    wanted: dict[str, dict[Range, list[bytes]]],
    *,
    counting: bool,
) -> list[Split]:
    plans = max(1, sum(len(each) for each in wanted.values()))
    parts = None if options.min_partitions is None else -(-options.min_partitions // plans)
    cores = -(-cores // plans)
    found: list[Split] = []
    for path, some in wanted.items():
        if some:
            with open_planned(options, path) as store:
                for (start, end), names in some.items():
                    made = store.plan(names, start, end, parts, cores, counting)
                    found += made.splits
                    _log_plan(path, made, names, start, end)
    return found


def possible_nodes(splits: Sequence[Split], condition: NodeCondition) -> list[bytes]:
    """In which nodes of splits of stores in directories an entry may match: a bit for each node of
    a split, from the lowest on; SnapshotExpiredError."""
    found: list[bytes] = []
    for (path, home), some in groupby(splits, attrgetter("store", "home")):
        with open_store(path, create=False, background=False, readonly=home != path) as store:
            engine = opened_of(store).engine()
            skipping = NodeSkipping(engine, [condition])
            found += [_possible(engine.fs, split, skipping) for split in some]
    return found


def _possible(fs: FileSystem, split: Split, skipping: NodeSkipping) -> bytes:
    number, bits = 0, bytearray()
    for (_, stream, *_), items in snapshot_file.read(fs, split):
        positions, at = [], 0
        while (one := read_item(items, at)) is not None:
            item, at = one
            positions.append(item.position)
        bits += bytes((number + len(positions) + 7) // 8 - len(bits))
        for place in skipping.possible(stream, positions):
            bits[(number + place) // 8] |= 1 << (number + place) % 8
        number += len(positions)
    return bytes(bits)


def _log_plan(
    path: str, made: Plan, names: Sequence[bytes], start: StreamID, end: StreamID
) -> None:
    """Log one line for a plan."""
    first = ", ".join(repr(shown_name(name)) for name in names[:LOGGED_STREAMS])
    more = f" and {len(names) - LOGGED_STREAMS} more" if len(names) > LOGGED_STREAMS else ""
    log.info(
        "planned %s: %d streams (%s%s) from %s to %s: %d splits, %.1f MB, pin %s",
        shown(path),
        len(names),
        first,
        more,
        start,
        end,
        len(made.splits),
        made.data_bytes / 1e6,
        made.pin_id or "none",
    )


class _SchemaWarnings:
    """Warnings about the columns of a schema, from a sample of first and last entries.

    One is about a column that is null because the field's name has another case; one is about the
    column for the store where it hides a field. They are warnings only: neither the rows of a query
    nor its errors may depend on a sample.
    """

    def __init__(self, options: SourceOptions, fields: Sequence[str], hidden: str | None) -> None:
        self._options = options
        self._fields = set(fields)
        self._hidden = hidden
        self._left = SAMPLED_STREAMS

    def log(self, store: PlannedStore, names: Sequence[bytes]) -> None:
        """Warn about the streams of a store that are in the sample, once for each column."""
        for name in names[: self._left]:
            if not self._fields and self._hidden is None:
                return
            self._left -= 1
            with suppress(CorruptionError):  # tasks report damage, and in full
                self._log_hints(name, store.fields(name, self._options.start, self._options.end))

    def _log_hints(self, name: bytes, seen: set[str]) -> None:
        if self._hidden is not None and self._hidden in seen:
            log.warning(
                "column %r says which store a row is from, and not what entries of stream %r have "
                "in a field of this name: read that as fields[%r], or give option 'storeColumn' "
                "another name",
                self._hidden,
                shown_name(name),
                self._hidden,
            )
            self._hidden = None
        for field in sorted(self._fields - seen):
            other = next((each for each in sorted(seen) if folded(each) == folded(field)), None)
            if other is not None:
                log.warning(
                    "column %r: entries of stream %r have a field %r, and names of fields differ "
                    "by case: the column is null where an entry has no field %r",
                    field,
                    shown_name(name),
                    other,
                    field,
                )
                self._fields.discard(field)


SAMPLED_ENTRIES = 20


def driver() -> Identity:
    """The process that plans are made for: they end when it ends. That is Spark's driver.

    The planner is no such process, as it ends with the plan. The driver is the Java virtual machine
    above it, which also ends with the Python script that started it.
    """
    return process_identity.identity(process_identity.ancestor("java"))


@contextmanager
def open_planned(options: SourceOptions, path: str) -> Iterator[PlannedStore]:
    """Open one of the stores of a load."""
    if options.as_of and is_shipped(path_of(path)):
        raise OptionError(
            f"option 'asOf': {shown(path)} was shipped, and is of one moment: leave the option out"
        )
    with open_local(options, path) as store:
        kind = StoreAsOf if options.as_of else PlannedStore
        yield kind(options, path, store)


def open_local(options: SourceOptions, path: str) -> Store[bytes]:
    """Open a store in a directory, with its index, or a view of a shipped store."""
    readonly = bool(options.snapshot_dir) or is_shipped(path_of(path))
    return open_store(path, create=False, background=False, readonly=readonly)


def check_segments(options: SourceOptions, store: Store[bytes], made: Plan) -> None:
    """CorruptionError, or a warning in the log, for entries that are known to be lost before the
    job begins. The tasks of the plan report them again, and other damage."""
    found = split_plan.lost_segments(opened_of(store).engine(), made)
    if found and options.fail_on_loss:
        raise found[0].as_error(split_tasks.ADVICE)
    split_tasks.log_losses(str(store.path), found, "tasks will leave out")


class PlannedStore:
    """A store in a directory, or at a URI, as planning needs it."""

    def __init__(self, options: SourceOptions, path: str, store: Store[bytes]) -> None:
        self.shown = shown(path)
        self._options = options
        self._store = store
        self._token = ""

    def has(self, name: bytes) -> bool:
        """Whether there is a stream of this name."""
        return name in self._store

    def names(self) -> list[bytes]:
        """The streams."""
        return self._store.streams()

    def fields(self, name: bytes, start: StreamID, end: StreamID) -> set[str]:
        """The names of fields in the first and last entries of a range."""
        stream = self._store.stream(name)
        first = stream.range(start, end, count=SAMPLED_ENTRIES)
        last = stream.range(start, end, count=SAMPLED_ENTRIES, reverse=True)
        names: set[Any] = {field for each in (*first, *last) for field in each.fields}
        # Of a stream with a schema names are text.
        return {
            each if isinstance(each, str) else each.decode("utf-8", "replace") for each in names
        }

    def kept_schema(self, names: Sequence[bytes]) -> Schema | None:
        """The schema that is kept with all of these streams; None if there is no such one."""
        return kept_by_all(opened_of(self._store), names)

    def delivered(self, name: bytes, group: str) -> StreamID:
        """The last ID that a group of a stream was given; GroupNotFoundError."""
        return self._store.stream(name).group(group).info().last_delivered_id

    def plan(
        self,
        names: Sequence[bytes],
        start: StreamID,
        end: StreamID,
        parts: int | None,
        cores: int,
        counting: bool,
    ) -> Plan:
        """The splits of a range of streams, pinned, and durable."""
        options = self._options
        made = split_plan.make(
            opened_of(self._store).engine(),
            names,
            start,
            end,
            min_partitions=parts,
            cores=cores,
            ttl_ms=options.pin_ms,
            home=Path(options.snapshot_dir) if options.snapshot_dir else None,
            owner=driver(),
            purpose="spark",
            moment=self._token,
            lossy=not options.fail_on_loss,
            counting=counting,
        )
        check_segments(options, self._store, made)
        if not opened_of(self._store).engine().options.readonly:
            self._store.sync()
        return made


class StoreAsOf(PlannedStore):
    """A store in a directory as it was at a moment that is kept."""

    def __init__(self, options: SourceOptions, path: str, store: Store[bytes]) -> None:
        super().__init__(options, path, store)
        here = [each for each in options.as_of if LOCAL.exists(pinfile.path(Path(path), each))]
        if len(here) > 1:
            raise OptionError(f"option 'asOf' names two moments of {path}: leave one out")
        # If the moment is over none is here: `KeptMoment` raises the error.
        (self._token,) = here or options.as_of[:1]
        engine = opened_of(store).engine()
        now_ms = engine.clock.now_ms()
        self._streams = KeptMoment(engine.fs, engine.path, engine.uuid, self._token, now_ms).streams

    def has(self, name: bytes) -> bool:
        """Whether there was a stream of this name."""
        return name in self._streams

    def names(self) -> list[bytes]:
        """The streams of the moment."""
        return sorted(self._streams)

    def fields(self, name: bytes, start: StreamID, end: StreamID) -> set[str]:
        """The names in entries as they are now, for these are for warnings only."""
        return super().fields(name, start, end) if super().has(name) else set()

    def kept_schema(self, names: Sequence[bytes]) -> Schema | None:
        """The schema as it is now: a moment keeps none. None if a stream was dropped since."""
        records = {name: opened_of(self._store).record(name) for name in names}
        for name, record in records.items():
            if record is None or record.number != self._streams[name].number:
                return None
        return super().kept_schema(names)


def next_id(last: StreamID) -> StreamID:
    """The ID behind one that was read; the largest ID itself has none behind it."""
    return last.next() if last < MAX_ID else last
