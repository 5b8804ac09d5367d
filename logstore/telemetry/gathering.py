"""The numbers of a store for those who watch it: of the store, its streams and groups, this
process.

A family is one metric with all of its samples, as Prometheus and OpenTelemetry both know it.
`exposition` writes families as the text that Prometheus reads (its format 0.0.4). It is written
here, and not by ``prometheus_client``, which checks and escapes the labels of each sample anew:
that takes five times as long for thousands of series, and needs an extra.

Invariants: the cost grows with the number of streams and groups, and not with the history: no entry
is decoded, no node is counted. Each page of rows is of one moment. Streams and groups have series
of their own up to a limit, those that were made first, so that a series does not come and go;
totals count all of them, and the number of those left out is a metric. Nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any, Literal

from logstore import fsinfo
from logstore.api.info import durable_upto, pin_counts, plain_text, unsynced_for_ms
from logstore.api.opening import OpenStore
from logstore.compaction import usage
from logstore.engine.runtime import disk_space
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.commit_words import Wake
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import group_view as group_rows
from logstore.engine.txn import pel
from logstore.errors import Error
from logstore.features.schedule_rows import ScheduleRows
from logstore.format import position_parts
from logstore.index.group_keys import GroupRecord
from logstore.log import file_names

Kind = Literal["gauge", "counter"]
Sample = tuple[tuple[str, ...], float]  # values of the labels, the number


@dataclass(slots=True)
class Family:
    """One metric with all of its samples."""

    name: str  # with its unit last; of a counter without Prometheus' ``_total``
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = "gauge"
    samples: list[Sample] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """The unit of the numbers; empty: they are counts."""
        last = self.name.rpartition("_")[2]
        return last if last in {"bytes", "seconds"} else ""

    def add(self, number: float, *labels: str) -> None:
        """Add a sample."""
        self.samples.append((labels, number))


def one(name: str, help_text: str, number: float, kind: Kind = "gauge") -> Family:
    """A family with a single sample."""
    return Family(name, help_text, kind=kind, samples=[((), number)])


SERIES_MAX = 1000
ROWS_A_SNAPSHOT = 10_000
_CLOCK_MS_MIN = 1_000_000_000_000  # IDs below this (the year 2001) are not taken for times
STREAM, GROUP = ("stream",), ("stream", "group")


def gather(
    opened: OpenStore[Any], series_max: int = SERIES_MAX, patterns: tuple[str, ...] = ()
) -> list[Family]:
    """All families of a store at this moment.

    Args:
        opened: an open store.
        series_max: at most so many streams, and so many groups, have series of their own.
        patterns: globs; only streams that match one, and their groups, have series. Empty: any.
    """
    streams = _Streams(series_max, patterns)
    streams.walk(opened)
    engine = opened.engine()
    waiting = Wake.waiting(engine.fs, engine.path / file_names.WAKE)
    groups = _Groups(series_max, streams.names, waiting)
    groups.walk(opened)
    return [
        *_of_store(engine, streams.opens),
        *streams.families(),
        *groups.families(),
        *_of_process(opened),
    ]


def store_numbers(opened: OpenStore[Any]) -> dict[str, int]:
    """The numbers of the store alone, by their names without ``logstore_``: groups, of which there
    may be very many, are not read for that."""
    streams = _Streams(0, ())
    streams.walk(opened)
    families = [*_of_store(opened.engine(), streams.opens), *streams.families()]
    return {
        family.name.removeprefix("logstore_"): int(family.samples[0][1])
        for family in families
        if not family.labels
    }


# -- the store --------------------------------------------------------------------------------
def _of_store(engine: Engine, opens: usage.OpenUse) -> Iterator[Family]:
    """``opens``: what the records of all streams say."""
    nodes_count, scheduled, applied = snapshot.read(engine, _counts)
    fs, path = engine.fs, engine.path
    used = usage.log_use(engine, opens=opens)
    free, whole = fsinfo.space(path)
    wake = path / file_names.WAKE
    failed = bool(Wake.last_failure(fs, wake))
    compacted_ms, compacted_bytes = Wake.last_compaction(fs, wake)
    pinned = pin_counts(engine)
    found: tuple[tuple[str, str, float], ...] = (
        ("nodes", "Sealed nodes in the index.", nodes_count),
        ("scheduled", "Entries that wait for their time.", scheduled),
        ("segments", "Segments of the log.", len(used.sizes)),
        ("disk_bytes", "All files of the store.", fs.tree_bytes(path)),
        ("log_bytes", "The segments.", used.log_bytes),
        ("live_bytes", "Of the segments: entries that are there.", used.live_bytes),
        (
            "tombstoned_bytes",
            "Of the segments: deleted entries in nodes that live.",
            used.tombstoned_bytes,
        ),
        ("dead_bytes", "Of the segments: all else.", used.dead_bytes),
        ("index_bytes", "The index.", fs.tree_bytes(path / file_names.INDEX)),
        (
            "reclaimable_bytes",
            "What compaction would give back.",
            used.reclaimable_bytes,
        ),
        (
            "not_durable_bytes",
            "Committed, and at risk if the machine crashes now.",
            _not_durable(engine, used.sizes, applied),
        ),
        (
            "not_durable_seconds",
            "Since the oldest commit that is not durable; 0: all are.",
            unsynced_for_ms(engine) / 1000,
        ),
        (
            "compacted_timestamp_seconds",
            "When the last compaction ended; 0: none since the store was opened first.",
            compacted_ms / 1000,
        ),
        ("compacted_bytes", "What the last compaction gave back.", compacted_bytes),
        ("pins", "Pins that hold.", pinned["pins"]),
        ("pinned_bytes", "What pins keep from compaction.", pinned["pinned_bytes"]),
        (
            "oldest_pin_timestamp_seconds",
            "When the oldest pin was made; 0: there is none.",
            pinned["oldest_pin_ms"] / 1000,
        ),
        ("file_system_free_bytes", "Free for this user where the store lies.", free),
        ("file_system_bytes", "All that the file system has for users.", whole),
        (
            "space_low",
            "1: so little is free that adds may soon be refused.",
            disk_space.is_low(engine, free, whole),
        ),
        ("sync_failed", "1: a sync failed, and nothing more is acknowledged.", failed),
    )
    for name, help_text, number in found:
        yield one(f"logstore_{name}", help_text, number)


def _counts(view: Snapshot) -> tuple[int, int, int]:
    """Sealed nodes, scheduled entries, and the applied position."""
    index = view.index
    nodes_count = index.generation.entries()["nodes"]
    return nodes_count, ScheduleRows(index).count(), view.meta.applied


def _not_durable(engine: Engine, sizes: dict[int, int], applied: int) -> int:
    """Bytes of the log that are not known to be durable; 0 where nothing tells, as in a copy."""
    durable = durable_upto(engine)
    if not durable and engine.options.readonly:
        return 0
    (first, begin), (last, end) = position_parts(durable), position_parts(applied)
    between = sum(size for number, size in sizes.items() if first <= number < last)
    return max(0, between + end - begin)


# -- streams ----------------------------------------------------------------------------------
@dataclass(slots=True)
class _StreamPage:
    """A page of streams, read on one snapshot."""

    last: int  # the number of the last one
    count: int = 0
    entries: int = 0
    opens: usage.OpenUse = field(default_factory=usage.OpenUse)
    # Of those with a series: number, name, length, entries added, bytes, ms of the last ID
    with_series: list[tuple[int, str, int, int, int, int]] = field(default_factory=list)
    more: bool = False


class _Streams:
    """Totals of all streams, and the series of some."""

    def __init__(self, series_max: int, patterns: tuple[str, ...]) -> None:
        self._series_max = series_max
        self._patterns = patterns
        self.names: dict[int, str] = {}  # of those that have series, by their numbers
        self.opens = usage.OpenUse()
        self._count = self._entries = 0
        self._length = Family("logstore_stream_entries", "Entries of a stream.", STREAM)
        self._adds = Family(
            "logstore_stream_entries_added", "Entries ever added.", STREAM, "counter"
        )
        self._bytes = Family("logstore_stream_bytes", "The nodes of a stream.", STREAM)
        self._last = Family(
            "logstore_stream_last_timestamp_seconds",
            "The time of the last ID, where IDs are times.",
            STREAM,
        )

    def walk(self, opened: OpenStore[Any]) -> None:
        """Read all of them, page by page."""
        after, more = 0, True
        while more:
            room = self._series_max - len(self.names)
            page = opened.view(partial(self._page, after=after, room=room))
            self._count += page.count
            self._entries += page.entries
            self.opens.merge(page.opens)
            for row in page.with_series:
                self._add_series(*row)
            after, more = page.last, page.more

    def _page(self, view: Snapshot, after: int, room: int) -> _StreamPage:
        """One page of streams; it may be called again, so it changes nothing in ``self``."""
        page, rows = _StreamPage(last=after), 0
        for record, node in islice(view.index.records_with_opens(after), ROWS_A_SNAPSHOT):
            rows += 1
            page.last = record.number
            open_bytes = page.opens.count(record, node, view.now_ms)
            if 0 < record.expires_ms <= view.now_ms:
                continue  # it has expired, so nobody sees it
            page.count += 1
            page.entries += record.length
            if len(page.with_series) < room:
                name = plain_text(record.name)
                if not self._patterns or any(fnmatchcase(name, glob) for glob in self._patterns):
                    size = record.node_bytes + open_bytes
                    page.with_series.append(
                        (
                            record.number,
                            name,
                            record.length,
                            record.entries_added,
                            size,
                            record.last.ms,
                        )
                    )
        page.more = rows == ROWS_A_SNAPSHOT
        return page

    def _add_series(
        self, number: int, name: str, length: int, added: int, size: int, last_ms: int
    ) -> None:
        self.names[number] = name
        labels = (name,)  # one for all families
        self._length.samples.append((labels, length))
        self._adds.samples.append((labels, added))
        self._bytes.samples.append((labels, size))
        if last_ms >= _CLOCK_MS_MIN:
            self._last.samples.append((labels, last_ms / 1000))

    def families(self) -> Iterator[Family]:
        """The families."""
        yield one("logstore_streams", "Streams.", self._count)
        yield one("logstore_entries", "Entries of all streams.", self._entries)
        left_out = self._count - len(self.names)
        yield one("logstore_streams_without_series", "Streams beyond the cap.", left_out)
        yield from (self._length, self._adds, self._bytes, self._last)


# -- groups -----------------------------------------------------------------------------------
class _Groups:
    """Totals of all groups, and the series of some."""

    def __init__(self, series_max: int, streams: dict[int, str], waiting: dict[int, int]) -> None:
        self._series_max = series_max
        self._streams = streams
        self._waiting = waiting  # readers, by the number of the group
        self._count = self._pending = self._shown = 0
        self._lag = Family(
            "logstore_group_lag", "Entries not delivered yet, where it is known.", GROUP
        )
        self._read = Family(
            "logstore_group_read", "Entries read so far, where it is known.", GROUP, "counter"
        )
        self._held = Family("logstore_group_pending", "Delivered and not acked.", GROUP)
        self._oldest = Family(
            "logstore_group_oldest_pending_seconds",
            "Since the delivery that is longest ago, of what consumers have; 0: they have nothing.",
            GROUP,
        )
        self._consumers = Family("logstore_group_consumers", "Consumers of a group.", GROUP)
        self._readers = Family("logstore_group_waiting", "Readers that wait for entries.", GROUP)

    def walk(self, opened: OpenStore[Any]) -> None:
        """Read all of them, page by page."""
        after = 0
        while True:
            room = self._series_max - self._shown
            some = opened.view(partial(self._page, after=after, room=room))
            for group, lag, idle_ms in some:
                self._add_series(group, lag, idle_ms)
            if not some:
                return
            after = some[-1][0].number

    def _page(
        self, view: Snapshot, after: int, room: int
    ) -> list[tuple[GroupRecord, int | None, int]]:
        """One page of groups: each with its lag (-1: no series), and the time since the
        oldest delivery of what consumers have (ms)."""
        found: list[tuple[GroupRecord, int | None, int]] = []
        index = view.index
        for group in islice(index.groups.all_groups(after), ROWS_A_SNAPSHOT):
            record = index.record(group.stream) if group.stream in self._streams else None
            if record is None or room <= 0:
                found.append((group, -1, 0))
                continue
            room -= 1
            since_ms = pel.held_since(index.groups, group.number) if group.pending else None
            idle_ms = 0 if since_ms is None else max(0, view.now_ms - since_ms)
            found.append((group, group_rows.lag(record, group), idle_ms))
        return found

    def _add_series(self, group: GroupRecord, lag: int | None, idle_ms: int) -> None:
        self._count += 1
        self._pending += group.pending
        if lag == -1:
            return
        self._shown += 1
        labels = (self._streams[group.stream], plain_text(group.name))
        if lag is not None:
            self._lag.add(lag, *labels)
        if group.entries_read >= 0:
            self._read.add(group.entries_read, *labels)
        self._held.add(group.pending, *labels)
        self._oldest.add(idle_ms / 1000, *labels)
        self._consumers.add(group.consumers, *labels)
        self._readers.add(self._waiting.get(group.number, 0), *labels)

    def families(self) -> Iterator[Family]:
        """The families."""
        yield one("logstore_groups", "Groups of all streams.", self._count)
        yield one("logstore_pending", "Pending entries of all groups.", self._pending)
        left_out = self._count - self._shown
        yield one("logstore_groups_without_series", "Groups beyond the cap.", left_out)
        yield from (self._lag, self._read, self._held, self._oldest, self._consumers)
        yield self._readers


# -- the process ------------------------------------------------------------------------------
def _of_process(opened: OpenStore[Any]) -> Iterator[Family]:
    """Counters of ``Store.metrics``, in the units that Prometheus wants."""
    for name, number in opened.engine().metrics.as_dict().items():
        base = name.removesuffix("_max")
        base = base[:-2] + "_seconds" if base.endswith("_s") else base
        help_text = f"{name} of this process: docs/metrics.md."
        if name.endswith("_max"):
            yield one(f"logstore_process_longest_{base}", help_text, number)
        else:
            yield one(f"logstore_process_{base}", help_text, number, "counter")


# -- the text of Prometheus ---------------------------------------------------------------------
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def exposition(families: Iterable[Family]) -> bytes:
    """The text of families."""
    lines: list[str] = []
    # By names and values of labels, for most stand in several families.
    known: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
    for family in families:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        lines.append(f"# HELP {name} {family.help.translate(_IN_HELP)}\n")
        lines.append(f"# TYPE {name} {family.kind}\n")
        braced = known.setdefault(family.labels, {})
        for values, number in family.samples:
            labels = braced.get(values)
            if labels is None:
                labels = braced[values] = _braced(family.labels, values)
            lines.append(f"{name}{labels} {_sample_text(number)}\n")
    return "".join(lines).encode()


def _braced(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = zip(names, values, strict=True)
    inside = ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs])
    return f"{{{inside}}}" if inside else ""


def _sample_text(number: float) -> str:
    if math.isfinite(number):
        return repr(number + 0)  # a bool is a number, too
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"


# -- health -----------------------------------------------------------------------------------
def store_trouble(opened: OpenStore[Any]) -> str:
    """Why the store does not do its work; empty: it does. The cost does not grow with the store."""
    try:
        opened.view(_index_position)
        engine = opened.engine()
    except Error as error:
        return str(error)
    if Wake.last_failure(engine.fs, engine.path / file_names.WAKE):
        return f"a sync of {engine.path} failed: nothing more is acknowledged"
    return ""


def _index_position(view: Snapshot) -> int:
    """The position that the index is at; its checksum is checked for that."""
    return view.meta.applied
