"""What the fields of entries are called as columns, where names are told apart without case.

Names of fields are bytes, and differ by case. Spark and DuckDB take ``Name`` and ``name`` for one
column, and a field that is named like a standard column vanishes behind it. So there is one rule:

- A field is called by its own name: its bytes as UTF-8, with a byte that is none as ``\\xff`` and
  a NUL as ``\\x00``. A field without a name is called ``_``.
- If that name is taken, by a standard column or by a field before it, ``_2`` is added, ``_3`` and
  so on, until it is free. A field that needs no suffix never loses its name to one that does.

So of ``Name``, ``name`` the columns are ``Name``, ``name_2``; a field ``id`` is ``id_2``.

Streams are tables by the same rule, but that of names that differ by case only none is free: of
``Orders`` and ``orders`` the tables are ``Orders_2``, ``orders_3``, and a query of ``orders`` is an
error, whichever stream was there first.

Invariants: no two columns are the same to `folded`; each field has one column; the result depends
on the names that are given and their order, and on nothing else. Knows no engine and no pyarrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

NAMELESS = "_"
FIRST_SUFFIX = 2


def folded(name: str) -> str:
    """A name as those see it who take upper and lower case for one: by each character, as Java
    does (``ı`` is ``I`` is ``i``), which is at least as coarse as what DuckDB does."""
    if name.isascii():
        return name.lower()
    return "".join(map(_folded, name))


def _folded(character: str) -> str:
    upper = character.upper()
    return (upper if len(upper) == 1 else character).lower()[0]


def text(field: bytes) -> str:
    """The name of a field as the name of a column."""
    return field.decode("utf-8", "backslashreplace").replace("\0", "\\x00") or NAMELESS


def columns(fields: Iterable[bytes], taken: Iterable[str] = ()) -> dict[bytes, str]:
    """The column of each field, in the order of the fields; ``taken``: standard columns."""
    used = {folded(name) for name in taken}
    found = {field: text(field) for field in fields}
    late: list[bytes] = []
    for field, name in found.items():
        if folded(name) in used:
            late.append(field)
        used.add(folded(name))
    for field in late:
        found[field] = _free(found[field], used)
        used.add(folded(found[field]))
    return found


def tables(streams: Iterable[bytes], taken: Iterable[str] = ()) -> dict[bytes, str]:
    """The table of each stream, of all streams of a store; ``taken``: tables that are none."""
    names = list(streams)
    counts = Counter(folded(text(name)) for name in names)
    alike = [text(name) for name in names if counts[folded(text(name))] > 1]
    return columns(names, [*taken, *alike])


def _free(name: str, used: set[str]) -> str:
    number = FIRST_SUFFIX
    while folded(f"{name}_{number}") in used:
        number += 1
    return f"{name}_{number}"
