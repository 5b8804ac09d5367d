"""Outcomes: what a delete tells of each ID, and what a transaction tells once it was committed.

Plain values: nothing here looks at the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Generic, TypeVar

from logstore.api.entry import IDRuns
from logstore.engine.streams.add import Added
from logstore.errors import UsageError
from logstore.ids import StreamID

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
