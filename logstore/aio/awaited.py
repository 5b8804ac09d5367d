"""Calls of the plain classes, awaited: they are declared there, and named in the asyncio classes.

``get = of_stream(Stream.get)`` gives ``AsyncStream`` a coroutine function with the arguments, the
result and the documentation of ``Stream.get``, which runs in a thread of the store;
``pages_of_stream`` does so for a call that gives an iterator.

Invariant: nothing is fetched from an iterator before it is asked for, and no page is larger than
``PAGE_ENTRIES``.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from logstore.api.group import Group
from logstore.api.store import Store
from logstore.api.stream import Stream

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T", bytes, str)
PAGE_ENTRIES = 256  # entries an iterator fetches at once


class Awaited(Generic[P, R_co]):
    """The type of a call that is awaited, as type checkers see it."""

    def __get__(self, instance: object, owner: object) -> Callable[P, Coroutine[Any, Any, R_co]]:
        raise NotImplementedError


class Paged(Generic[P, R_co]):
    """The type of a call that is iterated over with ``async for``, as type checkers see it."""

    def __get__(self, instance: object, owner: object) -> Callable[P, AsyncIterator[R_co]]:
        raise NotImplementedError


def of_store(call: Callable[Concatenate[Store[T], P], R]) -> Awaited[P, R]:
    """A call of ``Store``, awaited."""
    return _awaited(call, "_store")


def of_stream(call: Callable[Concatenate[Stream[T], P], R]) -> Awaited[P, R]:
    """A call of ``Stream``, awaited."""
    return _awaited(call, "_stream")


def of_group(call: Callable[Concatenate[Group[T], P], R]) -> Awaited[P, R]:
    """A call of ``Group``, awaited."""
    return _awaited(call, "_group")


def pages_of_stream(call: Callable[Concatenate[Stream[T], P], Iterator[R]]) -> Paged[P, R]:
    """A call of ``Stream`` that gives an iterator, iterated over page by page."""
    return _paged(call, "_stream")


def pages_of_group(call: Callable[Concatenate[Group[T], P], Iterator[R]]) -> Paged[P, R]:
    """A call of ``Group`` that gives an iterator, iterated over page by page."""
    return _paged(call, "_group")


class Declared(Generic[P, R_co]):
    """The type of a call with the arguments of a plain one, and a result of its own."""

    def __get__(self, instance: object, owner: object) -> Callable[P, R_co]:
        raise NotImplementedError


def declared_by(
    call: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., R]], Declared[P, R]]:
    """A decorator: the arguments and the documentation are those of a call of a plain class."""

    def declared(own: Callable[..., R]) -> Declared[P, R]:
        wrapped = functools.wraps(call, assigned=("__doc__", "__name__"))(own)
        return cast(Any, wrapped)  # type: ignore[no-any-return]

    return declared


def _awaited(call: Callable[..., R], plain: str) -> Awaited[Any, R]:
    """The call, made in a thread on the object in the attribute ``plain``.

    It is looked up there by its name: the object's class may override it.
    """
    name = call.__name__

    @functools.wraps(call)
    async def awaited(self: Any, *args: Any, **named: Any) -> R:
        return cast(R, await self._run(getattr(getattr(self, plain), name), *args, **named))

    return cast(Any, awaited)  # type: ignore[no-any-return]


def _paged(call: Callable[..., Iterator[R]], plain: str) -> Paged[Any, R]:
    name = call.__name__

    @functools.wraps(call)
    def paged(self: Any, *args: Any, **named: Any) -> AsyncIterator[R]:
        return pages(self._run, getattr(getattr(self, plain), name)(*args, **named))

    return cast(Any, paged)  # type: ignore[no-any-return]


async def pages(
    run: Callable[[Callable[[], list[R]]], Awaitable[list[R]]],
    found: Iterator[R],
    size: int = PAGE_ENTRIES,
) -> AsyncIterator[R]:
    """What a plain iterator gives, fetched so many at a time by what runs calls in a thread."""
    while items := await run(lambda: list(itertools.islice(found, size))):
        for each in items:
            yield each


class Feed(Iterator[Any]):
    """Rows that came so far; it ends where there are none, and goes on when there are more."""

    def __init__(self) -> None:
        self.rows: deque[Any] = deque()

    def __next__(self) -> Any:
        if not self.rows:
            raise StopIteration
        return self.rows.popleft()
