"""A store, as users hold it: what keeps it durable and small, what it tells of itself, and what
becomes of dead letters.

Invariants: what gives space back runs on a full disk, too; nothing here changes an entry that is
kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api import arguments
from logstore.api.opening import OpenStore
from logstore.engine.registry import Shared
from logstore.engine.runtime.engine import Engine
from logstore.errors import OptionError
from logstore.format import position_parts
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import Sync

if TYPE_CHECKING:
    from logstore.api.group import OnDead
    from logstore.api.info import PinInfo, StoreInfo
    from logstore.recovery.shipping import Shipped

T = TypeVar("T", bytes, str)


class StoreCare(Generic[T]):
    """What :class:`logstore.Store` has for its durability, its space, and its keepers."""

    _opened: OpenStore[T]
    _live: Callable[[], Shared]
    _engine: Callable[[], Engine]

    def sync(self) -> None:
        """Make everything durable that was acknowledged, or seen by a reader, before it returns.

        Raises:
            StoreFailedError: the disk refused; nothing that was not durable before is promised.
            DamagedStoreError: the log does not end with what was acknowledged last.
        """
        from logstore.engine.commit import durability

        shared = self._live()
        durability.sync(shared.engine, shared.committer)

    @property
    def durable_upto(self) -> tuple[int, int]:
        """Segment and offset up to which the log is durable; a lower bound.

        (0, 0) of a store opened with ``readonly`` means that nothing in it tells, as in a copy.
        """
        from logstore.api import store_info

        return position_parts(store_info.durable_upto(self._engine()))

    def compact(self, *, purge: bool = False, full: bool = False, threshold: float = 0.5) -> Any:
        """Give deleted space back: rewrite nodes with many tombstones, drop mostly dead segments.

        Args:
            purge: rewrite whatever still holds a deleted entry, whatever the threshold, so that its
                bytes are in no file of the store.
            full: rewrite all that is dead by a hundredth, and the index: the store is as small as
                it can be then. It takes the time to write all of that.
            threshold: the share, 0 to 1, of a node or segment that is dead when it is rewritten.

        Returns:
            A report.

        Raises:
            OptionError: ``threshold`` is no share.
            ReadOnlyError: the store was opened with ``readonly``.
            ErasureIncompleteError: ``purge`` could not reach some bytes.
        """
        arguments.check_flag(purge, "purge")
        arguments.check_flag(full, "full")
        arguments.check_share(threshold, "threshold")
        return self._opened.compact(purge=purge, full=full, threshold=threshold)

    def pins(self) -> list[PinInfo]:
        """What keeps segments from compaction: plans of Spark and exports under way.

        A pin ends by itself an hour after it was last used, or when the process it is for is gone.

        Returns:
            The pins that hold, the oldest first.
        """
        from logstore.api import store_info

        return store_info.pin_infos(self._engine())

    def release_pins(self, *ids: str) -> int:
        """Give pins back; what reads by them raises SnapshotExpired then.

        Args:
            ids: those of ``pins``; none: all pins.

        Returns:
            How many were given back.

        Raises:
            OptionError: there is no pin of an ID.
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.api import store_info

        return store_info.release_pins(self._engine(), ids)

    def moment(self, *streams: str | bytes) -> str:
        """Keep how streams are now, all at one moment, for readers that come later.

        Spark loads with the option ``asOf`` show it: what one transaction wrote to several streams
        is in all of their loads or in none. It keeps the segments that it names from compaction,
        for an hour after it was last loaded by, or until ``release_pins``.

        Args:
            streams: names; none: all streams.

        Returns:
            The token, which is the ID of a pin.

        Raises:
            StreamNotFoundError: there is no stream of a name.
            EntryTypeError: a name is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: a name has above 64 KiB.
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.api import store_info

        names = [arguments.stream_name(name, self._opened.encoding) for name in streams]
        token = store_info.moment(self._engine(), names)
        self.sync()
        return token

    def retain(self) -> int:
        """Drop at once what streams do not keep by their settings: retention and ``compact_by``.

        The background does that by itself; this is for stores opened with ``background=False``.

        Returns:
            How many entries went.

        Raises:
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.engine.features import latest, retention

        shared = self._live()
        replaced = latest.run(shared.engine, shared.committer)
        return replaced + retention.run(shared.engine, shared.committer)

    def checkpoint(self) -> int:
        """Take a checkpoint now.

        Returns:
            Its size in bytes.

        Raises:
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.engine.maintenance import checkpoint

        shared = self._live()
        with shared.maintenance.aside():
            return checkpoint.take(shared.engine, shared.committer)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store into a new directory, without stopping anybody.

        Args:
            path: a directory outside the store, empty or not there.

        Raises:
            OptionError: ``path`` is not valid, or is in the store itself.
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.recovery import backup

        target, shared = arguments.place(path), self._live()
        if target.absolute().is_relative_to(shared.engine.path):
            raise OptionError(f"{target} is in the store itself: give a directory outside it")
        with shared.maintenance.aside():
            backup.take(shared.engine, shared.committer, target)

    def ship(self, uri: str | os.PathLike[str], *, take_over: bool = False) -> Shipped:
        """Publish the store at a URI, in an object store or another file system; only what is new
        there is sent. Nobody is stopped; readers of the URI see the state before or after.

        Args:
            uri: what pyarrow takes (``s3://bucket/path``, ``gs://``, ``hdfs://``, ``file:///``), or
                a directory outside the store. Each store needs one of its own, and so does a copy
                of a store that goes on by itself.
            take_over: this store goes on in the place of the copy that was shipped there, which is
                refused from then on: once, for a store that was restored when that one was lost.

        Returns:
            How many files and bytes are published, and how many of them were sent for it.

        Raises:
            OptionError: ``uri`` is not valid, lies in the store, or has another store, copy or
                history; the extra ``arrow`` is not installed.
            DamagedStoreError: the log is damaged; what was published stays.
            FileSystemError: it cannot be reached; what was sent is not sent again.
            CorruptionError: what stands there is damaged.
            SnapshotExpired: an erasure came in between; try again.
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.recovery import shipping

        shared = self._live()
        arguments.check_flag(take_over, "take_over")
        return shipping.ship(
            shared.engine, shared.committer, arguments.uri(uri), take_over=take_over
        )

    def info(self) -> StoreInfo:
        """Tell what the store holds and where it stands.

        Returns:
            Counts and sizes in bytes.
        """
        from logstore.api import store_info

        return store_info.store_info(self._engine())

    def metrics(self) -> dict[str, int | float]:
        """Counters of this process since it opened the store, and how many pins the store has.

        Returns:
            Numbers by name, as docs/metrics.md explains; names that end in ``_s`` or ``_s_max`` are
            seconds.
        """
        from logstore.api import store_info

        engine = self._engine()
        return {**engine.metrics.as_dict(), **store_info.pin_counts(engine)}

    @property
    def recovery(self) -> dict[str, Any]:
        """What opening found and did."""
        report: dict[str, Any] = self._live().report.as_dict()
        return report

    # -- dead letters -------------------------------------------------------------------------
    def on_dead_letter(self, callback: OnDead[T]) -> OnDead[T]:
        """Have a function called for each entry that this handle dead-letters; may be a decorator.

        What it raises is logged. Other processes and handles have callbacks of their own.

        Args:
            callback: called with a ``DeadLetter``, after the commit, in the thread that did it.

        Returns:
            The same function.

        Raises:
            OptionError: it cannot be called, or is a coroutine function, which nobody would await.
        """
        from logstore.api.handlers import PLAIN, check_callable

        check_callable(callback, "the callback", coroutines=PLAIN)
        self._opened.on_dead.append(callback)
        return callback

    def requeue(
        self,
        dead_letter: str | bytes,
        *ids: IDLike,
        to: str | bytes | None = None,
        sync: Sync | None = None,
    ) -> list[StreamID]:
        """Give dead letters back to the streams that they came from, without what tells of that.

        Each becomes a new entry there, for all groups of that stream, and is deleted from the
        stream of dead letters, in the same commit.

        Args:
            dead_letter: the stream of dead letters.
            ids: of entries there, in the order in which they go; none: all that are there now, in
                commits of some hundred.
            to: another stream, which takes all of them; None: where each came from.
            sync: a stronger promise than the store's, for these commits.

        Returns:
            The IDs of the new entries.

        Raises:
            EntryNotFoundError: an entry that was named is gone; nothing happened.
            StreamNotFoundError: there is no stream ``dead_letter``.
            OptionError: an entry does not tell where it came from; nothing of its commit happened.
            InvalidIDError: an ID is not valid.
            EntryTypeError: a name is neither str nor bytes.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: a name has above 64 KiB.
        """
        from logstore.api.dead_letters import requeue

        encoding = self._opened.encoding
        name = arguments.stream_name(dead_letter, encoding)
        target = None if to is None else arguments.stream_name(to, encoding)
        return requeue(self._opened, name, [parse_id(each) for each in ids], target, sync)
