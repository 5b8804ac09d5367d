"""Consumer groups, as users hold them: what manages a group, and settles its entries.

Invariants: every call is one commit, in the log before it returns. A group that does not exist is
a GroupNotFoundError, but for acks, which find nothing then; ``set_id``, ``destroy`` and consumers
are told of a missing stream by StreamNotFoundError. It knows nothing of waiting.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from logstore.api import arguments, configuring, dead_letters
from logstore.api.configuring import KEEP, Amount, Keep, Length
from logstore.api.delivery import DeleteOutcome, NackMode, outcomes
from logstore.api.group_handle import GroupHandle
from logstore.engine.groups import ack, admin
from logstore.ids import IDLike, parse_id
from logstore.options import References, Sync
from logstore.settings import GroupSettings

T = TypeVar("T", bytes, str)


class GroupChanges(GroupHandle[T]):
    """The calls of :class:`logstore.Group` that make, change and settle."""

    __slots__ = ()

    # -- the group itself -----------------------------------------------------------------------
    def create(
        self, start: IDLike = "$", *, entries_read: int | None = None, make_stream: bool = True,
        sync: Sync | None = None,
    ) -> None:  # fmt: skip
        """Make the group, as XGROUP CREATE; GroupExistsError if there is one.

        It delivers what comes after ``start``: "$" is what comes from now on, "0" everything.
        """
        arguments.check_flag(make_stream, "make_stream")
        at = arguments.group_position(start)
        arguments.check_count(entries_read, "entries_read")
        self._store._commit(
            lambda state: admin.create(
                state, self._stream, self._name, at, entries_read=entries_read,
                make_stream=make_stream,
            ),
            sync,
        )  # fmt: skip

    def set_id(
        self, last_id: IDLike, *, entries_read: int | None = None, sync: Sync | None = None
    ) -> None:
        """Deliver next what comes after ``last_id``, as XGROUP SETID; what is pending stays."""
        at = arguments.group_position(last_id)
        arguments.check_count(entries_read, "entries_read")
        self._store._commit(
            lambda state: admin.set_id(state, self._stream, self._name, at, entries_read), sync
        )

    def destroy(self, *, sync: Sync | None = None) -> bool:
        """Remove the group with all that is pending; False if there is none."""
        gone: bool = self._store._free(
            lambda state: admin.destroy(state, self._stream, self._name), sync
        )
        return gone

    def add_consumer(self, consumer: str | bytes, *, sync: Sync | None = None) -> bool:
        """Make a consumer before its first read; False if there is one."""
        who = self._consumer(consumer)
        made: bool = self._store._commit(
            lambda state: admin.create_consumer(state, self._stream, self._name, who), sync
        )
        return made

    def remove_consumer(self, consumer: str | bytes, *, sync: Sync | None = None) -> int:
        """Remove a consumer; how many entries were pending with it.

        These are not pending any more and nobody gets them: claim them before.
        """
        who = self._consumer(consumer)
        lost: int = self._store._free(
            lambda state: admin.delete_consumer(state, self._stream, self._name, who), sync
        )
        return lost

    def configure(
        self, *, max_deliveries: Amount = KEEP,
        dead_letter: str | bytes | Literal[Keep.KEEP] | None = KEEP,
        redeliver_after: Length = KEEP, sync: Sync | None = None,
    ) -> GroupSettings[T]:  # fmt: skip
        """Set what becomes of entries that nobody acks; all settings after. What is left out stays.

        An entry that was delivered ``max_deliveries`` times without an ack goes to the stream
        ``dead_letter`` instead of being delivered again (both are given, or neither). One that is
        pending for ``redeliver_after`` goes to whoever reads next. None: not at all.
        GroupNotFoundError; OptionError.
        """
        changes = configuring.group_changes(
            self._store, max_deliveries, dead_letter, redeliver_after
        )
        return configuring.configure_group(self._store, self._stream, self._name, changes, sync)

    # -- done, or not ---------------------------------------------------------------------------
    def ack(self, *ids: IDLike, sync: Sync | None = None) -> int:
        """Done: these are no longer pending, with whomever they are; how many were."""
        given = [parse_id(each) for each in ids]
        done: int = self._store._free(
            lambda state: ack.ack(state, self._stream, self._name, given), sync
        )
        return done

    def nack(
        self, *ids: IDLike, mode: NackMode = "fail", retry_count: int | None = None,
        force: bool = False, error: str = "", sync: Sync | None = None,
    ) -> int:  # fmt: skip
        """Not done: give these back to the group, which offers them first; how many were pending.

        What was delivered ``max_deliveries`` times by then goes to the dead letter stream of the
        group at once, and ``error`` with it.

        ``mode``: "fail" keeps the delivery count, "silent" takes one delivery back, "fatal" sets
        it as high as it goes; ``retry_count`` sets it. ``force``: also entries that are not
        pending.
        """
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        arguments.check_flag(force, "force")
        given = [parse_id(each) for each in ids]
        reason = arguments.reason(error)
        done: int = dead_letters.run(
            self._store,
            lambda state: ack.nack(
                state, self._stream, self._name, given, mode=mode, retry_count=retry_count,
                force=force, error=reason,
            ),
            sync, free=True,
        )  # fmt: skip
        return done

    def ack_delete(
        self, *ids: IDLike, references: References = "keep", sync: Sync | None = None
    ) -> list[DeleteOutcome]:
        """Done, and delete the entries from the stream, as XACKDEL.

        An outcome for each ID: MISSING it was not pending; KEPT it was acked, and is still there.
        ``references``: "keep" leaves what other groups have pending of it, "delete" takes that
        away, "acked" deletes only what every group has read and acked.
        """
        arguments.check_choice(references, References, "references")
        given = [parse_id(each) for each in ids]
        told: list[int] = self._store._free(
            lambda state: ack.ack_delete(state, self._stream, self._name, given, references), sync
        )
        return outcomes(told)
