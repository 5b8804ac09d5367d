"""What reading and writing give: entries, their fields, the IDs of an add, outcomes of a delete.

Invariants: ``pairs`` is faithful (order and repeated names kept), ``fields`` is a mapping in which
the last of a repeated name wins; a :class:`Fields`, and an entry itself, is looked up by bytes or
str alike. How entries look in terminals, notebooks and web answers is in ``showing``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from logstore.codec import GivenIDs, NodeEntry, RunList, codec
from logstore.engine.streams.budget import entry_bytes
from logstore.errors import InvalidEntryError
from logstore.ids import U64_MAX, StreamID, parse_id
from logstore.loading import load

if TYPE_CHECKING:
    from logstore.codec.entry_objects import EntryMaker
    from logstore.engine.streams.add import Added

T = TypeVar("T", bytes, str)
D = TypeVar("D")
_id_and_flat = attrgetter("id", "_flat")


class StoredFields(Protocol):
    """What has fields as they are stored: an entry, or one that waits for its time."""

    _flat: Any  # names and values, one behind the other


class Decoding(Protocol):
    """How the values of a stream with a codec are read (``values.Values``).

    ``encoding``: the store's; None: what was read is bytes. ``make_fields`` makes the fields of an
    entry, of what is stored and this object; ``decode`` the value of what is stored.
    """

    encoding: str | None
    make_fields: Any  # callables, of which a checker would make methods
    decode: Any

    def pairs(self, flat: Sequence[Any]) -> list[tuple[Any, Any]]:
        """All names and values."""
        ...


class Fields(Mapping[T, T]):
    """Field names to values, in order; the last of a repeated name wins."""

    __slots__ = ("_encoding", "_items")

    def __init__(self, flat: Sequence[T], encoding: str | None) -> None:
        self._encoding = encoding  # ``codec().FieldsMaker`` does the same
        self._items: dict[T, T] = dict(zip(flat[::2], flat[1::2], strict=True))

    def __getitem__(self, key: Any) -> T:
        if self._encoding is None and isinstance(key, str):
            key = encoded_name(key)
        elif self._encoding is not None and isinstance(key, bytes):
            key = key.decode(self._encoding, "surrogateescape")
        return self._items[key]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        shown: str = _showing().mapping(self._readable())
        return shown

    def _readable(self) -> Mapping[T, Any]:
        return self._items

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        table: str = _showing().table(None, self._readable().items())
        return table

    def _ipython_key_completions_(self) -> list[str]:
        """The names that notebooks offer after ``[``."""
        return [name if isinstance(name, str) else shown_name(name) for name in self._items]


class _Names(KeysView[T]):
    """What ``keys`` gives, without a generator around what goes through them."""

    __slots__ = ()

    def __iter__(self) -> Iterator[T]:
        mapping: Mapping[T, Any] = self._mapping  # type: ignore[attr-defined]
        return iter(mapping)


def _showing() -> Any:
    """What only people ask for, and no program that reads very many entries."""
    return load("logstore.api.showing")


def shown_name(name: bytes) -> str:
    """A field name as text; looked up as such it is found again."""
    return name.decode("utf-8", "surrogateescape")


def encoded_name(key: str) -> bytes | str:
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return key  # no bytes are its UTF-8: there is no such field


class Entry(Generic[T]):
    """One entry: ``id``, ``fields``, ``pairs``.

    It is a value, too: ``entry["rider"]``, ``entry.get("rider")``, ``dict(entry)`` look at its
    fields; ``id, fields = entry`` takes it apart; ``time`` is when it was added, by its ID.
    """

    __slots__ = ("_encoding", "_flat", "id")

    def __init__(self, id: StreamID, flat: Sequence[T], encoding: str | None) -> None:
        self.id = id
        self._flat: Sequence[T] = flat
        self._encoding: str | Decoding | None = encoding

    @property
    def fields(self) -> Fields[T]:
        """A mapping of field names to values."""
        return fields_of(self._flat, self._encoding)

    @property
    def time(self) -> datetime:
        """The milliseconds of the ID as an aware UTC datetime; OverflowError past year 9999."""
        return self.id.time

    def __getitem__(self, name: str | bytes) -> T:
        try:
            found: T = _field_value(self._flat, name, self._encoding, _MISSING)
        except Exception:  # noqa: BLE001  the codec cannot read it: see below
            return self.fields[name]
        # It is not there, or its name must be made text, or bytes, first.
        return self.fields[name] if found is _MISSING else found

    @overload
    def get(self, name: str | bytes) -> T | None: ...
    @overload
    def get(self, name: str | bytes, default: D) -> T | D: ...
    def get(self, name: str | bytes, default: Any = None) -> Any:
        """Look a field up.

        Args:
            name: the field's name.
            default: what stands for a field that is not there.

        Returns:
            The field's value, or ``default``.
        """
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def keys(self) -> KeysView[T]:
        """The names of the fields, once each: what ``dict(entry)`` begins with."""
        return _Names(self.fields)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.id, self.fields))

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain values.

        Returns:
            ``{"id": "<ms>-<seq>", "fields": {name: value}}``, as ``logstore range --json`` prints
            it. ``json`` takes it if the store has an encoding, and the values are of its kinds.
        """
        return {"id": str(self.id), "fields": dict(self.pairs)}

    @property
    def pairs(self) -> list[tuple[T, T]]:
        """All (field, value) pairs as they were added."""
        return pairs_of(self._flat, self._encoding)

    @property
    def size_bytes(self) -> int:
        """16 bytes for the ID, and the bytes of all field names and values: as limits count."""
        encoding, flat = self._encoding, self._flat
        if not (encoding is None or isinstance(encoding, str)):
            encoding = encoding.encoding
        raw: Any = flat
        if encoding is not None:
            raw = [part.encode(encoding, "surrogateescape") for part in raw]
        return entry_bytes(raw)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entry):
            return NotImplemented
        return self.id == other.id and list(self._flat) == list(other._flat)

    def __hash__(self) -> int:
        return hash((self.id, tuple(self._flat)))

    def __repr__(self) -> str:
        return f"Entry({self.id}, {self.fields!r})"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        try:
            pairs: Any = self.pairs
        except InvalidEntryError:  # what its codec cannot read is shown as it is stored
            pairs = self.fields._readable().items()
        table: str = _showing().table(str(self.id), pairs)
        return table

    def _ipython_key_completions_(self) -> list[str]:
        """The names that notebooks offer after ``[``."""
        return self.fields._ipython_key_completions_()

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """How pydantic, and FastAPI with it, take and give entries: as ``as_dict`` has them."""
        return _showing().pydantic_schema(cls, _entry_again if cls is Entry else None)


def _entry_again(plain: dict[str, Any]) -> Entry[Any]:
    """An entry of what ``as_dict`` gave, with text."""
    flat = [part for pair in (plain["fields"] or {}).items() for part in pair]
    return Entry(parse_id(plain["id"]), flat, "utf-8")


def fields_of(flat: Sequence[T], encoding: str | Decoding | None) -> Fields[T]:
    """The fields of an entry; with a codec they are decoded when they are looked up."""
    if encoding is None or encoding.__class__ is str:
        made: Fields[T] = _make_fields(flat, encoding)
    else:
        made = encoding.make_fields(flat, encoding)  # type: ignore[union-attr]
    return made


def pairs_of(flat: Sequence[Any], encoding: str | Decoding | None) -> list[tuple[Any, Any]]:
    """The pairs of an entry, decoded if there is a codec."""
    if encoding is None or isinstance(encoding, str):
        return list(zip(flat[::2], flat[1::2], strict=True))
    return encoding.pairs(flat)


def stored_pairs(entry: StoredFields) -> list[tuple[Any, Any]]:
    """The pairs of an entry as they are stored, also if a codec or a schema reads its values."""
    return pairs_of(entry._flat, None)


def codec_of(entry: Entry[Any]) -> Any:
    """The codec (`values.ValueCodec`) by which the values of an entry are read; None if there is
    none."""
    return getattr(entry._encoding, "codec", None)


_field_value = codec().field_value
_MISSING: Any = object()
# Where the codec is compiled, an entry's fields are made without a call of Python.
_maker_of_fields = codec().FieldsMaker(Fields, entry_class=Entry, other=fields_of)
_make_fields = _maker_of_fields.make
setattr(  # noqa: B010  (the same property, to type checkers)
    Entry, "fields", property(_maker_of_fields.of, doc=Entry.fields.__doc__)
)


@cache
def entry_maker(encoding: str | None) -> EntryMaker:
    """What makes entries of nodes; what is no valid text keeps its bytes as lone surrogates."""
    made: EntryMaker = codec().EntryMaker(Entry, StreamID, encoding)
    return made


def make_entry(row: NodeEntry, encoding: str | None, reading: Decoding | None = None) -> Entry[Any]:
    """An entry of stored bytes; what is no valid text keeps its bytes as lone surrogates.

    ``reading``: how its values are read, of a stream with a codec.
    """
    _, ms, seq, stored = row
    flat: Any = stored
    if encoding is not None:
        flat = tuple(part.decode(encoding, "surrogateescape") for part in stored)
    made: Entry[Any] = Entry(StreamID(ms, seq), flat, encoding)
    if reading is not None:
        made._encoding = reading
    return made


class TextRows:
    """What entries of text hold: of each its ID, and field, value, field, value, ..

    It is made when it is walked over, so that no object of an entry waits for the collector.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry[str]]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[StreamID, tuple[str, ...]]]:
        return map(_id_and_flat, self._entries)


class IDRuns(Sequence[StreamID]):
    """IDs in order, kept as runs of consecutive ones: next to nothing for those that the store
    gave, and three to five bytes for each that was given.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: RunList = codec().RunList()

    def add(self, first: StreamID, count: int = 1) -> None:
        """``count`` IDs from ``first`` on, each one above the one before."""
        if count > 0:
            self._runs.put(first.ms, first.seq, count)

    def add_given(self, ids: GivenIDs) -> None:
        """The IDs that the rows of a batch were given."""
        self._runs.put_given(ids)

    def extend(self, ids: Iterable[StreamID]) -> None:
        """More IDs, in any order."""
        for each in ids:
            self.add(each)

    @property
    def first(self) -> StreamID | None:
        """The first ID, None if there is none."""
        return self[0] if len(self) else None

    @property
    def last(self) -> StreamID | None:
        """The last ID, None if there is none."""
        return self[-1] if len(self) else None

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[StreamID]:
        for block in range(self._runs.block_count):
            for ms, seq, count in self._runs.block(block):
                for place in range(count):
                    yield _nth(ms, seq, place)

    @overload
    def __getitem__(self, index: int) -> StreamID: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StreamID]: ...
    def __getitem__(self, index: int | slice) -> StreamID | Sequence[StreamID]:
        if isinstance(index, slice):
            return list(self)[index]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        block = bisect_right(range(self._runs.block_count), index, key=self._runs.before) - 1
        index -= self._runs.before(block)
        for ms, seq, count in self._runs.block(block):
            if index < count:
                return _nth(ms, seq, index)
            index -= count
        raise IndexError(index)

    def __repr__(self) -> str:
        return f"IDRuns({len(self)} IDs, {self.first} to {self.last})"


def _nth(ms: int, seq: int, place: int) -> StreamID:
    carry, seq = divmod(seq + place, U64_MAX + 1)
    return StreamID(ms + carry, seq)


class DeleteOutcome(IntEnum):
    """What became of one ID, with the number that XDELEX and XACKDEL have for it."""

    MISSING = -1  # there was no such entry; of an ack: it was not pending
    DELETED = 1
    KEPT = 2  # a group has not read it yet, or has it pending; of an ack: acked nevertheless


def outcomes(codes: Iterable[int]) -> list[DeleteOutcome]:
    """An outcome for each ID."""
    return [DeleteOutcome(each) for each in codes]


def collect(given: IDRuns, added: Added | list[StreamID] | None) -> None:
    """Put the IDs of one add to the others; those of an idempotent one are a list."""
    if added is None:
        return
    if isinstance(added, list):
        given.extend(added)
    elif added.given is None:
        given.add(added.first, added.count)
    else:
        given.add_given(added.given)
