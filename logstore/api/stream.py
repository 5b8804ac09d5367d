"""A stream, as users hold it: what changes it.

Nothing is created until the first add. Times are seconds or ``timedelta``; IDs are given as text,
StreamID, (ms, seq), int milliseconds or an aware datetime. It knows no logic of the disk: it turns
arguments into operations of the engine. What reads and tells is in ``streamhandle``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from logstore.api import arguments
from logstore.api.configuring import KEEP, Amount, Keep, Length
from logstore.api.delivery import DeleteOutcome, collect, outcomes
from logstore.api.entry import IDRuns
from logstore.api.stream_handle import StreamHandle
from logstore.codec import GivenIDs, Row, RowBatch
from logstore.engine.streams import add, delete, lifecycle, trim
from logstore.errors import GroupExistsError
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import BATCH_MAX_ROWS, References, Sync

if TYPE_CHECKING:
    from logstore.api.group import Group
    from logstore.api.scheduling import ScheduleKey
    from logstore.engine.features.expiry import Condition
    from logstore.engine.streams.add import AutoID
    from logstore.engine.streams.idempotency import Asked
    from logstore.settings import StreamSettings

T = TypeVar("T", bytes, str)


class Stream(StreamHandle[T]):
    """One stream of a store. Safe to share between threads; its iterators are not."""

    __slots__ = ()

    # -- adding -------------------------------------------------------------------------------
    @overload
    def add(
        self, fields: Row, id: IDLike = "*", *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        references: References = "keep", create: Literal[True] = True,
        producer: str | bytes | None = None, idempotent_id: str | bytes | None = None,
        sync: Sync | None = None,
    ) -> StreamID: ...  # fmt: skip
    @overload
    def add(
        self, fields: Row, id: IDLike = "*", *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        references: References = "keep", create: bool, producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None, sync: Sync | None = None,
    ) -> StreamID | None: ...  # fmt: skip
    def add(
        self, fields: Row, id: IDLike = "*", *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        references: References = "keep", create: bool = True, producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None, sync: Sync | None = None,
    ) -> StreamID | None:  # fmt: skip
        """Add one entry, as XADD does; its ID, or None if ``create`` is False and there is no
        stream.

        ``id``: ``"*"`` (of now), ``"<ms>-*"``, or an ID above ``last_id``. ``maxlen`` or ``minid``
        trim after the add, as ``trim`` does. IDOrderError, InvalidIDError, InvalidEntryError,
        EntryTypeError, TooLargeError, OptionError: nothing was changed.

        With ``producer`` (1 to 1024 bytes, as an ID of its own) the add may be repeated: what this
        producer added before under the same ``idempotent_id``, computed from the fields if it is
        left out, is not added again while it is there, and the ID that it has is returned.
        docs/adding.md says for how long.
        """
        ids = arguments.add_id(id)
        arguments.check_flag(create, "create")
        rule = arguments.trim_rule(
            maxlen, minid, None, approximate=approximate, limit=limit, references=references,
            optional=True,
        )  # fmt: skip
        batch = arguments.rows([fields], self._store.encoding)
        request = add.Add(self._name, batch, 0, 1, ids, create, rule)
        if producer is not None or idempotent_id is not None:
            from logstore.api import producing
            from logstore.engine.streams import idempotency

            asked = producing.asked(batch, id, producer, idempotent_id, self._store.encoding)
            found = self._store._commit(lambda state: idempotency.add(state, request, asked), sync)
            return None if found is None else found[0]
        added: add.Added | None = self._store._commit(lambda state: add.add(state, request), sync)
        return None if added is None else added.first

    def add_many(
        self, rows: Iterable[Row | tuple[IDLike, Row]], *, batch: int = 1000,
        maxlen: int | None = None, minid: IDLike | None = None, approximate: bool = True,
        limit: int | None = None, references: References = "keep", create: bool = True,
        producer: str | bytes | None = None,
        sync: Sync | None = None,
    ) -> IDRuns:  # fmt: skip
        """Add rows of any iterable, one commit for each ``batch`` of them; their IDs.

        A row is what ``add`` takes, or (id, fields) in all rows: an ID, or ``"<ms>-*"``, and each
        above the one before. Memory holds one batch, and of each ID that was given some four bytes,
        to tell it. The iterable runs outside every lock. If a row is refused its whole batch is,
        and the batches before stay.

        With ``producer`` each row is added as ``add`` does with it; a row is fields then, or
        (idempotent ID, fields). A row that is not added again has the ID that it got before.
        """
        given = IDRuns()
        for _ in self._adding(
            given, rows, batch=batch, maxlen=maxlen, minid=minid, approximate=approximate,
            limit=limit, references=references, create=create, producer=producer, sync=sync,
        ):  # fmt: skip
            pass
        return given

    def _adding(
        self, given: IDRuns, rows: Iterable[Row | tuple[IDLike, Row]], *, batch: int,
        maxlen: int | None, minid: IDLike | None, approximate: bool, limit: int | None,
        references: References, create: bool, producer: str | bytes | None, sync: Sync | None,
    ) -> Iterator[bool]:  # fmt: skip
        """Add rows, a batch each step, which is True; their IDs go to ``given``. It ends when there
        are no rows; asked once more, it goes on with what came since.
        """
        arguments.check_between(batch, "batch", 1, BATCH_MAX_ROWS)
        arguments.check_flag(create, "create")
        rule = arguments.trim_rule(
            maxlen, minid, None, approximate=approximate, limit=limit, references=references,
            optional=True,
        )  # fmt: skip
        encoding = self._store.encoding
        if producer is not None:
            from logstore.api import producing

            named = producing.batches(rows, batch, producer, encoding)
            return self._add_once(given, named, rule, create=create, sync=sync)
        return self._add_batches(
            given, arguments.batches(rows, batch, encoding), rule, create=create, sync=sync
        )

    def _add_batches(
        self, given: IDRuns, batches: Iterable[tuple[AutoID | GivenIDs, RowBatch]],
        rule: trim.TrimRule | None, *, create: bool, sync: Sync | None,
    ) -> Iterator[bool]:  # fmt: skip
        for ids, chunk in batches:
            request = add.Add(self._name, chunk, 0, len(chunk), ids, create, rule)
            added: add.Added | None = self._store._commit(partial(add.add, request=request), sync)
            if added is None:
                return
            collect(given, added)
            yield True

    def _add_once(
        self, given: IDRuns, batches: Iterable[tuple[Asked, RowBatch]],
        rule: trim.TrimRule | None, *, create: bool, sync: Sync | None,
    ) -> Iterator[bool]:  # fmt: skip
        from logstore.engine.streams import idempotency

        for asked, chunk in batches:
            request = add.Add(self._name, chunk, 0, len(chunk), add.AUTO, create, rule)
            step = partial(idempotency.add, request=request, asked=asked)
            found = self._store._commit(step, sync)
            if found is None:
                return
            given.extend(found)
            yield True

    # -- scheduling ---------------------------------------------------------------------------
    @overload
    def schedule(
        self, fields: Row, *, at: datetime | int | None = None,
        after: timedelta | float | None = None, create: Literal[True] = True,
        sync: Sync | None = None,
    ) -> ScheduleKey: ...  # fmt: skip
    @overload
    def schedule(
        self, fields: Row, *, at: datetime | int | None = None,
        after: timedelta | float | None = None, create: bool, sync: Sync | None = None,
    ) -> ScheduleKey | None: ...  # fmt: skip
    def schedule(
        self, fields: Row, *, at: datetime | int | None = None,
        after: timedelta | float | None = None, create: bool = True, sync: Sync | None = None,
    ) -> ScheduleKey | None:  # fmt: skip
        """Keep an entry, and add it when its time has come, with an ID of that moment; its key.

        ``at``: an aware datetime or unix milliseconds, or ``after``: seconds or timedelta from now;
        a time in the past is as good as now. It is added once, not before its time, by whichever
        process is awake: a waiting reader, or the background thread of one that has the store open.
        Dropping the stream cancels it. None if ``create`` is False and there is no stream.
        OptionError, TooLargeError (16 MiB), and what ``add`` says of fields.
        """
        from logstore.api import scheduling
        from logstore.engine.features import schedule

        arguments.check_flag(create, "create")
        when = scheduling.when(at, after, self._store._engine().clock)
        kept = scheduling.fields(fields, self._store.encoding)
        step = partial(schedule.schedule, name=self._name, fields=kept, when=when, create=create)
        return scheduling.typed_key(self._store._commit(step, sync))

    def cancel(self, key: ScheduleKey | str, *, sync: Sync | None = None) -> bool:
        """Schedule an entry no longer, by its key or the key's text; False if it was added already,
        cancelled, or never scheduled here."""
        from logstore.api import scheduling
        from logstore.engine.features import schedule

        step = partial(schedule.cancel, name=self._name, key=scheduling.key(key))
        cancelled: bool = self._store._free(step, sync)
        return cancelled

    # -- expiring -----------------------------------------------------------------------------
    def expire(
        self, *, after: timedelta | float | None = None, at: datetime | int | None = None,
        only: Condition | None = None, sync: Sync | None = None,
    ) -> bool:  # fmt: skip
        """Let the stream expire: from then on it is gone for everybody, and is dropped; whether it
        was set.

        ``after``: seconds or timedelta from now, or ``at``: an aware datetime or unix milliseconds;
        a time in the past drops it at once. ``only``: if it never expires so far ("never"), if it
        does ("already"), or if the time is "later" or "sooner" than the one that is set (never
        counts as later than any). False if not, or if there is no stream. OptionError.
        """
        from logstore.api import scheduling

        step = scheduling.expiry(self._name, at, after, only, self._store._engine().clock)
        was_set: bool = self._store._free(step, sync)
        return was_set

    def persist(self, *, sync: Sync | None = None) -> bool:
        """Let the stream expire no longer; False if there is none, or it never would."""
        from logstore.engine.features import expiry

        step = partial(expiry.persist, name=self._name)
        was_set: bool = self._store._free(step, sync)
        return was_set

    # -- deleting -----------------------------------------------------------------------------
    def delete(
        self, id: IDLike, *more_ids: IDLike, references: References = "keep",
        purge: bool = False, sync: Sync | None = None,
    ) -> int:  # fmt: skip
        """Delete entries by ID, as XDEL; how many were deleted.

        ``references``: "keep" leaves what groups have pending of them, "delete" takes that away,
        too, "acked" deletes only what every group has read and acked. With ``purge`` their bytes
        are also erased from every file of the store before it returns.
        """
        arguments.check_choice(references, References, "references")
        arguments.check_flag(purge, "purge")
        ids = [parse_id(each) for each in (id, *more_ids)]
        gone: int = self._store._free(
            lambda state: delete.delete(state, self._name, ids, references), sync
        )
        if purge:
            self._store.compact(purge=True)
        return gone

    def delete_each(
        self, *ids: IDLike, references: References = "keep", sync: Sync | None = None
    ) -> list[DeleteOutcome]:
        """Delete entries by ID, as XDELEX; for each whether it was DELETED, MISSING or KEPT.

        An ID that is named twice is MISSING the second time. KEPT comes of "acked" only, also for
        an ID without an entry, if a group has not read so far or has it pending.
        """
        arguments.check_choice(references, References, "references")
        given = [parse_id(each) for each in ids]
        told: list[int] = self._store._free(
            lambda state: delete.delete_ids(state, self._name, given, references), sync
        )
        return outcomes(told)

    def delete_range(
        self, start: IDLike, end: IDLike, *, purge: bool = False, sync: Sync | None = None
    ) -> int:
        """Delete all entries of an interval (both ends included), in one commit; how many."""
        arguments.check_flag(purge, "purge")
        low, high = arguments.interval(start, end)
        gone: int = self._store._free(
            lambda state: delete.delete_range(state, self._name, low, high), sync
        )
        if purge:
            self._store.compact(purge=True)
        return gone

    def trim(
        self, *, maxlen: int | None = None, minid: IDLike | None = None,
        max_age: timedelta | float | None = None, approximate: bool = False,
        limit: int | None = None, references: References = "keep", sync: Sync | None = None,
    ) -> int:  # fmt: skip
        """Trim from the old end, as XTRIM; how many entries went.

        One of: keep at most ``maxlen``; drop below ``minid``; drop what is older than ``max_age``
        (seconds or timedelta, by the IDs' milliseconds). ``approximate`` drops whole nodes only,
        at most ``limit`` entries (0: no limit). ``references`` as in ``delete``; with "delete" and
        "acked" entries go one by one, and "acked" passes over those that a group still needs.
        """
        rule = arguments.trim_rule(
            maxlen, minid, max_age, approximate=approximate, limit=limit, references=references,
            optional=False,
        )  # fmt: skip
        gone: int = self._store._free(lambda state: trim.trim_named(state, self._name, rule), sync)
        return gone

    def set_id(
        self, last_id: IDLike, *, entries_added: int | None = None,
        max_deleted_id: IDLike | None = None, sync: Sync | None = None,
    ) -> None:  # fmt: skip
        """Set the last ID, as XSETID; for interchange and repair."""
        last = parse_id(last_id)
        arguments.check_count(entries_added, "entries_added")
        deleted = None if max_deleted_id is None else parse_id(max_deleted_id)
        self._store._commit(
            lambda state: lifecycle.set_id(state, self._name, last, entries_added, deleted), sync
        )

    # -- settings -----------------------------------------------------------------------------
    def configure(
        self, *, max_age: Length = KEEP, max_entries: Amount = KEEP, max_bytes: Amount = KEEP,
        idempotent_duration: timedelta | float | Literal[Keep.KEEP] = KEEP,
        idempotent_max_ids: int | Literal[Keep.KEEP] = KEEP,
        create: bool = True, sync: Sync | None = None,
    ) -> StreamSettings:  # fmt: skip
        """Set what is kept with the stream; all its settings after. What is left out stays.

        Retention drops whole nodes from the old end, in the background: what is older than
        ``max_age`` (by the IDs' milliseconds), what is more than ``max_entries`` or, in nodes,
        ``max_bytes``; None: no such limit. ``idempotent_duration`` (1 s to a day, as XCFGSET) and
        ``idempotent_max_ids`` (1 to 10,000 a producer) bound what is remembered of idempotent adds.
        StreamNotFoundError if there is no stream and ``create`` is False; OptionError.
        """
        from logstore.api import configuring

        arguments.check_flag(create, "create")
        changes = configuring.stream_changes(
            max_age, max_entries, max_bytes, idempotent_duration, idempotent_max_ids
        )
        return configuring.configure_stream(
            self._store, self._name, changes, create=create, sync=sync
        )

    # -- consumer groups ----------------------------------------------------------------------
    def group(
        self, name: str | bytes, start: IDLike | None = None, *, entries_read: int | None = None
    ) -> Group[T]:
        """A handle of a consumer group; with ``start`` it is made if it is missing."""
        from logstore.api.group import Group

        found = Group(self._store, self._name, arguments.group_name(name, self._store.encoding))
        if start is not None and not found.exists():
            with suppress(GroupExistsError):  # another process was faster
                found.create(start, entries_read=entries_read)
        return found
