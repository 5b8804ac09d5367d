"""What streams and groups for asyncio need of their store: types that point up, none of them back.

Invariants: only the types stand here; ``aio.store.AsyncStore`` and ``aio.stream.AsyncStream`` have
the calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from logstore.aio.tasks import Tasks
from logstore.api.entry import Entry
from logstore.ids import IDLike, StreamID

if TYPE_CHECKING:
    from logstore.api.matching import Matching

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bytes, str)


class StreamOfGroup(Protocol[T]):
    """The stream of a group, an :class:`logstore.aio.AsyncStream`: its name and its entries."""

    @property
    def name(self) -> T:
        """The name, as bytes or in the store's encoding."""
        ...

    @property
    def add(self) -> Callable[..., Awaitable[StreamID | None]]:
        """As ``Stream.add``."""
        ...

    async def get(self, id: IDLike) -> Entry[T] | None:
        """As ``Stream.get``."""
        ...

    def range(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        count: int | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[Entry[T]]:
        """As ``Stream.range``."""
        ...

    def _pages(self, found: Iterator[R], size: int = ...) -> AsyncIterator[R]: ...


class Host(Protocol[T]):
    """The store of a stream or group: its threads, its tasks that wait."""

    _tasks: Tasks

    def _follow(
        self,
        after: Mapping[bytes, IDLike],
        since: None,
        timeout: float | timedelta | None,
        count: int,
        where: Matching | None = None,
    ) -> AsyncIterator[tuple[T, Entry[T]]]: ...

    @property
    def encoding(self) -> str | None:
        """The encoding of text; None: names and fields are bytes."""
        ...

    async def _run(self, work: Callable[P, R], *args: P.args, **named: P.kwargs) -> R: ...

    def _reader(self) -> int: ...

    def stream(self, name: str | bytes) -> StreamOfGroup[T]:
        """As ``Store.stream``."""
        ...

    async def read(
        self,
        after: Any,
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: float | timedelta | None = 0,
    ) -> Mapping[T, list[Entry[T]]]:
        """As ``Store.read``."""
        ...
