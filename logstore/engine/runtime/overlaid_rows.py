"""A transaction of LMDB with rows over it, which are held in memory alone.

Invariants: nothing is written to LMDB; ``OverlaidRows`` and its cursor do what ``IndexTxn``,
``GroupTxn`` and the features ask of an LMDB transaction, as LMDB does it, over all databases of the
index alike; rows that others may see are never changed again: whoever lays more over them does so
over a copy. Knows no row's meaning.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Self

from logstore.index.keys import Meta
from logstore.tuples import NamedTuple


class DatabaseRows:
    """Rows of one database by key, with their keys in order. A row of None is not there, whatever
    LMDB has."""

    __slots__ = ("by_key", "ordered")

    def __init__(self, by_key: dict[bytes, bytes | None], ordered: list[bytes]) -> None:
        self.by_key = by_key
        self.ordered = ordered

    def copy(self) -> DatabaseRows:
        """A copy of these rows, to lay more over it."""
        return DatabaseRows(dict(self.by_key), list(self.ordered))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a row."""
        if key not in self.by_key:
            insort(self.ordered, key)
        self.by_key[key] = value


class Overlay(NamedTuple):
    """Rows that bring an index of this generation from the position ``applied`` to ``meta``."""

    generation: int
    applied: int
    meta: Meta
    rows: dict[str, DatabaseRows]  # by the name of their database


class OverlaidRows:
    """An LMDB transaction with rows over it."""

    __slots__ = ("_names", "_rows", "_txn")

    def __init__(self, txn: Any, names: dict[Any, str], rows: dict[str, DatabaseRows]) -> None:
        """``names``: of databases, by the handles that they have here (``Generation``)."""
        self._txn = txn
        self._names = names
        self._rows = rows

    def get(self, key: bytes, *, db: Any) -> bytes | None:
        """The value of a row; None if there is none."""
        over = self._rows.get(self._names[db])
        if over is not None and key in over.by_key:
            return over.by_key[key]
        found: bytes | None = self._txn.get(key, db=db)
        return found

    def put(self, key: bytes, value: bytes | None, *, db: Any) -> None:
        """Set a row. Its database has ``DatabaseRows`` from the beginning: its cursors use them."""
        self._rows[self._names[db]].put(key, value)

    def delete(self, key: bytes, *, db: Any) -> None:
        """Remove a row."""
        self.put(key, None, db=db)

    def cursor(self, *, db: Any) -> Any:
        """A cursor over both; LMDB's own where nothing is over it."""
        below, over = self._txn.cursor(db=db), self._rows.get(self._names[db])
        return below if over is None else OverlaidCursor(below, over)


class OverlaidCursor:
    """Goes over the rows of LMDB, and those that are laid over them, in the order of keys."""

    __slots__ = ("_below", "_key", "_over", "_value")

    def __init__(self, below: Any, over: DatabaseRows) -> None:
        self._below = below
        self._over = over
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
        """Key and value of that row."""
        return self._key, self._value

    def first(self) -> bool:
        """Go to the first row."""
        return self._forth(self._below.first(), 0)

    def last(self) -> bool:
        """Go to the last row."""
        return self._back(self._below.last(), len(self._over.ordered))

    def set_range(self, key: bytes) -> bool:
        """Go to the first row whose key is not below this one."""
        return self._forth(self._below.set_range(key), bisect_left(self._over.ordered, key))

    def set_key(self, key: bytes) -> bool:
        """Go to the row with this key."""
        if self.set_range(key) and self._key == key:
            return True
        self._key = self._value = b""
        return False

    def next(self) -> bool:
        """Go to the row behind this one; from nowhere, to the first one."""
        return self.set_range(self._key + b"\x00") if self._key else self.first()

    def prev(self) -> bool:
        """Go to the row before this one; from nowhere, to the last one."""
        key = self._key
        if not key:
            return self.last()
        there = self._below.prev() if self._below.set_range(key) else self._below.last()
        return self._back(there, bisect_left(self._over.ordered, key))

    def iternext(self, *, values: bool = True) -> Iterator[Any]:
        """Rows from here on, or from the first one, without a move in between; without ``values``
        their keys alone."""
        for row in self._merged() if self._key or self.first() else ():
            self._key, self._value = row
            yield row if values else row[0]

    def _merged(self) -> Iterator[tuple[bytes, bytes]]:
        below, rows, ordered = self._below, self._over.by_key, self._over.ordered
        at = bisect_left(ordered, self._key)
        over = ordered[at] if at < len(ordered) else None
        for row in below.iternext() if below.set_range(self._key) else ():
            while over is not None and over < row[0]:
                if (value := rows[over]) is not None:
                    yield over, value
                at += 1
                over = ordered[at] if at < len(ordered) else None
            if over != row[0]:  # else it is the next one that is laid over
                yield row
        for over in ordered[at:]:
            if (value := rows[over]) is not None:
                yield over, value

    def delete(self) -> bool:
        """Remove the row at which it stands, and go to the one behind it."""
        self._over.put(self._key, None)
        return self.set_range(self._key)

    def getmulti(self, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        """The rows with these keys, as far as they are there."""
        return [self.item() for key in keys if self.set_key(key)]

    def putmulti(self, rows: list[tuple[bytes, bytes]], *, append: bool = False) -> None:  # noqa: ARG002
        """Set rows. ``append``: as LMDB has it, which means nothing here."""
        for key, value in rows:
            self._over.put(key, value)

    def iterprev(self, *, values: bool = True) -> Iterator[Any]:
        """Rows from here back, or from the last one."""
        here = bool(self._key) or self.last()
        while here:
            yield (self._key, self._value) if values else self._key
            here = self.prev()

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Rows from here on."""
        return self.iternext()

    def _forth(self, there: bool, at: int) -> bool:
        """Stand at the first row from LMDB's cursor, and from a place in what is over it, on."""
        below, rows, ordered = self._below, self._over.by_key, self._over.ordered
        while there and below.key() in rows:
            there = below.next()
        while at < len(ordered) and rows[ordered[at]] is None:
            at += 1
        return self._stand(there, ordered[at] if at < len(ordered) else None, lower=True)

    def _back(self, there: bool, at: int) -> bool:
        """The same from there back: the row before this place."""
        below, rows, ordered = self._below, self._over.by_key, self._over.ordered
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
            self._key, self._value = over, self._over.by_key[over] or b""
        else:
            self._key = self._value = b""
            return False
        return True
