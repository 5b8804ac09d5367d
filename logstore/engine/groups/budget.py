"""How many bytes of entries a read may still give.

Invariants: the first entry always fits; the first that does not ends the read, so that entries are
never given out of turn. An entry counts as the 16 bytes of its ID and those of its field names and
values.
"""

from __future__ import annotations

from collections.abc import Iterable

ID_BYTES = 16


def entry_bytes(items: Iterable[bytes]) -> int:
    """What an entry counts as; ``items``: field, value, field, value, ..."""
    return ID_BYTES + sum(map(len, items))


class Room:
    """What is left of a limit in bytes; 0: no limit."""

    __slots__ = ("_empty", "_left", "full")

    def __init__(self, max_bytes: int = 0) -> None:
        self._left = max_bytes or None
        self._empty = True
        self.full = False

    def takes(self, items: Iterable[bytes]) -> bool:
        """Whether one more entry fits; it counts then."""
        if self._left is None:
            return True
        self._left -= entry_bytes(items)
        if self._left < 0 and not self._empty:
            self.full = True
            return False
        self._empty = False
        return True
