"""Entries as users hold them, made of a node in one call.

The compiled twin makes them without a call of Python for each: it allots the objects and sets their
slots. So the classes are given, and they are plain: what their ``__init__`` would do is what is
done here.

Invariants: an entry has an ID of the class that is given, a tuple of ms and seq, and its fields and
values as one tuple, bytes or text; bytes that are no text of the encoding become lone surrogates.
It may not know what else the classes do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MemberDescriptorType
from typing import Any

from logstore.codec.interface import ID, MAX_ID, ZERO_ID
from logstore.codec.node import entries
from logstore.codec.valued import text_of

_new, _set = tuple.__new__, object.__setattr__  # what is set is private to the classes


def is_slot_of(made_class: type, found: object) -> bool:
    """Whether this is a slot, and one that objects of the class have."""
    return isinstance(found, MemberDescriptorType) and issubclass(made_class, found.__objclass__)


def _check(made_class: type, *names: str) -> None:
    for name in names:
        if not is_slot_of(made_class, getattr(made_class, name)):
            raise TypeError(f"{made_class.__name__}.{name} is no slot")


class FieldsMaker:
    """Makes mappings of fields, of a class with the slots ``_items`` and ``_encoding``.

    ``in_text``: names are made text. ``of``: those of an entry, of a class with the slots ``_flat``
    and ``_encoding``. What is no encoding there makes ``other(flat, it)`` of them.
    """

    __slots__ = ("_class", "_entry_class", "_in_text", "_other")

    def __init__(
        self,
        fields_class: type,
        in_text: bool = False,
        entry_class: type | None = None,
        other: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        _check(fields_class, "_encoding", "_items")
        if entry_class is not None:
            _check(entry_class, "_encoding", "_flat")
        self._class, self._in_text, self._entry_class = fields_class, in_text, entry_class
        self._other: Any = other

    def of(self, entry: Any, /) -> Any:
        """The mapping of an entry's fields."""
        if self._entry_class is None or not isinstance(entry, self._entry_class):
            raise TypeError("what has the fields is no entry")
        held: Any = entry
        flat, encoding = held._flat, held._encoding  # noqa: SLF001  (slots that were checked)
        if encoding is None or type(encoding) is str:
            return self.make(flat, encoding)
        return self._other(flat, encoding)

    def make(self, flat: Sequence[Any], encoding: Any) -> Any:
        """A mapping of field, value, field, value, ..: the last of a repeated field counts.

        ValueError if a field has no value.
        """
        if len(flat) % 2:
            raise ValueError("a field has no value")
        made: Any = object.__new__(self._class)
        _set(made, "_encoding", encoding)
        names = map(text_of, flat[::2]) if self._in_text else flat[::2]
        _set(made, "_items", dict(zip(names, flat[1::2], strict=True)))
        return made


class EntryMaker:
    """Makes entries, of a class with the slots ``id``, ``_flat`` and ``_encoding``.

    ``reading``: how values are read, which entries have instead of the encoding.
    """

    __slots__ = ("_class", "_encoding", "_id_class", "_reading")

    def __init__(
        self, entry_class: type, id_class: type, encoding: str | None, reading: Any = None
    ) -> None:
        _check(entry_class, "id", "_flat", "_encoding")
        if not issubclass(id_class, tuple):
            raise TypeError("an ID is a tuple")
        self._class, self._id_class, self._encoding = entry_class, id_class, encoding
        self._reading = encoding if reading is None else reading

    def entries(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes = b"",
        start: ID = ZERO_ID,
        end: ID = MAX_ID,
        limit: int = -1,
        reverse: bool = False,
    ) -> list[Any]:
        """What ``node.entries`` finds, made."""
        found = entries(lp, master_ms, master_seq, vector, start, end, limit, reverse)
        return [self.made(ms, seq, flat) for _, ms, seq, flat in found]

    def made(self, ms: int, seq: int, flat: list[bytes]) -> Any:
        """One entry."""
        entry: Any = object.__new__(self._class)
        _set(entry, "id", _new(self._id_class, (ms, seq)))
        parts: list[Any] = list(flat)
        if self._encoding is not None:
            parts = [part.decode(self._encoding, "surrogateescape") for part in flat]
        _set(entry, "_flat", tuple(parts))
        _set(entry, "_encoding", self._reading)
        return entry


class NodeFinder:
    """A node whose live entries are looked up by ID again and again: it is walked over once.

    Of one ID the first entry counts, as for ``entries`` with the limit 1.
    """

    __slots__ = ("_entries",)

    def __init__(self, lp: bytes, master_ms: int, master_seq: int, vector: bytes = b"") -> None:
        self._entries: dict[ID, list[bytes]] = {}
        for _, ms, seq, flat in entries(lp, master_ms, master_seq, vector):
            self._entries.setdefault((ms, seq), flat)

    def find(self, ms: int, seq: int, maker: EntryMaker) -> Any:
        """The live entry with this ID; None if there is none."""
        flat = self._entries.get((ms, seq))
        return None if flat is None else maker.made(ms, seq, flat)
