"""Reading on: entries above an ID, at once, after a wait, or as they come.

Invariants: where a read begins is settled once, when it is called (``"$"`` is the last ID then); a
wait holds nothing; a time-out is never early. It knows no logic of the disk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from logstore import arguments
from logstore.engine.waiting import wait_streams
from logstore.entry import Entry
from logstore.errors import OptionError, UsageError
from logstore.ids import MAX_ID, IDLike, StreamID, parse_id
from logstore.options import seconds

if TYPE_CHECKING:
    from logstore.store import Store
    from logstore.streamhandle import StreamHandle

T = TypeVar("T", bytes, str)
FOLLOW_COUNT = 1000  # entries read at once while following


def deadline_of(timeout: float | timedelta | None) -> float | None:
    """When a wait ends, by ``time.monotonic``; None: never. OptionError for what is no time."""
    if timeout is None:
        return None
    given = seconds(timeout, "timeout")
    if math.isnan(given) or given < 0:
        raise OptionError(
            f"timeout must be 0 (do not wait) or more seconds, or None (for ever): {timeout!r}"
        )
    return time.monotonic() + given if given < math.inf else None


def refuse_block(block: object) -> None:
    """UsageError for ``block=``, as other clients name it, in milliseconds."""
    if block is not None:
        raise UsageError("block= is not taken: give timeout= in seconds (None waits for ever)")


def read_stream(
    stream: StreamHandle[T], after: IDLike, count: int | None, timeout: float | timedelta | None
) -> list[Entry[T]]:
    """Entries of one stream above an ID."""
    arguments.check_count(count, "count")
    deadline = deadline_of(timeout)
    start = _start(stream, after)
    if after in ("+", b"+") and (newest := list(stream.range(count=1, reverse=True))):
        return newest
    found = _above(stream, start, count)
    if found or _over(deadline):
        return found
    store = stream._store
    waited = wait_streams(
        store._engine(), [stream._name], lambda: _above(stream, start, count), deadline,
        store._engine,
    )  # fmt: skip
    return waited or []


def read_many(
    store: Store[T], after: Mapping[str, IDLike] | Mapping[bytes, IDLike], count: int | None,
    timeout: float | timedelta | None,
) -> dict[T, list[Entry[T]]]:  # fmt: skip
    """Entries of several streams, each above its ID; streams without any are left out."""
    if not isinstance(after, Mapping):
        raise UsageError(
            f"give the ID to read after by stream, {{name: id}}, not {type(after).__name__}"
        )
    arguments.check_count(count, "count")
    deadline = deadline_of(timeout)
    found: dict[T, list[Entry[T]]] = {}
    starts: list[tuple[StreamHandle[T], StreamID]] = []
    for name, given in after.items():
        stream = store.stream(name)
        start = _start(stream, given)
        if given in ("+", b"+") and (newest := list(stream.range(count=1, reverse=True))):
            found[stream.name] = newest
        else:
            starts.append((stream, start))

    def look() -> dict[T, list[Entry[T]]]:
        for stream, start in starts:
            entries = _above(stream, start, count)
            if entries:
                found[stream.name] = entries
        return found

    if look() or _over(deadline):
        return found
    if not starts and deadline is None:
        raise UsageError("no stream is named: there is nothing to wait for")
    names = [stream._name for stream, _ in starts]
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
    found = newest or read_stream(stream, start, count, timeout)
    while found:
        yield from found
        start = max(start, found[-1].id)
        found = read_stream(stream, start, count, timeout)


def _start(stream: StreamHandle[Any], after: IDLike) -> StreamID:
    """The ID that ``after`` stands for now."""
    return stream.last_id if after in ("$", b"$", "+", b"+") else parse_id(after)


def _above(stream: StreamHandle[T], start: StreamID, count: int | None) -> list[Entry[T]]:
    if start == MAX_ID:
        return []
    return list(stream._range(start.next(), MAX_ID, count or -1, False))


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
