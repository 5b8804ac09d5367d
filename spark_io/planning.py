"""Planning for Spark: which streams of which stores are read, and in which splits.

Invariants: stores are closed again before anything is sent to a task; a stream that is named and in
none of the stores, a group that a stream has not and an offset of a stream that is not read are
errors before the first plan is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase

from logstore.api import arguments
from logstore.api.store import Store
from logstore.errors import CorruptionError, GroupNotFoundError, OptionError, StreamNotFoundError
from logstore.ids import MAX_ID, StreamID
from logstore.scan.scan_columns import folded
from logstore.scan.snapshot_file import Split
from logstore.scan.split_plan import Plan
from logstore.spark_io import offsets, stores
from logstore.spark_io.source_options import SourceOptions
from logstore.spark_io.stores import PlannedStore
from logstore.spark_io.telling import log
from logstore.uri_path import shown

SAMPLED_STREAMS = 16
OPEN_STORES_MAX = 64
TOLD_STREAMS = 3


def check_streams(options: SourceOptions) -> None:
    """StreamNotFoundError, naming it, for a stream that is not there; OptionError for an offset of
    another one, or a group that is not there."""
    _ranges(options, _names(options))


def stream_names(options: SourceOptions, store: Store[bytes]) -> list[bytes]:
    """The streams of a load of one store; StreamNotFoundError for an unknown name."""
    place = options.places[0]
    found, missing = _of_store(options, stores.LocalStore(options, place, store))
    _check_missing(options, missing)
    return found


def _of_store(options: SourceOptions, store: PlannedStore) -> tuple[list[bytes], set[str]]:
    """The streams of a load that a store has, by name or pattern; and the names that it has not."""
    found: dict[bytes, None] = {}  # in order, and quickly asked, for there may be 100,000
    missing: set[str] = set()
    for name in options.streams:
        meant = (arguments.stream_name(name), offsets.meant(name))
        there = next((each for each in meant if store.has(each)), None)
        if there is None:
            missing.add(name)
        else:
            found[there] = None
    if not options.streams and not options.patterns:
        found.update(dict.fromkeys(store.names()))
    elif options.patterns:
        for each in store.names():
            text = offsets.shown(each)
            if any(fnmatchcase(text, pattern) for pattern in options.patterns):
                found[each] = None
    return list(found), missing


def _check_missing(options: SourceOptions, missing: Iterable[str]) -> None:
    for name in missing:
        count = len(options.places)
        where = shown(options.places[0]) if count == 1 else f"{count} stores"
        hint = "; see store.streams()"
        if options.as_of:
            hint = " as of that moment; name it in store.moment(...), where it is there"
        raise StreamNotFoundError(
            f"there is no such stream in {where}{hint}",
            stream=arguments.stream_name(name),
        )


def streams(options: SourceOptions) -> dict[str, list[bytes]]:
    """The streams of a load by store; StreamNotFoundError for a name that none of them has."""
    return _names(options)


class _Found(dict[str, list[bytes]]):
    """The streams of a load by store, and where those begin that a group has read."""

    def __init__(self) -> None:
        super().__init__()
        self.behind: dict[tuple[str, bytes], StreamID] = {}


def _names(options: SourceOptions, fields: Sequence[str] = (), hidden: str | None = None) -> _Found:
    """The streams of each store, in the order of the stores; a name must be in one of them.

    The log tells of ``fields``, and of one ``hidden``, as `_Hints` says.
    """
    found = _Found()
    missing: set[str] | None = None
    hints = _Hints(options, fields, hidden)
    for place in options.places:
        with stores.opened(options, place) as store:
            found[place], absent = _of_store(options, store)
            missing = absent if missing is None else missing & absent
            for name in found[place] if options.group else ():
                found.behind[place, name] = _behind(options.group, store, name)
            hints.look(store, found[place])
    _check_missing(options, sorted(missing or ()))
    return found


def _behind(group: str, store: PlannedStore, name: bytes) -> StreamID:
    """The ID behind the last one that a group was given of a stream."""
    try:
        last = store.delivered(name, group)
    except GroupNotFoundError:
        raise OptionError(
            f"option 'startingGroup': stream {name!r} has no group {group!r} in {store.place}: "
            "create it, or leave the stream out"
        ) from None
    return last.next() if last < MAX_ID else last


def _ranges(options: SourceOptions, found: _Found) -> dict[str, dict[offsets.Range, list[bytes]]]:
    """The streams of each store, by what is read of them."""
    every = {name for names in found.values() for name in names}
    offsets.check("startingOffsets", options.starts, every)
    offsets.check("endingOffsets", options.ends, every)
    return {
        place: offsets.ranges(
            names,
            (options.start, options.end),
            options.starts,
            options.ends,
            {name: found.behind[place, name] for name in names} if options.group else {},
        )
        for place, names in found.items()
    }


def splits(
    options: SourceOptions,
    cores: int,
    fields: Sequence[str],
    hidden: str | None = None,
    *,
    counting: bool = False,
) -> list[Split]:
    """The splits of a new plan, in the order of the stores, the streams and their IDs; ``counting``
    as `scan.split_plan.make` has it.

    Errors, and lines of the log, as `_names` says.
    """
    with ExitStack() as kept:  # what is opened again meanwhile is shared
        for place in options.places[:OPEN_STORES_MAX]:
            kept.enter_context(stores.opened(options, place))
        ranges = _ranges(options, _names(options, fields, hidden))
        return _planned(options, cores, ranges, counting=counting)


def _planned(
    options: SourceOptions,
    cores: int,
    ranges: dict[str, dict[offsets.Range, list[bytes]]],
    *,
    counting: bool,
) -> list[Split]:
    plans = max(1, sum(len(each) for each in ranges.values()))
    parts = None if options.min_partitions is None else -(-options.min_partitions // plans)
    cores = -(-cores // plans)
    found: list[Split] = []
    for place, some in ranges.items():
        if some:
            with stores.opened(options, place) as store:
                for (start, end), names in some.items():
                    made = store.plan(names, start, end, parts, cores, counting)
                    found += made.splits
                    _tell(place, made, names, start, end)
    return found


def _tell(place: str, made: Plan, names: Sequence[bytes], start: StreamID, end: StreamID) -> None:
    """One line a plan."""
    first = ", ".join(repr(offsets.shown(name)) for name in names[:TOLD_STREAMS])
    more = f" and {len(names) - TOLD_STREAMS} more" if len(names) > TOLD_STREAMS else ""
    log.info(
        "planned %s: %d streams (%s%s) from %s to %s: %d splits, %.1f MB, pin %s",
        shown(place),
        len(names),
        first,
        more,
        start,
        end,
        len(made.splits),
        made.data_bytes / 1e6,
        made.pin_id or "none",
    )


class _Hints:
    """What first and last entries tell of a schema: a column of nulls would not tell that the case
    of its name is another one, nor the column for the store that a field stands behind it.

    Hints, and no more: what a query gives, or whether it fails, must not depend on a sample.
    """

    def __init__(self, options: SourceOptions, fields: Sequence[str], hidden: str | None) -> None:
        self._options = options
        self._fields = set(fields)
        self._hidden = hidden
        self._left = SAMPLED_STREAMS

    def look(self, store: PlannedStore, names: Sequence[bytes]) -> None:
        """Tell of some streams of a store, each column once."""
        for name in names[: self._left]:
            if not self._fields and self._hidden is None:
                return
            self._left -= 1
            with suppress(CorruptionError):  # tasks meet it, and tell more of it
                self._tell(name, store.fields(name, self._options.start, self._options.end))

    def _tell(self, name: bytes, seen: set[str]) -> None:
        if self._hidden is not None and self._hidden in seen:
            log.warning(
                "column %r says which store a row is from, and not what entries of stream %r have "
                "in a field of this name: read that as fields[%r], or give option 'storeColumn' "
                "another name",
                self._hidden,
                offsets.shown(name),
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
                    offsets.shown(name),
                    other,
                    field,
                )
                self._fields.discard(field)
