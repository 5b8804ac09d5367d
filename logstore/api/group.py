"""Consumer groups, as users hold them: how a consumer comes by entries.

Invariants: a group hands each entry to one consumer, and keeps it pending until it is acked; every
call is one commit, in the log before it returns. A consumer is made by its first call. Times are
seconds or ``timedelta``. What manages a group, settles entries and tells is in ``group_admin``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.api import arguments, worker
from logstore.api.dead_letters import OnDead
from logstore.api.delivery import Autoclaimed, DeletedDelivery, Delivery, deliveries_of, making
from logstore.api.group_admin import GroupAdmin
from logstore.api.handing_on import hand_on
from logstore.engine.groups import claim, deliver
from logstore.engine.groups.dead_letter import Limit
from logstore.engine.groups.deliver import Delivered
from logstore.engine.waiting import thread
from logstore.engine.waiting.session import GroupRead
from logstore.errors import InvalidIDError, OptionError, shown
from logstore.ids import IDLike, StreamID, datetime_ms, parse_id, parse_start
from logstore.options import Sync

if TYPE_CHECKING:
    import threading

T = TypeVar("T", bytes, str)


class Group(GroupAdmin[T]):
    """One consumer group of a stream. Safe to share between threads and to pickle."""

    __slots__ = ()

    # -- reading --------------------------------------------------------------------------------
    def read(
        self,
        consumer: str | bytes,
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: timedelta | float | None = 0,
        noack: bool = False,
        claim_idle: timedelta | float | None = None,
        block: None = None,
    ) -> list[Delivery[T]]:
        """Entries that no consumer of the group got before, as XREADGROUP with ``>``.

        Args:
            consumer: who reads; made by its first read.
            count: at most so many entries; 0 or None: no limit.
            max_count: as in ``Stream.read``; what it leaves out stays for the next read.
            max_bytes: as in ``Stream.read``, likewise.
            timeout: seconds or timedelta to wait; 0 does not wait, None waits for ever.
            noack: new entries are not pending after, and ``redeliver_after`` does not count.
            claim_idle: seconds or timedelta; what was pending for so long with any consumer, or was
                given back, comes first. If ``redeliver_after`` is set for the group, the shorter of
                the two counts.
            block: not taken; give ``timeout``.

        Returns:
            Deliveries; an empty list if none came in time.

        Raises:
            GroupNotFoundError: there is no such group.
            EntryTypeError: ``consumer`` is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: ``consumer`` has above 64 KiB.
            OptionError: an option is not valid.
            UsageError: ``block`` was given.
        """
        if max_count is max_bytes is block is None and noack is False:
            asked = claim_idle
            idle_ms = None if asked is None else arguments.milliseconds(asked, "claim_idle")
            plain: list[Delivery[T]] | None = self._opened.read_plain(
                self._stream, self._name, consumer, count, timeout, making, self, idle_ms
            )
            if plain is not None:
                return plain
        ask = arguments.group_read(
            consumer, self._opened.encoding, count=count, max_count=max_count,
            max_bytes=max_bytes, timeout=timeout, noack=noack, claim_idle=claim_idle, block=block,
        )  # fmt: skip
        return self._read(
            ask.consumer,
            ask.limit,
            ask.deadline,
            noack=noack,
            claim_idle_ms=ask.claim_idle_ms,
            max_bytes=ask.max_bytes,
        )

    def _read(
        self,
        who: bytes,
        limit: int,
        deadline: float | None,
        alive: Callable[[], object] | None = None,
        **options: Any,
    ) -> list[Delivery[T]]:
        """Read, and wait for what comes until the deadline; options as of ``_waiting``, and of
        ``_once`` with the deadline 0. ``alive`` raises to end it.
        """
        if alive is not None:  # a worker, whose batch may be at hand
            name, idle_ms = self._name, options.get("claim_idle_ms")
            read_plain, stream = self._opened.read_plain, self._stream
            batch = read_plain(stream, name, who, limit, None, making, self, idle_ms)
            if batch is not None:
                return batch
        if deadline == 0.0:  # it does not wait, and asks for no place in the queue
            on_dead = options.pop("on_dead", None)
            once = self._once(who, limit, **options)
            given: list[Delivered] = self._opened.commit_telling(once, on_dead=on_dead)
        else:
            read, made = self._waiting(who, limit, **options), list[Delivery[T]]()
            alive = alive or self._opened.engine
            given = thread.read_group(read, deadline, alive, making=(making(self), made))
            if made:
                return made
        return deliveries_of(self, who, given)

    def _once(
        self,
        who: bytes,
        limit: int,
        *,
        noack: bool = False,
        claim_idle_ms: int | None = None,
        worker: bool = False,
        dead: Limit | None = None,
        max_bytes: int = 0,
    ) -> Callable[..., list[Delivered]]:
        """What one read does inside of its commit; arguments as of ``_waiting``."""
        return partial(
            deliver.read_new,
            stream=self._stream,
            group=self._name,
            consumer=who,
            count=limit,
            noack=noack,
            claim_idle_ms=claim_idle_ms,
            limit=dead,
            singly=worker,
            max_bytes=max_bytes,
        )

    def _waiting(
        self,
        who: bytes,
        limit: int,
        *,
        noack: bool = False,
        claim_idle_ms: int | None = None,
        worker: bool = False,
        dead: Limit | None = None,
        on_dead: OnDead[T] | None = None,
        max_bytes: int = 0,
    ) -> GroupRead:
        """A read that may wait.

        For a ``worker`` what was delivered before comes alone, where entries may die of it;
        ``dead`` is its own limit, ``on_dead`` is told of what was dead-lettered.
        """
        once = self._once(
            who, limit, noack=noack, claim_idle_ms=claim_idle_ms, worker=worker, dead=dead,
            max_bytes=max_bytes,
        )  # fmt: skip
        opened = self._opened
        shared = opened.live()
        return GroupRead(
            shared.engine,
            shared.committer,
            self._stream,
            self._name,
            who,
            once,
            partial(opened.commit_telling, on_dead=on_dead),
            limit,
            claim_idle_ms,
            noack,
            worker or max_bytes > 0,
            max_bytes > 0,
        )

    def backlog(
        self, consumer: str | bytes, after: IDLike = "0", *, count: int | None = None
    ) -> list[Delivery[T] | DeletedDelivery[T]]:
        """The consumer's own pending entries, delivered to it once more, as XREADGROUP with an ID.

        Their delivery counts and times are renewed. What was delivered ``max_deliveries`` times, if
        that is set for the group, goes to its dead letter stream instead.

        Args:
            consumer: who reads.
            after: those above this ID.
            count: at most so many; 0 or None: no limit.

        Returns:
            Deliveries; those that were deleted meanwhile are a :class:`DeletedDelivery`, whose
            ``.fields`` is None.

        Raises:
            GroupNotFoundError: there is no such group.
            InvalidIDError: ``after`` is no ID.
            EntryTypeError: ``consumer`` is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: ``consumer`` has above 64 KiB.
            OptionError: ``consumer`` is empty, or ``count`` is not valid.
        """
        limit = arguments.read_count(count)
        return list(self._backlog(self._consumer(consumer), parse_id(after), limit))

    def _backlog(
        self,
        who: bytes,
        after: StreamID,
        count: int,
        *,
        worker: bool = False,
        dead: Limit | None = None,
        on_dead: OnDead[T] | None = None,
    ) -> list[Delivery[T]]:
        step = partial(
            deliver.read_history,
            stream=self._stream,
            group=self._name,
            consumer=who,
            after=after,
            count=count,
            limit=dead,
            singly=worker,
        )
        return deliveries_of(self, who, hand_on(self._opened, step, on_dead=on_dead))

    # -- taking over ----------------------------------------------------------------------------
    def claim(
        self,
        consumer: str | bytes,
        ids: Iterable[IDLike],
        *,
        min_idle: timedelta | float,
        idle: timedelta | float | None = None,
        time: datetime | None = None,
        retry_count: int | None = None,
        force: bool = False,
        just_id: bool = False,
        last_id: IDLike | None = None,
        sync: Sync | None = None,
    ) -> list[Delivery[T]]:
        """Take these over if they are pending for long enough, as XCLAIM.

        What was deleted is no longer pending then, and left out. ``max_deliveries`` of the group
        does not count here: who names an entry gets it.

        Args:
            consumer: who takes them.
            ids: the entries' IDs.
            min_idle: seconds or timedelta since their last delivery, at least.
            idle: seconds or timedelta that their last delivery counts as ago, as IDLE.
            time: an aware datetime that counts as their last delivery, as TIME.
            retry_count: sets their delivery count, as RETRYCOUNT.
            force: make entries pending that are not, as FORCE.
            just_id: leave the delivery count as it is, as JUSTID.
            last_id: what the group counts as delivered, if it is above, as LASTID.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            Those that were taken.

        Raises:
            GroupNotFoundError: there is no such group.
            InvalidIDError: an ID is not valid, or ``ids`` is no list.
            EntryTypeError: ``consumer`` is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: ``consumer`` has above 64 KiB.
            OptionError: an option is not valid.
        """
        who = self._consumer(consumer)
        step = claim_step(
            self._stream,
            self._name,
            who,
            ids,
            min_idle=min_idle,
            idle=idle,
            time=time,
            retry_count=retry_count,
            force=force,
            just_id=just_id,
            last_id=last_id,
        )
        return deliveries_of(self, who, hand_on(self._opened, step, sync))

    def autoclaim(
        self,
        consumer: str | bytes,
        *,
        min_idle: timedelta | float,
        start: IDLike | None = None,
        count: int = 100,
        just_id: bool = False,
        sync: Sync | None = None,
    ) -> Autoclaimed[T]:
        """Take over what is pending for long enough, as XAUTOCLAIM.

        What was delivered as often as is set for the group goes to its dead letter stream instead
        (not with ``just_id``).

        Args:
            consumer: who takes them.
            min_idle: seconds or timedelta since their last delivery, at least.
            start: in the order of IDs from here on, which ``.cursor`` continues; None: those that
                are idle longest, found through an index.
            count: at most so many; 0: no limit.
            just_id: leave the delivery count as it is, as JUSTID.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            What was taken, with ``.cursor``, ``.entries``, ``.deleted``.

        Raises:
            GroupNotFoundError: there is no such group.
            InvalidIDError: ``start`` is no ID.
            EntryTypeError: ``consumer`` is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: ``consumer`` has above 64 KiB.
            OptionError: an option is not valid.
        """
        who, limit = self._consumer(consumer), arguments.read_count(count)
        arguments.check_flag(just_id, "just_id")
        min_idle_ms = arguments.milliseconds(min_idle, "min_idle")
        first = None if start is None else parse_start(start)
        step = partial(
            claim.autoclaim,
            stream=self._stream,
            group=self._name,
            consumer=who,
            min_idle_ms=min_idle_ms,
            start=first,
            count=limit,
            just_id=just_id,
        )
        taken: claim.Autoclaimed = hand_on(self._opened, step, sync)
        return Autoclaimed(taken.cursor, deliveries_of(self, who, taken.entries), taken.deleted)

    def reassign(
        self, min_idle: timedelta | float, alive_within: timedelta | float, *, count: int = 1000
    ) -> dict[T, int]:
        """Hand what is pending for long to consumers that are alive.

        Those idle longest, in one commit, each to the consumer with the fewest pending. They find
        them in their backlog, as ``consume`` does by itself; delivery counts stay as they are until
        then. If nobody looks alive nothing happens.

        Args:
            min_idle: seconds or timedelta since the last delivery, at least.
            alive_within: seconds or timedelta since a consumer that counts as alive was seen.
            count: at most so many entries.

        Returns:
            How many each consumer got.

        Raises:
            GroupNotFoundError: there is no such group.
            OptionError: an option is not valid.
        """
        step = partial(
            claim.reassign,
            stream=self._stream,
            group=self._name,
            min_idle_ms=arguments.milliseconds(min_idle, "min_idle"),
            alive_ms=arguments.milliseconds(alive_within, "alive_within"),
            count=arguments.read_count(count),
        )
        given: dict[bytes, int] = self._opened.commit(step)
        return {self._opened.text(name): number for name, number in given.items()}

    def consume(
        self,
        consumer: str | bytes,
        handler: Callable[[Delivery[T]], object],
        *,
        batch: int = 10,
        max_deliveries: int | None = None,
        dead_letter: str | bytes | None = None,
        claim_idle: timedelta | float | None = None,
        stop: threading.Event | None = None,
        timeout: timedelta | float | None = None,
        on_dead: OnDead[T] | None = None,
        backoff: timedelta | float | None = None,
        backoff_max: timedelta | float = 3600,
        concurrency: int = 1,
    ) -> int:
        """Hand entries to a function, one after the other or in threads, until stopped.

        First the consumer's own backlog, then what was given back or is pending for as long as is
        set for the group (``redeliver_after``) or asked for with ``claim_idle``, with anybody; then
        new entries. If the handler returns, the entry is acked (unless it was in a transaction of
        the handler's own). If it raises, that is logged and the entry given back.

        It ends when ``stop`` is set; at SIGTERM, if it runs in the main thread; or when nothing
        came for ``timeout``. Running handlers end first; what was not begun is given back.

        Args:
            consumer: who reads.
            handler: called with a delivery; a plain function, as nobody would await another one.
            batch: how many entries are fetched at once.
            max_deliveries: an entry that failed so often, or was delivered so often without an
                outcome, goes to ``dead_letter``; None: as is set for the group.
            dead_letter: the stream's name; such an entry has the fields ``origin_stream, origin_id,
                origin_group, origin_consumer, origin_delivery_count, origin_error`` behind its own.
            claim_idle: seconds or timedelta, as in ``read``.
            stop: an event that ends it.
            timeout: seconds or timedelta without an entry that end it; None: never, 0: what is
                there is handled.
            on_dead: called with a ``DeadLetter`` for each entry that is given up.
            backoff: seconds or timedelta; what failed is delivered again after so long, then after
                twice as long each time; 0: at once, None: as is set for the group. It needs
                ``claim_idle``, or ``redeliver_after`` of the group.
            backoff_max: seconds or timedelta that an entry waits at most.
            concurrency: how many entries of a batch are handled at once, each in a thread.

        Returns:
            How many entries it handled.

        Raises:
            GroupNotFoundError: there is no such group.
            EntryTypeError: a name is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: a name has above 64 KiB.
            OptionError: an option is not valid, or ``handler`` is a coroutine or a generator.
            UsageError: ``handler`` returned an awaitable; its entry is given back.
        """
        work = worker.Work(
            handler,
            batch,
            max_deliveries,
            dead_letter,
            claim_idle,
            stop,
            timeout,
            on_dead,
            concurrency=concurrency,
            backoff=backoff,
            backoff_max=backoff_max,
        )
        return worker.consume(self, consumer, work)


def claim_step(
    stream: bytes,
    group: bytes,
    consumer: bytes,
    ids: Iterable[IDLike],
    *,
    min_idle: timedelta | float,
    idle: timedelta | float | None,
    time: datetime | None,
    retry_count: int | None,
    force: bool,
    just_id: bool,
    last_id: IDLike | None,
) -> partial[list[Delivered]]:
    """A claim, its arguments checked: what decides it under the lock."""
    arguments.check_count(retry_count, "retry_count")
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidIDError(f"ids must be a list of IDs, not {shown(ids)}: give [id] for one")
    if time is not None and not isinstance(time, datetime):
        raise OptionError(f"time must be an aware datetime: {shown(time)}")
    given = list(arguments.entry_ids(tuple(ids)))
    min_idle_ms = arguments.milliseconds(min_idle, "min_idle")
    idle_ms = None if idle is None else arguments.milliseconds(idle, "idle")
    time_ms = None if time is None else datetime_ms(time)
    last = None if last_id is None else parse_id(last_id)
    arguments.check_flag(force, "force")
    arguments.check_flag(just_id, "just_id")
    return partial(
        claim.claim,
        stream=stream,
        group=group,
        consumer=consumer,
        ids=given,
        min_idle_ms=min_idle_ms,
        idle_ms=idle_ms,
        time_ms=time_ms,
        retry_count=retry_count,
        force=force,
        just_id=just_id,
        last_id=last,
    )
