"""Rows to finished nodes, many in one call.

Two steps, so that the first runs before any lock is taken: `rows` turns the caller's fields and
values into bytes, by an encoder if there is one, and refuses what is no entry; `pack` gives them
IDs and writes nodes.

Invariants: the nodes are exactly those that one XADD after another would leave: the open node is
filled first, by the rule of `edit.fits`. A refused row refuses the whole batch.

It may not know what a commit is, or where the nodes go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from logstore.codec import edit, listpack, node
from logstore.codec.given_ids import GivenIDs
from logstore.codec.node_types import ID, Packed, PackedNode, Row
from logstore.errors import EntryTypeError, InvalidEntryError, TooLargeError


class RowBatch:
    """Rows made ready to be packed."""

    def __init__(self, flats: list[list[bytes]]) -> None:
        self._flats = flats
        self._raw_bytes = [sum(map(len, flat)) for flat in flats]

    def __len__(self) -> int:
        return len(self._flats)

    def raw_bytes(self, index: int, /) -> int:
        """Sum of the lengths of the row's fields and values."""
        return self._raw_bytes[index]

    def flat(self, index: int, /) -> list[bytes]:
        """The row as field, value, field, value, .."""
        return list(self._flats[index])


LARGE_ROW_BYTES = 1 << 20  # from which on the rest of a row is looked at before it is copied
UTF8_PIECE, UTF8_MAX = 1 << 16, 4  # characters; bytes of one of them


def _to_bytes(value: object, index: int, field: object) -> bytes:
    if isinstance(value, bytes):
        return bytes(value)
    try:
        if isinstance(value, str):
            if UTF8_MAX * len(value) > edit.ENTRY_BYTES_MAX:
                _refuse_large([(value,)], index)
            return str.encode(value, "utf-8")
        if isinstance(value, int) and not isinstance(value, bool):
            return int.__repr__(value).encode()
        if isinstance(value, float):
            return float.__repr__(value).encode()
    except ValueError as error:
        raise InvalidEntryError(f"row {index}, field {field!r}: {error}") from error
    raise EntryTypeError(
        f"row {index}, field {field!r}: give str, bytes, int or float, not {type(value).__name__}; "
        "a stream with a codec takes more: store.stream(name, codec='json')"
    )


def _encoded(encode: Callable[[Any], Any], value: object) -> bytes:
    """The bytes of a value. TypeError if the encoder gives no bytes; what it raises itself."""
    data = encode(value)
    if not isinstance(data, bytes):
        raise TypeError(f"the encoder gave {type(data).__name__} and not bytes")
    return data


def _too_large(index: int) -> TooLargeError:
    return TooLargeError(f"row {index}: fields and values exceed 1 GiB together; split it")


def _utf8_bytes(text: str) -> int:
    """How many bytes a text has as UTF-8, by pieces: no copy is made of all of it."""
    pieces = (text[at : at + UTF8_PIECE] for at in range(0, len(text), UTF8_PIECE))
    return sum(len(piece.encode("utf-8", "surrogatepass")) for piece in pieces)


def _refuse_large(item: object, index: int) -> None:
    """Refuse a row that is too large by what can be known without a copy, and without running code
    of its own; texts are looked at once more if their lengths alone do not tell."""
    if type(item) is not dict and type(item) is not list and type(item) is not tuple:
        return
    pairs = list(item.items() if type(item) is dict else cast("list[Any]", item))
    parts = [part for pair in pairs if type(pair) in (tuple, list) for part in list(pair)]
    total = sum(len(part) for part in parts if type(part) in (bytes, str))
    wide = [part for part in parts if type(part) is str and not part.isascii()]
    most = sum((UTF8_MAX - 1) * len(part) for part in wide)
    if total <= edit.ENTRY_BYTES_MAX < total + most:
        total += sum(_utf8_bytes(part) - len(part) for part in wide)
    if total > edit.ENTRY_BYTES_MAX:
        raise _too_large(index)


def _to_flat(item: object, index: int, encode: Callable[[Any], bytes] | None = None) -> list[bytes]:
    flat: list[bytes] = []
    size, looked = 0, encode is not None  # what an encoder makes of the others is not known yet
    pairs: object = item.items() if isinstance(item, Mapping) else item
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise EntryTypeError(f"row {index}: give a mapping or pairs, not {type(item).__name__}")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise EntryTypeError(f"row {index}: {pair!r} is no (field, value) pair")
        field, value = pair
        flat.append(_to_bytes(field, index, field))
        if encode is not None:
            value = _encoded(encode, value)
        flat.append(_to_bytes(value, index, field))
        size += len(flat[-2]) + len(flat[-1])
        if not looked and size > LARGE_ROW_BYTES:
            looked = True
            _refuse_large(item, index)
        if size > edit.ENTRY_BYTES_MAX:
            raise _too_large(index)
    if not flat:
        raise InvalidEntryError(f"row {index}: an entry needs at least one field")
    return flat


def rows(items: Iterable[Row], encode: Callable[[Any], bytes] | None = None) -> RowBatch:
    """Make rows ready: each a mapping, or a sequence of (field, value) pairs.

    With ``encode`` values are whatever it makes bytes of; what it raises is raised as it is, and
    TypeError if it gives something else.

    str becomes UTF-8, int and float their shortest decimal form. EntryTypeError (a TypeError) for
    other types, bool and None included, InvalidEntryError (a ValueError) for a row without fields
    or a str that has no UTF-8 form, TooLargeError past 1 GiB a row; all name the row.
    """
    return RowBatch([_to_flat(item, index, encode) for index, item in enumerate(items)])


def columns(names: Sequence[bytes], columns: Sequence[Any]) -> RowBatch:
    """Rows of columns: of each row, the values that are not None, under the names of their columns.
    A column is a list, or an array of Arrow.

    The errors are those of `rows`; ValueError if names, columns and rows do not fit each other.
    """
    columns = [each.to_pylist() if hasattr(each, "buffers") else each for each in columns]
    if len(names) != len(columns) or len({len(column) for column in columns}) > 1:
        raise ValueError("each name needs a column, and each column a value of every row")
    return rows(
        [(name, value) for name, value in zip(names, row, strict=True) if value is not None]
        for row in zip(*columns, strict=True)
    )


# -- the texts of whole columns of Arrow, as a schema stores them --------------------------------
def moment_texts(
    array: Any,
    a_second: int,  # noqa: ARG001  compiled code goes by these
    digits: int,  # noqa: ARG001
    with_zone: bool,
    /,
) -> Any:
    """Timestamps as text, with so many digits behind the second, and with ``Z`` in UTC. They are in
    the years 1 to 9999; ``a_second`` is how many of their units are one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
    return pc.binary_join_element_wise(texts, "Z", "") if with_zone else texts


def double_texts(array: Any, /) -> Any:
    """Numbers of 64 bits as text. Those of compiled code are null, too, where only Arrow knows the
    shortest text."""
    import pyarrow as pa

    return array.cast(pa.string())


def canonical_texts(array: Any, kind: str, /) -> Any:  # noqa: ARG001
    """Texts of a column as the one text each of values of a type; None if that must be told by the
    type itself. Compiled code tells of common forms of numbers, times, true and false."""
    return None


def _expanded(ids: ID | Sequence[ID] | GivenIDs, count: int) -> list[ID]:
    """The IDs of ``count`` rows: given one by one, or by the first of them."""
    if ids and isinstance(ids[0], int):
        return edit.ids_from(cast(ID, ids), count)
    if len(ids) != count:
        raise ValueError(f"{count} rows need as many IDs, not {len(ids)}")
    return [(ms, seq) for ms, seq in map(cast(Sequence[ID], ids).__getitem__, range(count))]


class _Growing:
    """A node that rows are being added to, the open one or a new one, and what its limits need."""

    def __init__(self, id: ID, lp: bytes) -> None:
        self.id = self.last = id
        self.lp = lp
        master = node.read_master(lp)
        self.fields, self.live, self.deleted = master.fields, master.live, master.deleted
        self.other_bytes = len(lp) - (master.deleted_at - listpack.HEADER_BYTES)
        self.added: list[bytes] = []
        self.elements = 0

    def has_room(self, raw_bytes: int, node_max_bytes: int, node_max_entries: int) -> bool:
        """Whether a row of so many bytes goes into this node."""
        size = self.other_bytes + len(listpack.encode_int(self.live)) + raw_bytes
        return not edit.is_full(size, self.live + self.deleted, node_max_bytes, node_max_entries)

    def add(self, id: ID, flat: list[bytes]) -> None:
        """Add one row as the entry ``id``."""
        entry, elements = edit.encode_row(self.fields, self.id, *id, flat)
        self.added.append(entry)
        self.elements += elements
        self.other_bytes += len(entry)
        self.live += 1
        self.last = id

    def finish(self) -> bytes:
        """The node with all that was added."""
        return edit.extend(self.lp, b"".join(self.added), len(self.added), self.elements)


def pack(
    batch: RowBatch,
    first: int,
    last_exclusive: int,
    ids: ID | Sequence[ID] | GivenIDs,
    open_lp: bytes | None,
    open_ms: int,
    open_seq: int,
    node_max_bytes: int,
    node_max_entries: int,
) -> Packed:
    """Write rows[first:last_exclusive] into the open node and, where it is full, into new ones.

    ``ids``: a pair (ms, seq), the first of consecutive IDs (the sequence carries into ms), or a
    list with one ID a row, or such that were given. The caller has checked that they ascend.
    """
    if not 0 <= first <= last_exclusive <= len(batch):
        raise ValueError(f"rows {first} to {last_exclusive} of {len(batch)} do not exist")
    opened = growing = None if open_lp is None else _Growing((open_ms, open_seq), open_lp)
    new: list[_Growing] = []
    for index, id in enumerate(_expanded(ids, last_exclusive - first), first):
        flat = batch.flat(index)
        limits = batch.raw_bytes(index), node_max_bytes, node_max_entries
        if growing is None or not growing.has_room(*limits):
            growing = _Growing(id, edit.empty_node(flat[::2]))
            new.append(growing)
        growing.add(id, flat)
    nodes = [PackedNode(*each.id, *each.last, each.live, each.finish()) for each in new]
    if opened is None or not opened.added:
        return Packed(b"", 0, 0, open_lp, None, nodes)
    counts = len(opened.added), opened.elements
    return Packed(b"".join(opened.added), *counts, opened.finish(), opened.last, nodes)


class Encoders:
    """Encoders of one kind. Each call has one to itself, whatever thread makes it, for encoders may
    have a buffer; one that raised is used no more.
    """

    __slots__ = ("_free", "_make")

    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self._make = make
        self._free: list[Callable[[Any], Any]] = []  # that nobody uses now

    @contextmanager
    def _one(self) -> Iterator[Callable[[Any], Any]]:
        try:
            encode = self._free.pop()
        except IndexError:
            encode = self._make()
        yield encode
        self._free.append(encode)

    def fields(self, fields: dict[Any, Any]) -> dict[Any, bytes]:
        """An entry with the bytes of its values. TypeError for what is no dict."""
        if type(fields) is not dict:
            raise TypeError("the fields are no dict")
        with self._one() as encode:
            return {name: _encoded(encode, value) for name, value in fields.items()}

    def rows(self, items: Iterable[Row]) -> RowBatch:
        """Rows made ready, as ``rows`` does it with an encoder. What it raises is raised as it is,
        by whoever knows which field it was."""
        with self._one() as encode:
            return rows(items, encode)


WrittenColumn = tuple[
    str, bytes, str, Callable[[Any], bytes], bool, bytes | None, Mapping[bytes, str] | None
]


class RowWriter:
    """Writes the rows of a stream with a schema.

    Args:
        columns: of each its name, the same as bytes, the name of its type, what writes a value of
            it, whether it is nullable, its default, and the texts of an enum.
        is_open: rows may have other fields.
        row: writes any row, or refuses it: names and values in, names and texts out.
    """

    __slots__ = ("_row",)

    def __init__(
        self,
        columns: Sequence[WrittenColumn],  # noqa: ARG002  compiled code goes by these
        is_open: bool,  # noqa: ARG002
        row: Callable[[Iterable[tuple[Any, Any]]], list[tuple[bytes, Any]]],
    ) -> None:
        self._row = row

    def fields(self, fields: dict[Any, Any], /) -> dict[Any, Any] | list[tuple[bytes, Any]]:
        """The fields of an add that is stored as ``row`` writes them. What ``row`` raises."""
        return self._row(fields.items())

    def rewritten(self, flat: list[bytes], /) -> list[tuple[bytes, Any]] | None:
        """A row of names and texts by turns as ``row`` writes it; None: it is that already."""
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        row = self._row(pairs)
        return None if row == pairs else row
