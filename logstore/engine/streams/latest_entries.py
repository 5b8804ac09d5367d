"""Keeping only the newest entry of each key: going through a stream, and finding an entry by key.

An add writes nothing for it: what was added is gone through later, a bounded number of entries a
commit, which deletes what a newer entry replaces and says which that is. So a look for a key asks
what its process remembers of that which is not gone through yet (``engine.runtime.newest``), reads
what was added since, and what else of it is not remembered, from the newest on; and then one row.

Invariants: the deletes and the frame that names what replaces them are one commit. An entry without
the field has no key and stays. Groups are not asked: what is pending stays pending, as with trims.
"""

from __future__ import annotations

from logstore.codec import NodeEntry, codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.newest import KEYS_MAX, NONE, NewestEntries
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams.removal import Removed, delete_entries
from logstore.engine.txn import nodes
from logstore.errors import OptionError
from logstore.features.latest import NO_KEY, Latest, LatestRows, packed
from logstore.features.setting_rows import SettingRows
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.row_seal import digest
from logstore.tuples import NamedTuple

ENTRIES_A_COMMIT = 256  # each may be replaced by one that lies in a node of its own
NODES_A_LOOK = 64  # that a look reads for the memory; the rest is sifted for the one key


def go_on(txn: WriteTxn, stream: int) -> Removed:
    """Go through a stream's next entries: one commit's part."""
    record = txn.record(stream)
    field = None if record is None else txn.settings.stream(stream).compact_by
    if record is None or not isinstance(field, bytes):
        return Removed(0, more=False)
    rows = LatestRows(txn.index)
    before = upto = rows.upto(stream)
    newest: dict[bytes, StreamID] = {}
    going: list[StreamID] = []
    count = 0
    for ref in nodes.refs(txn, record, upto.next()) if upto < MAX_ID else ():
        if not ref.live:
            continue
        lp, vector = nodes.listpack(txn, record, ref)
        left = ENTRIES_A_COMMIT - count
        for _, ms, seq, flat in codec().entries(
            lp, *ref.master, vector, before.next(), MAX_ID, left, False
        ):
            count += 1
            upto = StreamID(ms, seq)
            key = _key(flat, field)
            if key is not None:
                replaced = newest.get(key) or rows.get(stream, key)
                if replaced is not None:
                    going.append(replaced)
                newest[key] = upto
        if count == ENTRIES_A_COMMIT:
            break
    more = count == ENTRIES_A_COMMIT
    if not more:
        upto = max(upto, record.last)
    if upto > before:
        deleted = delete_entries(txn, record, going)
        txn.emit(Latest(stream, 0, upto, packed(newest)))
        return Removed(deleted, more)
    return Removed(0, more=False)


def _key(flat: list[bytes], field: bytes) -> bytes | None:
    """The digest of an entry's key: of a repeated field the last value."""
    for at in range(len(flat) - 2, -1, -2):
        if flat[at] == field:
            return digest(flat[at + 1])
    return None


def forget(txn: WriteTxn, stream: int, *, remembered: bool) -> None:
    """Begin anew: the field is another one, or IDs that rows name may be given again.

    ``remembered``: the stream was kept compact, so that processes may know keys of it.
    """
    rows = LatestRows(txn.index)
    if remembered or rows.upto(stream) > ZERO_ID:
        epoch = StreamID(rows.epoch(stream) + 1, 0)
        txn.emit(Latest(stream, 1, ZERO_ID, packed({NO_KEY: epoch})))


class KeyLookup(NamedTuple):
    """What a look for a key found: its newest entry, or where else it may be."""

    where: list[bytes]  # the field and the key
    entry: NodeEntry | None
    low: StreamID  # of an interval that is still to be read; above ``high``: none is
    high: StreamID
    id: StreamID | None  # the newest entry that was known, and is deleted


def look(engine: Engine, name: bytes, value: bytes) -> KeyLookup | None:
    """The newest entry of a key, or where to go on; None without a stream.

    OptionError if it is not kept compact. LostRowsError as reads.
    """
    if engine.follow is not None:  # read-only: what it sees may become that of another log
        seen = snapshot.read(engine, _look, name, value, None)
        return None if seen is None else seen.looked
    with engine.newest.lock:
        seen = snapshot.read(engine, _look, name, value, engine)
        if seen is not None:
            _keep(engine, seen)
    return None if seen is None else seen.looked


def learn(engine: Engine, looked: KeyLookup, name: bytes, found: StreamID | None) -> None:
    """An interval that was to be read has this newest entry of the key, or none: the one that was
    known is deleted."""
    if looked.id is None or engine.follow is not None:
        return
    number = snapshot.read(engine, Snapshot.record, name)
    memory, key = engine.newest, digest(looked.where[1])
    with memory.lock:
        kept = None if number is None else memory.of(number.number)
        if kept is not None and kept.keys.get(key) == looked.id:
            kept.keys[key] = NONE if found is None else found


class _SnapshotLookup(NamedTuple):
    """What one snapshot gave: the answer, and what may be remembered if the snapshot was sound."""

    looked: KeyLookup
    stream: int
    kept: NewestEntries
    newer: dict[bytes, StreamID]  # above what was kept
    older: dict[bytes, StreamID]  # below it
    floor: StreamID
    upto: StreamID


def _keep(engine: Engine, seen: _SnapshotLookup) -> None:
    kept = seen.kept
    kept.keys.update(seen.newer)
    for key, id in seen.older.items():
        kept.keys.setdefault(key, id)
    kept.floor, kept.upto = seen.floor, seen.upto
    engine.newest.keep(seen.stream, kept)


def _look(
    view: Snapshot, name: bytes, value: bytes, engine: Engine | None
) -> _SnapshotLookup | None:
    record = view.record(name)
    if record is None:
        return None
    number, last = record.number, record.last
    field = SettingRows(view.index).stream(number).compact_by
    if not isinstance(field, bytes):
        raise OptionError(
            "the stream is not kept compact: stream.configure(compact_by='field') says by which "
            "field, or ask for stream.range(where={...}, reverse=True, count=1)"
        )
    rows = LatestRows(view.index)
    gone, epoch, key = rows.upto(number), rows.epoch(number), digest(value)
    newer: dict[bytes, StreamID] = {}
    kept = None if engine is None else engine.newest.of(number)
    if kept is None or kept.epoch != epoch or gone == last or not gone <= kept.upto <= last:
        kept = NewestEntries(epoch, last, last)
    elif kept.upto < last:
        reached = _read_back(view, record, field, kept.upto, last, newer, None)
        if reached > kept.upto:  # too much was added: begin with what is newest
            kept = NewestEntries(epoch, reached, last)
    older: dict[bytes, StreamID] = {}
    floor = kept.floor
    id = newer.get(key)
    if id is None:
        id = kept.keys.get(key)
    if id is None and floor > gone and engine is not None and len(kept.keys) < KEYS_MAX // 2:
        floor = _read_back(view, record, field, gone, floor, older, key)
        id = older.get(key)
    where = [field, value]
    entry = None if id is None or id == NONE else _entry(view, record, where, id)
    high = gone if entry is not None else floor if id is None else id
    if entry is None and high <= gone:
        named = rows.get(number, key)
        entry = None if named is None else _entry(view, record, where, named)
    low = gone.next() if high > gone else MAX_ID
    looked = KeyLookup(where, entry, low, high, id)
    return _SnapshotLookup(looked, number, kept, newer, older, floor, last)


def _read_back(
    view: Snapshot,
    record: StreamRecord,
    field: bytes,
    above: StreamID,
    upto: StreamID,
    found: dict[bytes, StreamID],
    key: bytes | None,
) -> StreamID:
    """Find the newest entries of keys, from ``upto`` on, until that of ``key`` is found.

    Returns:
        The ID above which all was read: ``above``, or another one after ``NODES_A_LOOK``.
    """
    low, count = above.next(), 0
    for ref in nodes.refs_reverse(view, record, low, upto):
        if not ref.live:
            continue
        lp, vector = nodes.listpack(view, record, ref)
        for _, ms, seq, flat in codec().entries(lp, *ref.master, vector, low, upto, -1, True):
            mine = _key(flat, field)
            if mine is not None and mine not in found:
                found[mine] = StreamID(ms, seq)
        count += 1
        if ref.master > low and (count == NODES_A_LOOK or (key is not None and key in found)):
            return ref.master.previous()
    return above


def find(view: Snapshot, name: bytes, where: list[bytes]) -> NodeEntry | None:
    """The entry that the row of a key names; ``where``: the field and the key."""
    record = view.record(name)
    id = None if record is None else LatestRows(view.index).get(record.number, digest(where[1]))
    return None if record is None or id is None else _entry(view, record, where, id)


def _entry(
    view: Snapshot, record: StreamRecord, where: list[bytes], id: StreamID
) -> NodeEntry | None:
    """The entry with an ID, if it has the key and is not deleted."""
    ref = nodes.ref_of(view, record, id)
    if ref is None or not ref.live:
        return None
    lp, vector = nodes.listpack(view, record, ref)
    found = codec().entries_where(lp, *ref.master, where, vector, id, id, 1, False)
    return found[0] if found else None
