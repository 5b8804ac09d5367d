"""Transactions: operations on any streams, collected first, committed as one.

Invariants: no lock is held while the caller's code runs; nothing is decided before ``with`` ends;
an exception in the block commits nothing; either all of it is in the log or none of it, also
across a crash.
"""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api import arguments
from logstore.api.group import Delivery
from logstore.api.opening import OpenStore
from logstore.api.transaction_steps import Pending, Steps
from logstore.api.transaction_stream import TransactionStream
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import ack
from logstore.engine.streams import lifecycle
from logstore.errors import EntryTypeError, UsageError
from logstore.options import NackMode, Sync

if TYPE_CHECKING:
    from logstore.api.values import ValueCodec

T = TypeVar("T", bytes, str)


class Transaction(Generic[T]):
    """Collects operations; made by ``store.transaction()``, used with ``with``.

    The arguments are those of :class:`logstore.Store`; errors that the store's state causes are
    raised by the commit.
    """

    def __init__(self, opened: OpenStore[T], sync: Sync | None) -> None:
        self._opened: OpenStore[T] = opened
        self._steps: Steps[T] = Steps(opened, sync)
        self._settled: list[Delivery[T]] = []

    def __enter__(self) -> Transaction[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and not self._steps.over:
            self.commit()
        self._steps.over = True

    def stream(
        self, name: str | bytes, *, codec: str | ValueCodec | None = None
    ) -> TransactionStream[T]:
        """A stream, inside this transaction; ``codec`` as in ``Store.stream``."""
        stream = TransactionStream(self._steps, self._stream_name(name))
        if codec is not None:
            from logstore.api import values

            stream._values = values.Values(values.value_codec(codec), self._opened.encoding)
        return stream

    def create(self, name: str | bytes) -> Pending[bool]:
        """Make an empty stream; the result: False if there is one already."""
        return self._steps.do(lifecycle.create_empty, name=self._stream_name(name))

    def drop(self, name: str | bytes) -> Pending[bool]:
        """Remove a stream; the result says whether there was one."""
        return self._steps.free(lifecycle.drop, name=self._stream_name(name))

    def rename(self, old: str | bytes, new: str | bytes, *, replace: bool = True) -> Pending[bool]:
        """Call a stream otherwise, as ``Store.rename``; StreamNotFoundError at the commit."""
        arguments.check_flag(replace, "replace")
        old, new = map(self._stream_name, (old, new))
        return self._steps.do(lifecycle.rename, old=old, new=new, replace=replace)

    def copy(
        self, source: str | bytes, target: str | bytes, *, replace: bool = False
    ) -> Pending[bool]:
        """Copy a stream as it is then, as ``Store.copy``; its errors come at the commit."""
        from logstore.engine.dump import copy

        arguments.check_flag(replace, "replace")
        source, target = map(self._stream_name, (source, target))
        return self._steps.do(copy.copy, source=source, target=target, replace=replace)

    def ack(self, *deliveries: Delivery[T]) -> Pending[int]:
        """Ack deliveries, if they are still this consumer's when the transaction commits.

        If another consumer claimed or acked one meanwhile, or it was delivered once more, the
        commit raises NotOwner and nothing of the transaction happens.

        Args:
            deliveries: what groups of this store handed out.

        Returns:
            The result counts them.

        Raises:
            EntryTypeError: something else was given, such as an ID.
            UsageError: one is of another store, or the transaction is over.
        """
        self._check(deliveries)
        self._settled += deliveries
        return self._steps.acks([delivery._fenced() for delivery in deliveries])

    def nack(
        self,
        *deliveries: Delivery[T],
        mode: NackMode = "fail",
        retry_count: int | None = None,
        delay: timedelta | float | None = None,
        error: str = "",
    ) -> Pending[int]:
        """Give deliveries back to their groups, fenced as ``ack`` is; the result counts them.

        The options are those of ``Group.nack``.
        """
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        self._check(deliveries)
        fences, reason = [each._fence() for each in deliveries], arguments.reason(error)
        how: dict[str, Any] = {"mode": mode, "retry_count": retry_count}
        how["later"] = arguments.later(delay)

        def step(txn: WriteTxn) -> int:
            for fence in fences:
                ack.fenced_nack(txn, **fence, **how, error=reason)
            return len(fences)

        self._settled += deliveries
        return self._steps.take(step, frees=True)

    def commit(self) -> None:
        """Commit now; the transaction is over then. NotOwner: see ``ack``."""
        if self._steps.commit():
            for delivery in self._settled:
                delivery._settled = True

    def _stream_name(self, name: str | bytes) -> bytes:
        return arguments.stream_name(name, self._opened.encoding)

    def _check(self, deliveries: tuple[Delivery[T], ...]) -> None:
        self._steps.check_open()
        for delivery in deliveries:
            if not isinstance(delivery, Delivery):
                raise EntryTypeError(
                    f"give what a group handed out (a Delivery), not {type(delivery).__name__}; by "
                    "ID: tx.stream(name).group(name).ack(id)"
                )
            opened = delivery.group._opened
            if opened is not self._opened and opened.path != self._opened.path:
                raise UsageError(
                    "the delivery is of another store: settle it in a transaction there"
                )
