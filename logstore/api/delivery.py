"""Deliveries: entries as a consumer group hands them out, with what an ack needs.

Invariants: a delivery names its group, consumer, delivery count and delivery time as they were when
it was handed out; an ack inside a transaction compares all of them, a plain ``ack`` none. Lengths
of time are ``timedelta``. A delivery holds no lock and never changes, but for ``settled``.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api.entry import Entry
from logstore.api.group_admin import GroupAdmin, NackMode
from logstore.codec import codec
from logstore.engine.groups.deliver import Delivered
from logstore.ids import StreamID

if TYPE_CHECKING:
    from logstore.codec.entry_objects import DeliveryMaker

T = TypeVar("T", bytes, str)
_AT_ONCE = timedelta(0)


class Delivery(Entry[T]):
    """An entry and its delivery: ``group``, ``consumer``, ``delivery_count``, ``idle``.

    ``delivery_count`` counts this delivery too. ``idle`` is a timedelta: how long the entry was
    pending with nobody working on it before this delivery, 0 for a new entry. ``deleted``: whether
    it is a :class:`DeletedDelivery`, which only ``backlog`` gives.
    """

    __slots__ = (
        "_consumer",
        "_delivered_ms",
        "_settled",
        "deleted",
        "delivery_count",
        "group",
        "idle",
    )

    def __init__(self, group: GroupAdmin[T], consumer: bytes, delivered: Delivered) -> None:
        encoding = group._opened.encoding
        flat: list[Any] = delivered.items or []
        if encoding is not None:
            flat = [part.decode(encoding, "surrogateescape") for part in flat]
        values = group._handle._values
        self.id, self._flat = delivered.id, flat  # as an entry has them
        self._encoding = encoding if values is None else values
        self.group: GroupAdmin[T] = group
        self.deleted = delivered.items is None
        self.delivery_count = delivered.count
        self.idle = timedelta(milliseconds=delivered.idle_ms) if delivered.idle_ms else _AT_ONCE
        self._consumer = consumer
        self._delivered_ms = delivered.time_ms
        self._settled = False

    @property
    def consumer(self) -> T:
        """The consumer it was handed to, as bytes or in the store's encoding."""
        return self.group._opened.text(self._consumer)

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

    def nack(
        self,
        mode: NackMode = "fail",
        *,
        delay: timedelta | float | None = None,
        error: str = "",
    ) -> bool:
        """Not done: give it back, so that another consumer gets it, at once or after ``delay``.

        ``mode``: "fail" keeps the delivery count, "silent" takes this delivery back from it,
        "fatal" sets it as high as it goes. ``error`` says why, for the dead letter stream, if it
        goes there. ``delay`` as in ``Group.nack``. False if it was not pending any more.
        """
        done = self.group.nack(self.id, mode=mode, delay=delay, error=error) == 1
        self._settled = True
        return done

    def _fenced(self) -> tuple[bytes, tuple[Any, ...]]:
        """The stream, and what else ``ack.fenced_ack`` takes."""
        group = self.group
        return group._stream, (
            group._name,
            self._consumer,
            self.id,
            self.delivery_count,
            self._delivered_ms,
        )

    def _fence(self) -> dict[str, Any]:
        """What must still be so for the entry to be this consumer's: see ``ack.fenced_ack``."""
        return {
            "stream": self.group._stream,
            "group": self.group._name,
            "consumer": self._consumer,
            "id": self.id,
            "count": self.delivery_count,
            "time_ms": self._delivered_ms,
        }

    def __repr__(self) -> str:
        told = "deleted" if self.deleted else repr(self.fields)
        return f"Delivery({self.id}, {told}, {self.consumer!r}, count {self.delivery_count})"


class DeletedDelivery(Delivery[T]):
    """A delivery of an entry that was deleted while it was pending: there is nothing but to ack it.

    ``fields`` is None, ``pairs`` and ``keys`` are empty. (A class of its own, so that the fields of
    all others are known not to be None.)
    """

    __slots__ = ()

    @property
    def fields(self) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """None."""
        return

    def __getitem__(self, name: str | bytes) -> T:
        raise KeyError(name)

    def keys(self) -> KeysView[T]:
        """No names."""
        return {}.keys()

    def as_dict(self) -> dict[str, Any]:
        """The ID as text, and None as its fields."""
        return {"id": str(self.id), "fields": None}

    def _ipython_key_completions_(self) -> list[str]:
        return []


def _delivery_of(group: GroupAdmin[T], consumer: bytes, delivered: Delivered) -> Delivery[T]:
    """The delivery of an entry as the engine handed it out."""
    return (DeletedDelivery if delivered.items is None else Delivery)(group, consumer, delivered)


@cache
def _maker(encoding: str | None) -> DeliveryMaker:
    made: DeliveryMaker = codec().DeliveryMaker(Delivery, encoding)
    return made


def making(
    group: GroupAdmin[T],
) -> tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, Any, Any]]:
    """What makes the deliveries of new entries from a node, and what it is to be given with it:
    ``codec.DeliveryMaker.first``."""
    encoding, values = group._opened.encoding, group._handle._values
    return _maker(encoding).first, (group, encoding if values is None else values, _AT_ONCE)


def deliveries_of(
    group: GroupAdmin[T], consumer: bytes, given: list[Delivered]
) -> list[Delivery[T]]:
    """The deliveries of entries as the engine handed them out; those that are there, as most are,
    without a call for each."""
    encoding, values = group._opened.encoding, group._handle._values
    reading = encoding if values is None else values
    return _maker(encoding).made(given, group, consumer, reading, _AT_ONCE, _delivery_of)


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
