"""Macro nodes: many entries in one listpack, byte for byte as Redis and Valkey keep them.

Layout, each item one element::

    master   count of live entries | count of tombstones | N | field_1 .. field_N | 0
    entry    flags | ms diff | seq diff | (values, where the fields are the master's
                                           | number of pairs, field, value, .. otherwise) | lp-count

flags: 1 tombstone, 2 same fields as the master. The diffs are to the master ID, modulo 2**64,
stored as int64. lp-count is the number of the entry's elements before it: it leads back to the
entry's start from behind.

Invariants: what is written equals what the servers write for the same operations; no operation
changes an entry's bytes but for its flags; bytes that break the layout give CorruptNodeError.
A node's ordinals count its entries from 0, tombstones included; a *vector* is a little-endian
bitmap of ordinals that are tombstones although their flags do not say so.

It may not know about streams, files, or which node is open. Edits are in edit.py.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Final

from logstore import tombstones
from logstore.codec import listpack
from logstore.codec.node_types import ID, MAX_ID, ZERO_ID, NodeEntry, NodeHead, NodeSurvey
from logstore.errors import CorruptNodeError
from logstore.tuples import NamedTuple

DELETED: Final = 1
SAME_FIELDS: Final = 2
_U64: Final = 2**64 - 1
OUTLINES: Final = 16
OUTLINED_MAX_BYTES: Final = 64 * 1024


class Master(NamedTuple):
    """A node's master, and where its parts are."""

    live: int
    deleted: int
    deleted_at: int
    width_at: int
    fields: list[bytes]
    first: int
    end: int


class Entry(NamedTuple):
    """One entry as it lies in the node: ``at`` is its flags, ``body`` its first field or value."""

    ordinal: int
    at: int
    flags: int
    ms_diff: int
    seq_diff: int
    pairs: int
    body: int
    after: int

    def id(self, master_ms: int, master_seq: int) -> ID:
        """The entry's ID, given its node's master ID."""
        return (master_ms + self.ms_diff) & _U64, (master_seq + self.seq_diff) & _U64


def _counter(lp: bytes, pos: int, end: int) -> tuple[int, int]:
    """A number that counts things which each take a byte of the node at least."""
    number, after = listpack.read_int(lp, pos, end)
    if not 0 <= number <= end:
        raise CorruptNodeError(f"the node cannot hold {number} of what the element at {pos} counts")
    return number, after


def read_counters(lp: bytes) -> tuple[int, int, int, int, int]:
    """(live, deleted, offset of deleted, offset after it, offset of the end byte)."""
    end = listpack.check(lp)
    count, deleted_at = _counter(lp, listpack.HEADER_BYTES, end)
    deleted, width_at = _counter(lp, deleted_at, end)
    return count, deleted, deleted_at, width_at, end


def read_master(lp: bytes) -> Master:
    """The whole master, its fields decoded."""
    count, deleted, deleted_at, width_at, end = read_counters(lp)
    width, pos = _counter(lp, width_at, end)
    fields: list[bytes] = []
    for _ in range(width):
        field, pos = listpack.read_bytes(lp, pos, end)
        fields.append(field)
    terminator, pos = listpack.read_int(lp, pos, end)
    if terminator != 0:
        raise CorruptNodeError("the node's master fields do not end with 0")
    return Master(count, deleted, deleted_at, width_at, fields, pos, end)


def read_entry(lp: bytes, pos: int, master: Master, ordinal: int) -> Entry:
    """The entry whose flags are at ``pos``; its values are walked over, not decoded."""
    end = master.end
    at = pos
    flags, pos = listpack.read_int(lp, pos, end)
    ms_diff, pos = listpack.read_int(lp, pos, end)
    seq_diff, pos = listpack.read_int(lp, pos, end)
    if flags & SAME_FIELDS:
        pairs = items = len(master.fields)
        expected = pairs + 3
    else:
        pairs, pos = _counter(lp, pos, end)
        items = 2 * pairs
        expected = items + 4
    body = pos
    for _ in range(items):
        pos = listpack.skip(lp, pos, end)
    lp_count, pos = listpack.read_int(lp, pos, end)
    if lp_count != expected:
        raise CorruptNodeError(f"the entry at {at} says {lp_count} elements, it has {expected}")
    return Entry(ordinal, at, flags, ms_diff, seq_diff, pairs, body, pos)


def forward(lp: bytes, master: Master) -> Iterator[Entry]:
    """All entries, tombstones included, first to last."""
    pos = master.first
    ordinal = 0
    while pos < master.end:
        entry = read_entry(lp, pos, master, ordinal)
        yield entry
        pos = entry.after
        ordinal += 1


def backward(lp: bytes, master: Master) -> Iterator[Entry]:
    """All entries, tombstones included, last to first; each is reached without those before it."""
    pos = master.end
    ordinal = master.live + master.deleted
    while pos > master.first:
        ordinal -= 1
        if ordinal < 0:
            raise CorruptNodeError("the node has more entries than its counters say")
        start = listpack.before(lp, pos, master.end)
        hops, _ = listpack.read_int(lp, start, master.end)
        while hops > 0 and start > master.first:
            start = listpack.before(lp, start, master.end)
            hops -= 1
        if hops or start < master.first:
            raise CorruptNodeError(f"the entry that ends at {pos} does not begin in the node")
        entry = read_entry(lp, start, master, ordinal)
        if entry.after != pos:
            raise CorruptNodeError(f"the entry at {start} does not end at {pos}")
        yield entry
        pos = start
    if ordinal != 0:
        raise CorruptNodeError("the node has fewer entries than its counters say")


class Outline:
    """Where a node's entries lie, as far as it was looked through; kept for the next look.

    Deletes look for one ID after the other in the same nodes. What is read is checked as ever, and
    no more of the node is read than was asked for.
    """

    __slots__ = (
        "_diffs",
        "_ids",
        "_master_id",
        "_pos",
        "ascending",
        "ats",
        "flags",
        "lp",
        "master",
    )

    def __init__(self, lp: bytes) -> None:
        self.lp = lp
        self.master = read_master(lp)
        self.ats: list[int] = []
        self.flags: list[int] = []
        self.ascending = True  # the IDs that were read
        self._diffs: list[ID] = []
        self._ids: list[ID] = []
        self._master_id: ID = ZERO_ID
        self._pos = self.master.first

    def extend(self) -> bool:
        """Read one entry more; False if there is none."""
        if self._pos >= self.master.end:
            return False
        entry = read_entry(self.lp, self._pos, self.master, len(self.ats))
        id = entry.id(*self._master_id)
        self.ascending = self.ascending and (not self._ids or self._ids[-1] <= id)
        self.ats.append(entry.at)
        self.flags.append(entry.flags)
        self._diffs.append((entry.ms_diff, entry.seq_diff))
        self._ids.append(id)
        self._pos = entry.after
        return True

    def ids(self, master_ms: int, master_seq: int) -> list[ID]:
        """The IDs of the entries that were read; it grows with ``extend``."""
        if self._master_id != (master_ms, master_seq):
            self._master_id = (master_ms, master_seq)
            self._ids[:] = [
                ((master_ms + ms) & _U64, (master_seq + seq) & _U64) for ms, seq in self._diffs
            ]
            self.ascending = all(a <= b for a, b in pairwise(self._ids))
        return self._ids

    def is_live(self, ordinal: int, vector: bytes) -> bool:
        """True if the entry is a tombstone neither by its flags nor by the vector."""
        return not self.flags[ordinal] & DELETED and not tombstones.has(vector, ordinal)

    def follow(self, lp: bytes, ordinals: Iterable[int]) -> None:
        """The node became ``lp``: these entries were made tombstones, with flags of the same width.

        Only the counters can have changed their width.
        """
        before = self.master.first
        self.lp, self.master = lp, read_master(lp)
        moved = self.master.first - before
        if moved:
            self.ats = [at + moved for at in self.ats]
            self._pos += moved
        for ordinal in ordinals:
            self.flags[ordinal] |= DELETED


class _Outlines(threading.local):
    """The outlines of the nodes that a thread looked at last; large nodes are not kept."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Outline] = {}

    def of(self, lp: bytes) -> Outline:
        """The outline of a node."""
        found = self._kept.pop(lp, None)
        if found is None:
            found = Outline(lp)
        self.keep(found)
        return found

    def keep(self, outline: Outline) -> None:
        """Put it to the others, as the one that was used last."""
        if len(outline.lp) <= OUTLINED_MAX_BYTES:
            self._kept[outline.lp] = outline
            if len(self._kept) > OUTLINES:
                del self._kept[next(iter(self._kept))]

    def follow(self, outline: Outline, lp: bytes, ordinals: Iterable[int]) -> None:
        """Keep what is known of a node for what it became."""
        self._kept.pop(outline.lp, None)
        outline.follow(lp, ordinals)
        self.keep(outline)


outlines = _Outlines()


def is_live(entry: Entry, vector: bytes) -> bool:
    """True if the entry is a tombstone neither by its flags nor by the vector."""
    return not entry.flags & DELETED and not tombstones.has(vector, entry.ordinal)


def read_flat(lp: bytes, entry: Entry, master: Master) -> list[bytes]:
    """field, value, field, value, .. of an entry."""
    pos = entry.body
    flat: list[bytes] = []
    if entry.flags & SAME_FIELDS:
        for field in master.fields:
            value, pos = listpack.read_bytes(lp, pos, master.end)
            flat += (field, value)
    else:
        for _ in range(2 * entry.pairs):
            value, pos = listpack.read_bytes(lp, pos, master.end)
            flat.append(value)
    return flat


def head(lp: bytes) -> NodeHead:
    """Counters and master fields of a node."""
    master = read_master(lp)
    return NodeHead(master.live, master.deleted, master.fields, master.first)


def counts(lp: bytes) -> tuple[int, int]:
    """(live entries, tombstones) as the node's counters have them; reads nothing else."""
    return read_counters(lp)[:2]


def last_id(lp: bytes, master_ms: int, master_seq: int) -> ID:
    """ID of the last entry, tombstone or not; found from the end."""
    for entry in backward(lp, read_master(lp)):
        return entry.id(master_ms, master_seq)
    raise CorruptNodeError("the node has no entry")


def last_live_id(lp: bytes, master_ms: int, master_seq: int, vector: bytes = b"") -> ID | None:
    """ID of the last live entry, or None; found from the end."""
    for entry in backward(lp, read_master(lp)):
        if is_live(entry, vector):
            return entry.id(master_ms, master_seq)
    return None


def first_live_id(lp: bytes, master_ms: int, master_seq: int, vector: bytes = b"") -> ID | None:
    """ID of the first live entry, or None."""
    outline = outlines.of(lp)
    found = outline.ids(master_ms, master_seq)
    ordinal = 0
    while ordinal < len(found) or outline.extend():
        if outline.is_live(ordinal, vector):
            return found[ordinal]
        ordinal += 1
    return None


def walk(
    lp: bytes, master_ms: int, master_seq: int, vector: bytes, start: ID, end: ID, reverse: bool
) -> Iterator[NodeEntry]:
    """Live entries with start <= ID <= end, last first if reversed; no more is read than taken."""
    master = read_master(lp)
    for entry in backward(lp, master) if reverse else forward(lp, master):
        if not is_live(entry, vector):
            continue
        id = entry.id(master_ms, master_seq)
        if id < start if reverse else id > end:
            break
        if start <= id <= end:
            yield (entry.ordinal, *id, read_flat(lp, entry, master))


def entries(
    lp: bytes,
    master_ms: int,
    master_seq: int,
    vector: bytes = b"",
    start: ID = ZERO_ID,
    end: ID = MAX_ID,
    limit: int = -1,
    reverse: bool = False,
    where: list[bytes] | None = None,
) -> list[NodeEntry]:
    """Live entries with start <= ID <= end, at most ``limit`` (-1: all), last first if reversed.

    With ``where``, which is name, value, name, value, .., those alone that match: the last value of
    each named field is that one. Equal are bytes: an integer is equal to its text, however it is
    stored. A node in which the bytes of a name or of a value that is no integer stand nowhere is
    not looked into.
    """
    found = walk(lp, master_ms, master_seq, vector, start, end, reverse)
    if where is not None:
        if not all(text in lp or listpack.parse_int(text) is not None for text in where):
            return []
        texts = iter(where)
        wanted = set(zip(texts, texts, strict=True))
        found = (entry for entry in found if _matches(entry[3], wanted))
    return list(islice(found, limit if limit >= 0 else None))


def _matches(flat: list[bytes], wanted: set[tuple[bytes, bytes]]) -> bool:
    return wanted <= dict(zip(flat[::2], flat[1::2], strict=True)).items()


def ids(
    lp: bytes, master_ms: int, master_seq: int, vector: bytes = b""
) -> list[tuple[int, int, int]]:
    """(ordinal, ms, seq) of each live entry; no values are decoded."""
    master = read_master(lp)
    return [
        (entry.ordinal, *entry.id(master_ms, master_seq))
        for entry in forward(lp, master)
        if is_live(entry, vector)
    ]


def find(lp: bytes, master_ms: int, master_seq: int, ms: int, seq: int, vector: bytes = b"") -> int:
    """Ordinal of the live entry with this ID, or -1."""
    outline = outlines.of(lp)
    found, wanted = outline.ids(master_ms, master_seq), (ms, seq)
    ordinal = bisect_left(found, wanted) if outline.ascending else 0
    while ordinal < len(found) or outline.extend():
        if found[ordinal] >= wanted and outline.is_live(ordinal, vector):
            return ordinal if found[ordinal] == wanted else -1
        ordinal += 1
    return -1


def validate(lp: bytes, master_ms: int, master_seq: int) -> None:
    """Check every element, every counter, and that live IDs ascend; CorruptNodeError if not."""
    master = read_master(lp)
    seen = [0, 0]
    last: ID | None = None
    elements = len(master.fields) + 4
    for entry in forward(lp, master):
        deleted = entry.flags & DELETED
        seen[deleted] += 1
        elements += entry.pairs + 4 if entry.flags & SAME_FIELDS else 2 * entry.pairs + 5
        if deleted:
            continue
        id = entry.id(master_ms, master_seq)
        if last is not None and id <= last:
            raise CorruptNodeError(f"entry {entry.ordinal} of the node is not above the one before")
        last = id
    if seen != [master.live, master.deleted]:
        raise CorruptNodeError(
            f"the node says {master.live} live entries and {master.deleted} tombstones, "
            f"it has {seen[0]} and {seen[1]}"
        )
    if seen == [0, 0]:
        raise CorruptNodeError("the node has no entry")
    if listpack.stored_count(lp) not in (elements, listpack.COUNT_UNKNOWN):
        raise CorruptNodeError("the listpack's header tells a wrong number of elements")


def survey(lp: bytes, master_ms: int, master_seq: int) -> NodeSurvey:
    """Of a node that comes from elsewhere, all that whoever keeps it must know, everything checked:
    live entries, the first and last live ID, the last ID; CorruptNodeError as `validate`."""
    validate(lp, master_ms, master_seq)
    live, _ = counts(lp)
    return NodeSurvey(
        live,
        first_live_id(lp, master_ms, master_seq),
        last_live_id(lp, master_ms, master_seq),
        last_id(lp, master_ms, master_seq),
    )
