"""Many rows of the index at once.

Invariants: what is stored is what storing one by one would store; every value is checked against
its CRC before it is changed. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from logstore.index import keys
from logstore.row_seal import seal, unseal

if TYPE_CHECKING:
    from logstore.index.txn import IndexTxn

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
            value = unseal(key, data)
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
            twins[key] = unseal(key, data)
    for name, bound in numbers.items():
        key = keys.twin_key(name)
        for number in bound:
            packed, before = number.to_bytes(8, "little"), twins[key]
            if packed not in [before[at : at + 8] for at in range(0, len(before), 8)]:
                twins[key] = before + packed
        key = keys.name_key(name)
        rows.append((key, seal(key, bound[-1].to_bytes(8, "little"))))
    rows += [(key, seal(key, value)) for key, value in twins.items()]
    put_rows(txn, names, rows)


def mark_nodes(txn: Any, nodes: Any, marks: Iterable[Mark]) -> None:
    """Entries of these versions of sealed nodes were deleted; nothing, if a node is another one."""
    of: dict[bytes, list[Mark]] = {}
    for mark in marks:
        of.setdefault(keys.NODE_KEY.pack(*mark[:3]), []).append(mark)
    rows: list[tuple[bytes, bytes]] = []
    with txn.cursor(db=nodes) as cursor:
        for key, data in cursor.getmulti(sorted(of)):
            value = unseal(key, data)
            for _, _, _, version, gone in of[key]:
                if keys.position_of(value) == version:
                    value = keys.marked(value, gone)
            rows.append((key, seal(key, value)))
        if rows:
            cursor.putmulti(rows)
