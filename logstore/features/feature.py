"""What a feature is: a record of functions that the log, the index, a commit and recovery call.

Invariants: frames are physical results, so that whoever applies one asks no clock and no settings;
applying a frame again, or one that a checkpoint has seen already, ends in the same. A feature knows
no file, no lock and no engine: the transaction that it changes is described here, as far as
features need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from logstore.tuples import NamedTuple


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
        """Something is due at another time than before: whoever sleeps is told when."""
        ...


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
    # The chunks behind a place, and the place behind them; None at the end. The first place is
    # None. Called with a snapshot each, so a commit may stand between any two calls.
    page: Callable[[Index, Any], tuple[list[dict[str, Any]], Any] | None]
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
