"""How many bytes of entries a read may still give. It imports nothing, for entries know their size.

Invariants: the first entry always fits; the first that does not ends the read, so that entries are
never given out of turn. An entry counts as the 16 bytes of its ID and those of its field names and
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_ID_BYTES = 16
HELD_BYTES = 400  # of memory that an entry takes as values, beside its field names and values
HELD_ITEM_BYTES = 48  # of memory that a field name or value takes beside its bytes


def entry_bytes(items: Iterable[bytes]) -> int:
    """The bytes that an entry counts as; ``items``: field, value, field, value, ..."""
    return _ID_BYTES + sum(map(len, items))


class ByteBudget:
    """What is left of the limits of a read.

    ``max_bytes`` bounds the bytes of its entries, ``max_held_bytes`` the memory that these take as
    values; 0: no limit. ``full`` is true once an entry did not fit.
    """

    __slots__ = ("_empty", "_held_left", "_left", "full")

    def __init__(self, max_bytes: int = 0, max_held_bytes: int = 0) -> None:
        self._left = max_bytes or None
        self._held_left = max_held_bytes or None
        self._empty = True
        self.full = False

    def takes(self, items: Sequence[bytes]) -> bool:
        """Whether one more entry fits; it counts then."""
        if self._left is None and self._held_left is None:
            return True
        return self.fits(entry_bytes(items), len(items))

    def fits(self, size_bytes: int, items: int = 0) -> bool:
        """Whether one more entry fits, of ``size_bytes`` bytes in ``items`` field names and values.
        If so, it counts."""
        over = False
        if self._left is not None:
            self._left -= size_bytes
            over = self._left < 0
        if self._held_left is not None:
            self._held_left -= size_bytes + HELD_BYTES + HELD_ITEM_BYTES * items
            over = over or self._held_left < 0
        if over and not self._empty:
            self.full = True
            return False
        self._empty = False
        return True
