"""Deciding the way back of a dead letter: to the stream that it came from, as a new entry.

The entry's own pairs go back; what ``dead_letter`` put behind them is left out. The entry is
deleted from the dead letter stream.

Invariants: both are in one commit, the add first; whether an entry is still there is decided under
LOCK, so that of two who ask for the same one gets it; everything is checked before the first frame,
so that a refused call changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups.dead_letter import ORIGIN_FIELDS
from logstore.engine.streams import add, delete
from logstore.engine.txn.nodes import Lookup
from logstore.errors import EntryNotFoundError, OptionError
from logstore.ids import StreamID

_FLAT = 2 * len(ORIGIN_FIELDS)


def requeue(
    txn: WriteTxn, name: bytes, ids: Sequence[StreamID], to: bytes | None, *, strict: bool = True
) -> list[StreamID]:
    """Give dead letters back, in the order of ``ids``, each of which stands there once.

    Args:
        txn: what the commit changes.
        name: the dead letter stream.
        ids: of its entries.
        to: where they go; None: to the stream that each came from.
        strict: False: those that are gone are passed over.

    Returns:
        Their new IDs.

    Raises:
        StreamNotFoundError: there is no stream ``name``.
        EntryNotFoundError: an entry is gone.
        OptionError: an entry does not tell where it came from.
    """
    record = add.existing(txn, name)
    lookup = Lookup(txn, record)
    rows: list[tuple[bytes, list[tuple[bytes, bytes]]]] = []
    going: list[StreamID] = []
    for id in ids:
        flat = lookup.fields(id)
        if flat is None:
            if strict:
                raise EntryNotFoundError(
                    f"the dead letter {id} is gone: it was given back or dropped meanwhile",
                    stream=name,
                )
            continue
        own, origin = _parted(flat)
        target = origin if to is None else to
        if target is None:
            raise OptionError(
                f"entry {id} does not tell which stream it came from, so it is no dead letter: "
                "give the stream that dead letters are moved to, or to= a stream for this entry",
                stream=name,
            )
        rows.append((target, own))
        going.append(id)
    added = _add(txn, rows)
    delete.delete(txn, name, going)
    return added


def _parted(flat: list[bytes]) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """An entry's own pairs, and the stream that it came from, if it is a dead letter."""
    origin = None
    if tuple(flat[-_FLAT::2]) == ORIGIN_FIELDS:
        origin = flat[1 - _FLAT]
        flat = flat[:-_FLAT]
    return list(zip(flat[::2], flat[1::2], strict=True)), origin


def _add(txn: WriteTxn, rows: list[tuple[bytes, list[tuple[bytes, bytes]]]]) -> list[StreamID]:
    """Add rows, neighbours of one stream together."""
    added: list[StreamID] = []
    at = 0
    while at < len(rows):
        name, end = rows[at][0], at + 1
        while end < len(rows) and rows[end][0] == name:
            end += 1
        batch = codec().rows([pairs for _, pairs in rows[at:end]])
        done = add.add(txn, add.Add(name, batch, 0, end - at, add.AUTO))
        assert done is not None
        id = done.first
        for _ in range(done.count):
            added.append(id)
            id = id.next()
        at = end
    return added
