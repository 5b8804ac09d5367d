"""Reading on: entries above an ID, at once, after a wait, or as they come.

Invariants: where a read begins is settled once, when it is called (``"$"`` is the last ID then); a
wait holds nothing; a time-out is never early. It knows no logic of the disk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.api import arguments
from logstore.api.entry import Entry
from logstore.engine.waiting.wait import over, wait_streams
from logstore.errors import OptionError, UsageError, shown
from logstore.ids import MAX_ID, IDLike, StreamID, parse_id
from logstore.options import seconds
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.api.store import Store
    from logstore.api.stream_handle import StreamHandle

T = TypeVar("T", bytes, str)
TIMEOUT_MAX_S = 1_000_000_000  # thirty years and more: for ever
FOLLOW_COUNT = 1000  # entries read at once while following


def deadline_of(timeout: float | timedelta | None) -> float | None:
    """When a wait ends, by ``time.monotonic``; None: never. OptionError for what is no time."""
    if timeout is None:
        return None
    if type(timeout) is int and not timeout:  # as most reads are made
        return 0.0
    given = seconds(timeout, "timeout")
    if math.isnan(given) or given < 0:
        raise OptionError(
            f"timeout must be 0 (do not wait) or more seconds, or None (for ever): {shown(timeout)}"
        )
    return time.monotonic() + given if given < TIMEOUT_MAX_S else None


def refuse_block(block: object) -> None:
    """UsageError for ``block=``, as other clients name it, in milliseconds."""
    if block is not None:
        raise UsageError("block= is not taken: give timeout= in seconds (None waits for ever)")


class Limits(NamedTuple):
    """How much a read may give."""

    count: int = 0  # type: ignore[assignment]  # entries of one stream; 0: no limit
    max_count: int | None = None  # entries of all streams
    max_bytes: int | None = None  # of all entries, but the first entry comes in any case


def limits(count: int | None, max_count: int | None, max_bytes: int | None) -> Limits:
    """The limits of a read, checked; OptionError. A negative ``count`` is no limit, as in XREAD."""
    arguments.check_count(count, "count")
    for value, name in ((max_count, "max_count"), (max_bytes, "max_bytes")):
        arguments.check_count(value, name)
        if value is not None and value < 1:
            raise OptionError(f"{name} must be 1 or more, or None (no limit): {value}")
    if count is not None and max_count is not None and max_count < count:
        raise OptionError(f"max_count must not be below count: {max_count} < {count}")
    return Limits(max(count or 0, 0), max_count, max_bytes)


def group_limits(
    count: int | None, max_count: int | None, max_bytes: int | None
) -> tuple[int, int]:
    """The same for a read of one group: entries, bytes; 0: no limit."""
    limit = arguments.read_count(count)
    if max_count is None and max_bytes is None:
        return limit, 0
    allowed = limits(count, max_count, max_bytes)
    return allowed.count or allowed.max_count or 0, allowed.max_bytes or 0


class Budget:
    """What one read has left of its limits, over all its streams."""

    def __init__(self, allowed: Limits) -> None:
        self._allowed = allowed
        self._left = -1 if allowed.max_count is None else allowed.max_count
        self._left_bytes = allowed.max_bytes
        self._first = True

    def above(self, stream: StreamHandle[T], start: StreamID) -> list[Entry[T]]:
        """Entries of a stream above an ID, as many as it may give."""
        if start == MAX_ID or not self._left:
            return []
        most = self._allowed.count or -1
        if self._left >= 0:
            most = self._left if most < 0 else min(most, self._left)
        return self.take(stream._range(start.next(), MAX_ID, most, False))

    def take(self, entries: Iterable[Entry[T]]) -> list[Entry[T]]:
        """Those of the entries that are within the limits."""
        if not self._left:
            return []
        if self._left_bytes is None:
            found = list(entries)
        else:
            found = []
            for entry in entries:
                self._left_bytes -= entry.size_bytes
                if self._left_bytes < 0 and not self._first:
                    self._left = 0  # nothing behind it either: entries come in order
                    break
                self._first = False
                found.append(entry)
        if self._left > 0:
            self._left -= len(found)
        return found


def read_stream(
    stream: StreamHandle[T], after: IDLike, allowed: Limits, timeout: float | timedelta | None
) -> list[Entry[T]]:
    """Entries of one stream above an ID."""
    deadline = deadline_of(timeout)
    start = _start(stream, after)
    if after in ("+", b"+") and (newest := list(stream.range(count=1, reverse=True))):
        return newest

    def look() -> list[Entry[T]]:
        return Budget(allowed).above(stream, start)

    found = look()
    if found or over(deadline):
        return found
    store = stream._store
    waited = wait_streams(store._engine(), [stream._name], look, deadline, store._engine)
    return waited or []


def read_many(
    store: Store[T], after: Mapping[str, IDLike] | Mapping[bytes, IDLike], allowed: Limits,
    timeout: float | timedelta | None,
) -> dict[T, list[Entry[T]]]:  # fmt: skip
    """Entries of several streams, each above its ID; streams without any are left out.

    In the order in which they are named: what the first ones use up is not left for the others.
    """
    if not isinstance(after, Mapping):
        raise UsageError(
            f"give the ID to read after by stream, {{name: id}}, not {type(after).__name__}"
        )
    deadline = deadline_of(timeout)
    places: list[tuple[StreamHandle[T], StreamID, list[Entry[T]]]] = []
    for name, given in after.items():
        stream = store.stream(name)
        start = _start(stream, given)
        newest = list(stream.range(count=1, reverse=True)) if given in ("+", b"+") else []
        places.append((stream, start, newest))

    def look() -> dict[T, list[Entry[T]]]:
        budget = Budget(allowed)
        found: dict[T, list[Entry[T]]] = {}
        for stream, start, newest in places:
            entries = budget.take(newest) if newest else budget.above(stream, start)
            if entries:
                found[stream.name] = entries
        return found

    found = look()
    if found or over(deadline):
        return found
    if not places and deadline is None:
        raise UsageError("no stream is named: there is nothing to wait for")
    names = [stream._name for stream, _, _ in places]
    return wait_streams(store._engine(), names, look, deadline, store._engine) or {}


def follow(
    stream: StreamHandle[T], after: IDLike, count: int | None, timeout: float | timedelta | None
) -> Iterator[Entry[T]]:
    """Entries of one stream above an ID, and those that come."""
    arguments.check_count(count, "count")
    deadline_of(timeout)
    start = _start(stream, after)
    newest = list(stream.range(count=1, reverse=True)) if after in ("+", b"+") else []
    return _follow(stream, newest, start, count or FOLLOW_COUNT, timeout)


def _follow(
    stream: StreamHandle[T], newest: list[Entry[T]], start: StreamID, count: int,
    timeout: float | timedelta | None,
) -> Iterator[Entry[T]]:  # fmt: skip
    allowed = Limits(count)
    found = newest or read_stream(stream, start, allowed, timeout)
    while found:
        yield from found
        start = max(start, found[-1].id)
        found = read_stream(stream, start, allowed, timeout)


def _start(stream: StreamHandle[Any], after: IDLike) -> StreamID:
    """The ID that ``after`` stands for now."""
    return stream.last_id if after in ("$", b"$", "+", b"+") else parse_id(after)
