"""A stream, as users hold it: its entries, and what concerns it as a whole.

Nothing is created until the first add.

Invariants: those of ``stream_entries``; what one call gives is of one moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack, overload

from logstore.api import arguments
from logstore.api.configuring import StreamOptions
from logstore.api.stream_entries import StreamEntries
from logstore.codec import Row
from logstore.errors import GroupExistsError
from logstore.ids import IDLike
from logstore.options import Length, Sync

if TYPE_CHECKING:
    from logstore.api.group import Group
    from logstore.api.scheduling import ScheduledEntry, ScheduleKey, ScheduleOptions
    from logstore.engine.features.expiry import Condition
    from logstore.options import StreamSettings
    from logstore.schema.stream_schema import Schema

T = TypeVar("T", bytes, str)


class Stream(StreamEntries[T]):
    """One stream of a store. Safe to share between threads; its iterators are not."""

    __slots__ = ()

    # -- scheduling ---------------------------------------------------------------------------
    @overload
    def schedule(
        self, fields: Row, *, create: Literal[True] = True, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey: ...
    @overload
    def schedule(
        self, fields: Row, *, create: bool, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey | None: ...
    def schedule(
        self, fields: Row, *, create: bool = True, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey | None:
        """Keep an entry, and add it when its time has come, with an ID of that moment.

        It is added once, not before its time, by whichever process is awake: a waiting reader, or
        the background thread of one that has the store open. Dropping the stream cancels it.

        Args:
            fields: as in ``add``, 16 MiB at most.
            create: whether to make a stream that is not there.
            at: an aware datetime or unix milliseconds; the past is as good as now.
            after: seconds or timedelta from now; exactly one of ``at`` and ``after`` is given,
                unless the entry repeats.
            every: add it again and again, so long from one time to the next (seconds or timedelta);
                the first time is after that length, or the next that is in step with ``at``.
            cron: add it again and again, at the times of a cron expression of five fields.
            tz: the time zone of ``cron``, an IANA name; None: UTC.
            name: names what repeats in the stream, 200 bytes at most. Given again it changes it,
                and what says the same changes nothing: its next time stays.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            The key that ``cancel`` takes; None if ``create`` is False and there is no stream.

        Raises:
            InvalidEntryError: there are no fields.
            EntryTypeError: a field or value is of another type.
            TooLargeError: the entry has above 16 MiB.
            OptionError: there is not exactly one time, or it is not valid, or would never come;
                what repeats has no name, or its time zone is unknown here.
        """
        from logstore.api import scheduling

        typed = self._by_schema
        if typed is not None:
            fields = typed.row(fields)
        step = scheduling.step(self._name, fields, self._opened, create, options)
        return scheduling.typed_key(self._opened.commit(step, options.get("sync")))

    def cancel(
        self,
        key: ScheduleKey | str | None = None,
        *,
        name: str | None = None,
        sync: Sync | None = None,
    ) -> bool:
        """Schedule an entry no longer.

        Args:
            key: what ``schedule`` returned, or its text. The key of what repeats is another one
                after each time.
            name: the name of what repeats; exactly one of ``key`` and ``name`` is given.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            False if it was added already, cancelled, or never scheduled here.

        Raises:
            OptionError: ``key`` or ``name`` is not valid.
        """
        from logstore.api import scheduling

        step = scheduling.cancelling(self._name, key, name)
        cancelled: bool = self._opened.free(step, sync)
        return cancelled

    def scheduled(self) -> Iterator[ScheduledEntry[T]]:
        """What is scheduled for the stream and was not added yet.

        Returns:
            An iterator, soonest first, which takes a snapshot a page.
        """
        from logstore.api import scheduling

        found = scheduling.entries(self._opened.engine, self._name, self._opened.encoding)
        values = self._values
        if values is None:
            return found
        return map(values.view_scheduled, found)

    # -- expiring -----------------------------------------------------------------------------
    def expire(
        self,
        *,
        after: Length | None = None,
        at: datetime | int | str | None = None,
        only: Condition | None = None,
        sync: Sync | None = None,
    ) -> bool:
        """Let the stream expire, as PEXPIREAT: from then on it is gone for everybody, and dropped.

        Args:
            after: seconds, timedelta or "1h" from now.
            at: an aware datetime or unix milliseconds; the past drops it at once. Exactly one of
                ``at`` and ``after`` is given.
            only: "never": if it never expires so far; "already": if it does; "later" or "sooner":
                if the time is so, compared with the one that is set (never is later than any).
            sync: a stronger promise than the store's, for this commit.

        Returns:
            Whether it was set; False if not, or if there is no stream.

        Raises:
            OptionError: there is not exactly one time, or it is not valid, or ``only`` is no
                condition.
        """
        from logstore.api import scheduling

        step = scheduling.expiry(self._name, at, after, only, self._opened.engine().clock)
        was_set: bool = self._opened.free(step, sync)
        return was_set

    def persist(self, *, sync: Sync | None = None) -> bool:
        """Let the stream expire no longer, as PERSIST.

        Args:
            sync: a stronger promise than the store's, for this commit.

        Returns:
            False if there is no stream, or it never would expire.
        """
        from logstore.engine.features import expiry

        was_set: bool = self._opened.free(partial(expiry.persist, name=self._name), sync)
        return was_set

    @property
    def expires_at(self) -> datetime | None:
        """When the stream expires, an aware UTC datetime; None: never, or there is no stream."""
        from logstore.api import scheduling

        record = self._opened.record(self._name)
        return None if record is None else scheduling.expires_at(record.expires_ms)

    @property
    def expires_in(self) -> timedelta | None:
        """How long it is until the stream expires; None: it never does, or there is no stream."""
        from logstore.api import scheduling

        record, now_ms = self._opened.view(lambda view: (view.record(self._name), view.now_ms))
        return None if record is None else scheduling.left(record.expires_ms, now_ms)

    # -- settings -----------------------------------------------------------------------------
    def configure(
        self, *, create: bool = True, sync: Sync | None = None, **options: Unpack[StreamOptions]
    ) -> StreamSettings:
        """Set what is kept with the stream; what is left out stays as it is.

        Retention drops whole nodes from the old end, in the background.

        Args:
            max_age: drop what is older, by the IDs' milliseconds; seconds, timedelta, None: never.
            max_entries: drop what is more, whole nodes (100 entries by default); None: no limit.
            max_bytes: drop what is more, in bytes of nodes; None: no such limit.
            idempotent_duration: how long IDs of idempotent adds are remembered, 1 s to a day, as
                XCFGSET.
            idempotent_max_ids: how many of a producer are, 1 to 10,000, as XCFGSET.
            compact_by: a field, of each value of which only the newest entry is kept (see
                ``latest``); entries without it are kept; None: all are kept.
            keep_until_shipped: drop by the three limits only what ``Store.ship`` published.
            schema: the columns of the entries, as ``"temp double, at timestamp, note string?"``
                (docs/schemas.md); each add is held against it. None: there is none.
            create: whether to make a stream that is not there.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            All settings after.

        Raises:
            OptionError: a setting is not valid.
            InvalidEntryError: ``compact_by`` is text that the store's encoding cannot take.
            SchemaError: an entry that is stored, or scheduled, cannot be read by the schema; it is
                named, and nothing was set.
            StreamNotFoundError: there is no stream and ``create`` is False.
        """
        from logstore.api import configuring

        arguments.check_flag(create, "create")
        changes = configuring.stream_changes(options, self._opened.encoding)
        if "schema" not in options:
            return configuring.configure_stream(
                self._opened, self._name, changes, create=create, sync=sync
            )
        schema = configuring.schema_of(options["schema"])
        return configuring.configure_schema(
            self._opened, self._name, schema, changes, create=create, sync=sync
        )

    @property
    def settings(self) -> StreamSettings:
        """What is set with ``configure``; of a stream that is not there, what all have at first."""
        from logstore.api import configuring

        return configuring.stream_settings(self._opened, self._name)

    @property
    def schema(self) -> Schema | None:
        """The schema that was set with ``configure``; None if there is none, or no stream."""
        from logstore.api import configuring

        return configuring.stream_schema(self._opened, self._name)

    # -- consumer groups ----------------------------------------------------------------------
    def group(
        self, name: str | bytes, start: IDLike | None = None, *, entries_read: int | None = None
    ) -> Group[T]:
        """A handle of a consumer group.

        Args:
            name: the group's name.
            start: make the group if it is missing, as ``Group.create`` does; None: do not look.
            entries_read: as in ``Group.create``.

        Returns:
            The handle.

        Raises:
            EntryTypeError, InvalidEntryError, TooLargeError: ``name`` is no valid name.
            InvalidIDError: ``start`` is no ID.
            OptionError: ``entries_read`` is no integer of 64 bits.
        """
        from logstore.api.group import Group

        found = Group(self, arguments.group_name(name, self._opened.encoding))
        if start is not None and not found.exists():
            with suppress(GroupExistsError):  # another process was faster
                found.create(start, entries_read=entries_read)
        return found
