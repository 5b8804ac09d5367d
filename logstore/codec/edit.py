"""Edits of macro nodes: add an entry, set tombstones, rewrite nodes without them.

Invariants: a node is never changed in place, each edit gives new bytes; an added entry leaves all
bytes but the header and the live counter as they are, so that the added bytes alone, put behind
the old ones by `extend`, give the same node. Canonical form throughout, as servers write it.

It may not know whether a node is open, sealed or dropped: that is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logstore import tombstones
from logstore.codec import listpack, node
from logstore.codec.node_types import ID, ZERO_ID, NodePart
from logstore.errors import CorruptNodeError, TooLargeError

NODE_BYTES_MAX: Final = 1 << 30
ENTRY_BYTES_MAX: Final = 1 << 30
_SIGN: Final = 1 << 63


def _signed(diff: int) -> int:
    """The int64 with the same low 64 bits."""
    return ((diff & (2 * _SIGN - 1)) ^ _SIGN) - _SIGN


def _check_flat(flat: Sequence[bytes]) -> None:
    if not flat or len(flat) % 2:
        raise ValueError(f"an entry is one or more field/value pairs, not {len(flat)} items")
    if sum(map(len, flat)) > ENTRY_BYTES_MAX:
        raise TooLargeError("an entry's fields and values exceed 1 GiB together; split it")


def encode_master(fields: Sequence[bytes]) -> bytes:
    """The master's elements behind its two counters."""
    return b"".join(
        (listpack.encode_int(len(fields)), *map(listpack.encode, fields), listpack.encode_int(0))
    )


def encode_entry(ms_diff: int, seq_diff: int, flat: Sequence[bytes], same: bool) -> bytes:
    """The elements of a live entry."""
    if same:
        items = flat[1::2]
        lp_count = len(items) + 3
    else:
        items = flat
        lp_count = len(items) + 4
    return b"".join(
        (
            listpack.encode_int(node.SAME_FIELDS if same else 0),
            listpack.encode_int(_signed(ms_diff)),
            listpack.encode_int(_signed(seq_diff)),
            b"" if same else listpack.encode_int(len(items) // 2),
            *map(listpack.encode, items),
            listpack.encode_int(lp_count),
        )
    )


def encode_row(
    fields: Sequence[bytes], master: ID, ms: int, seq: int, flat: Sequence[bytes]
) -> tuple[bytes, int]:
    """The elements of a live entry of a node with these master fields, and how many they are."""
    same = fields == list(flat[::2])
    added = encode_entry(ms - master[0], seq - master[1], flat, same)
    return added, len(flat) // 2 + 4 if same else len(flat) + 5


def entry_element_count(added: bytes) -> int:
    """How many elements the one entry has whose bytes `append` returned as ``added``."""
    framed = listpack.finish(0, added)
    end = listpack.check(framed)
    lp_count, _ = listpack.read_int(framed, listpack.before(framed, end, end), end)
    return lp_count + 1


def new_node(master_ms: int, master_seq: int, flat: Sequence[bytes]) -> bytes:  # noqa: ARG001
    """The node with exactly this first entry, whose ID is the master ID."""
    _check_flat(flat)
    added, elements = encode_row(list(flat[::2]), ZERO_ID, 0, 0, flat)
    return extend(empty_node(flat[::2]), added, 1, elements)


def empty_node(fields: Sequence[bytes]) -> bytes:
    """The beginning of a node with these master fields: nothing but its master."""
    return listpack.finish(
        len(fields) + 4, listpack.encode_int(0), listpack.encode_int(0), encode_master(fields)
    )


def append(
    lp: bytes, master_ms: int, master_seq: int, ms: int, seq: int, flat: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """(the node with this entry added, exactly the bytes of the entry)."""
    _check_flat(flat)
    fields = node.read_master(lp).fields
    added, elements = encode_row(fields, (master_ms, master_seq), ms, seq, flat)
    return extend(lp, added, 1, elements), added


def extend(lp: bytes, added: bytes, entry_count: int, element_count: int) -> bytes:
    """The node with ``added`` put behind its entries: so many entries, in so many elements."""
    count, _, deleted_at, _, end = node.read_counters(lp)
    return listpack.finish(
        listpack.stored_count(lp) + element_count,
        listpack.encode_int(count + entry_count),
        lp[deleted_at:end],
        added,
    )


def fits(lp: bytes, raw_bytes: int, node_max_bytes: int, node_max_entries: int) -> bool:
    """True if the next entry goes into this node, False if it opens a new one.

    ``raw_bytes`` is the sum of the lengths of the entry's fields and values; 0 means no limit.
    """
    return not is_full(len(lp) + raw_bytes, sum(node.counts(lp)), node_max_bytes, node_max_entries)


def is_full(size: int, entries: int, node_max_bytes: int, node_max_entries: int) -> bool:
    """Whether a node has no room for an entry: with its fields and values the node has so many
    bytes, as servers count them, and so many entries without it."""
    if not 0 < node_max_bytes <= NODE_BYTES_MAX:
        node_max_bytes = NODE_BYTES_MAX
    return size >= node_max_bytes or 0 < node_max_entries <= entries


def mark_deleted(lp: bytes, ordinals: Sequence[int]) -> bytes:
    """The node with these entries turned into tombstones; those that are already stay so."""
    wanted = sorted(set(ordinals))
    outline = node.outlines.of(lp)
    while wanted and wanted[-1] >= len(outline.ats) and outline.extend():
        pass
    missing = [ordinal for ordinal in wanted if not 0 <= ordinal < len(outline.ats)]
    if missing:
        raise CorruptNodeError(f"the node has no entry {missing[0]} that could be deleted")
    changed = [ordinal for ordinal in wanted if not outline.flags[ordinal] & node.DELETED]
    master = outline.master
    if len(changed) > master.live:
        raise CorruptNodeError("the node has more live entries than its counter says")
    if not changed:
        return lp
    pieces: list[bytes] = []
    copied, same_width = master.width_at, True
    for ordinal in changed:
        at, flags = outline.ats[ordinal], outline.flags[ordinal] | node.DELETED
        pieces += (lp[copied:at], listpack.encode_int(flags))
        copied = listpack.skip(lp, at, master.end)
        same_width = same_width and copied - at == len(pieces[-1])
    result = listpack.finish(
        listpack.stored_count(lp),
        listpack.encode_int(master.live - len(changed)),
        listpack.encode_int(master.deleted + len(changed)),
        *pieces,
        lp[copied : master.end],
    )
    if same_width:
        node.outlines.follow(outline, result, changed)
    return result


def fold(lp: bytes, vector: bytes) -> bytes:
    """The node with all ordinals of the vector turned into tombstones."""
    ordinals = tombstones.ordinals_of(vector)
    return mark_deleted(lp, ordinals) if ordinals else lp


def rewrite(parts: Sequence[NodePart], master_ms: int, master_seq: int) -> bytes:
    """One node that holds the live entries of all parts, in their order, and no tombstone.

    It has the first part's master fields if an entry has them, or else the first entry's: no name
    of what was deleted stays. Its master ID is the given one.
    """
    entries = [
        (ms, seq, flat)
        for lp, part_ms, part_seq, vector in parts
        for _, ms, seq, flat in node.entries(lp, part_ms, part_seq, vector)
    ]
    if not entries:
        raise ValueError("no live entry is left to rewrite: drop the node instead")
    fields = node.read_master(parts[0][0]).fields
    if all(flat[::2] != fields for _, _, flat in entries):
        fields = entries[0][2][::2]
    encoded = [encode_row(fields, (master_ms, master_seq), *entry) for entry in entries]
    added, counts = zip(*encoded, strict=True)
    return extend(empty_node(fields), b"".join(added), len(entries), sum(counts))


def next_id(ms: int, seq: int) -> ID:
    """The ID after this one; ValueError after the last possible one."""
    if seq < 2 * _SIGN - 1:
        return ms, seq + 1
    if ms == 2 * _SIGN - 1:
        raise ValueError("no ID is left above 18446744073709551615-18446744073709551615")
    return ms + 1, 0


def ids_from(id: ID, count: int) -> list[ID]:
    """Consecutive IDs from this one on; the sequence carries into ms."""
    found = [id]
    while len(found) < count:
        found.append(next_id(*found[-1]))
    return found[:count]
