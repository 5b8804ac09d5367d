"""Consumer groups, as users hold them: what makes and changes a group, settles its entries, tells.

Invariants: every call that changes something is one commit, in the log before it returns; what is
told together is of one moment, but for ``pending_entries``, which is lazy and takes a snapshot a
page. A group that does not exist is a GroupNotFoundError, but for acks, which find nothing then;
``set_id``, ``destroy`` and consumers are told of a missing stream by StreamNotFoundError. Idle
times are by the store's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast

from logstore.api import arguments, configuring
from logstore.api.configuring import KEEP, Amount, Keep, Length
from logstore.api.entry import DeleteOutcome, outcomes
from logstore.api.handing_on import hand_on
from logstore.api.opening import OpenStore
from logstore.api.stream_writes import StreamWrites
from logstore.engine.groups import ack, admin
from logstore.engine.groups import describe as pel
from logstore.ids import MAX_ID, IDLike, StreamID
from logstore.options import References, Sync
from logstore.settings import GroupSettings

if TYPE_CHECKING:
    from logstore.api.info import ConsumerInfo, GroupInfo, PendingEntry, PendingInfo

T = TypeVar("T", bytes, str)
PAGE_ENTRIES = 1000
NackMode: TypeAlias = Literal["silent", "fail", "fatal"]


class GroupAdmin(Generic[T]):
    """What :class:`logstore.Group` manages, settles and tells."""

    __slots__ = ("_handle", "_name", "_opened", "_stream")

    def __init__(self, stream: StreamWrites[T], name: bytes) -> None:
        self._handle: StreamWrites[T] = stream
        self._opened: OpenStore[T] = stream._opened
        self._stream = stream._name
        self._name = name

    @property
    def name(self) -> T:
        """The group's name, as bytes or in the store's encoding."""
        return self._opened.text(self._name)

    @property
    def stream(self) -> StreamWrites[T]:
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
        self._opened.commit(
            partial(
                admin.create,
                stream=self._stream,
                group=self._name,
                start=at,
                entries_read=entries_read,
                make_stream=make_stream,
            ),
            sync,
        )

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
        self._opened.commit(step, sync)

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
            EntryTypeError: ``consumer`` is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: ``consumer`` has above 64 KiB.
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
            EntryTypeError: ``consumer`` is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: ``consumer`` has above 64 KiB.
            OptionError: ``consumer`` is empty.
        """
        who = self._consumer(consumer)
        step = partial(admin.delete_consumer, stream=self._stream, group=self._name, name=who)
        lost: int = self._opened.free(step, sync)
        return lost

    def configure(
        self,
        *,
        max_deliveries: Amount = KEEP,
        dead_letter: str | bytes | Literal[Keep.KEEP] | None = KEEP,
        redeliver_after: Length = KEEP,
        backoff: Length = KEEP,
        backoff_max: timedelta | float | Literal[Keep.KEEP] = KEEP,
        sync: Sync | None = None,
    ) -> GroupSettings[T]:
        """Set what becomes of entries that nobody acks; what is left out stays as it is.

        Args:
            max_deliveries: an entry that was delivered so often without an ack goes to the stream
                ``dead_letter`` instead of being delivered again; both are given, or None both.
            dead_letter: the name of another stream.
            redeliver_after: seconds or timedelta; what is pending for so long goes to whoever reads
                next. None: not at all.
            backoff: seconds or timedelta; what failed is delivered again after so long, then after
                twice as long each time. It needs ``redeliver_after``. None: at once.
            backoff_max: seconds or timedelta that an entry waits at most, an hour at first.
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
        changes = configuring.group_changes(
            opened.encoding, max_deliveries, dead_letter, redeliver_after, backoff, backoff_max
        )
        return configuring.configure_group(opened, self._stream, self._name, changes, sync)

    @property
    def settings(self) -> GroupSettings[T]:
        """What is set with ``configure``; GroupNotFoundError if there is no group."""
        return self.info().settings

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
        delay: timedelta | float | None = None,
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
            delay: seconds or timedelta until they are delivered again, to who reads by
                ``redeliver_after`` of the group, which it needs; 0: at once. None: what is set as
                ``backoff``, with "fail".
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
        done: int = hand_on(self._opened, step, sync, frees=True)
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
        return outcomes(self._opened.free(step, sync))

    # -- what it tells --------------------------------------------------------------------------
    def info(self) -> GroupInfo[T]:
        """Tell what XINFO GROUPS tells about this group.

        Returns:
            The description, of one moment.

        Raises:
            GroupNotFoundError: there is no such group.
            StreamNotFoundError: there is no stream.
        """
        from logstore.api import describe

        row = self._opened.view(partial(pel.group_row, stream=self._stream, group=self._name))
        return describe.group_info(row, self._opened.text)

    def consumers(self) -> list[ConsumerInfo[T]]:
        """Tell what XINFO CONSUMERS tells.

        Returns:
            All consumers, by name.

        Raises:
            GroupNotFoundError: there is no such group.
            StreamNotFoundError: there is no stream.
        """
        from logstore.api import describe

        now_ms = self._opened.engine().clock.now_ms()
        rows = self._opened.view(
            partial(pel.consumer_rows, stream=self._stream, group=self._name, now_ms=now_ms)
        )
        return [describe.consumer_info(row, self._opened.text) for row in rows]

    def pending(self) -> PendingInfo[T]:
        """Tell in sum what is pending, as XPENDING.

        Returns:
            How much is pending, between which IDs and with whom.

        Raises:
            GroupNotFoundError: there is no such group.
        """
        from logstore.api.info import PendingInfo

        told = self._opened.view(partial(pel.summary, stream=self._stream, group=self._name))
        consumers = {self._opened.text(name): count for name, count in told.consumers}
        return PendingInfo(told.count, told.first, told.last, consumers)

    def pending_entries(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        count: int | None = None,
        consumer: str | bytes | None = None,
        min_idle: timedelta | float = 0,
    ) -> Iterator[PendingEntry[T]]:
        """What is pending, as XPENDING with a range.

        Args:
            start: the smallest ID, included unless ``(`` stands before it.
            end: the largest ID, likewise.
            count: at most so many; 0 or None: no limit.
            consumer: what is pending with this one only.
            min_idle: what was not delivered for so long only; seconds or timedelta.

        Returns:
            An iterator by ID, which takes a snapshot a page.

        Raises:
            GroupNotFoundError: there is no such group; it is raised by the iterator.
            InvalidIDError: an end is no ID.
            EntryTypeError: ``consumer`` is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: ``consumer`` has above 64 KiB.
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
            look = partial(
                pel.detail,
                stream=self._stream,
                group=self._name,
                start=low,
                end=high,
                count=page,
                consumer=who,
                min_idle_ms=min_idle_ms,
                now_ms=self._opened.engine().clock.now_ms(),
            )
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
