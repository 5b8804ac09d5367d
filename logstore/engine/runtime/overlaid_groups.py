"""Rows of groups as a reader sees them: those of the index, and over them what it lacks.

Deliveries and acks that the index lacks are applied as in a commit (``group_state``), to rows that
are held in memory over those of LMDB's transaction.

Invariants: nothing is written to LMDB; ``OverlaidRows`` and its cursor do what ``GroupTxn`` asks of
an LMDB transaction, and nothing else; rows that others may see are never changed again, whoever
lays more frames over them copies them first. A group of which the index knows nothing is an error.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from logstore.engine.runtime import group_state
from logstore.engine.runtime.group_state import GroupState
from logstore.engine.runtime.record_cache import GroupCache
from logstore.index.env import Generation
from logstore.index.group_txn import GroupTxn
from logstore.log import groupframe as frames

GroupFrame = tuple[int, frames.Deliver | frames.Ack]  # with its position
Rows = dict[bytes, bytes | None]  # None: there is no such row


class OverlaidRows:
    """An LMDB transaction with rows of the database of groups over it."""

    __slots__ = ("_ordered", "_rows", "_txn")

    def __init__(self, txn: Any, rows: Rows) -> None:
        self._txn = txn
        self._rows = rows
        self._ordered = sorted(rows)

    def get(self, key: bytes, *, db: Any) -> bytes | None:
        """The value of a row; None if there is none."""
        if key in self._rows:
            return self._rows[key]
        found: bytes | None = self._txn.get(key, db=db)
        return found

    def put(self, key: bytes, value: bytes | None, *, db: Any) -> None:  # noqa: ARG002
        """Set a row."""
        if key not in self._rows:
            insort(self._ordered, key)
        self._rows[key] = value

    def delete(self, key: bytes, *, db: Any) -> None:
        """Remove a row."""
        self.put(key, None, db=db)

    def cursor(self, *, db: Any) -> OverlaidCursor:
        """A cursor over both."""
        return OverlaidCursor(self._txn.cursor(db=db), self._rows, self._ordered)


class OverlaidCursor:
    """Goes over the rows of LMDB, and those that are laid over them, in the order of keys."""

    __slots__ = ("_below", "_key", "_ordered", "_rows", "_value")

    def __init__(self, below: Any, rows: Rows, ordered: list[bytes]) -> None:
        self._below = below
        self._rows = rows
        self._ordered = ordered
        self._key = self._value = b""  # an empty key: it stands nowhere

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._below.close()

    def key(self) -> bytes:
        """The key of the row at which it stands; empty if it stands nowhere."""
        return self._key

    def value(self) -> bytes:
        """The value of that row."""
        return self._value

    def item(self) -> tuple[bytes, bytes]:
        """Both."""
        return self._key, self._value

    def set_range(self, key: bytes) -> bool:
        """Go to the first row whose key is not below this one."""
        below, rows, ordered = self._below, self._rows, self._ordered
        there = below.set_range(key)
        while there and below.key() in rows:
            there = below.next()
        at = bisect_left(ordered, key)
        while at < len(ordered) and rows[ordered[at]] is None:
            at += 1
        over = ordered[at] if at < len(ordered) else None
        return self._stand(there, over, lower=True)

    def next(self) -> bool:
        """Go to the row behind this one."""
        return self.set_range(self._key + b"\x00")

    def prev(self) -> bool:
        """Go to the row before this one; from nowhere, to the last one."""
        key = self._key
        if not key:
            return self.last()
        there = self._below.prev() if self._below.set_range(key) else self._below.last()
        return self._back(there, bisect_left(self._ordered, key))

    def last(self) -> bool:
        """Go to the last row."""
        return self._back(self._below.last(), len(self._ordered))

    def _back(self, there: bool, at: int) -> bool:
        below, rows, ordered = self._below, self._rows, self._ordered
        while there and below.key() in rows:
            there = below.prev()
        while at and rows[ordered[at - 1]] is None:
            at -= 1
        return self._stand(there, ordered[at - 1] if at else None, lower=False)

    def _stand(self, there: bool, over: bytes | None, *, lower: bool) -> bool:
        """Stand at the lower, or the higher, of LMDB's row and the one that is laid over."""
        if there and (over is None or (self._below.key() < over) == lower):
            self._key, self._value = self._below.item()
        elif over is not None:
            self._key, self._value = over, self._rows[over] or b""
        else:
            self._key = self._value = b""
            return False
        return True

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Rows from here on."""
        here = bool(self._key)
        while here:
            yield self._key, self._value
            here = self.next()


def laid_over(
    generation: Generation,
    txn: Any,
    rows: Rows,
    laid: Sequence[GroupFrame],
    unexpected: Callable[[int, str], Exception],
) -> Rows:
    """The rows after these frames, in order; those that ``rows`` has already change nothing."""
    made = dict(rows)
    index = GroupTxn(generation, OverlaidRows(txn, made))
    state = GroupState(index, GroupCache())
    for at, body in laid:
        if state.by_number(body.group) is None:
            raise unexpected(at, "its group is not there")
        if isinstance(body, frames.Ack):
            group_state.ack(state, at, body)
        else:
            group_state.deliver(state, at, body)
    state.flush()
    return made
