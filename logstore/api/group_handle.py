"""The handle of a consumer group: its names, and what it tells.

Invariants: nothing here changes a group or takes a lock; what is told together is of one moment,
but for ``pending_entries``, which is lazy and takes a snapshot a page; idle times are by the
store's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from logstore.api import arguments, describe
from logstore.api.info import ConsumerInfo, GroupInfo, PendingEntry, PendingInfo
from logstore.engine.groups import describe as pendings
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.ids import MAX_ID, IDLike, StreamID
from logstore.settings import GroupSettings

if TYPE_CHECKING:
    from logstore.api.store import Store
    from logstore.api.stream import Stream

T = TypeVar("T", bytes, str)
R = TypeVar("R")
PAGE_ENTRIES = 1000


class GroupHandle(Generic[T]):
    """One consumer group of a stream, to look at; :class:`logstore.group.Group` also changes it."""

    __slots__ = ("_name", "_store", "_stream")

    def __init__(self, store: Store[T], stream: bytes, name: bytes) -> None:
        self._store: Store[T] = store
        self._stream = stream
        self._name = name

    @property
    def name(self) -> T:
        """The group's name, as bytes or in the store's encoding."""
        return self._text(self._name)

    @property
    def stream(self) -> Stream[T]:
        """The stream."""
        return self._store.stream(self._stream)

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of {self.stream!r}>"

    def __reduce__(self) -> Any:
        return (type(self), (self._store, self._stream, self._name))

    # -- what it tells --------------------------------------------------------------------------
    def exists(self) -> bool:
        """Whether there is such a group."""
        return self._number() is not None

    def info(self) -> GroupInfo[T]:
        """All fields of XINFO GROUPS about this group."""
        row = self._view(lambda view: describe.group_row(view, self._stream, self._name))
        return describe.group_info(row, self._text)

    @property
    def settings(self) -> GroupSettings[T]:
        """What is set with ``configure``; GroupNotFoundError if there is no group."""
        return self.info().settings

    def consumers(self) -> list[ConsumerInfo[T]]:
        """All fields of XINFO CONSUMERS, by name."""
        now_ms = self._now_ms()
        rows = self._view(
            lambda view: pendings.consumer_rows(view, self._stream, self._name, now_ms)
        )
        return [describe.consumer_info(row, self._text) for row in rows]

    def pending(self) -> PendingInfo[T]:
        """How much is pending, between which IDs and with whom."""
        found = self._view(lambda view: pendings.summary(view, self._stream, self._name))
        consumers = {self._text(name): count for name, count in found.consumers}
        return PendingInfo(found.count, found.first, found.last, consumers)

    def pending_entries(
        self, start: IDLike = "-", end: IDLike = "+", *, count: int | None = None,
        consumer: str | bytes | None = None, min_idle: timedelta | float = 0,
    ) -> Iterator[PendingEntry[T]]:  # fmt: skip
        """What is pending, by ID, lazily: with all or one consumer, idle for ``min_idle``.

        Both ends included, ``(`` excludes. ``count`` 0 or None: no limit.
        """
        low, high = arguments.interval(start, end)
        limit = arguments.read_count(count)
        who = None if consumer is None else self._consumer(consumer)
        return self._pending(low, high, limit, who, arguments.milliseconds(min_idle, "min_idle"))

    def _pending(
        self, low: StreamID, high: StreamID, limit: int, who: bytes | None, min_idle_ms: int
    ) -> Iterator[PendingEntry[T]]:
        left = limit
        while low <= high:
            page = min(left, PAGE_ENTRIES) if limit else PAGE_ENTRIES
            rows = self._page(low, high, page, who, min_idle_ms)
            for row in rows:
                owned = bool(row.consumer)
                yield PendingEntry(
                    row.id, self._text(row.consumer) if owned else None,
                    timedelta(milliseconds=row.idle_ms) if owned else None, row.count,
                )  # fmt: skip
            left -= len(rows)
            if len(rows) < page or (limit and not left) or rows[-1].id == MAX_ID:
                return
            low = rows[-1].id.next()

    def _page(
        self, low: StreamID, high: StreamID, page: int, who: bytes | None, min_idle_ms: int
    ) -> list[pendings.PendingRow]:
        now_ms = self._now_ms()
        return self._view(
            lambda view: pendings.detail(
                view, self._stream, self._name, low, high, page, consumer=who,
                min_idle_ms=min_idle_ms, now_ms=now_ms,
            )
        )  # fmt: skip

    # -- inside ---------------------------------------------------------------------------------
    def _text(self, name: bytes) -> T:
        return cast(T, self._store._text(name))

    def _consumer(self, name: str | bytes) -> bytes:
        return arguments.consumer_name(name, self._store.encoding)

    def _now_ms(self) -> int:
        return self._store._engine().clock.now_ms()

    def _view(self, look: Callable[[Snapshot], R]) -> R:
        return snapshot.read(self._store._engine(), look)

    def _number(self) -> int | None:
        """The group's number, None if there is no such group."""
        return self._view(lambda view: describe.group_number(view, self._stream, self._name))
