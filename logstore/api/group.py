"""Consumer groups, as users hold them.

Invariants: a group hands each entry to one consumer, and keeps it pending until it is acked. Every
call that changes something is one commit, in the log before it returns. A consumer is made by its
first call. What one call gives is of one moment; ``pending_entries`` is lazy and takes a snapshot
a page. A group that does not exist is a GroupNotFoundError, but for acks, which find nothing then;
``set_id``, ``destroy`` and consumers raise StreamNotFoundError for a missing stream. Times are
seconds, ``timedelta`` or "1h", idle times by the store's clock.

The engine moves dead letters (``groups.dead_letter``); ``OpenStore.commit_telling`` reports them
then: a warning in the log, the callbacks of ``store.on_dead_letter``, a worker's ``on_dead``. The
report comes after the commit, with no lock held, so that a callback may use the store; an error of
a callback is logged and goes no further. A process that is killed in between reports nothing: the
dead letter stream itself is the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast

from logstore.api import arguments, configuring, showing, worker
from logstore.api import entry_reads as reading
from logstore.api.configuring import GroupOptions
from logstore.api.entry import DeleteOutcome, Entry, outcomes
from logstore.api.opening import OpenStore
from logstore.api.worker import PLAIN, Event, not_done
from logstore.codec import codec
from logstore.engine.groups import ack, admin, claim, deliver
from logstore.engine.groups import dead_letter as back
from logstore.engine.groups import group_rows as pel
from logstore.engine.groups.ack import Fence
from logstore.engine.groups.dead_letter import DeadLettered, Limit
from logstore.engine.groups.deliver import Delivered
from logstore.engine.waiting import wait_session
from logstore.engine.waiting.wait_session import GroupRead
from logstore.errors import Error, OptionError, StreamNotFoundError, shown
from logstore.ids import MAX_ID, ZERO_ID, IDLike, StreamID, datetime_ms, parse_id, parse_start
from logstore.logger import Logger
from logstore.options import GroupSettings, Length, NackMode, References, Sync

if TYPE_CHECKING:
    from logstore.api.info import ConsumerInfo, GroupInfo, PendingEntry, PendingInfo
    from logstore.api.stream_entries import StreamEntries
    from logstore.api.values import TypedValues, Values
    from logstore.codec.entry_objects import DeliveryMaker

T = TypeVar("T", bytes, str)

log = Logger("logstore")
WARNINGS_MAX = 10  # of one commit; the rest are summed up
REQUEUED_MAX = 500  # in one commit, where all are given back


def requeue(
    opened: OpenStore[T],
    name: bytes,
    ids: Sequence[StreamID],
    to: bytes | None,
    sync: Sync | None,
) -> list[StreamID]:
    """Give dead letters back: those with these IDs in one commit; without IDs all that are there
    now, in commits of some hundred."""
    step = partial(back.requeue, name=name, to=to)
    if ids:
        moved: list[StreamID] = opened.commit(partial(step, ids=list(dict.fromkeys(ids))), sync)
        return moved
    record, moved = opened.record(name), []
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=name)
    first, last = ZERO_ID, record.last
    while some := [
        entry.id
        for entry in reading.entries(opened, name, first, last, REQUEUED_MAX, reverse=False)
    ]:
        moved += opened.commit(partial(step, ids=some, strict=False), sync)
        if some[-1] >= last:
            break
        first = some[-1].next()
    return moved


def tell_dead(
    opened: OpenStore[T],
    dead: list[DeadLettered],
    groups: Mapping[tuple[bytes, bytes], Group[T]],
    on_dead: OnDead[T] | None = None,
) -> None:
    """Log what was dead-lettered, then call whoever wants to know: the worker's callback first.

    ``groups``: by the names of stream and group, where the entries were pending.
    """
    from logstore.api.info import plain_text

    letters = [DeadLetter(opened, groups[letter.origin, letter.group], letter) for letter in dead]
    for letter in letters[:WARNINGS_MAX]:
        log.warning(
            "entry %s of %r moved to %r after %s (group %r, consumer %r): %s",
            letter.id,
            plain_text(letter.group.stream.name),
            plain_text(letter.dead_letter),
            showing.counted(letter.delivery_count, "delivery", "deliveries"),
            plain_text(letter.group.name),
            letter.consumer and plain_text(letter.consumer),
            letter.error,
        )
    if len(letters) > WARNINGS_MAX:
        log.warning("and %d more in the same commit", len(letters) - WARNINGS_MAX)
    callbacks: list[OnDead[Any]] = list(opened.on_dead)
    if on_dead is not None:
        callbacks.insert(0, on_dead)
    for letter in letters:
        for callback in callbacks:
            try:
                undone = not_done(callback(letter), "a callback for dead letters", PLAIN)
                if undone is not None:
                    raise undone
            except Exception:
                log.exception("a callback for dead letters failed at entry %s", letter.id)


PAGE_ENTRIES = 1000
_AT_ONCE = timedelta(0)


class Delivery(Entry[T]):
    """An entry and its delivery: ``group``, ``consumer``, ``delivery_count``, ``idle``.

    ``delivery_count`` counts this delivery too. ``idle`` is a timedelta: how long the entry was
    pending with nobody working on it before this delivery, 0 for a new entry. ``deleted``: whether
    it is a :class:`DeletedDelivery`, which only ``backlog`` gives.
    """

    __slots__ = (
        "_consumer",
        "_delivered_ms",
        "_settled",
        "deleted",
        "delivery_count",
        "group",
        "idle",
    )

    def __init__(self, group: Group[T], consumer: bytes, delivered: Delivered) -> None:
        encoding = group._opened.encoding
        flat: list[Any] = delivered.items or []
        if encoding is not None:
            flat = [part.decode(encoding, "surrogateescape") for part in flat]
        values = None if delivered.items is None else group._handle._values
        self.id, self._flat = delivered.id, flat  # as an entry has them
        self._encoding = encoding if values is None else values
        self.group: Group[T] = group
        self.deleted = delivered.items is None
        self.delivery_count = delivered.count
        self.idle = timedelta(milliseconds=delivered.idle_ms) if delivered.idle_ms else _AT_ONCE
        self._consumer = consumer
        self._delivered_ms = delivered.time_ms
        self._settled = False

    @property
    def consumer(self) -> T:
        """The consumer it was handed to, as bytes or in the store's encoding."""
        return self.group._opened.text(self._consumer)

    @property
    def settled(self) -> bool:
        """Whether it was acked or given back through this object, or in a transaction."""
        return self._settled

    def ack(self) -> bool:
        """Done: no longer pending.

        Returns:
            False if it is not pending with its consumer any more: it was acked, or another one
            claimed it, who has it still. ``group.ack(id)`` asks nobody's leave, as XACK.
        """
        group = self.group
        rest = group._name, self._consumer, self.id, self.delivery_count, self._delivered_ms
        done = group._opened.ack_delivery(group._stream, rest)
        self._settled = True
        return done

    def nack(
        self,
        mode: NackMode = "fail",
        *,
        delay: Length | None = None,
        error: str = "",
    ) -> bool:
        """Not done: give it back, so that another consumer gets it, at once or after ``delay``.

        ``mode``: "fail" keeps the delivery count, "silent" takes this delivery back from it,
        "fatal" sets it as high as it goes. ``error`` says why, for the dead letter stream, if it
        goes there. ``delay`` as in ``Group.nack``. False if it is not pending with its consumer any
        more, as for ``ack``.
        """
        arguments.check_choice(mode, NackMode, "mode")
        step = partial(
            ack.own_nack,
            fence=self._fence(),
            mode=mode,
            error=arguments.reason(error),
            later=arguments.later(delay),
        )
        done: bool = self.group._opened.commit_telling(step, frees=True)
        self._settled = True
        return done

    def _fenced(self) -> tuple[bytes, tuple[Any, ...]]:
        """The stream, and the rest of the fence."""
        fence = self._fence()
        return fence.stream, fence[1:]

    def _fence(self) -> Fence:
        """What must still be so for the entry to be this consumer's."""
        return Fence(
            self.group._stream,
            self.group._name,
            self._consumer,
            self.id,
            self.delivery_count,
            self._delivered_ms,
        )

    def __repr__(self) -> str:
        content = "deleted" if self.deleted else repr(self.fields)
        return f"Delivery({self.id}, {content}, {self.consumer!r}, count {self.delivery_count})"


class DeletedDelivery(Delivery[T]):
    """A delivery of an entry that was deleted while it was pending: there is nothing but to ack it.

    ``fields`` is None, ``pairs`` and ``keys`` are empty. (A class of its own, so that the fields of
    all others are known not to be None.)
    """

    __slots__ = ()

    @property
    def fields(self) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """None."""
        return

    def __getitem__(self, name: str | bytes) -> T:
        raise KeyError(name)

    def keys(self) -> KeysView[T]:
        """No names."""
        return {}.keys()

    def as_dict(self) -> dict[str, Any]:
        """The ID as text, and None as its fields."""
        return {"id": str(self.id), "fields": None}

    def _ipython_key_completions_(self) -> list[str]:
        return []


def _delivery_of(group: Group[T], consumer: bytes, delivered: Delivered) -> Delivery[T]:
    """The delivery of an entry as the engine handed it out."""
    return (DeletedDelivery if delivered.items is None else Delivery)(group, consumer, delivered)


@cache
def _maker(encoding: str | None) -> DeliveryMaker:
    made: DeliveryMaker = codec().DeliveryMaker(Delivery, encoding)
    return made


def making(
    group: Group[T],
) -> tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, Any, Any]]:
    """What makes the deliveries of new entries from a node, and what it is to be given with it:
    ``codec.DeliveryMaker.first``."""
    encoding, values = group._opened.encoding, group._handle._values
    return _maker(encoding).first, (group, encoding if values is None else values, _AT_ONCE)


Reading: TypeAlias = "str | Values | TypedValues | None"


def reading_of(group: Group[Any]) -> Reading:
    """How the values of a group's entries are read. It may read the index, so it is asked before
    the commit that hands entries out: what fails behind that would hide what it did."""
    values = group._handle._values
    return group._opened.encoding if values is None else values


def deliveries_of(
    group: Group[T], consumer: bytes, values: Reading, given: list[Delivered]
) -> list[Delivery[T]]:
    """The deliveries of entries as the engine handed them out; those that are there, as most are,
    without a call for each. ``values``: what ``reading_of`` gave before the commit."""
    encoding = group._opened.encoding
    return _maker(encoding).made(given, group, consumer, values, _AT_ONCE, _delivery_of)


def as_now(group: Group[Any], before: Reading, found: list[Delivery[T]]) -> list[Delivery[T]]:
    """What a wait ended with, read by the schema that the stream has now: it may have become
    another one while nothing came."""
    with suppress(Error):  # they were handed out: nothing may hide that
        values = reading_of(group)
        if values is not before:
            for each in found:
                each._encoding = values
    return found


class Autoclaimed(Generic[T]):
    """What ``autoclaim`` gave: ``entries``, the IDs of ``deleted`` ones, and a ``cursor``.

    The cursor is where to go on (``start=``); 0-0 when everything was looked at.
    """

    __slots__ = ("cursor", "deleted", "entries")

    def __init__(
        self, cursor: StreamID, entries: list[Delivery[T]], deleted: list[StreamID]
    ) -> None:
        self.cursor = cursor
        self.entries: list[Delivery[T]] = entries
        self.deleted = deleted

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.cursor}, {self.entries!r}, deleted={self.deleted!r})"


class DeadLetter(Entry[T], Generic[T]):
    """An entry that was given up: its own ID and fields, and what became of it.

    ``group`` is where it was pending, ``consumer`` who had it last (None: it was given back),
    ``delivery_count`` how often it was delivered, ``error`` the reason as text, ``dead_letter`` the
    stream where it is now, and ``dead_id`` its ID there.
    """

    __slots__ = ("consumer", "dead_id", "dead_letter", "delivery_count", "error", "group")

    def __init__(self, opened: OpenStore[T], group: Group[T], dead: DeadLettered) -> None:
        encoding = opened.encoding
        flat: list[Any] = dead.items
        if encoding is not None:
            flat = [part.decode(encoding, "surrogateescape") for part in flat]
        super().__init__(dead.id, flat, encoding)
        with suppress(Error):  # it was given up: nothing may hide that
            values = group._handle._values
            if values is not None:
                self._encoding = values
        self.group: Group[T] = group
        name = opened.text(dead.consumer)
        self.consumer: T | None = name if dead.consumer else None
        self.delivery_count = dead.count
        self.error = dead.error.decode("utf-8", "replace")
        self.dead_letter: T = opened.text(dead.stream)
        self.dead_id: StreamID = dead.dead_id

    def __repr__(self) -> str:
        return (
            f"DeadLetter({self.id}, {self.fields!r}, {self.delivery_count} deliveries, "
            f"{self.error!r}, now {self.dead_id} of {self.dead_letter!r})"
        )


OnDead: TypeAlias = Callable[[DeadLetter[T]], object]


class ConsumeOptions(TypedDict, total=False):
    """Options of a worker, as ``Group.consume`` describes them."""

    batch: int
    max_deliveries: int | None
    dead_letter: str | bytes | None
    min_idle: Length | None
    stop: Event | None
    timeout: Length | None
    on_dead: OnDead[Any] | None
    backoff: Length | None
    backoff_max: Length
    concurrency: int


class ClaimOptions(TypedDict, total=False):
    """Options of a claim, as ``Group.claim`` describes them."""

    idle: Length | None
    time: datetime | None
    retry_count: int | None
    force: bool
    just_id: bool
    last_id: IDLike | None


class Group(Generic[T]):
    """One consumer group of a stream. Safe to share between threads and to pickle."""

    __slots__ = ("_handle", "_name", "_opened", "_stream")

    def __init__(self, stream: StreamEntries[T], name: bytes) -> None:
        self._handle: StreamEntries[T] = stream
        self._opened: OpenStore[T] = stream._opened
        self._stream = stream._name
        self._name = name

    @property
    def name(self) -> T:
        """The group's name, as bytes or in the store's encoding."""
        return self._opened.text(self._name)

    @property
    def stream(self) -> StreamEntries[T]:
        """The stream, a :class:`logstore.Stream`."""
        return self._handle

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of {self._handle!r}>"

    def __reduce__(self) -> Any:
        return (type(self), (self._handle, self._name))

    # -- the group itself -----------------------------------------------------------------------
    def create(
        self,
        start: IDLike = "$",
        *,
        entries_read: int | None = None,
        make_stream: bool = True,
        sync: Sync | None = None,
    ) -> None:
        """Make the group, as XGROUP CREATE.

        Args:
            start: it delivers what comes after this ID; "$": what comes from now on, "0": all.
            entries_read: how many entries count as delivered, for the lag; None: not known.
            make_stream: whether to make a stream that is not there, as MKSTREAM.
            sync: a stronger promise than the store's, for this commit.

        Raises:
            GroupExistsError: there is one.
            StreamNotFoundError: there is no stream and ``make_stream`` is False.
            InvalidIDError: ``start`` is no ID.
            OptionError: ``entries_read`` is no integer of 64 bits.
        """
        arguments.check_flag(make_stream, "make_stream")
        at = arguments.group_position(start)
        arguments.check_count(entries_read, "entries_read")
        step = partial(
            admin.create,
            stream=self._stream,
            group=self._name,
            start=at,
            entries_read=entries_read,
            make_stream=make_stream,
        )
        done: None = self._opened.commit(step, sync)
        return done

    def set_id(
        self, last_id: IDLike, *, entries_read: int | None = None, sync: Sync | None = None
    ) -> None:
        """Deliver next what comes after an ID, as XGROUP SETID; what is pending stays.

        Args:
            last_id: the ID; "$": the stream's last one.
            entries_read: as in ``create``.
            sync: a stronger promise than the store's, for this commit.

        Raises:
            GroupNotFoundError: there is no such group.
            StreamNotFoundError: there is no stream.
            InvalidIDError: ``last_id`` is no ID.
            OptionError: ``entries_read`` is no integer of 64 bits.
        """
        at = arguments.group_position(last_id)
        arguments.check_count(entries_read, "entries_read")
        step = partial(
            admin.set_id, stream=self._stream, group=self._name, start=at, entries_read=entries_read
        )
        done: None = self._opened.commit(step, sync)
        return done

    def destroy(self, *, sync: Sync | None = None) -> bool:
        """Remove the group with all that is pending, as XGROUP DESTROY.

        Args:
            sync: a stronger promise than the store's, for this commit.

        Returns:
            False if there is none.

        Raises:
            StreamNotFoundError: there is no stream.
        """
        step = partial(admin.destroy, stream=self._stream, group=self._name)
        gone: bool = self._opened.free(step, sync)
        return gone

    def exists(self) -> bool:
        """Look for the group.

        Returns:
            Whether there is such a group.
        """
        look = partial(pel.group_number, stream=self._stream, group=self._name)
        return self._opened.view(look) is not None

    def add_consumer(self, consumer: str | bytes, *, sync: Sync | None = None) -> bool:
        """Make a consumer before its first read, as XGROUP CREATECONSUMER.

        Args:
            consumer: its name, not empty, at most 64 KiB.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            False if there is one.

        Raises:
            GroupNotFoundError: there is no such group.
            StreamNotFoundError: there is no stream.
            EntryTypeError, InvalidEntryError, TooLargeError: ``consumer`` is no valid name.
            OptionError: ``consumer`` is empty.
        """
        who = self._consumer(consumer)
        step = partial(admin.create_consumer, stream=self._stream, group=self._name, name=who)
        made: bool = self._opened.commit(step, sync)
        return made

    def remove_consumer(self, consumer: str | bytes, *, sync: Sync | None = None) -> int:
        """Remove a consumer, as XGROUP DELCONSUMER.

        What is pending with it is not pending any more and nobody gets it: claim it before.

        Args:
            consumer: its name.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many entries were pending with it.

        Raises:
            GroupNotFoundError: there is no such group.
            StreamNotFoundError: there is no stream.
            EntryTypeError, InvalidEntryError, TooLargeError: ``consumer`` is no valid name.
            OptionError: ``consumer`` is empty.
        """
        who = self._consumer(consumer)
        step = partial(admin.delete_consumer, stream=self._stream, group=self._name, name=who)
        lost: int = self._opened.free(step, sync)
        return lost

    def configure(
        self, *, sync: Sync | None = None, **options: Unpack[GroupOptions]
    ) -> GroupSettings[T]:
        """Set what becomes of entries that nobody acks; what is left out stays as it is.

        Args:
            max_deliveries: an entry that was delivered so often without an ack goes to the stream
                ``dead_letter`` instead of being delivered again; both are given, or None both.
            dead_letter: the name of another stream.
            min_idle: seconds, timedelta or "1h"; what is pending for so long goes to whoever reads
                next. None: not at all.
            backoff: seconds or timedelta; what failed is delivered again after so long, then after
                twice as long each time. It needs ``min_idle``. None: at once.
            backoff_max: seconds, timedelta or "1h" that an entry waits at most, an hour at first.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            All settings after.

        Raises:
            GroupNotFoundError: there is no such group.
            EntryTypeError: ``dead_letter`` is no name.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: ``dead_letter`` has above 64 KiB.
            OptionError: a setting is not valid, or they contradict each other.
        """
        opened = self._opened
        changes = configuring.group_changes(options, opened.encoding)
        return configuring.configure_group(opened, self._stream, self._name, changes, sync)

    @property
    def settings(self) -> GroupSettings[T]:
        """What is set with ``configure``; GroupNotFoundError if there is no group."""
        return self.info().settings

    # -- reading --------------------------------------------------------------------------------
    def read(
        self,
        consumer: str | bytes,
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: Length | None = 0,
        noack: bool = False,
        min_idle: Length | None = None,
    ) -> list[Delivery[T]]:
        """Entries that no consumer of the group got before, as XREADGROUP with ``>``.

        Args:
            consumer: who reads; made by its first read.
            count: at most so many entries; 0 or None: no limit.
            max_count: as in ``Stream.read``; what it leaves out stays for the next read.
            max_bytes: as in ``Stream.read``, likewise.
            timeout: seconds, timedelta or "1h" to wait; 0 does not wait, None waits for ever.
            noack: new entries are not pending after, and ``min_idle`` does not count.
            min_idle: seconds or timedelta; what was pending for so long with any consumer, or was
                given back, comes first. If one is set for the group, too, the shorter of
                the two counts.

        Returns:
            Deliveries; an empty list if none came in time.

        Raises:
            GroupNotFoundError: there is no such group.
            EntryTypeError, InvalidEntryError, TooLargeError: ``consumer`` is no valid name.
            OptionError: an option is not valid.
        """
        if max_count is max_bytes is None and noack is False:
            idle_ms = None
            if min_idle is not None:
                idle_ms = arguments.milliseconds(min_idle, "min_idle")
            plain: list[Delivery[T]] | None = self._opened.read_plain(
                self._stream, self._name, consumer, count, timeout, making, self, idle_ms
            )
            if plain is not None:
                return plain
        ask = arguments.group_read(
            consumer,
            self._opened.encoding,
            count=count,
            max_count=max_count,
            max_bytes=max_bytes,
            timeout=timeout,
            noack=noack,
            min_idle=min_idle,
        )
        return self._read(ask.consumer, ask.limit, ask.deadline, **ask.options())

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
            name, idle_ms = self._name, options.get("asked_idle_ms")
            read_plain, stream = self._opened.read_plain, self._stream
            batch = read_plain(stream, name, who, limit, None, making, self, idle_ms)
            if batch is not None:
                return batch
        values = reading_of(self)
        if deadline == 0.0:  # it does not wait, and asks for no place in the queue
            on_dead = options.pop("on_dead", None)
            once = self._once(who, limit, **options)
            given: list[Delivered] = self._opened.commit_telling(once, on_dead=on_dead)
        else:
            read, made = self._waiting(who, limit, **options), list[Delivery[T]]()
            alive = alive or self._opened.engine
            given = wait_session.read_group(read, deadline, alive, making=(making(self), made))
            return as_now(self, values, made or deliveries_of(self, who, values, given))
        return deliveries_of(self, who, values, given)

    def _once(
        self,
        who: bytes,
        limit: int,
        *,
        noack: bool = False,
        asked_idle_ms: int | None = None,
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
            asked_idle_ms=asked_idle_ms,
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
        asked_idle_ms: int | None = None,
        worker: bool = False,
        dead: Limit | None = None,
        on_dead: OnDead[T] | None = None,
        max_bytes: int = 0,
    ) -> GroupRead:
        """A read that may wait.

        For a ``worker`` what was delivered before comes alone, where entries may die of it;
        ``dead`` is its own limit, ``on_dead`` is called with what was dead-lettered.
        """
        once = self._once(
            who, limit, noack=noack, asked_idle_ms=asked_idle_ms, worker=worker, dead=dead,
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
            asked_idle_ms,
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
            EntryTypeError, InvalidEntryError, TooLargeError: ``consumer`` is no valid name.
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
        values = reading_of(self)
        return deliveries_of(self, who, values, self._opened.hand_on(step, on_dead=on_dead))

    # -- done, or not ---------------------------------------------------------------------------
    def ack(self, *ids: IDLike, sync: Sync | None = None) -> int:
        """Done: these are no longer pending, with whomever they are, as XACK.

        Args:
            ids: the entries' IDs.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many were pending; 0 also if there is no such group.

        Raises:
            InvalidIDError: an ID is not valid.
        """
        if len(ids) == 1 and type(ids[0]) is StreamID:  # as most acks are
            given = cast("tuple[StreamID, ...]", ids)
        else:
            given = tuple(arguments.entry_ids(ids))
        if sync is None:
            acked = self._opened.ack_plain(self._stream, self._name, given)
            if acked is not None:
                return acked
        step = partial(ack.ack, stream=self._stream, group=self._name, ids=given)
        done: int = self._opened.free(step, sync)
        return done

    def nack(
        self,
        *ids: IDLike,
        mode: NackMode = "fail",
        retry_count: int | None = None,
        force: bool = False,
        delay: Length | None = None,
        error: str = "",
        sync: Sync | None = None,
    ) -> int:
        """Not done: give these back to the group, which offers them first.

        What was delivered ``max_deliveries`` times by then goes to the dead letter stream of the
        group at once.

        Args:
            ids: the entries' IDs.
            mode: "fail" keeps the delivery count, "silent" takes one delivery back, "fatal" sets it
                as high as it goes.
            retry_count: sets the delivery count instead.
            force: give back also entries that are not pending.
            delay: seconds, timedelta or "1h" until they are offered again, to who would get them
                now without it: workers, and who reads by ``min_idle``; 0: at once. None: what is
                set as ``backoff``, with "fail".
            error: why, as text; it goes to the dead letter stream with the entry.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many were pending.

        Raises:
            GroupNotFoundError: there is no such group.
            InvalidIDError: an ID is not valid.
            OptionError: an option is not valid.
        """
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        arguments.check_flag(force, "force")
        given = arguments.entry_ids(ids)
        step = partial(
            ack.nack,
            stream=self._stream,
            group=self._name,
            ids=given,
            mode=mode,
            retry_count=retry_count,
            force=force,
            error=arguments.reason(error),
            later=arguments.later(delay),
        )
        done: int = self._opened.hand_on(step, sync, frees=True)
        return done

    def ack_delete(
        self, *ids: IDLike, references: References = "keep", sync: Sync | None = None
    ) -> list[DeleteOutcome]:
        """Done, and delete the entries from the stream, as XACKDEL.

        Args:
            ids: the entries' IDs.
            references: "keep" leaves what other groups have pending of them, "delete" takes that
                away, "acked" deletes only what every group has read and acked.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            For each ID: MISSING it was not pending; KEPT it was acked, and is still there; DELETED.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: ``references`` is not valid of the three.
        """
        arguments.check_choice(references, References, "references")
        given = arguments.entry_ids(ids)
        step = partial(
            ack.ack_delete, stream=self._stream, group=self._name, ids=given, mode=references
        )
        deleted: list[DeleteOutcome] = self._opened.free(step, sync, made=outcomes)
        return deleted

    # -- taking over ----------------------------------------------------------------------------
    def claim(
        self,
        consumer: str | bytes,
        *ids: IDLike,
        min_idle: Length,
        sync: Sync | None = None,
        **options: Unpack[ClaimOptions],
    ) -> list[Delivery[T]]:
        """Take these over if they are pending for long enough, as XCLAIM.

        What was deleted is no longer pending then, and left out. ``max_deliveries`` of the group
        does not count here: who names an entry gets it.

        Args:
            consumer: who takes them.
            ids: the entries' IDs.
            min_idle: seconds, timedelta or "1h" since their last delivery, at least.
            idle: seconds, timedelta or "1h" that their last delivery counts as ago, as IDLE.
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
            InvalidIDError: an ID is not valid.
            EntryTypeError, InvalidEntryError, TooLargeError: ``consumer`` is no valid name.
            OptionError: an option is not valid.
        """
        who = self._consumer(consumer)
        step = claim_step(self._stream, self._name, who, ids, min_idle, options)
        values = reading_of(self)
        return deliveries_of(self, who, values, self._opened.hand_on(step, sync))

    def autoclaim(
        self,
        consumer: str | bytes,
        *,
        min_idle: Length,
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
            min_idle: seconds, timedelta or "1h" since their last delivery, at least.
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
            EntryTypeError, InvalidEntryError, TooLargeError: ``consumer`` is no valid name.
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
        values = reading_of(self)
        taken: claim.Autoclaimed = self._opened.hand_on(step, sync)
        entries = deliveries_of(self, who, values, taken.entries)
        return Autoclaimed(taken.cursor, entries, taken.deleted)

    def reassign(
        self, min_idle: Length, alive_within: Length, *, count: int = 1000
    ) -> dict[T, int]:
        """Hand what is pending for long to consumers that are alive.

        Those idle longest, in one commit, each to the consumer with the fewest pending. They find
        them in their backlog, as ``consume`` does by itself; delivery counts stay as they are until
        then. If nobody looks alive nothing happens.

        Args:
            min_idle: seconds, timedelta or "1h" since the last delivery, at least.
            alive_within: seconds, timedelta or "1h" since a consumer that counts as alive was seen.
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
        **options: Unpack[ConsumeOptions],
    ) -> int:
        """Hand entries to a function, one after the other or in threads, until stopped.

        First the consumer's own backlog; then what was given back, or is pending with anybody for
        ``min_idle`` (of this call or of the group, the shorter one); then new entries. If the
        handler returns, the entry is acked (unless it was in a transaction of the handler's own).
        If it raises, that is logged and the entry given back.

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
            min_idle: seconds, timedelta or "1h", as in ``read``.
            stop: an event that ends it.
            timeout: seconds or timedelta without an entry that end it; None: never, 0: what is
                there is handled.
            on_dead: called with a ``DeadLetter`` for each entry that is given up.
            backoff: seconds or timedelta; what failed is delivered again after so long, then after
                twice as long each time; 0: at once, None: as is set for the group. It needs
                ``min_idle``, of this call or of the group.
            backoff_max: seconds, timedelta or "1h" that an entry waits at most.
            concurrency: how many entries of a batch are handled at once, each in a thread.

        Returns:
            How many entries it handled.

        Raises:
            GroupNotFoundError: there is no such group.
            EntryTypeError, InvalidEntryError, TooLargeError: a name is not valid.
            OptionError: an option is not valid, or ``handler`` is a coroutine or a generator.
            UsageError: ``handler`` returned an awaitable; its entry is given back.
        """
        arguments.check_names(options, ConsumeOptions, "consume")
        return worker.consume(self, consumer, worker.Work(handler, **options))

    # -- what it tells --------------------------------------------------------------------------
    def info(self) -> GroupInfo[T]:
        """Tell what XINFO GROUPS tells about this group.

        Returns:
            The description, of one moment.

        Raises:
            GroupNotFoundError: there is no such group.
            StreamNotFoundError: there is no stream.
        """
        from logstore.api.info import group_info

        row = self._opened.view(partial(pel.group_row, stream=self._stream, group=self._name))
        return group_info(row, self._opened.text)

    def consumers(self) -> list[ConsumerInfo[T]]:
        """Tell what XINFO CONSUMERS tells.

        Returns:
            All consumers, by name.

        Raises:
            GroupNotFoundError: there is no such group.
            StreamNotFoundError: there is no stream.
        """
        from logstore.api.info import consumer_info

        now_ms = self._opened.engine().clock.now_ms()
        rows = self._opened.view(
            partial(pel.consumer_rows, stream=self._stream, group=self._name, now_ms=now_ms)
        )
        return [consumer_info(row, self._opened.text) for row in rows]

    def pending(self) -> PendingInfo[T]:
        """Tell in sum what is pending, as XPENDING.

        Returns:
            How much is pending, between which IDs and with whom.

        Raises:
            GroupNotFoundError: there is no such group.
        """
        from logstore.api.info import PendingInfo

        found = self._opened.view(partial(pel.summary, stream=self._stream, group=self._name))
        consumers = {self._opened.text(name): count for name, count in found.consumers}
        return PendingInfo(found.count, found.first, found.last, consumers)

    def pending_entries(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        count: int | None = None,
        consumer: str | bytes | None = None,
        min_idle: Length = 0,
    ) -> Iterator[PendingEntry[T]]:
        """What is pending, as XPENDING with a range.

        Args:
            start: the smallest ID, included unless ``(`` stands before it.
            end: the largest ID, likewise.
            count: at most so many; 0 or None: no limit.
            consumer: what is pending with this one only.
            min_idle: what was not delivered for so long only; seconds, timedelta or "1h".

        Returns:
            An iterator by ID, which takes a snapshot a page.

        Raises:
            GroupNotFoundError: there is no such group; it is raised by the iterator.
            InvalidIDError: an end is no ID.
            EntryTypeError, InvalidEntryError, TooLargeError: ``consumer`` is no valid name.
            OptionError: ``start`` is above ``end``, or an option is not valid.
        """
        low, high = arguments.interval(start, end)
        limit = arguments.read_count(count)
        who = None if consumer is None else self._consumer(consumer)
        return self._pending(low, high, limit, who, arguments.milliseconds(min_idle, "min_idle"))

    def _pending(
        self, low: StreamID, high: StreamID, limit: int, who: bytes | None, min_idle_ms: int
    ) -> Iterator[PendingEntry[T]]:
        from logstore.api.info import PendingEntry

        left, text = limit, self._opened.text
        while low <= high:
            page = min(left, PAGE_ENTRIES) if limit else PAGE_ENTRIES
            now_ms = self._opened.engine().clock.now_ms()
            asked = pel.PendingRange(low, high, page, now_ms, who, min_idle_ms)
            look = partial(pel.detail, stream=self._stream, group=self._name, asked=asked)
            rows = self._opened.view(look)
            for row in rows:
                owned = bool(row.consumer)
                idle = timedelta(milliseconds=row.idle_ms) if owned else None
                yield PendingEntry(row.id, text(row.consumer) if owned else None, idle, row.count)
            left -= len(rows)
            if len(rows) < page or (limit and not left) or rows[-1].id == MAX_ID:
                return
            low = rows[-1].id.next()

    def _consumer(self, name: str | bytes) -> bytes:
        return arguments.consumer_name(name, self._opened.encoding)


def claim_step(
    stream: bytes,
    group: bytes,
    consumer: bytes,
    ids: tuple[IDLike, ...],
    min_idle: Length,
    options: ClaimOptions,
) -> partial[list[Delivered]]:
    """A claim, its arguments checked: what decides it under the lock."""
    arguments.check_names(options, ClaimOptions, "claim")
    retry_count = options.get("retry_count")
    arguments.check_count(retry_count, "retry_count")
    time, idle, last_id = options.get("time"), options.get("idle"), options.get("last_id")
    if time is not None and not isinstance(time, datetime):
        raise OptionError(f"time must be an aware datetime: {shown(time)}")
    force, just_id = options.get("force", False), options.get("just_id", False)
    arguments.check_flag(force, "force")
    arguments.check_flag(just_id, "just_id")
    return partial(
        claim.claim,
        stream=stream,
        group=group,
        consumer=consumer,
        ids=list(arguments.entry_ids(ids)),
        min_idle_ms=arguments.milliseconds(min_idle, "min_idle"),
        idle_ms=None if idle is None else arguments.milliseconds(idle, "idle"),
        time_ms=None if time is None else datetime_ms(time),
        retry_count=retry_count,
        force=force,
        just_id=just_id,
        last_id=None if last_id is None else parse_id(last_id),
    )
