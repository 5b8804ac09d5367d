"""What a feature is: its rows, and a record of functions that the layers above call.

The log, the index, a commit and recovery call these functions. The rows of a feature stand in a
database of its own (``FeatureRows``). What every feature does with rows alike is here, too: reading
and writing them sealed, walking over them, and putting pages of them into a checkpoint.

Invariants: a frame says what is true after it, so applying one needs no clock and no settings.
Applying a frame again, or one that a checkpoint has seen, changes nothing. A feature knows no file,
no lock and no engine. It sees the transaction that it changes only through the protocols below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from logstore.row_seal import fetch, seal, unseal
from logstore.tuples import NamedTuple

T = TypeVar("T")
P = TypeVar("P")
ROWS_A_CHUNK = 2000  # of a checkpoint
# The chunks of one page, and the place behind them; None at the end.
Page: TypeAlias = tuple[list[dict[str, Any]], P] | None


class Databases(Protocol):
    """One index, with the databases that features asked for."""

    @property
    def number(self) -> int:
        """Which generation of the index it is."""
        ...

    @property
    def databases(self) -> dict[str, Any]:
        """LMDB's handles, by the names that features gave."""
        ...


class Index(Protocol):
    """The index inside one transaction."""

    @property
    def generation(self) -> Databases:
        """Where the rows are."""
        ...

    @property
    def txn(self) -> Any:
        """LMDB's transaction, reading or writing."""
        ...


class Record(Protocol):
    """What features read and change in the record of a stream."""

    number: int
    name: bytes
    position: int  # of the last frame that changed the record
    expires_ms: int  # unix ms; 0: never
    schema_at: int  # position of the frame of its schema; 0: it has none


class Txn(Protocol):
    """The write transaction that frames are applied to."""

    woken: set[bytes]  # names of streams: who waits for one of them looks again after the commit

    @property
    def index(self) -> Index:
        """The index, changed so far as this commit did."""
        ...

    def record(self, stream: int) -> Record | None:
        """The record of a stream; None if there is none."""
        ...

    def advance(self, stream: int, at: int) -> Record | None:
        """The record of a stream, if a frame at position ``at`` counts for it; its position is
        moved there, and it is written back with the commit. None for a frame that it has seen."""
        ...

    def due_changed(self) -> None:
        """Work is due at another time than before: the word in WAKE that wakes sleepers is set
        anew."""
        ...


class FeatureRows:
    """The rows of one feature, as one transaction sees them. Every value is sealed with its key."""

    __slots__ = ("_database", "_txn")
    DATABASE: ClassVar[str]  # the name of the feature's database

    def __init__(self, index: Index) -> None:
        self._database = index.generation.databases[self.DATABASE]
        self._txn = index.txn

    def _get(self, key: bytes) -> bytes | None:
        return fetch(self._txn, self._database, key)

    def _put(self, key: bytes, value: bytes) -> None:
        self._txn.put(key, seal(key, value), db=self._database)

    def _delete(self, key: bytes) -> None:
        self._txn.delete(key, db=self._database)

    def _scan(self, start: bytes, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys and values from ``start`` on, while keys begin with ``prefix``.

        Change nothing meanwhile. CorruptionError for a value that its seal does not fit.
        """
        with self._txn.cursor(db=self._database) as cursor:
            if cursor.set_range(start):
                for key, data in cursor:
                    if not key.startswith(prefix):
                        return
                    yield key, unseal(key, data)

    def _clear(self, prefix: bytes) -> None:
        """Delete all rows whose keys begin with ``prefix``."""
        with self._txn.cursor(db=self._database) as cursor:
            while cursor.set_range(prefix) and cursor.key().startswith(prefix):
                cursor.delete()


def rows_of_chunk(rows: Iterable[T]) -> list[T]:
    """As many of the rows as one chunk of a checkpoint holds."""
    return list(islice(rows, ROWS_A_CHUNK))


def page_of(kind: str, rows: Iterable[T], place: Callable[[T], P]) -> Page[P]:
    """The next rows as one chunk of a checkpoint; ``place`` says where a row stands."""
    chunk = rows_of_chunk(rows)
    return ([{"kind": kind, "rows": chunk}], place(chunk[-1])) if chunk else None


def of_present(txn: Txn, rows: Iterable[T], stream: Callable[[T], int]) -> Iterator[T]:
    """The rows of streams that exist; ``stream`` gives the number of a row's stream.

    A checkpoint holds no stream that was made after its position, but may hold rows of it. The
    stream's own frames bring these again.
    """
    number, present = -1, False
    for row in rows:
        if stream(row) != number:
            number = stream(row)
            present = txn.record(number) is not None
        if present:
            yield row


class FrameKind(NamedTuple):
    """One kind of frame: how it stands in the log, and what it does."""

    kind: int  # of ``format.Kind``
    bodies: tuple[type, ...]  # named tuples, all with a field ``stream``
    encode: Callable[[Any], bytes]  # a body to the payload of a frame
    decode: Callable[[bytes], Any]  # and back; struct.error for any other bytes
    apply: Callable[[Any, int, Any], None]  # changes a ``Txn`` by the body of a frame at a position
    of_record: bool = False  # it moves the position of its stream's record (``Txn.advance``)


class Copied(NamedTuple):
    """What a checkpoint holds of a feature."""

    kind: str  # of its chunks
    # The page behind a place; the first place is None. Each call has a snapshot of its own, so a
    # commit may stand between any two calls.
    page: Callable[[Index, Any], Page[Any]]
    load: Callable[[Any, dict[str, Any]], None]  # puts a chunk into a ``Txn`` of an empty index


class Compared(NamedTuple):
    """Rows that must be the same in the store's index and in one that was rebuilt from the log."""

    differs: str  # what ``check`` says if they are not
    rows: Callable[[Index], Iterator[Any]]


class Feature(NamedTuple):
    """All that is registered of a feature. What it does not have stays empty."""

    database: str  # its named database in the index
    frames: tuple[FrameKind, ...]
    copies: tuple[Copied, ...] = ()
    compares: tuple[Compared, ...] = ()
    faults: Callable[[Index], Iterator[str]] | None = None  # rows that do not fit together
    loaded: Callable[[Any, Record], None] | None = None  # a checkpoint gave a stream's record
    dropped: Callable[[Any, int], None] | None = None  # a stream goes; its record is still there
    first_due: Callable[[Index], int] | None = None  # unix ms when it has work to do; 0: it has not
