"""What a transaction collects: steps, each with the outcome that it will have.

Invariants: nothing is decided, and no lock taken, before ``commit``; the steps are one commit, in
the order in which they were taken; outcomes are set when it is through. Knows no stream and no
group by its methods; these stand above and take their steps here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from logstore.api.opening import OpenStore
from logstore.engine.apply.write_txn import WriteTxn
from logstore.errors import UsageError
from logstore.ids import StreamID
from logstore.options import Sync

T = TypeVar("T", bytes, str)
R = TypeVar("R")


class Pending(Generic[R]):
    """The outcome of an operation of a transaction; known once it was committed."""

    __slots__ = ("_done", "_made", "_value")

    def __init__(self, made: Callable[[Any], R] | None = None) -> None:
        self._done = False
        self._made = made
        self._value: Any = None

    def settle(self, value: Any) -> None:
        """Set the outcome, once it counts."""
        self._value = value if self._made is None else self._made(value)
        self._done = True

    @property
    def result(self) -> R:
        """What the operation gave: an ID, a count. UsageError before the commit."""
        if not self._done:
            raise UsageError("known after the commit: leave the with block first")
        value: R = self._value
        return value

    @property
    def id(self) -> StreamID:
        """The ID that an add was given. UsageError before the commit."""
        result = self.result
        if not isinstance(result, StreamID):
            raise UsageError("this operation gives no ID")
        return result


class Steps(Generic[T]):
    """The steps of one transaction."""

    def __init__(self, opened: OpenStore[T], sync: Sync | None) -> None:
        self.opened: OpenStore[T] = opened
        self.over = False
        self._sync: Sync | None = sync
        self._taken: list[tuple[Callable[[WriteTxn], Any], Pending[Any]]] = []
        self._frees = True  # every step so far gives space back

    def check_open(self) -> None:
        """UsageError if the transaction is over."""
        if self.over:
            raise UsageError("the transaction is over: begin a new one")

    def do(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        """Take a step that a function of the engine decides, with these arguments."""
        return self.take(partial(decide, **asked))

    def free(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        """Take a step, likewise, that gives space back."""
        return self.take(partial(decide, **asked), frees=True)

    def take(
        self,
        step: Callable[[WriteTxn], Any],
        made: Callable[[Any], R] | None = None,
        *,
        frees: bool = False,
    ) -> Pending[R]:
        """Take a step; ``made`` makes the result of what it gives, after the commit."""
        self.check_open()
        pending: Pending[R] = Pending(made)
        self._taken.append((step, pending))
        self._frees = self._frees and frees
        return pending

    def commit(self) -> bool:
        """Commit all steps, and set their outcomes; False if there are none."""
        self.check_open()
        self.over = True
        taken = self._taken
        if not taken:
            return False

        def run(txn: WriteTxn) -> list[Any]:
            return [step(txn) for step, _ in taken]

        done = self.opened.commit_telling(run, self._sync, frees=self._frees)
        for (_, pending), value in zip(taken, done, strict=True):
            pending.settle(value)
        return True
