"""Bulk loading: rows to finished nodes.

Two steps, so that the first runs before any lock is taken: `rows` turns the caller's fields and
values into bytes and refuses what is no entry; `pack` gives them IDs and writes nodes.

Invariants: the nodes are exactly those that one XADD after another would leave: the open node is
filled first, by the rule of `edit.fits`. A refused row refuses the whole batch.

It may not know what a commit is, or where the nodes go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from logstore.codec import edit, listpack, node
from logstore.codec.interface import ID, GivenIDs, Packed, PackedNode, Row
from logstore.codec.interface import RowBatch as RowBatchLike
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


def _to_bytes(value: object, index: int, field: object) -> bytes:
    if isinstance(value, bytes):
        return bytes(value)
    try:
        if isinstance(value, str):
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


def encoded_value(encode: Callable[[Any], Any], value: object) -> bytes:
    """The bytes of a value. TypeError if the encoder gives no bytes; what it raises itself."""
    data = encode(value)
    if not isinstance(data, bytes):
        raise TypeError(f"the encoder gave {type(data).__name__} and not bytes")
    return data


def _to_flat(item: object, index: int, encode: Callable[[Any], bytes] | None = None) -> list[bytes]:
    flat: list[bytes] = []
    pairs: object = item.items() if isinstance(item, Mapping) else item
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise EntryTypeError(f"row {index}: give a mapping or pairs, not {type(item).__name__}")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise EntryTypeError(f"row {index}: {pair!r} is no (field, value) pair")
        field, value = pair
        flat.append(_to_bytes(field, index, field))
        if encode is not None:
            value = encoded_value(encode, value)
        flat.append(_to_bytes(value, index, field))
    if not flat:
        raise InvalidEntryError(f"row {index}: an entry needs at least one field")
    if sum(map(len, flat)) > edit.ENTRY_BYTES_MAX:
        raise TooLargeError(f"row {index}: fields and values exceed 1 GiB together; split it")
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


def columns(names: Sequence[bytes], columns: Sequence[Sequence[object]]) -> RowBatch:
    """Rows of columns: of each row, the values that are not None, under the names of their columns.

    The errors are those of `rows`; ValueError if names, columns and rows do not fit each other.
    """
    if len(names) != len(columns) or len({len(column) for column in columns}) > 1:
        raise ValueError("each name needs a column, and each column a value of every row")
    pairs = (
        [(name, value) for name, value in zip(names, row, strict=True) if value is not None]
        for row in zip(*columns, strict=True)
    )
    return RowBatch([_to_flat(row, index) for index, row in enumerate(pairs)])


def _consecutive(first: ID, count: int) -> list[ID]:
    ids = [first] if count else []
    while len(ids) < count:
        ids.append(edit.next_id(*ids[-1]))
    return ids


def expand_ids(ids: ID | Sequence[ID] | GivenIDs, count: int) -> list[ID]:
    """The IDs of ``count`` rows: given one by one, or by the first of them."""
    if ids and isinstance(ids[0], int):
        return _consecutive(cast(ID, ids), count)
    if len(ids) != count:
        raise ValueError(f"{count} rows need as many IDs, not {len(ids)}")
    return [(ms, seq) for ms, seq in map(cast(Sequence[ID], ids).__getitem__, range(count))]


class _Growing:
    """A node that rows are being added to, and the sizes that the limits need."""

    def __init__(self, master: ID, fields: list[bytes], lp_bytes: int, counter_bytes: int) -> None:
        self.master = master
        self.fields = fields
        self.counter_bytes = counter_bytes
        self.other_bytes = lp_bytes - counter_bytes
        self.live = 0
        self.deleted = 0
        self.encoded: list[bytes] = []
        self.elements = 0
        self.last = master

    @classmethod
    def open(cls, lp: bytes, master_id: ID) -> _Growing:
        """The open node as it stands."""
        master = node.read_master(lp)
        counter_bytes = master.deleted_at - listpack.HEADER_BYTES
        growing = cls(master_id, master.fields, len(lp), counter_bytes)
        growing.live = master.live
        growing.deleted = master.deleted
        return growing

    @classmethod
    def start(cls, id: ID, flat: list[bytes]) -> _Growing:
        """A new node with one entry."""
        fields = flat[::2]
        growing = cls(id, fields, listpack.HEADER_BYTES + 5 + len(edit.encode_master(fields)), 2)
        growing.add(id, flat)
        return growing

    def has_room(self, raw_bytes: int, node_max_bytes: int, node_max_entries: int) -> bool:
        """Whether the row goes into this node."""
        size, entries = self.counter_bytes + self.other_bytes, self.live + self.deleted
        return not edit.is_full(size + raw_bytes, entries, node_max_bytes, node_max_entries)

    def add(self, id: ID, flat: list[bytes]) -> None:
        """Add one row as the entry ``id``."""
        same = flat[::2] == self.fields
        entry = edit.encode_entry(id[0] - self.master[0], id[1] - self.master[1], flat, same)
        self.encoded.append(entry)
        self.other_bytes += len(entry)
        self.live += 1
        self.counter_bytes = len(listpack.encode_int(self.live))
        self.elements += len(flat) // 2 + 4 if same else len(flat) + 5
        self.last = id

    def finish(self) -> PackedNode:
        """The new node."""
        lp = listpack.finish(
            len(self.fields) + 4 + self.elements,
            listpack.encode_int(self.live),
            listpack.encode_int(0),
            edit.encode_master(self.fields),
            *self.encoded,
        )
        return PackedNode(*self.master, *self.last, self.live, lp)


def pack(
    batch: RowBatchLike,
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
    row_ids = expand_ids(ids, last_exclusive - first)
    opened = growing = None if open_lp is None else _Growing.open(open_lp, (open_ms, open_seq))
    new: list[_Growing] = []
    for index, id in enumerate(row_ids, first):
        flat = batch.flat(index)
        raw_bytes = batch.raw_bytes(index)
        if growing is not None and growing.has_room(raw_bytes, node_max_bytes, node_max_entries):
            growing.add(id, flat)
        else:
            growing = _Growing.start(id, flat)
            new.append(growing)
    nodes = [growing.finish() for growing in new]
    if opened is None or open_lp is None or not opened.encoded:
        return Packed(b"", 0, 0, open_lp, None, nodes)
    added = b"".join(opened.encoded)
    entry_count = len(opened.encoded)
    open_lp = edit.extend(open_lp, added, entry_count, opened.elements)
    return Packed(added, entry_count, opened.elements, open_lp, opened.last, nodes)
