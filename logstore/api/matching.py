"""Entries by the values of their fields, as ``where=`` asks for them.

A condition names fields and the values that they must have, all of them. What is compared is bytes,
as an add would store them: 5 finds what was added as 5 and as "5", and no 5.0. Of a field that
repeats in an entry the last value counts, as in ``entry.fields``; an entry without the field does
not match.

Invariants: a condition is checked whole before anything is read. It only looks for what matches in
nodes: where these come from, and what else a read promises, is the same without a condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from logstore.api import arguments
from logstore.api.entry import Entry, make_entry
from logstore.codec import codec
from logstore.errors import EntryTypeError, InvalidEntryError, OptionError, shown

if TYPE_CHECKING:
    from logstore.api.values import Values

Where: TypeAlias = "Mapping[str, Any] | Mapping[bytes, Any]"


class Matching:
    """Makes entries of nodes, of those alone that match. A twin of the codec's ``EntryMaker``."""

    __slots__ = ("_encoding", "_values", "where")

    def __init__(
        self, where: list[bytes], encoding: str | None, values: Values | None = None
    ) -> None:
        self.where = where  # name, value, name, value, ..
        self._encoding = encoding
        self._values = values  # how the entries are read

    def entries(self, *node: Any) -> list[Entry[Any]]:
        """The entries of a node that match; the arguments are those of ``codec.entries``."""
        read: Any = codec().entries
        rows = read(*node, self.where)
        return [make_entry(row, self._encoding, self._values) for row in rows]


def matching(
    where: Where | None, encoding: str | None, values: Values | None = None, *, what: str = "where"
) -> Matching | None:
    """What finds the entries that match; None if all are wanted. ``what`` is named in errors.

    Raises:
        OptionError: ``where`` is no mapping, or names no field.
        EntryTypeError: a name or value is of a type that is not stored.
        InvalidEntryError: one is text that the store's encoding cannot take.
    """
    if where is None:
        return None
    if not isinstance(where, Mapping) or not where:
        raise OptionError(
            "where is the values that fields must have, such as {'level': 'error'}, not "
            f"{shown(where)}; scan(where=) takes comparisons"
        )
    try:
        row: Any = where if values is None else values.row(where)
        return Matching(arguments.rows([row], encoding).flat(0), encoding, values)
    except (EntryTypeError, InvalidEntryError) as error:
        raise type(error)(f"{what}: {str(error).removeprefix('row 0, ')}") from error
