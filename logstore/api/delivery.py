"""Deliveries: entries as a consumer group hands them out, with what an ack needs; and outcomes, of
deletes and of what a transaction does.

Invariants: a delivery names its group, consumer, delivery count and delivery time as they were when
it was handed out; an ack inside a transaction compares all of them, a plain ``ack`` none. Lengths
of time are ``timedelta``. A delivery holds no lock and never changes, but for ``settled``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast

from logstore.api.entry import Entry, IDRuns
from logstore.engine.groups.deliver import Delivered
from logstore.engine.streams.add import Added
from logstore.errors import UsageError
from logstore.ids import StreamID

if TYPE_CHECKING:
    from logstore.api.group import Group


T = TypeVar("T", bytes, str)
NackMode: TypeAlias = Literal["silent", "fail", "fatal"]
_AT_ONCE = timedelta(0)


class Delivery(Entry[T]):
    """An entry and its delivery: ``group``, ``consumer``, ``delivery_count``, ``idle``.

    ``delivery_count`` counts this delivery too. ``idle`` is a timedelta: how long the entry was
    pending with nobody working on it before this delivery, 0 for a new entry. ``deleted``: whether
    it is a :class:`DeletedDelivery`, which only ``backlog`` gives.
    """

    __slots__ = (
        "_consumer", "_delivered_ms", "_settled", "deleted", "delivery_count", "group", "idle",
    )  # fmt: skip

    def __init__(self, group: Group[T], consumer: bytes, found: Delivered) -> None:
        encoding = group._store.encoding
        flat: list[Any] = found.items or []
        if encoding is not None:
            flat = [part.decode(encoding, "surrogateescape") for part in flat]
        super().__init__(found.id, flat, encoding)
        self.group: Group[T] = group
        self.deleted = found.items is None
        self.delivery_count = found.count
        self.idle = timedelta(milliseconds=found.idle_ms) if found.idle_ms else _AT_ONCE
        self._consumer = consumer
        self._delivered_ms = found.time_ms
        self._settled = False

    @property
    def consumer(self) -> T:
        """The consumer it was handed to, as bytes or in the store's encoding."""
        return cast(T, self.group._store._text(self._consumer))

    @property
    def settled(self) -> bool:
        """Whether it was acked or given back through this object, or in a transaction."""
        return self._settled

    def ack(self) -> bool:
        """Done: no longer pending. False if it was not pending any more.

        As XACK, it asks nobody's leave: an entry that was claimed by another consumer meanwhile
        is acked, too. ``tx.ack(delivery)`` is the one that notices.
        """
        done = self.group.ack(self.id) == 1
        self._settled = True
        return done

    def nack(self, mode: NackMode = "fail", *, error: str = "") -> bool:
        """Not done: give it back, so that another consumer gets it at once.

        ``mode``: "fail" keeps the delivery count, "silent" takes this delivery back from it,
        "fatal" sets it as high as it goes. ``error`` says why, for the dead letter stream, if it
        goes there. False if it was not pending any more.
        """
        done = self.group.nack(self.id, mode=mode, error=error) == 1
        self._settled = True
        return done

    def _fence(self) -> tuple[bytes, bytes, bytes, StreamID, int, int]:
        """What must still be so for the entry to be this consumer's: see ``ack.fenced_ack``."""
        return (
            self.group._stream, self.group._name, self._consumer, self.id, self.delivery_count,
            self._delivered_ms,
        )  # fmt: skip

    def __repr__(self) -> str:
        told = "deleted" if self.deleted else repr(self.fields)
        return f"Delivery({self.id}, {told}, {self.consumer!r}, count {self.delivery_count})"


class DeletedDelivery(Delivery[T]):
    """A delivery of an entry that was deleted while it was pending: there is nothing but to ack it.

    ``fields`` is None, ``pairs`` is empty. (A class of its own, so that the fields of all others
    are known not to be None.)
    """

    __slots__ = ()

    @property
    def fields(self) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """None."""
        return


def delivery_of(group: Group[T], consumer: bytes, found: Delivered) -> Delivery[T]:
    """The delivery of an entry as the engine handed it out."""
    return (DeletedDelivery if found.items is None else Delivery)(group, consumer, found)


class Autoclaimed(Generic[T]):
    """What ``autoclaim`` gave: ``entries``, the IDs of ``deleted`` ones, and a ``cursor``.

    The cursor is where to go on (``start=``); 0-0 when everything was looked at.
    """

    __slots__ = ("cursor", "deleted", "entries")

    def __init__(
        self, cursor: StreamID, entries: list[Delivery[T]], deleted: list[StreamID]
    ) -> None:
        self.cursor = cursor
        self.entries: list[Delivery[T]] = entries
        self.deleted = deleted

    def __repr__(self) -> str:
        return f"Autoclaimed({self.cursor}, {self.entries!r}, deleted={self.deleted!r})"


R = TypeVar("R")


class DeleteOutcome(IntEnum):
    """What became of one ID, with the number that XDELEX and XACKDEL have for it."""

    MISSING = -1  # there was no such entry; of an ack: it was not pending
    DELETED = 1
    KEPT = 2  # a group has not read it yet, or has it pending; of an ack: acked nevertheless


def outcomes(told: Iterable[int]) -> list[DeleteOutcome]:
    """An outcome for each ID."""
    return [DeleteOutcome(each) for each in told]


def collect(given: IDRuns, added: Added) -> None:
    """Put the IDs of one add to the others."""
    if added.given is None:
        given.add(added.first, added.count)
    else:
        given.add_given(added.given)


class Pending(Generic[R]):
    """The outcome of an operation of a transaction; known once it was committed."""

    __slots__ = ("_done", "_turn", "_value")

    def __init__(self, turn: Callable[[Any], R] | None = None) -> None:
        self._done = False
        self._turn = turn
        self._value: Any = None

    def _settle(self, value: Any) -> None:
        self._value = value if self._turn is None else self._turn(value)
        self._done = True

    @property
    def result(self) -> R:
        """What the operation gave: an ID, a count. UsageError before the commit."""
        if not self._done:
            raise UsageError("known after the commit: leave the with block first")
        found: R = self._value
        return found

    @property
    def id(self) -> StreamID:
        """The ID that an add was given. UsageError before the commit."""
        found = self.result
        if not isinstance(found, StreamID):
            raise UsageError("this operation gives no ID")
        return found
