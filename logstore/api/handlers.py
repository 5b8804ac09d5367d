"""Functions that users give to be called: refused where their work would never be done.

A coroutine function does nothing until its coroutine is awaited, a generator function nothing until
somebody iterates: who calls one and drops what it returns has not called it at all, and an entry
that is acked then was never handled.

Invariants: what can be seen of a function is refused at the call that is given it; what can only be
seen of its result is refused before the entry is acked. A coroutine that nobody awaits is closed.
"""

from __future__ import annotations

import sys
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Protocol

from logstore.errors import OptionError, UsageError, shown

USE_AIO = "open the store with logstore.aio.open and await its consume, or give a plain function"
PLAIN = (
    "give a plain function: it is called in the thread that did the commit; "
    "asyncio.run_coroutine_threadsafe(work(letter), loop) hands work to an event loop"
)


class WorkNotDone(UsageError):  # noqa: N818
    """A function returned something that would have to be awaited or iterated, and nobody does."""


def check_callable(given: object, what: str, *, coroutines: str | None = None) -> None:
    """OptionError for what cannot be called, and for functions whose call does nothing yet.

    ``coroutines``: what to do instead of giving a coroutine function; None: one may be given.
    """
    import inspect  # which is slow to import, and needed by workers only

    if not callable(given):
        raise OptionError(f"{what} must be a function, not {shown(given)}")
    seen = inspect.unwrap(_unpacked(given))
    called = getattr(type(seen), "__call__", None)  # noqa: B004  an object with an async __call__
    for function in map(_unpacked, (given, seen, called)):
        if inspect.iscoroutinefunction(function):
            if coroutines is not None:
                raise OptionError(
                    f"{what} is a coroutine function, which nobody would await here: {coroutines}"
                )
        elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise OptionError(
                f"{what} is a generator function (it has a yield), of which a call does nothing "
                "before somebody iterates: give a function that returns"
            )


def _unpacked(given: Any) -> Any:
    """The function of a ``functools.partial``."""
    from functools import partial

    while isinstance(given, partial):
        given = given.func
    return given


def not_done(result: Any, what: str, hint: str) -> WorkNotDone | None:
    """The error of a function that returned work that nobody will do; None for any other result.

    A coroutine is closed, so that Python does not warn of it, too.
    """
    if result is None:
        return None
    kind = type(result)
    if isinstance(result, CoroutineType | GeneratorType):
        result.close()
    elif not isinstance(result, AsyncGeneratorType) and not hasattr(kind, "__await__"):
        futures: Any = sys.modules.get("concurrent.futures")  # else nobody has made one
        if futures is None or not isinstance(result, futures.Future) or result.done():
            return None
        hint = "wait for it: return future.result()"
    return WorkNotDone(f"{what} returned a {kind.__name__}, whose work is not done yet: {hint}")


class Event(Protocol):
    """A ``threading.Event``, an ``asyncio.Event``, or what is like them."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...


class Ends(Protocol):
    """What acks handled entries itself, some of them in one commit."""

    def keeps(self, delivery: Any) -> bool:
        """Whether it acks this one, which was handled just now."""
        ...

    def commit(self) -> None:
        """Ack all of them."""
        ...
