"""A consumer group inside a transaction: the names of the plain face, outcomes known at the end.

Invariants: as of ``bufferedstream``; reads of a group are not here: what they deliver would be
known only after the commit. Acks and nacks here are by ID and ask nobody's leave; those of the
transaction itself are fenced. Times are seconds or ``timedelta``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from logstore.api import arguments
from logstore.api.delivery import DeleteOutcome, Delivery, NackMode, Pending, outcomes
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import ack, admin, claim
from logstore.engine.groups.deliver import Delivered
from logstore.ids import IDLike, parse_id
from logstore.options import References

if TYPE_CHECKING:
    from logstore.api.transaction import Transaction

T = TypeVar("T", bytes, str)


class TransactionGroup(Generic[T]):
    """One group inside a transaction; the arguments are those of :class:`logstore.Group`.

    Acks and nacks here are by ID; ``tx.ack(delivery)`` and ``tx.nack(delivery)`` are fenced.
    """

    __slots__ = ("_name", "_stream", "_tx")

    def __init__(self, tx: Transaction[T], stream: bytes, name: bytes) -> None:
        self._tx: Transaction[T] = tx
        self._stream = stream
        self._name = name

    def _consumer(self, name: str | bytes) -> bytes:
        return arguments.consumer_name(name, self._tx._store.encoding)

    def create(
        self, start: IDLike = "$", *, entries_read: int | None = None, make_stream: bool = True
    ) -> Pending[None]:
        """Make the group; GroupExistsError at the commit if there is one."""
        arguments.check_flag(make_stream, "make_stream")
        at = arguments.group_position(start)
        arguments.check_count(entries_read, "entries_read")
        return self._tx._collect(lambda state: admin.create(
            state, self._stream, self._name, at, entries_read=entries_read, make_stream=make_stream
        ))  # fmt: skip

    def set_id(self, last_id: IDLike, *, entries_read: int | None = None) -> Pending[None]:
        """Deliver next what comes after ``last_id``."""
        at = arguments.group_position(last_id)
        arguments.check_count(entries_read, "entries_read")
        return self._tx._collect(
            lambda state: admin.set_id(state, self._stream, self._name, at, entries_read)
        )

    def destroy(self) -> Pending[bool]:
        """Remove the group; the result says whether there was one."""
        return self._tx._collect(
            lambda state: admin.destroy(state, self._stream, self._name), frees=True
        )

    def add_consumer(self, consumer: str | bytes) -> Pending[bool]:
        """Make a consumer; the result: False if there was one."""
        who = self._consumer(consumer)
        return self._tx._collect(
            lambda state: admin.create_consumer(state, self._stream, self._name, who)
        )

    def remove_consumer(self, consumer: str | bytes) -> Pending[int]:
        """Remove a consumer; the result: how many entries were pending with it."""
        who = self._consumer(consumer)
        return self._tx._collect(
            lambda state: admin.delete_consumer(state, self._stream, self._name, who), frees=True
        )

    def ack(self, *ids: IDLike) -> Pending[int]:
        """Done, with whomever they are pending; the result counts them."""
        given = [parse_id(each) for each in ids]
        return self._tx._collect(
            lambda state: ack.ack(state, self._stream, self._name, given), frees=True
        )

    def nack(
        self, *ids: IDLike, mode: NackMode = "fail", retry_count: int | None = None,
        force: bool = False, error: str = "",
    ) -> Pending[int]:  # fmt: skip
        """Give back, with whomever they are pending; the result counts them."""
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        arguments.check_flag(force, "force")
        given = [parse_id(each) for each in ids]
        reason = arguments.reason(error)
        return self._tx._collect(lambda state: ack.nack(
            state, self._stream, self._name, given, mode=mode, retry_count=retry_count,
            force=force, error=reason,
        ), frees=True)  # fmt: skip

    def ack_delete(
        self, *ids: IDLike, references: References = "keep"
    ) -> Pending[list[DeleteOutcome]]:
        """Done, and delete the entries; the result: an outcome for each ID."""
        arguments.check_choice(references, References, "references")
        given = [parse_id(each) for each in ids]
        return self._tx._collect(
            lambda state: ack.ack_delete(state, self._stream, self._name, given, references),
            outcomes, frees=True,
        )  # fmt: skip

    def claim(
        self, consumer: str | bytes, ids: Iterable[IDLike], *, min_idle: timedelta | float,
        idle: timedelta | float | None = None, time: datetime | None = None,
        retry_count: int | None = None, force: bool = False, just_id: bool = False,
        last_id: IDLike | None = None,
    ) -> Pending[list[Delivery[T]]]:  # fmt: skip
        """Take these over; the result: those taken, as deliveries of the committed store."""
        who = self._consumer(consumer)
        ask = arguments.claim(ids, min_idle, idle, time, retry_count, last_id)
        arguments.check_flag(force, "force")
        arguments.check_flag(just_id, "just_id")
        store = self._tx._store

        def step(state: WriteTxn) -> list[Delivered]:
            return claim.claim(
                state, self._stream, self._name, who, ask.ids, min_idle_ms=ask.min_idle_ms,
                idle_ms=ask.idle_ms, time_ms=ask.time_ms, retry_count=ask.retry_count,
                force=force, just_id=just_id, last_id=ask.last_id,
            )  # fmt: skip

        def turn(found: list[Delivered]) -> list[Delivery[T]]:
            group = store.stream(self._stream).group(self._name)
            return [Delivery(group, who, each) for each in found]

        return self._tx._collect(step, turn)
