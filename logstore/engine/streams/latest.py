"""Keeping only the newest entry of each key: going through a stream, and finding an entry by key.

An add writes nothing for it: what was added is gone through later, a bounded number of entries a
commit, which deletes what a newer entry replaces and says which that is. So a look for a key reads
what is not gone through yet, from the newest on, and then one row.

Invariants: the deletes and the frame that names what replaces them are one commit. An entry without
the field has no key and stays. Groups are not asked: what is pending stays pending, as with trims.
"""

from __future__ import annotations

from logstore.codec import NodeEntry, codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.streams.delete import delete_entries
from logstore.engine.txn import nodes
from logstore.errors import OptionError
from logstore.features.latest import Latest, LatestRows, packed
from logstore.features.settings import SettingRows
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.row_seal import digest
from logstore.tuples import NamedTuple

ENTRIES_A_COMMIT = 256  # each may be replaced by one that lies in a node of its own


class Replaced(NamedTuple):
    """How many entries one commit deleted, and whether there is more to go through."""

    entries: int
    more: bool


def go_on(txn: WriteTxn, stream: int) -> Replaced:
    """Go through a stream's next entries: one commit's part."""
    record = txn.record(stream)
    field = None if record is None else txn.settings.stream(stream).compact_by
    if record is None or not isinstance(field, bytes):
        return Replaced(0, more=False)
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
        return Replaced(deleted, more)
    return Replaced(0, more=False)


def _key(flat: list[bytes], field: bytes) -> bytes | None:
    """The digest of an entry's key: of a repeated field the last value."""
    for at in range(len(flat) - 2, -1, -2):
        if flat[at] == field:
            return digest(flat[at + 1])
    return None


def forget(txn: WriteTxn, stream: int) -> None:
    """Begin anew: the field is another one, or IDs that rows name may be given again."""
    if LatestRows(txn.index).upto(stream) > ZERO_ID:
        txn.emit(Latest(stream, 1, ZERO_ID, b""))


class Place(NamedTuple):
    """Where to look for the newest entry of a key."""

    field: bytes
    upto: StreamID  # what is above was not gone through yet
    last: StreamID


def place(view: Snapshot, name: bytes) -> Place | None:
    """Where to look; None without a stream. OptionError if it is not kept compact."""
    record = view.record(name)
    if record is None:
        return None
    field = SettingRows(view.index).stream(record.number).compact_by
    if not isinstance(field, bytes):
        raise OptionError(
            "the stream is not kept compact: stream.configure(compact_by='field') says by which "
            "field, or ask for stream.range(where={...}, reverse=True, count=1)"
        )
    return Place(field, LatestRows(view.index).upto(record.number), record.last)


def look(view: Snapshot, name: bytes, value: bytes) -> tuple[Place | None, NodeEntry | None]:
    """Where to look, and, of a stream that was gone through, the newest entry of a key itself."""
    found = place(view, name)
    if found is None or found.last > found.upto:
        return found, None
    return found, find(view, name, [found.field, value])


def find(view: Snapshot, name: bytes, where: list[bytes]) -> NodeEntry | None:
    """The entry that the row of a key names; ``where``: the field and the key."""
    record = view.record(name)
    id = None if record is None else LatestRows(view.index).get(record.number, digest(where[1]))
    if record is None or id is None:
        return None
    ref = nodes.ref_of(view, record, id)
    if ref is None or not ref.live:
        return None
    lp, vector = nodes.listpack(view, record, ref)
    found = codec().entries_where(lp, *ref.master, where, vector, id, id, 1, False)
    return found[0] if found else None
