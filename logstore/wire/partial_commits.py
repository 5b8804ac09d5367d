"""Changes of very many entries as several commits, so that others have theirs in between.

A request that changes more than some hundreds of entries is done in parts, each one commit, in the
order of the request. Others see what they would see if the client had sent several smaller
requests, as it does with COUNT. Inside MULTI it is one commit, whatever it costs.

Invariants: a part is decided from the state that it finds. It may be decided more than once, and
counts when its commit is through. Each entry, ID or key is dealt with once. What is refused in the
first part is refused as a whole; if the group or stream goes away later, the reply is what was done
until then. Knows no connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from logstore.engine.apply.write_txn import WriteTxn
from logstore.errors import DiskFullError, GroupNotFoundError, StreamNotFoundError
from logstore.wire.resp.outgoing import Output
from logstore.wire.resp.reply import Reply

T = TypeVar("T")
PART_ENTRIES = 500  # that are handed out in one commit
PART_ITEMS = 500  # IDs, or keys, of one commit
ALL = slice(None)


class Parts(Protocol):
    """One change on its way through its parts."""

    def op(self, state: WriteTxn) -> Any:
        """Decide the next part, in a commit."""
        ...

    def went(self, found: Any) -> bool:
        """Its commit is through, and found this; whether another part follows."""
        ...

    def reply(self) -> Reply:
        """The reply for all parts so far."""
        ...


class PartialChange:
    """A change that is amid its parts."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.begun_ns = time.perf_counter_ns()
        self._went = False

    def part(self, commit: Callable[..., Any], *, frees: bool) -> bool:
        """Do the next one; whether another part follows. On a full disk what gives space back goes
        on. If the stream or the group is gone, nothing follows, unless it never was there."""
        try:
            try:
                found = commit(self.parts.op)
            except DiskFullError:
                if not frees:
                    raise
                found = commit(self.parts.op, frees=True)
        except (GroupNotFoundError, StreamNotFoundError):
            if not self._went:
                raise
            return False
        self._went = True
        return self.parts.went(found)


class OfItems(Generic[T]):
    """The parts of a change that does the same to each of many items: some after the other."""

    def __init__(
        self,
        count: int,
        op: Callable[[WriteTxn, slice], T],
        keep: Callable[[T], object],
        reply: Callable[[], Reply],
    ) -> None:
        self._count = count
        self._op = op
        self._keep = keep
        self._at = 0
        self.reply = reply

    def op(self, state: WriteTxn) -> T:
        """Do it to the next ones."""
        return self._op(state, slice(self._at, self._at + PART_ITEMS))

    def went(self, found: T) -> bool:
        """These are done."""
        self._keep(found)
        self._at += PART_ITEMS
        return self._at < self._count


def counting(count: int, op: Callable[[WriteTxn, slice], int]) -> Callable[[Output], Parts] | None:
    """The parts of a change that tells how many; None if it is short."""
    if count <= PART_ITEMS:
        return None

    def begin(_output: Output) -> Parts:
        done: list[int] = []
        return OfItems(count, op, done.append, lambda: sum(done))

    return begin


def listing(
    count: int, op: Callable[[WriteTxn, slice], list[int]]
) -> Callable[[Output], Parts] | None:
    """The parts of a change that tells something of each; None if it is short."""
    if count <= PART_ITEMS:
        return None

    def begin(_output: Output) -> Parts:
        done: list[Reply] = []
        return OfItems(count, op, done.extend, lambda: done)

    return begin


class Share:
    """A part of what a client may owe, for the entries that all parts hand out together."""

    def __init__(self, output: Output, of: int) -> None:
        self._output = output
        self._begun = output.size
        self._most = output.room(of)

    @property
    def spent(self) -> bool:
        """Whether nothing more goes in."""
        return bool(self._most) and self._output.size - self._begun >= self._most

    def room(self) -> int:
        """How many bytes the next part may hold; 0: any."""
        return max(1, self._most - self._output.size + self._begun) if self._most else 0
