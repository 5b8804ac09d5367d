"""Typed access to the index inside one LMDB transaction, reading or writing.

A row that damage made unfindable looks like one that never was. A stream made in its place would
take the name, and leave the other without one, in the log as well. So a name counts as absent only
if its second record is absent too, and if the rows beside both places are right and in order: both
records may be gone with one page.

Invariants: every value is checked against its CRC before it is used; a cursor never outlives its
transaction; a name is only said to be absent when its twin record is absent too. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

from logstore.errors import CorruptionError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index import keys
from logstore.index.env import Generation
from logstore.index.group_keys import GroupRecord
from logstore.index.group_txn import GroupTxn
from logstore.index.keys import Locator, Meta, NodeFrame, OpenNode, SegmentRow, StreamRecord
from logstore.row_seal import fetch as _fetch
from logstore.row_seal import key_parts as _parts
from logstore.row_seal import seal as _seal
from logstore.row_seal import unseal
from logstore.row_seal import unseal as _unseal

LOST = "the index lost a name: delete its directory and reopen"


def stream_of_name(
    txn: Any, names: Any, name: bytes, record: Callable[[int], StreamRecord | None]
) -> StreamRecord | None:
    """The stream that has a name; None if there is none, for sure.

    ``record`` gives a stream by its number. CorruptionError if anything says that the name exists,
    or cannot be believed, and there is no stream.
    """
    with txn.cursor(db=names) as cursor:
        value = _neighbours(cursor, keys.name_key(name))
        if value is not None:
            holder = record(int.from_bytes(value, "little"))
            if holder is None or holder.name != name:
                raise CorruptionError(LOST)
            return holder
        twins = _neighbours(cursor, keys.twin_key(name)) or b""
    for at in range(0, len(twins), 8):
        holder = record(int.from_bytes(twins[at : at + 8], "little"))
        if holder is None or holder.name == name:
            raise CorruptionError(LOST)
    return None


def _neighbours(cursor: Any, key: bytes) -> bytes | None:
    """The value under a key; None if the rows before and behind its place are right, and no row is
    there."""
    behind = cursor.set_range(key)
    if behind:
        there, data = cursor.item()
        value = unseal(there, data)
        if there == key:
            return value
    if cursor.prev() if behind else cursor.last():
        before, data = cursor.item()
        unseal(before, data)
        if before >= key:
            raise CorruptionError("the index lost its order: delete its directory and reopen")
    return None


# A stream, a node's master ID in two parts, its version, places of its entries.
Mark: TypeAlias = tuple[int, int, int, int, Sequence[int]]


def put_rows(txn: Any, database: Any, rows: list[tuple[bytes, bytes]]) -> None:
    """Store rows in the order of their keys; at the end of all, pages are filled whole."""
    rows.sort()
    with txn.cursor(db=database) as cursor:
        at_end = not cursor.last() or cursor.key() < rows[0][0]
        cursor.putmulti(rows, append=at_end)


def put_nodes(index: IndexTxn, rows: list[tuple[bytes, bytes]]) -> None:
    """Store the locators of sealed nodes of a stream: sealed values, by ascending keys."""
    with index.txn.cursor(db=index.generation.nodes) as cursor:
        cursor.putmulti(rows)


def drop_nodes(index: IndexTxn, low: bytes, high: bytes, before: int) -> dict[int, tuple[int, int]]:
    """Remove the locators of sealed nodes with keys in a closed interval, of those that lie before
    a position; by segment, how many went, and their payload bytes.

    No object is made for each: of a stream there may be very many, and LOCK is held.
    """
    gone: dict[int, tuple[int, int]] = {}
    place, position_of = keys.LOCATOR_PLACE.unpack_from, keys.position_of
    with index.txn.cursor(db=index.generation.nodes) as cursor:
        there, item, delete = cursor.set_range(low), cursor.item, cursor.delete
        while there:
            key, data = item()
            if key > high:
                break
            value = _unseal(key, data)
            if position_of(value) >= before:
                there = cursor.next()
                continue
            segment, payload_bytes = place(value)
            count, size = gone.get(segment, (0, 0))
            gone[segment] = count + 1, size + payload_bytes
            delete()  # it stands at the next one then, or behind the last one
            there = cursor.key() != b""
    return gone


def put_names(txn: Any, names: Any, numbers: dict[bytes, list[int]]) -> None:
    """Bind each of these names to the last of its numbers, and remember all of them."""
    rows: list[tuple[bytes, bytes]] = []
    twins = dict.fromkeys([keys.twin_key(name) for name in numbers], b"")
    with txn.cursor(db=names) as cursor:
        for key, data in cursor.getmulti(list(twins)):
            twins[key] = _unseal(key, data)
    for name, bound in numbers.items():
        key = keys.twin_key(name)
        for number in bound:
            packed, before = number.to_bytes(8, "little"), twins[key]
            if packed not in [before[at : at + 8] for at in range(0, len(before), 8)]:
                twins[key] = before + packed
        key = keys.name_key(name)
        rows.append((key, _seal(key, bound[-1].to_bytes(8, "little"))))
    rows += [(key, _seal(key, value)) for key, value in twins.items()]
    put_rows(txn, names, rows)


def mark_nodes(txn: Any, nodes: Any, marks: Iterable[Mark]) -> None:
    """Entries of these versions of sealed nodes were deleted; nothing, if a node is another one."""
    of: dict[bytes, list[Mark]] = {}
    for mark in marks:
        of.setdefault(keys.NODE_KEY.pack(*mark[:3]), []).append(mark)
    rows: list[tuple[bytes, bytes]] = []
    with txn.cursor(db=nodes) as cursor:
        for key, data in cursor.getmulti(sorted(of)):
            value = _unseal(key, data)
            for _, _, _, version, gone in of[key]:
                if keys.position_of(value) == version:
                    value = keys.marked(value, gone)
            rows.append((key, _seal(key, value)))
        if rows:
            cursor.putmulti(rows)


_NODE = keys.NODE_KEY
_STREAM_KEY = keys.STREAM_KEY.pack
_PLAIN_LOCATOR_BYTES = len(_seal(b"", bytes(keys.LOCATOR.size)))  # a row without tombstones


def _totals(rows: Iterable[tuple[bytes, bytes]]) -> dict[tuple[int, int], list[int]]:
    totals: dict[tuple[int, int], list[int]] = {}
    place = keys.LOCATOR_PLACE.unpack_from
    for key, data in rows:
        segment, payload_bytes = place(_unseal(key, data))
        stream = int.from_bytes(key[:8], "big")
        total = totals.setdefault((stream, segment), [0, 0])
        total[0] += 1
        total[1] += payload_bytes
    return totals


def _tombstoned(rows: list[tuple[bytes, bytes]]) -> list[tuple[int, Locator]]:
    found = [row for row in rows if len(row[1]) > _PLAIN_LOCATOR_BYTES]
    return [
        (int.from_bytes(key[:8], "big"), Locator.unpack(_unseal(key, data))) for key, data in found
    ]


class IndexTxn:
    """The index as one transaction sees it."""

    __slots__ = ("_cursor", "_groups", "_names", "generation", "txn")

    def __init__(self, generation: Generation, txn: Any) -> None:
        self.generation = generation
        self.txn = txn
        self._cursor: Any = None
        self._names: dict[bytes, list[int]] | None = None  # held back: the last one has the name
        self._groups: GroupTxn | None = None

    @property
    def groups(self) -> GroupTxn:
        """The consumer groups, in the same transaction."""
        if self._groups is None:
            self._groups = GroupTxn(self.generation, self.txn)
        return self._groups

    def group(self, stream: int, name: bytes) -> GroupRecord | None:
        """A stream's group by name."""
        return self.groups.named(stream, name)

    # -- meta ---------------------------------------------------------------------------------
    def meta(self) -> Meta:
        """Where the index stands; CorruptionError for an environment without it."""
        value = _fetch(self.txn, self.generation.main, keys.META_KEY)
        if value is None:
            raise CorruptionError("the index is empty: it was deleted while being opened")
        return Meta.unpack(value)

    def applied(self) -> int:
        """Up to which position of the log it has all."""
        value = _fetch(self.txn, self.generation.main, keys.META_KEY)
        if value is None:
            raise CorruptionError("the index is empty: it was deleted while being opened")
        return keys.applied_of(value)

    def put_meta(self, meta: Meta) -> None:
        """Store where the index stands."""
        self.put_changes((), (), meta)

    def put_changes(
        self,
        records: Iterable[StreamRecord],
        opens: Iterable[tuple[int, OpenNode]],
        meta: Meta | None = None,
    ) -> None:
        """Store streams' records, open nodes by stream, and where the index stands then.

        Of an open node that is large, only what it did not have before is written.
        """
        put, main = self.txn.put, self.generation.main
        for record in records:
            key, value = _STREAM_KEY(0xFF, record.number, keys.IS_RECORD), record.pack()
            put(key, _seal(key, value), db=main)
        for stream, node in opens:
            full = len(node.runs) // keys.RUNS_A_ROW
            while node.rows < full:
                key = keys.RUNS_KEY.pack(keys.RUNS_PREFIX, stream, node.rows)
                first = node.rows * keys.RUNS_A_ROW
                put(key, _seal(key, node.pack_runs(first, first + keys.RUNS_A_ROW)), db=main)
                node.rows += 1
            key, value = _STREAM_KEY(0xFF, stream, keys.IS_OPEN), node.pack()
            put(key, _seal(key, value), db=main)
        if meta is not None:
            put(keys.META_KEY, _seal(keys.META_KEY, meta.pack()), db=main)

    # -- streams ------------------------------------------------------------------------------
    def stream_number(self, name: bytes) -> int | None:
        """The number of a stream by name."""
        if self._names:
            self.write_names()
        key = keys.name_key(name)
        value = _fetch(self.txn, self.generation.names, key)
        return None if value is None else int.from_bytes(value, "little")

    def named(self, name: bytes) -> StreamRecord | None:
        """The stream that has a name; None only if it is absent for sure, CorruptionError else."""
        if self._names:
            self.write_names()
        return stream_of_name(self.txn, self.generation.names, name, self.record)

    def confirm_absent(self, name: bytes) -> None:
        """CorruptionError if anything says that the name exists."""
        if self.named(name) is not None:
            raise CorruptionError(LOST)

    def put_name(self, name: bytes, number: int) -> None:
        """Bind a name to a number, twice."""
        if self._names is not None:
            self._names.setdefault(name, []).append(number)
        else:
            self.put_names({name: [number]})

    def put_names(self, numbers: dict[bytes, list[int]]) -> None:
        """Bind each of these names to the last of its numbers, and remember all of them."""
        put_names(self.txn, self.generation.names, numbers)

    def hold_names(self) -> None:
        """Names are written many at a time, by ``write_names``; or before one is looked up."""
        self._names = {}

    def write_names(self) -> None:
        """Write the names that were held back."""
        held, self._names = self._names, {}
        if held:
            self.put_names(held)

    def delete_name(self, name: bytes, number: int) -> None:
        """Unbind a name from a number; a newer stream of the same name keeps it."""
        if self._names:
            self.write_names()
        names = self.generation.names
        if self.stream_number(name) == number:
            self.txn.delete(keys.name_key(name), db=names)
        key = keys.twin_key(name)
        twins = _fetch(self.txn, names, key) or b""
        packed = number.to_bytes(8, "little")
        rest = b"".join(
            twins[at : at + 8] for at in range(0, len(twins), 8) if twins[at : at + 8] != packed
        )
        if rest:
            self.txn.put(key, _seal(key, rest), db=names)
        else:
            self.txn.delete(key, db=names)

    def record(self, number: int) -> StreamRecord | None:
        """A stream's record by number."""
        value = _fetch(self.txn, self.generation.main, _STREAM_KEY(0xFF, number, keys.IS_RECORD))
        return None if value is None else StreamRecord.unpack(number, value)

    def record_by_name(self, name: bytes) -> StreamRecord | None:
        """A stream's record by name."""
        if self._names:
            self.write_names()
        value = _fetch(self.txn, self.generation.names, keys.name_key(name))
        if value is None:
            return None
        number = int.from_bytes(value, "little")
        value = _fetch(self.txn, self.generation.main, _STREAM_KEY(0xFF, number, keys.IS_RECORD))
        record = None if value is None else StreamRecord.unpack(number, value)
        return record if record is not None and record.name == name else None

    def put_new(
        self, made: list[tuple[StreamRecord, OpenNode | None]], others: list[tuple[bytes, bytes]]
    ) -> None:
        """Store new streams' records and open nodes, and ``others``, rows of such that are made
        already; numbers ascend, so they stand at the end."""
        rows = list(others)
        for record, node in made:
            key = _STREAM_KEY(0xFF, record.number, keys.IS_RECORD)
            rows.append((key, _seal(key, record.pack())))
            if node is not None:
                key = _STREAM_KEY(0xFF, record.number, keys.IS_OPEN)
                rows.append((key, _seal(key, node.pack())))
        put_rows(self.txn, self.generation.main, rows)

    def delete_record(self, number: int) -> None:
        """Remove a stream's record."""
        self.txn.delete(keys.record_key(number), db=self.generation.main)

    def numbers(self) -> Iterator[int]:
        """Numbers of all streams, ascending."""
        with self.txn.cursor(db=self.generation.main) as cursor:
            if cursor.set_range(keys.record_key(1)):
                for key in cursor.iternext(values=False):
                    _, number, which = _parts(keys.STREAM_KEY, key)
                    if which == keys.IS_RECORD:
                        yield number

    def records(self, after: int = 0) -> Iterator[StreamRecord]:
        """Records with numbers above ``after``, ascending."""
        with self.txn.cursor(db=self.generation.main) as cursor:
            if cursor.set_range(keys.record_key(after + 1)):
                for key, data in cursor:
                    _, number, which = _parts(keys.STREAM_KEY, key)
                    if which == keys.IS_RECORD:
                        yield StreamRecord.unpack(number, _unseal(key, data))

    def records_with_opens(self, after: int = 0) -> Iterator[tuple[StreamRecord, OpenNode | None]]:
        """The same records, each with the open node of its stream: both rows stand side by side."""
        record: StreamRecord | None = None
        with self.txn.cursor(db=self.generation.main) as cursor:
            if cursor.set_range(keys.record_key(after + 1)):
                for key, data in cursor:
                    _, number, which = _parts(keys.STREAM_KEY, key)
                    if which == keys.IS_RECORD:
                        if record is not None:
                            yield record, None
                        record = StreamRecord.unpack(number, _unseal(key, data))
                    elif record is not None and record.number == number:
                        yield record, self._open_of(number, _unseal(key, data))
                        record = None
        if record is not None:
            yield record, None

    # -- sealed nodes -------------------------------------------------------------------------
    def _nodes(self) -> Any:
        if self._cursor is None:
            self._cursor = self.txn.cursor(db=self.generation.nodes)
        return self._cursor

    def node(self, stream: int, master: StreamID) -> Locator | None:
        """The sealed node with this master ID."""
        value = _fetch(self.txn, self.generation.nodes, _NODE.pack(stream, *master))
        return None if value is None else Locator.unpack(value)

    def put_node(self, stream: int, master: StreamID, locator: Locator) -> None:
        """Store a sealed node's locator."""
        key = _NODE.pack(stream, *master)
        self.txn.put(key, _seal(key, locator.pack()), db=self.generation.nodes)

    def mark_nodes(self, marks: Iterable[Mark]) -> None:
        """Entries of these versions of sealed nodes were deleted; nothing, if a node is another
        one."""
        mark_nodes(self.txn, self.generation.nodes, marks)

    def delete_node(self, stream: int, master: StreamID) -> None:
        """Remove a sealed node's locator."""
        self.txn.delete(_NODE.pack(stream, *master), db=self.generation.nodes)

    def drop_nodes(
        self, stream: int, first: StreamID, last: StreamID, before: int
    ) -> dict[int, tuple[int, int]]:
        """Remove the locators of sealed nodes in a closed interval of master IDs, of those that lie
        before a position; by segment, how many went, and their payload bytes."""
        low, high = _NODE.pack(stream, *first), _NODE.pack(stream, *last)
        return drop_nodes(self, low, high, before)

    def node_floor(self, stream: int, at: StreamID) -> tuple[StreamID, Locator] | None:
        """The sealed node with the largest master ID not above ``at``."""
        cursor = self._nodes()
        key = _NODE.pack(stream, *at)
        here = cursor.set_range(key) and cursor.key() == key
        if not (here or cursor.prev() or cursor.last()):
            return None
        return self._node_here(cursor, stream) if cursor.key() <= key else None

    def node_from(
        self, stream: int, at: StreamID
    ) -> tuple[StreamID, Locator, StreamID | None] | None:
        """The first sealed node whose last ID is not below ``at``, of those from the one on into
        which that belongs; and the master ID of the node behind it."""
        cursor, key = self._nodes(), _NODE.pack(stream, *at)
        if cursor.set_range(key):
            there = cursor.key() == key or cursor.prev() or cursor.first()
        else:
            there = cursor.last()
        while there:
            row_key, data = cursor.item()
            of, ms, seq = _parts(_NODE, row_key)
            if of > stream:
                return None
            there = cursor.next()
            if of == stream:
                locator = Locator.unpack(_unseal(row_key, data))
                if locator.last >= at:
                    behind = _parts(_NODE, cursor.key()) if there else (0, 0, 0)
                    above = StreamID(*behind[1:]) if behind[0] == stream else None
                    return StreamID(ms, seq), locator, above
        return None

    def first_node(self, stream: int) -> tuple[StreamID, Locator] | None:
        """The sealed node with the smallest master ID."""
        cursor = self._nodes()
        return (
            self._node_here(cursor, stream) if cursor.set_range(_NODE.pack(stream, 0, 0)) else None
        )

    def last_node(self, stream: int) -> tuple[StreamID, Locator] | None:
        """The sealed node with the largest master ID."""
        return self.node_floor(stream, MAX_ID)

    def _node_here(self, cursor: Any, stream: int) -> tuple[StreamID, Locator] | None:
        key, data = cursor.item()
        if key[:8] != keys.NUMBER.pack(stream):
            return None
        _, ms, seq = _parts(_NODE, key)
        return StreamID(ms, seq), Locator.unpack(_unseal(key, data))

    def nodes(
        self,
        stream: int,
        start: StreamID = ZERO_ID,
        end: StreamID = MAX_ID,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[StreamID, Locator]]:
        """Sealed nodes with master IDs in the closed interval; do not change nodes meanwhile."""
        low, high = _NODE.pack(stream, *start), _NODE.pack(stream, *end)
        with self.txn.cursor(db=self.generation.nodes) as cursor:
            if reverse:
                if not (cursor.set_range(high) and cursor.key() == high) and not cursor.prev():
                    cursor.last()
                rows = cursor.iterprev()
            else:
                cursor.set_range(low)
                rows = cursor.iternext()
            for key, data in rows:
                if key > high:
                    if reverse:
                        continue
                    return
                if key < low:
                    return
                _, ms, seq = _parts(_NODE, key)
                yield StreamID(ms, seq), Locator.unpack(_unseal(key, data))

    def node_rows(self, stream: int, start: StreamID, count_max: int) -> list[tuple[bytes, bytes]]:
        """So many rows at most from a master ID on, unchecked; the last may be another stream's."""
        with self.txn.cursor(db=self.generation.nodes) as cursor:
            if not cursor.set_range(_NODE.pack(stream, *start)):
                return []
            return list(islice(cursor.iternext(), count_max))

    def neighbours(
        self, stream: int, at: tuple[int, int], count: int, *, reverse: bool = False
    ) -> tuple[list[tuple[bytes, bytes]], bool, bool]:
        """Rows of sealed nodes around the last one whose master ID is not above ``at``: that one,
        ``count`` more behind it, with ``reverse`` before it and one behind it. With checksums that
        are still to be checked, and of other streams at either end. And whether there is no row
        before the first of them, and none behind the last."""
        key = _NODE.pack(stream, *at)
        with self.txn.cursor(db=self.generation.nodes) as cursor:
            at_front = False
            if cursor.set_range(key):
                if cursor.key() != key and not cursor.prev():
                    at_front = cursor.first()
            elif not cursor.last():
                return [], True, True
            if not reverse:
                rows = list(islice(cursor.iternext(), count + 1))
                return rows, at_front, len(rows) <= count
            rows = list(islice(cursor.iternext(), 2))
            cursor.set_key(rows[0][0])
            before = list(islice(cursor.iterprev(), 1, count + 1))
            before.reverse()
            return before + rows, len(before) < count, len(rows) < 2

    def node_before(self, stream: int, at: StreamID, count: int) -> StreamID | None:
        """The master ID of a sealed node: of those not above ``at`` the one that ``count`` follow;
        None if there are not so many. Its row is checked when it is read."""
        key = _NODE.pack(stream, *at)
        with self.txn.cursor(db=self.generation.nodes) as cursor:
            here = cursor.set_range(key) and cursor.key() == key
            if not (here or cursor.prev() or cursor.last()):
                return None
            found = next(islice(cursor.iterprev(values=False), count, None), b"")
        if found[:8] != key[:8] or found > key:
            return None
        _, ms, seq = _parts(_NODE, found)
        return StreamID(ms, seq)

    def node_count(self, stream: int) -> int:
        """How many sealed nodes of a stream there are."""
        first, count = keys.NUMBER.pack(stream), 0
        with self.txn.cursor(db=self.generation.nodes) as cursor:
            if cursor.set_range(first):
                for key in cursor.iternext(values=False):
                    if key[:8] != first:
                        break
                    count += 1
        return count

    def all_nodes(self, after: bytes = b"") -> Iterator[tuple[bytes, int, StreamID, Locator]]:
        """Nodes of all streams from key ``after`` on: (key, stream, master ID, locator)."""
        with self.txn.cursor(db=self.generation.nodes) as cursor:
            if cursor.set_range(after):
                for key, data in cursor:
                    stream, ms, seq = _parts(_NODE, key)
                    yield key, stream, StreamID(ms, seq), Locator.unpack(_unseal(key, data))

    def nodes_with_tombstones(
        self, after: bytes, most: int
    ) -> tuple[list[tuple[int, Locator]], bytes | None]:
        """Among the next nodes from a key on, so many at most, those with tombstones, and their
        streams; and the key to go on from, None at the end. The length of a row alone says whether
        it has tombstones."""
        rows, following = self.rows_from(after, most)
        return _tombstoned(rows), following

    def node_totals_from(
        self, after: bytes, most: int
    ) -> tuple[dict[tuple[int, int], list[int]], list[tuple[int, Locator]], bytes | None]:
        """The same, with ``node_totals`` of all of these nodes in front."""
        rows, following = self.rows_from(after, most)
        return _totals(rows), _tombstoned(rows), following

    def rows_from(self, after: bytes, most: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """So many rows at most from a key on, unchecked; the key to go on from, None at the end."""
        with self.txn.cursor(db=self.generation.nodes) as cursor:
            rows = list(islice(cursor, most)) if cursor.set_range(after) else []
        return rows, rows[-1][0] + b"\0" if len(rows) == most else None

    def node_totals(self) -> dict[tuple[int, int], list[int]]:
        """Sealed nodes by stream and segment: how many, and their payload bytes."""
        with self.txn.cursor(db=self.generation.nodes) as cursor:
            return _totals(cursor)

    # -- open nodes ---------------------------------------------------------------------------
    def open_node(self, stream: int) -> OpenNode | None:
        """A stream's open node."""
        value = _fetch(self.txn, self.generation.main, _STREAM_KEY(0xFF, stream, keys.IS_OPEN))
        return None if value is None else self._open_of(stream, value)

    def _open_of(self, stream: int, value: bytes) -> OpenNode:
        """The open node of its row, with the runs that stand in rows of their own."""
        node = OpenNode.unpack(value)
        if node.rows:
            older: list[NodeFrame] = []
            for row in range(node.rows):
                key = keys.RUNS_KEY.pack(keys.RUNS_PREFIX, stream, row)
                data = _fetch(self.txn, self.generation.main, key)
                older += keys.unpack_runs(data if data is not None else _unseal(key, b""))
            node.runs = older + node.runs
        return node

    def delete_open(self, stream: int) -> None:
        """Remove a stream's open node."""
        self.txn.delete(keys.open_key(stream), db=self.generation.main)
        first = keys.RUNS_KEY.pack(keys.RUNS_PREFIX, stream, 0)
        with self.txn.cursor(db=self.generation.main) as cursor:
            while cursor.set_range(first) and cursor.key()[:9] == first[:9]:
                cursor.delete()

    # -- segments -----------------------------------------------------------------------------
    def segment(self, number: int) -> SegmentRow | None:
        """The counters of a segment."""
        value = _fetch(self.txn, self.generation.segments, keys.SEGMENT_KEY.pack(number))
        return None if value is None else SegmentRow.unpack(value)

    def put_segment(self, number: int, row: SegmentRow) -> None:
        """Store what is counted of a segment."""
        key = keys.SEGMENT_KEY.pack(number)
        self.txn.put(key, _seal(key, row.pack()), db=self.generation.segments)

    def delete_segment(self, number: int) -> None:
        """Forget a segment."""
        self.txn.delete(keys.SEGMENT_KEY.pack(number), db=self.generation.segments)

    def segment_rows(self) -> dict[int, SegmentRow]:
        """All segments by number."""
        with self.txn.cursor(db=self.generation.segments) as cursor:
            return {
                _parts(keys.SEGMENT_KEY, key)[0]: SegmentRow.unpack(_unseal(key, data))
                for key, data in cursor
            }
