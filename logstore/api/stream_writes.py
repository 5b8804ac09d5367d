"""A stream, as users hold it: what deletes and trims its entries; adds are in ``stream_adds``.

Invariants: arguments are refused before a lock is taken; each call is one commit, in the log before
it returns. What is decided under the lock is decided by the engine's modules, of which these calls
hand over a function with its arguments.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from logstore.api import arguments
from logstore.api.entry import DeleteOutcome, outcomes
from logstore.api.stream_adds import StreamAdds
from logstore.engine.streams import delete, trim
from logstore.ids import IDLike, parse_id
from logstore.options import References, Sync

if TYPE_CHECKING:
    pass

T = TypeVar("T", bytes, str)


class StreamWrites(StreamAdds[T]):
    """What :class:`logstore.Stream` adds and takes away."""

    __slots__ = ()

    # -- deleting -----------------------------------------------------------------------------
    def delete(
        self,
        id: IDLike,
        *more_ids: IDLike,
        references: References = "keep",
        purge: bool = False,
        sync: Sync | None = None,
    ) -> int:
        """Delete entries by ID, as XDEL.

        Args:
            id: an entry's ID.
            more_ids: those of others.
            references: "keep" leaves what groups have pending of them, "delete" takes that away,
                too, "acked" deletes only what every group has read and acked.
            purge: also erase their bytes from every file of the store before it returns.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many were deleted.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: an option is not valid.
            ErasureIncompleteError: ``purge`` could not reach some bytes.
        """
        wanted = parse_id(id)
        if not more_ids and references == "keep" and purge is False and sync is None:
            done = self._opened.delete_plain(self._name, wanted)
            if done is not None:
                return done
        arguments.check_choice(references, References, "references")
        arguments.check_flag(purge, "purge")
        ids = [wanted, *map(parse_id, more_ids)]
        step = partial(delete.delete, name=self._name, ids=ids, mode=references)
        gone: int = self._opened.free(step, sync)
        if purge:
            self._opened.compact(purge=True)
        return gone

    def delete_each(
        self, *ids: IDLike, references: References = "keep", sync: Sync | None = None
    ) -> list[DeleteOutcome]:
        """Delete entries by ID, as XDELEX, and tell what became of each.

        Args:
            ids: the entries' IDs; one that is named twice is MISSING the second time.
            references: as in ``delete``.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            For each ID whether it was DELETED, MISSING or KEPT. KEPT comes of "acked" only, also
            for an ID without an entry, if a group has not read so far or has it pending.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: ``references`` is not valid of the three.
        """
        arguments.check_choice(references, References, "references")
        given = [parse_id(wanted) for wanted in ids]
        step = partial(delete.delete_ids, stream=self._name, ids=given, mode=references)
        return outcomes(self._opened.free(step, sync))

    def delete_range(
        self, start: IDLike, end: IDLike, *, purge: bool = False, sync: Sync | None = None
    ) -> int:
        """Delete all entries of an interval, in one commit.

        Args:
            start: the smaller end, included unless ``(`` stands before it.
            end: the larger end, likewise.
            purge: as in ``delete``.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many were deleted.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: ``start`` is above ``end``.
            ErasureIncompleteError: ``purge`` could not reach some bytes.
        """
        arguments.check_flag(purge, "purge")
        low, high = arguments.interval(start, end)
        step = partial(delete.delete_range, name=self._name, start=low, end=high)
        gone: int = self._opened.free(step, sync)
        if purge:
            self._opened.compact(purge=True)
        return gone

    def trim(
        self,
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        max_age: timedelta | float | None = None,
        approximate: bool = False,
        limit: int | None = None,
        references: References = "keep",
        sync: Sync | None = None,
    ) -> int:
        """Trim from the old end, as XTRIM; exactly one of the first three says to where.

        Args:
            maxlen: keep at most so many entries.
            minid: drop what is below this ID.
            max_age: drop what is older, by the IDs' milliseconds; seconds or timedelta.
            approximate: drop whole nodes only.
            limit: with ``approximate``, drop at most so many entries; 0: no limit.
            references: as in ``delete``; with "delete" and "acked" entries go one by one, and
                "acked" passes over those that a group still needs.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many entries went.

        Raises:
            InvalidIDError: ``minid`` is no ID.
            OptionError: options contradict each other, or are not valid.
        """
        rule = arguments.trim_rule(
            maxlen,
            minid,
            max_age,
            approximate=approximate,
            limit=limit,
            references=references,
            optional=False,
        )
        gone: int = self._opened.free(partial(trim.trim_named, name=self._name, rule=rule), sync)
        return gone

    def set_id(
        self,
        last_id: IDLike,
        *,
        entries_added: int | None = None,
        max_deleted_id: IDLike | None = None,
        sync: Sync | None = None,
    ) -> None:
        """Set the last ID, as XSETID; for interchange and repair.

        Args:
            last_id: the last ID that counts as given.
            entries_added: how many entries count as ever added; None: as it is.
            max_deleted_id: the largest ID that counts as deleted; None: as it is.
            sync: a stronger promise than the store's, for this commit.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: ``entries_added`` is no integer of 64 bits.
            StreamNotFoundError: there is no stream.
            UsageError: they contradict what is in the stream.
        """
        from logstore.engine.streams import lifecycle

        last = parse_id(last_id)
        arguments.check_count(entries_added, "entries_added")
        deleted = None if max_deleted_id is None else parse_id(max_deleted_id)
        self._opened.commit(
            partial(
                lifecycle.set_id,
                name=self._name,
                last=last,
                entries_added=entries_added,
                max_deleted=deleted,
            ),
            sync,
        )
