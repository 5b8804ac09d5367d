"""Transactions: operations on any streams, collected first, committed as one.

Invariants: no lock is held while the caller's code runs; nothing is decided before ``with`` ends;
an exception in the block commits nothing; either all of it is in the log or none of it, also
across a crash.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore import arguments
from logstore.codec import Row
from logstore.engine import acks, adds, deletes, trims
from logstore.engine.state import State
from logstore.errors import UsageError
from logstore.ids import IDLike, StreamID, parse_end, parse_id, parse_start
from logstore.options import Sync

if TYPE_CHECKING:
    from logstore.delivery import Delivery
    from logstore.store import Store

T = TypeVar("T", bytes, str)


class Pending:
    """The outcome of an operation of a transaction; known once it was committed."""

    __slots__ = ("_done", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: Any = None

    def _settle(self, value: Any) -> None:
        self._value, self._done = value, True

    @property
    def result(self) -> Any:
        """What the operation gave: an ID, a count. UsageError before the commit."""
        if not self._done:
            raise UsageError("known after the commit: leave the with block first")
        return self._value

    @property
    def id(self) -> StreamID:
        """The ID that an add was given. UsageError before the commit."""
        found = self.result
        if not isinstance(found, StreamID):
            raise UsageError("this operation gives no ID")
        return found


class Transaction(Generic[T]):
    """Collects operations; made by ``store.transaction()``, used with ``with``."""

    def __init__(self, store: Store[T], sync: Sync | None) -> None:
        self._store: Store[T] = store
        self._sync: Sync | None = sync
        self._steps: list[tuple[Any, Pending]] = []
        self._acked: list[Delivery[T]] = []
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

    def stream(self, name: str | bytes) -> TransactionStream:
        """A stream, inside this transaction."""
        return TransactionStream(self, arguments.stream_name(name, self._store.encoding))

    def drop(self, name: str | bytes) -> Pending:
        """Remove a stream; the result says whether there was one."""
        raw = arguments.stream_name(name, self._store.encoding)
        return self._collect(lambda state: deletes.drop(state, raw))

    def ack(self, *deliveries: Delivery[T]) -> Pending:
        """Ack deliveries, if they are still this consumer's when the transaction commits.

        If another consumer claimed or acked one meanwhile, or it was delivered once more, the
        commit raises NotOwner and nothing of the transaction happens. The result counts them.
        """
        for each in deliveries:
            if each.group._store.path != self._store.path:
                raise UsageError("the delivery is of another store: ack it in a transaction there")
        fences = [each._fence() for each in deliveries]

        def step(state: State) -> int:
            for fence in fences:
                acks.fenced_ack(state, *fence)
            return len(fences)

        self._acked += deliveries
        return self._collect(step)

    def commit(self) -> None:
        """Commit now; the transaction is over then. NotOwner: see ``ack``."""
        self._open()
        self._over = True
        if not self._steps:
            return
        steps = self._steps

        def run(state: State) -> list[Any]:
            return [step(state) for step, _ in steps]

        for (_, pending), value in zip(steps, self._store._commit(run, self._sync), strict=True):
            pending._settle(value)
        for delivery in self._acked:
            delivery._settled = True

    def _open(self) -> None:
        if self._over:
            raise UsageError("the transaction is over: begin a new one")

    def _collect(self, step: Any) -> Pending:
        self._open()
        pending = Pending()
        self._steps.append((step, pending))
        return pending


class TransactionStream:
    """One stream inside a transaction: the same names as outside, outcomes known at the end."""

    __slots__ = ("_name", "_tx")

    def __init__(self, tx: Transaction[Any], name: bytes) -> None:
        self._tx = tx
        self._name = name

    def add(
        self, fields: Row, id: IDLike = "*", *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        create: bool = True,
    ) -> Pending:  # fmt: skip
        """Add an entry; ``.id`` is set by the commit."""
        rule = arguments.trim_rule(
            maxlen, minid, None, approximate=approximate, limit=limit, optional=True
        )
        batch = arguments.rows([fields], self._tx._store.encoding)
        request = adds.Add(self._name, batch, 0, 1, arguments.add_id(id), create, rule)

        def step(state: State) -> StreamID | None:
            added = adds.add(state, request)
            return None if added is None else added.first

        return self._tx._collect(step)

    def delete(self, id: IDLike, *more_ids: IDLike) -> Pending:
        """Delete entries by ID; the result counts them."""
        ids = [parse_id(each) for each in (id, *more_ids)]
        return self._tx._collect(lambda state: deletes.delete(state, self._name, ids))

    def delete_range(self, start: IDLike, end: IDLike) -> Pending:
        """Delete an interval; the result counts the entries."""
        low, high = parse_start(start), parse_end(end)
        return self._tx._collect(lambda state: deletes.delete_range(state, self._name, low, high))

    def trim(
        self, *, maxlen: int | None = None, minid: IDLike | None = None, max_age: Any = None,
        approximate: bool = False, limit: int | None = None,
    ) -> Pending:  # fmt: skip
        """Trim; the result counts the entries."""
        rule = arguments.trim_rule(
            maxlen, minid, max_age, approximate=approximate, limit=limit, optional=False
        )
        return self._tx._collect(lambda state: trims.trim_named(state, self._name, rule))
