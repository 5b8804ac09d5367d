"""What a write transaction sees and changes: the index plus what this commit did so far.

Invariants: records and open nodes are held decoded and written back once, at ``flush``, with those
that commits before it owe to the index; settings are written through; what the record cache holds
survives from one commit to the next only while nobody else committed in between. LMDB's transaction
begins when the index is first asked for, or written to: a commit that changes nothing but what the
cache holds need not begin one. Of streams that the cache has, rows of the index may be older: they
are asked for here. Nothing here decides anything, and nothing here writes to the log
(``apply.write_txn`` appends and applies at once).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Protocol

from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.group_state import GroupState
from logstore.engine.runtime.plain_frames import grow_record
from logstore.engine.runtime.record_cache import BeforeImage, RecordCache
from logstore.engine.runtime.segments import NodeSource, Segments, UncommittedSegments
from logstore.features.feature_list import first_due
from logstore.features.setting_rows import SettingRows, TxnSettings
from logstore.format import Kind, position, segment_of
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import Locator, Meta, OpenNode, SegmentRow, StreamRecord
from logstore.index.txn import IndexTxn, Mark
from logstore.log.segment_writer import CommitBuffer
from logstore.options import StoreLimits


class IndexOpener(Protocol):
    """Whoever begins LMDB's transaction, and commits or aborts it."""

    def open_index(self) -> IndexTxn:
        """Begin it; called once at most."""
        ...


class TxnView:
    """One write transaction's view of the store."""

    __slots__ = (
        "_changes",
        "_created",
        "_dirty_opens",
        "_dirty_records",
        "_groups",
        "_index",
        "_opener",
        "_segments",
        "_segments_seen",
        "_settings",
        "_source",
        "_tops",
        "buffer",
        "cache",
        "changed",
        "counts",
        "dead_lettered",
        "drained",
        "grown",
        "handed",
        "joined",
        "limits",
        "meta",
        "new_rows",
        "next_due_ms",
        "now_ms",
        "woken",
    )

    def __init__(
        self,
        engine: Engine,
        index: IndexTxn | None,
        meta: Meta,
        start: int,
        number: int,
        opener: IndexOpener | None = None,
    ) -> None:
        """The commit has this number, and begins at position ``start``. Without ``index``,
        ``opener`` gives it when it is needed."""
        self._index = index
        self._opener = opener
        self.cache: RecordCache = engine.cache
        self.meta = meta
        self.limits: StoreLimits = engine.limits
        self._source: Segments = engine.segments
        self._segments_seen: NodeSource | None = None
        self.now_ms: int = engine.clock.now_ms()
        self.buffer = CommitBuffer(start, number)
        self.joined: bytes | None = None  # what an append makes of its open node: see ``emit``
        # ``groups.dead_letter.DeadLettered``: the caller gets them after the commit
        self.dead_lettered: list[Any] = []
        self.handed: list[int] = []  # slots of waiters that were offered entries (``waiting``)
        self.grown: dict[int, BeforeImage] = {}  # streams that this commit adds to, as they were
        self.drained: set[int] = set()  # groups to which nothing of that is left (``handoff``)
        self.counts: dict[str, int] = defaultdict(int)  # for the metrics, once it is committed
        self._groups: GroupState | None = None
        self._settings: TxnSettings | None = None
        self.next_due_ms: int | None = None  # when work is due next, if this commit changes it
        self.woken: set[bytes] = set()  # names of changed streams, whose waiting readers are woken
        self.changed: set[int] = set()  # streams, in whatever way
        self._dirty_records: set[int] = set()
        self._dirty_opens: set[int] = set()
        self._created: set[int] = set()
        self.new_rows: list[
            tuple[bytes, bytes]
        ] = []  # of new streams, made already: ``bulk_create``
        self._segments: dict[int, SegmentRow] = {}
        self._changes: dict[int, list[int]] = {}  # live bytes and nodes not yet in the rows
        self._tops: dict[int, StreamID] = {}  # no sealed node of the stream has a larger master ID

    @property
    def index(self) -> IndexTxn:
        """The index, in LMDB's transaction: from here on what is owed to it is written, too."""
        index = self._index
        if index is None:
            opener = self._opener
            assert opener is not None
            index = self._index = opener.open_index()
            self.take_owed()
        return index

    def take_owed(self) -> None:
        """Rows that are owed to the index are written with those that this changes."""
        cache = self.cache
        self._dirty_records |= cache.owed_records
        self._dirty_opens |= cache.owed_opens
        self._created |= cache.owed_names
        if cache.owed_names:
            self.index.put_names({cache.records[new].name: [new] for new in cache.owed_names})

    @property
    def segments(self) -> NodeSource:
        """Where nodes are read from: the log, and the frames of this commit."""
        source = self._segments_seen
        if source is None:
            source = self._segments_seen = UncommittedSegments(self._source, self.buffer)
        return source

    @property
    def groups(self) -> GroupState:
        """Consumer groups."""
        if self._groups is None:
            self._groups = GroupState(self.index.groups, self.cache.groups)
        return self._groups

    @property
    def settings(self) -> TxnSettings:
        """Settings of streams and groups."""
        if self._settings is None:
            self._settings = TxnSettings(SettingRows(self.index), self.cache.settings)
        return self._settings

    # -- streams ------------------------------------------------------------------------------
    def record(self, stream: int) -> StreamRecord | None:
        """A stream's record; changes to it count once ``touch`` was called."""
        found = self.cache.records.get(stream)
        if found is None:
            found = self.index.record(stream)
            if found is not None:
                self.cache.records[stream] = found
        return found

    def all_records(self) -> list[StreamRecord]:
        """Every stream's record, by ascending numbers; changes to one count once it is touched."""
        return [
            record
            for number in sorted({*self.cache.records, *self.index.numbers()})
            if (record := self.record(number)) is not None
        ]

    def record_by_name(self, name: bytes) -> StreamRecord | None:
        """A stream's record by name; None also for one that has expired."""
        number = self.cache.numbers.get(name)
        record = None if number is None else self.record(number)
        if record is None or record.name != name:
            record = self.holder(name)
            if record is None:
                return None
        return None if record.expires_ms and record.expires_ms <= self.now_ms else record

    def holder(self, name: bytes) -> StreamRecord | None:
        """The record that has a name, expired or not: asked for to give the name to another."""
        number = self.index.stream_number(name)
        if number is None:
            return None
        self.cache.numbers[name] = number
        record = self.record(number)
        return record if record is not None and record.name == name else None

    def touch(self, record: StreamRecord) -> None:
        """The record was changed or made: it is written back at ``flush``."""
        self.cache.records[record.number] = record
        self._dirty_records.add(record.number)
        self.changed.add(record.number)
        self.woken.add(record.name)

    def advance(self, stream: int, at: int) -> StreamRecord | None:
        """A stream's record, if a frame at position ``at`` counts for it; its position is moved
        there, and it is written back at ``flush``. None for a frame that it has seen."""
        record = self.record(stream)
        if record is None or record.position >= at:
            return None
        record.position = at
        self.touch(record)
        return record

    def due_changed(self) -> None:
        """Work is due at another time than before: the word in WAKE that wakes sleepers is set
        anew."""
        self.next_due_ms = first_due(self.index)

    def appended(self, record: StreamRecord, at: int, entries: int, last: StreamID) -> None:
        """An append frame at position ``at`` added so many entries, the last one with this ID."""
        grow_record(record, at, entries, last)
        number = record.number
        self.cache.records[number] = record
        self._dirty_records.add(number)
        self.changed.add(number)
        self.woken.add(record.name)

    def is_new(self, record: StreamRecord) -> bool:
        """Whether it was created here, and never had an entry."""
        number = record.number
        return number in self._created and not record.nodes and record.last == ZERO_ID

    def create(self, record: StreamRecord) -> None:
        """Bind a new stream's name."""
        self.bind(record)
        self.create_bound(record)

    def create_bound(self, record: StreamRecord) -> None:
        """A new stream, whose name the index knows already."""
        self._created.add(record.number)
        self.touch(record)

    def bind(self, record: StreamRecord) -> None:
        """The name in the record is this stream's."""
        self.index.put_name(record.name, record.number)
        self.cache.numbers[record.name] = record.number

    def remove(self, record: StreamRecord) -> None:
        """Take a stream's record and name away; features had their turn before."""
        self.drop_open(record.number)
        self.index.delete_name(record.name, record.number)
        self.index.delete_record(record.number)
        self.cache.records.pop(record.number, None)
        if self.cache.numbers.get(record.name) == record.number:
            del self.cache.numbers[record.name]
        self._dirty_records.discard(record.number)
        self.changed.add(record.number)
        self.woken.add(record.name)

    # -- open nodes ---------------------------------------------------------------------------
    def open_node(self, stream: int) -> OpenNode | None:
        """A stream's open node."""
        node = self.cache.opens.get(stream)
        if node is None:
            node = self.index.open_node(stream)
            if node is not None:
                self.cache.opens[stream] = node
        return node

    def put_open(self, stream: int, node: OpenNode) -> None:
        """Set a stream's open node."""
        self.cache.opens[stream] = node
        self._dirty_opens.add(stream)
        self.changed.add(stream)

    def drop_open(self, stream: int) -> None:
        """The stream has no open node any more."""
        self.index.delete_open(stream)  # first: what is owed is known from then on
        self.cache.opens.pop(stream, None)
        self._dirty_opens.discard(stream)
        self.changed.add(stream)

    def open_listpack(self, stream: int) -> bytes | None:
        """The listpack of a stream's open node."""
        node = self.open_node(stream)
        if node is None:
            return None
        return self.segments.open_listpack(node)

    # -- sealed nodes -------------------------------------------------------------------------
    def read_node(self, stream: int, master: StreamID, locator: Locator) -> bytes:
        """The listpack of a sealed node."""
        return self.segments.node(stream, master, locator)

    def put_node(self, stream: int, master: StreamID, locator: Locator) -> None:
        """Store a locator and count it in its segment."""
        self.cache.node = None
        self.changed.add(stream)
        self.index.put_node(stream, master, locator)
        if master > self._tops.get(stream, MAX_ID):
            self._tops[stream] = master
        self.count_live(locator.position, locator.payload_bytes, 1)

    def mark_node(self, mark: Mark) -> None:
        """Entries of a sealed node were deleted."""
        self.cache.node = None
        self.changed.add(mark[0])
        self.index.mark_nodes((mark,))

    def drop_node(self, stream: int, master: StreamID, locator: Locator) -> None:
        """Remove a locator and uncount it."""
        self.cache.node = None
        self.changed.add(stream)
        self.index.delete_node(stream, master)
        self.count_live(locator.position, -locator.payload_bytes, -1)

    def drop_nodes(
        self, stream: int, first: StreamID, last: StreamID, before: int
    ) -> tuple[int, int]:
        """The same for all sealed nodes in a closed interval of master IDs that lie before a
        position; how many, and their payload bytes."""
        self.cache.node = None
        self.changed.add(stream)
        nodes = size = 0
        for segment, (count, payload_bytes) in self.index.drop_nodes(
            stream, first, last, before
        ).items():
            self.count_live(position(segment, 0), -payload_bytes, -count)
            nodes, size = nodes + count, size + payload_bytes
        return nodes, size

    def sealed_node(self, stream: int, master: StreamID) -> Locator | None:
        """The sealed node with this master ID; one above all others is not looked up."""
        top = self._tops.get(stream)
        if top is None:
            last = self.index.last_node(stream)
            top = self._tops[stream] = last[0] if last is not None else ZERO_ID
        return None if master > top else self.index.node(stream, master)

    # -- segments -----------------------------------------------------------------------------
    def count_live(self, position: int, payload_bytes: int, nodes: int) -> None:
        """Count what began or ceased to live in the segment of a position."""
        number = segment_of(position)
        change = self._changes.get(number)
        if change is None:
            change = self._changes[number] = [0, 0]
        change[0] += payload_bytes
        change[1] += nodes

    def _count(self) -> None:
        """Bring the rows of segments up to what was counted."""
        changes, self._changes = self._changes, {}
        for number, (payload_bytes, nodes) in changes.items():
            row = self._segments.get(number) or self.index.segment(number)
            if row is None:
                row = SegmentRow(0, 0, 0, 0, self.now_ms)
            self._segments[number] = row._replace(
                live_bytes=max(0, row.live_bytes + payload_bytes),
                live_nodes=max(0, row.live_nodes + nodes),
            )

    def put_segment(self, number: int, row: SegmentRow) -> None:
        """Set what is counted of a segment."""
        self._changes.pop(number, None)
        self._segments[number] = row

    def segment(self, number: int) -> SegmentRow | None:
        """The counters of a segment."""
        if self._changes:
            self._count()
        return self._segments.get(number) or self.index.segment(number)

    def drop_segment(self, number: int) -> None:
        """Forget a segment."""
        self._changes.pop(number, None)
        self._segments.pop(number, None)
        self.index.delete_segment(number)

    def _flush_created(self) -> None:
        """Write new streams in the order of their numbers: at the end of all, as a rule."""
        made: list[tuple[StreamRecord, OpenNode | None]] = []
        for stream in sorted(self._created & self._dirty_records):
            node = self.cache.opens.get(stream) if stream in self._dirty_opens else None
            made.append((self.cache.records[stream], node))
            self._dirty_records.discard(stream)
            self._dirty_opens.discard(stream)
        if made or self.new_rows:
            self.index.put_new(made, self.new_rows)
        self.new_rows = []
        self._created.clear()

    # -- the end ------------------------------------------------------------------------------
    def is_plain(self) -> bool:
        """Whether this commit only added to small open nodes that were at hand: then the index may
        lag behind it."""
        if self._index is not None or not self.buffer.holds_only(Kind.APPEND):
            return False
        opens = self.cache.opens
        return all(not opens[stream].runs for stream in self._dirty_opens)

    def owe(self) -> None:
        """Leave what a plain commit changed to a later one to write back."""
        self.cache.owe(self._dirty_records, self._dirty_opens)

    def flush(self) -> None:
        """Write back what changed, and what was owed; the transaction is the caller's to commit."""
        index, cache = self.index, self.cache
        if self._changes:
            self._count()
        if self._created or self.new_rows:
            self._flush_created()
        if self._segments:
            for number, row in self._segments.items():
                index.put_segment(number, row)
            self._segments.clear()
        if self._groups is not None:
            self._groups.flush()
        records = [cache.records[stream] for stream in self._dirty_records]
        opens = [(stream, cache.opens[stream]) for stream in self._dirty_opens]
        index.put_changes(records, opens, self.meta)
        self._dirty_records.clear()
        self._dirty_opens.clear()
        cache.shrink(self.meta.commit)
