"""Entries of a node by the values of their fields: the others are walked over, not decoded.

A condition is a field's name and a value; an entry matches if each named field has that value, of a
repeated field the last one. Equal are bytes: an integer is equal to its text, however it is stored.

Invariants: a node in which the bytes of a name or a value stand nowhere has no entry that matches,
and is not looked into (a number may be stored otherwise than as its text, so that its text says
nothing). All else is as `node.entries` gives it, in the same order, and refused as there.

It may not know about streams, or where nodes come from.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore import format as fmt
from logstore.codec.interface import ID, MAX_ID, ZERO_ID, NodeEntry
from logstore.codec.listpack import parse_int
from logstore.codec.located import frame_listpack, read_item
from logstore.codec.node import backward, forward, is_live, read_flat, read_master
from logstore.errors import CorruptNodeError


def _may_match(lp: bytes, where: Sequence[bytes]) -> bool:
    """False if some text of the conditions stands nowhere in the node."""
    return all(text in lp or parse_int(text) is not None for text in where)


def _may_have(lp: bytes, where: list[bytes]) -> bool:
    """False if no entry of the node matches, in whatever interval; True of a damaged one."""
    try:
        return bool(entries_where(lp, 0, 0, where, limit=1))
    except CorruptNodeError:
        return True


def _matches(flat: Sequence[bytes], where: Sequence[bytes]) -> bool:
    """Whether the last value of each named field is the one that is wanted."""
    values = dict(zip(flat[::2], flat[1::2], strict=True))
    return all(
        values.get(name) == value for name, value in zip(where[::2], where[1::2], strict=True)
    )


def entries_where(
    lp: bytes,
    master_ms: int,
    master_seq: int,
    where: list[bytes],
    vector: bytes = b"",
    start: ID = ZERO_ID,
    end: ID = MAX_ID,
    limit: int = -1,
    reverse: bool = False,
) -> list[NodeEntry]:
    """As `node.entries`, of those alone that match ``where``: name, value, name, value, .."""
    found: list[NodeEntry] = []
    if limit == 0 or not _may_match(lp, where):
        return found
    master = read_master(lp)
    for entry in backward(lp, master) if reverse else forward(lp, master):
        if not is_live(entry, vector):
            continue
        id = entry.id(master_ms, master_seq)
        if id < start if reverse else id > end:
            break
        if start <= id <= end:
            flat = read_flat(lp, entry, master)
            if _matches(flat, where):
                found.append((entry.ordinal, *id, flat))
                if len(found) == limit:
                    break
    return found


def may_match(
    items: bytes,
    at: int,
    data: bytes,
    position: int,
    stream: int,
    seed: int,
    where: list[bytes],
    found: list[int],
) -> int:
    """Go through items of a list of nodes (`located`) from an offset on, whose frames lie in
    ``data``, which is of the log from ``position`` on.

    Puts the offsets of those that have an entry that matches, in whatever interval and whatever is
    in their vector, into ``found``, and of those that are not sound.

    Returns:
        The offset of the first item that does not lie there as a whole.
    """
    while (one := read_item(items, at)) is not None:
        item, after = one
        begin = item.position - position
        end = begin + fmt.FRAME_HEAD_BYTES + item.size_bytes
        if begin < 0 or end > len(data):
            break
        frame = data[begin:end]
        lp = frame_listpack(frame, 0, item, stream, seed)
        if lp is None or _may_have(lp, where):
            found.append(at)
        at = after
    return at
