"""Consumer groups, as users hold them: how a consumer comes by entries.

Invariants: a group hands each entry to one consumer, and keeps it pending until it is acked; every
call is one commit, in the log before it returns, or for what only tells, one snapshot. A consumer
is made by its first call. Times are seconds or ``timedelta``. A group that does not exist is a
GroupNotFoundError. What manages a group and settles entries is in ``groupchange``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.api import arguments, dead_letters, group_wait, work_loop, worker
from logstore.api.dead_letters import OnDead
from logstore.api.delivery import Autoclaimed, DeletedDelivery, Delivery, delivery_of
from logstore.api.group_change import GroupChanges
from logstore.api.read import deadline_of, group_limits, refuse_block
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import claim, deliver
from logstore.engine.groups.dead_letter import Limit
from logstore.engine.groups.deliver import Delivered
from logstore.ids import IDLike, StreamID, parse_id, parse_start
from logstore.options import Sync

if TYPE_CHECKING:
    import threading

T = TypeVar("T", bytes, str)


class Group(GroupChanges[T]):
    """One consumer group of a stream. Safe to share between threads and to pickle."""

    __slots__ = ()

    # -- reading --------------------------------------------------------------------------------
    def read(
        self, consumer: str | bytes, *, count: int | None = None, max_count: int | None = None,
        max_bytes: int | None = None, timeout: timedelta | float | None = 0, noack: bool = False,
        claim_idle: timedelta | float | None = None, block: None = None,
    ) -> list[Delivery[T]]:  # fmt: skip
        """Entries that no consumer of the group got before, as XREADGROUP with ``>``.

        At most ``count`` (0 or None: no limit); an empty list if none came within ``timeout``
        (None: wait for ever). With ``claim_idle``, or if ``redeliver_after`` is set for the group
        (the shorter of the two counts), come first those that were pending for that long with any
        consumer, or were given back. With ``noack`` new entries are not pending after, and
        ``redeliver_after`` does not count. ``max_count`` and ``max_bytes`` as in ``Stream.read``:
        what they leave out is not delivered, and stays for the next read.
        """
        refuse_block(block)
        arguments.check_flag(noack, "noack")
        idle_ms = None if claim_idle is None else arguments.milliseconds(claim_idle, "claim_idle")
        limit, most_bytes = group_limits(count, max_count, max_bytes)
        return self._read(
            self._consumer(consumer), limit, deadline_of(timeout), noack=noack,
            claim_idle_ms=idle_ms, max_bytes=most_bytes,
        )  # fmt: skip

    def _read(
        self, who: bytes, limit: int, deadline: float | None, **options: Any
    ) -> list[Delivery[T]]:
        """Read, and wait for what comes until the deadline; options as of ``_waiting``."""
        return self._deliveries(who, self._waiting(who, limit, **options).until(deadline))

    def _waiting(
        self, who: bytes, limit: int, *, noack: bool = False,
        claim_idle_ms: int | None = None, alive: Callable[[], object] | None = None,
        worker: bool = False, dead: Limit | None = None, on_dead: OnDead[T] | None = None,
        max_bytes: int = 0,
    ) -> group_wait.Wait:  # fmt: skip
        """A read that may wait; ``alive`` raises to end it.

        For a ``worker`` what was delivered before comes alone, where entries may die of it;
        ``dead`` is its own limit, ``on_dead`` is told of what was buried.
        """

        def once(state: WriteTxn, fresh: bool) -> list[Delivered]:
            return deliver.read_new(
                state, self._stream, self._name, who, count=limit, noack=noack,
                claim_idle_ms=claim_idle_ms, takes_new=fresh, limit=dead, singly=worker,
                max_bytes=max_bytes,
            )  # fmt: skip

        return group_wait.Wait(
            self._store, self._stream, self._name, who, once, limit, claim_idle_ms, alive,
            noack, on_dead, worker or max_bytes > 0, max_bytes > 0,
        )  # fmt: skip

    def backlog(
        self, consumer: str | bytes, after: IDLike = "0", *, count: int | None = None
    ) -> list[Delivery[T] | DeletedDelivery[T]]:
        """The consumer's own pending entries above an ID, delivered to it once more.

        As XREADGROUP with an ID: their delivery counts and times are renewed. Those that were
        deleted meanwhile are a :class:`DeletedDelivery`, whose ``.fields`` is None. What was
        delivered ``max_deliveries`` times, if that is set for the group, goes to its dead letter
        stream instead.
        """
        limit = arguments.read_count(count)
        return list(self._backlog(self._consumer(consumer), parse_id(after), limit))

    def _backlog(
        self, who: bytes, after: StreamID, count: int, *, worker: bool = False,
        dead: Limit | None = None, on_dead: OnDead[T] | None = None,
    ) -> list[Delivery[T]]:  # fmt: skip
        found: list[Delivered] = dead_letters.run(
            self._store,
            lambda state: deliver.read_history(
                state, self._stream, self._name, who, after, count=count, limit=dead,
                singly=worker,
            ),
            None, on_dead=on_dead,
        )  # fmt: skip
        return self._deliveries(who, found)

    # -- taking over ----------------------------------------------------------------------------
    def claim(
        self, consumer: str | bytes, ids: Iterable[IDLike], *, min_idle: timedelta | float,
        idle: timedelta | float | None = None, time: datetime | None = None,
        retry_count: int | None = None, force: bool = False, just_id: bool = False,
        last_id: IDLike | None = None, sync: Sync | None = None,
    ) -> list[Delivery[T]]:  # fmt: skip
        """Take these over if they are pending for ``min_idle`` already, as XCLAIM; those taken.

        ``idle`` or ``time`` (aware) set their last delivery, ``retry_count`` their count; ``force``
        makes entries pending that are not; ``just_id`` leaves the count as it is.
        What was deleted is no longer pending then, and left out. ``max_deliveries`` of the group
        does not count here: who names an entry gets it.
        """
        who = self._consumer(consumer)
        ask = arguments.claim(ids, min_idle, idle, time, retry_count, last_id)
        arguments.check_flag(force, "force")
        arguments.check_flag(just_id, "just_id")
        found: list[Delivered] = self._store._commit(
            lambda state: claim.claim(
                state, self._stream, self._name, who, ask.ids, min_idle_ms=ask.min_idle_ms,
                idle_ms=ask.idle_ms, time_ms=ask.time_ms, retry_count=ask.retry_count,
                force=force, just_id=just_id, last_id=ask.last_id,
            ),
            sync,
        )  # fmt: skip
        return self._deliveries(who, found)

    def autoclaim(
        self, consumer: str | bytes, *, min_idle: timedelta | float, start: IDLike | None = None,
        count: int = 100, just_id: bool = False, sync: Sync | None = None,
    ) -> Autoclaimed[T]:  # fmt: skip
        """Take over up to ``count`` entries that are pending for ``min_idle``, as XAUTOCLAIM.

        Without ``start`` those that are idle longest, found through an index; with ``start`` in
        the order of IDs from there on, which ``.cursor`` continues. What was delivered as often as
        is set for the group goes to its dead letter stream instead (not with ``just_id``).
        """
        who, limit = self._consumer(consumer), arguments.read_count(count)
        arguments.check_flag(just_id, "just_id")
        min_idle_ms = arguments.milliseconds(min_idle, "min_idle")
        first = None if start is None else parse_start(start)
        found: claim.Autoclaimed = dead_letters.run(
            self._store,
            lambda state: claim.autoclaim(
                state, self._stream, self._name, who, min_idle_ms=min_idle_ms, start=first,
                count=limit, just_id=just_id,
            ),
            sync,
        )  # fmt: skip
        return Autoclaimed(found.cursor, self._deliveries(who, found.entries), found.deleted)

    def reassign(
        self, min_idle: timedelta | float, alive_within: timedelta | float, *, count: int = 1000
    ) -> dict[T, int]:
        """Hand what is pending for ``min_idle`` to consumers seen within ``alive_within``; how
        many each one got.

        At most ``count`` entries in one commit, those idle longest, each to the consumer with the
        fewest pending. They find them in their backlog, as ``consume`` does by itself; delivery
        counts stay as they are until then. If nobody looks alive nothing happens.
        """
        min_idle_ms = arguments.milliseconds(min_idle, "min_idle")
        alive_ms = arguments.milliseconds(alive_within, "alive_within")
        limit = arguments.read_count(count)
        given: dict[bytes, int] = self._store._commit(
            lambda state: claim.reassign(
                state, self._stream, self._name, min_idle_ms=min_idle_ms, alive_ms=alive_ms,
                count=limit,
            ),
            None,
        )  # fmt: skip
        return {self._text(name): number for name, number in given.items()}

    def consume(
        self, consumer: str | bytes, handler: Callable[[Delivery[T]], object], *, batch: int = 10,
        max_deliveries: int | None = None, dead_letter: str | bytes | None = None,
        claim_idle: timedelta | float | None = None, stop: threading.Event | None = None,
        timeout: timedelta | float | None = None,
        on_dead: OnDead[T] | None = None,
    ) -> int:  # fmt: skip
        """Hand entries to ``handler``, one after the other, until stopped; how many it handled.

        See :func:`logstore.worker.consume`.
        """
        work = work_loop.Work(
            handler, batch, max_deliveries, dead_letter, claim_idle, stop, timeout, on_dead
        )
        return worker.consume(self, consumer, work)

    def _deliveries(self, consumer: bytes, found: list[Delivered]) -> list[Delivery[T]]:
        return [delivery_of(self, consumer, each) for each in found]
