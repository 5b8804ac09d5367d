"""Transactions: operations on any streams, collected first, committed as one.

Invariants: no lock is held while the caller's code runs; nothing is decided before ``with`` ends;
an exception in the block commits nothing; either all of it is in the log or none of it, also
across a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api import arguments, dead_letters
from logstore.api.buffered_stream import TransactionStream
from logstore.api.delivery import Delivery, NackMode, Pending
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import copy
from logstore.engine.groups import ack
from logstore.engine.streams import lifecycle
from logstore.errors import EntryTypeError, UsageError
from logstore.options import Sync

if TYPE_CHECKING:
    from logstore.api.store import Store

T = TypeVar("T", bytes, str)
R = TypeVar("R")


class Transaction(Generic[T]):
    """Collects operations; made by ``store.transaction()``, used with ``with``."""

    def __init__(self, store: Store[T], sync: Sync | None) -> None:
        self._store: Store[T] = store
        self._sync: Sync | None = sync
        self._steps: list[tuple[Callable[[WriteTxn], Any], Pending[Any]]] = []
        self._frees = True  # every step so far gives space back
        self._settled: list[Delivery[T]] = []
        self._over = False

    def __enter__(self) -> Transaction[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if kind is None and not self._over:
            self.commit()
        self._over = True

    def stream(self, name: str | bytes) -> TransactionStream[T]:
        """A stream, inside this transaction."""
        return TransactionStream(self, arguments.stream_name(name, self._store.encoding))

    def create(self, name: str | bytes) -> Pending[bool]:
        """Make an empty stream; the result: False if there is one already."""
        raw = arguments.stream_name(name, self._store.encoding)
        return self._collect(lambda state: lifecycle.create_empty(state, raw))

    def drop(self, name: str | bytes) -> Pending[bool]:
        """Remove a stream; the result says whether there was one."""
        raw = arguments.stream_name(name, self._store.encoding)
        return self._collect(lambda state: lifecycle.drop(state, raw), frees=True)

    def rename(self, old: str | bytes, new: str | bytes, *, replace: bool = True) -> Pending[bool]:
        """Call a stream otherwise, as ``Store.rename``; StreamNotFoundError at the commit."""
        arguments.check_flag(replace, "replace")
        before, after = (arguments.stream_name(name, self._store.encoding) for name in (old, new))
        return self._collect(partial(lifecycle.rename, old=before, new=after, replace=replace))

    def copy(
        self, source: str | bytes, target: str | bytes, *, replace: bool = False
    ) -> Pending[bool]:
        """Copy a stream as it is then, as ``Store.copy``; its errors come at the commit."""
        arguments.check_flag(replace, "replace")
        encoding = self._store.encoding
        source, target = (arguments.stream_name(name, encoding) for name in (source, target))
        return self._collect(partial(copy.copy, source=source, target=target, replace=replace))

    def ack(self, *deliveries: Delivery[T]) -> Pending[int]:
        """Ack deliveries, if they are still this consumer's when the transaction commits.

        If another consumer claimed or acked one meanwhile, or it was delivered once more, the
        commit raises NotOwner and nothing of the transaction happens. The result counts them.
        """
        fences = self._fences(deliveries)

        def step(state: WriteTxn) -> int:
            for fence in fences:
                ack.fenced_ack(state, *fence)
            return len(fences)

        return self._settle(step, deliveries)

    def nack(
        self, *deliveries: Delivery[T], mode: NackMode = "fail", retry_count: int | None = None,
        error: str = "",
    ) -> Pending[int]:  # fmt: skip
        """Give deliveries back to their groups, fenced as ``ack`` is; the result counts them.

        ``mode``, ``retry_count`` and ``error`` as in ``Group.nack``.
        """
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        fences, reason = self._fences(deliveries), arguments.reason(error)

        def step(state: WriteTxn) -> int:
            for fence in fences:
                ack.fenced_nack(state, *fence, mode=mode, retry_count=retry_count, error=reason)
            return len(fences)

        return self._settle(step, deliveries)

    def commit(self) -> None:
        """Commit now; the transaction is over then. NotOwner: see ``ack``."""
        self._open()
        self._over = True
        if not self._steps:
            return
        steps = self._steps

        def run(state: WriteTxn) -> list[Any]:
            return [step(state) for step, _ in steps]

        done = dead_letters.run(self._store, run, self._sync, free=self._frees)
        for (_, pending), value in zip(steps, done, strict=True):
            pending._settle(value)
        for delivery in self._settled:
            delivery._settled = True

    def _fences(self, deliveries: tuple[Delivery[T], ...]) -> list[Any]:
        self._open()
        for each in deliveries:
            if not isinstance(each, Delivery):
                raise EntryTypeError(
                    f"give what a group handed out (a Delivery), not {type(each).__name__}; by ID: "
                    "tx.stream(name).group(name).ack(id)"
                )
            if each.group._store.path != self._store.path:
                raise UsageError(
                    "the delivery is of another store: settle it in a transaction there"
                )
        return [each._fence() for each in deliveries]

    def _settle(
        self, step: Callable[[WriteTxn], int], deliveries: tuple[Delivery[T], ...]
    ) -> Pending[int]:
        self._settled += deliveries
        return self._collect(step, frees=True)

    def _open(self) -> None:
        if self._over:
            raise UsageError("the transaction is over: begin a new one")

    def _collect(
        self, step: Callable[[WriteTxn], Any], turn: Callable[[Any], R] | None = None, *,
        frees: bool = False,
    ) -> Pending[R]:  # fmt: skip
        """Take a step; ``turn`` makes the result of what it gives, after the commit."""
        self._open()
        pending: Pending[R] = Pending(turn)
        self._steps.append((step, pending))
        self._frees = self._frees and frees
        return pending
