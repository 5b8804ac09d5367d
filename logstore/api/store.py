"""A store, as users hold it: one directory, opened by as many processes as they like.

Its lifetime is that of ``storehandle``. It knows no logic of the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from logstore.api import arguments, opening, read
from logstore.api.entry import Entry
from logstore.api.handlers import PLAIN, check_callable
from logstore.api.store_handle import StoreHandle
from logstore.api.stream import Stream
from logstore.clock import Clock, checked
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.streams import lifecycle
from logstore.format import position_parts
from logstore.ids import IDLike
from logstore.options import (
    COMPACT_RATE_BYTES_S,
    StoreLimits,
    StoreOptions,
    Sync,
    seconds,
)

if TYPE_CHECKING:
    from logstore.api.dead_letters import OnDead
    from logstore.api.info import PinInfo, StoreInfo
    from logstore.api.transaction import Transaction

T = TypeVar("T", bytes, str)


class Store(StoreHandle[T]):
    """One open store; made by :func:`logstore.open`, closed by ``with`` or ``close``."""

    # -- streams ------------------------------------------------------------------------------
    def stream(self, name: str | bytes) -> Stream[T]:
        """A handle of a stream; nothing is created before the first add."""
        return Stream(self, arguments.stream_name(name, self.encoding))

    def __getitem__(self, name: str | bytes) -> Stream[T]:
        return self.stream(name)

    def __contains__(self, name: str | bytes) -> bool:
        raw = arguments.stream_name(name, self.encoding)
        return snapshot.read(self._engine(), lambda view: view.record(raw)) is not None

    def __iter__(self) -> Iterator[T]:
        """Names of all streams, sorted, as of the moment of the call."""
        return iter(self.streams())

    def __len__(self) -> int:
        """How many streams there are."""
        return snapshot.read(self._engine(), lambda view: sum(1 for _ in view.records()))

    def __bool__(self) -> bool:
        return True

    def streams(self) -> list[T]:
        """Names of all streams, sorted."""

        def names(view: Snapshot) -> list[bytes]:
            return sorted(record.name for record in view.records())

        return [cast(T, self._text(name)) for name in snapshot.read(self._engine(), names)]

    def create(self, name: str | bytes, *, sync: Sync | None = None) -> bool:
        """Make an empty stream; False if there is one already."""
        raw = arguments.stream_name(name, self.encoding)
        made: bool = self._commit(lambda state: lifecycle.create_empty(state, raw), sync)
        return made

    def drop(self, name: str | bytes, *, sync: Sync | None = None) -> bool:
        """Remove a stream with all its entries; False if there is none."""
        raw = arguments.stream_name(name, self.encoding)
        dropped: bool = self._free(lambda state: lifecycle.drop(state, raw), sync)
        return dropped

    def rename(
        self, old: str | bytes, new: str | bytes, *, replace: bool = True, sync: Sync | None = None
    ) -> bool:
        """Call a stream otherwise, with all that is its; a stream of the new name is dropped first.

        False, and nothing happens, if there is one and ``replace`` is False. Handles go by name:
        those of the old one find no stream after. StreamNotFoundError.
        """
        arguments.check_flag(replace, "replace")
        before, after = (arguments.stream_name(name, self.encoding) for name in (old, new))
        step = partial(lifecycle.rename, old=before, new=after, replace=replace)
        renamed: bool = self._commit(step, sync)
        return renamed

    def copy(
        self, source: str | bytes, target: str | bytes, *, replace: bool = False,
        sync: Sync | None = None,
    ) -> bool:  # fmt: skip
        """Copy a stream with its groups, and when it expires, under another name, in one commit.

        False if there is a stream of that name, unless ``replace`` drops it. Settings of retention
        and of groups, and what is scheduled, are not copied. StreamNotFoundError; UsageError if
        both names are one; TooLargeError above 1 GiB. Other writers wait while it copies.
        """
        from logstore.engine.dump import copy

        arguments.check_flag(replace, "replace")
        source, target = (arguments.stream_name(name, self.encoding) for name in (source, target))
        step = partial(copy.copy, source=source, target=target, replace=replace)
        copied: bool = self._commit(step, sync)
        return copied

    def restore(
        self, name: str | bytes, payload: bytes, *, replace: bool = False, sync: Sync | None = None
    ) -> Stream[T]:
        """A stream of a DUMP payload, as RESTORE; InvalidPayloadError, StreamExistsError."""
        from logstore.api import dump

        arguments.check_flag(replace, "replace")
        found = self.stream(name)
        dump.restore(self, found._name, payload, replace=replace, sync=sync)
        return found

    def read(
        self, after: Mapping[str, IDLike] | Mapping[bytes, IDLike], *, count: int | None = None,
        max_count: int | None = None, max_bytes: int | None = None,
        timeout: float | timedelta | None = 0, block: None = None,
    ) -> dict[T, list[Entry[T]]]:  # fmt: skip
        """Entries above an ID of each stream; streams without any are left out.

        ``timeout`` as in ``Stream.read``: until one of the streams has some; {} if none came.
        At most ``count`` entries of each stream, and ``max_count`` of all, in the order in which
        the streams are named. ``max_bytes`` as in ``Stream.read``, for all together.
        """
        read.refuse_block(block)
        limits = read.limits(count, max_count, max_bytes)
        return read.read_many(self, after, limits, timeout)

    def transaction(self, *, sync: Sync | None = None) -> Transaction[T]:
        """Operations on any streams, all or nothing: ``with store.transaction() as tx: ...``"""
        from logstore.api.transaction import Transaction

        return Transaction(self, sync)

    def on_dead_letter(self, callback: OnDead[T]) -> OnDead[T]:
        """Call this with a ``DeadLetter`` for each entry that this handle moves to a dead letter
        stream, after the commit, in the thread that did it; may stand as a decorator.

        A coroutine function is refused (OptionError): nobody would await it. What it raises is
        logged. Other processes and handles have callbacks of their own.
        """
        check_callable(callback, "the callback", coroutines=PLAIN)
        self._on_dead.append(callback)
        return callback

    # -- durability and care ------------------------------------------------------------------
    def sync(self) -> None:
        """Make everything durable that was acknowledged, or seen by a reader, before it returns."""
        from logstore.engine.commit import durability as flushing

        shared = self._live()
        flushing.flush_seen(shared.engine, shared.committer)

    @property
    def durable_upto(self) -> tuple[int, int]:
        """Segment and offset up to which the log is durable; a lower bound.

        (0, 0) of a store opened with ``readonly`` means that nothing in it tells, as in a copy.
        """
        return position_parts(opening.durable_upto(self._live()))

    def compact(self, *, purge: bool = False, threshold: float = 0.5) -> Any:
        """Give deleted space back: rewrite nodes with many tombstones, drop mostly dead segments.

        ``purge`` rewrites whatever still holds a deleted entry, so that its bytes are in no file
        of the store. A report is returned.
        """
        arguments.check_flag(purge, "purge")
        arguments.check_share(threshold, "threshold")
        return opening.compact(self._live(), purge=purge, threshold=threshold)

    def pins(self) -> list[PinInfo]:
        """What keeps segments from compaction: plans of Spark and exports under way, oldest first.

        A pin ends by itself an hour after it was last used, or when the process it is for is gone.
        """
        from logstore.api import pins

        return pins.pin_infos(self._engine())

    def release_pins(self, *ids: str) -> int:
        """Give pins back, by default all; how many. What reads by them raises SnapshotExpired.

        OptionError if there is no pin of an ID; ReadOnlyError.
        """
        from logstore.api import pins

        return pins.release_pins(self._engine(), ids)

    def retain(self) -> int:
        """Drop at once what streams do not keep by their settings; how many entries went.

        The background does that by itself; this is for stores opened with ``background=False``.
        """
        from logstore.engine.features import retention

        shared = self._live()
        return retention.run(shared.engine, shared.committer)

    def checkpoint(self) -> int:
        """Take a checkpoint now; its bytes."""
        return opening.checkpoint(self._live())

    def backup(self, path: str | os.PathLike[str]) -> None:
        """A copy of the store in a new directory, taken without stopping anybody."""
        opening.backup(self._live(), arguments.place(path))

    def info(self) -> StoreInfo:
        """What the store holds and where it stands."""
        return opening.store_info(self._live())

    def metrics(self) -> dict[str, int | float]:
        """Counters of this process since it opened the store, and how many pins the store has.

        docs/metrics.md says what each is.

        Numbers by name; names that end in ``_s`` or ``_s_max`` are seconds.
        """
        from logstore.api import pins

        engine = self._engine()
        return {**engine.metrics.as_dict(), **pins.pin_counts(engine)}

    @property
    def recovery(self) -> dict[str, Any]:
        """What opening found and did."""
        found: dict[str, Any] = self._live().report.as_dict()
        return found


@overload
def open_store(
    path: str | os.PathLike[str], *, sync: Sync = ..., encoding: None = ..., readonly: bool = ...,
    create: bool = ..., lock_timeout: float | timedelta = ..., background: bool = ...,
    clock: Clock | None = ..., node_max_bytes: int | None = ..., node_max_entries: int | None = ...,
    segment_bytes: int | None = ..., compact_rate: float | None = ...,
) -> Store[bytes]: ...  # fmt: skip
@overload
def open_store(
    path: str | os.PathLike[str], *, sync: Sync = ..., encoding: str, readonly: bool = ...,
    create: bool = ..., lock_timeout: float | timedelta = ..., background: bool = ...,
    clock: Clock | None = ..., node_max_bytes: int | None = ..., node_max_entries: int | None = ...,
    segment_bytes: int | None = ..., compact_rate: float | None = ...,
) -> Store[str]: ...  # fmt: skip
def open_store(
    path: str | os.PathLike[str], *, sync: Sync = "everysec", encoding: str | None = None,
    readonly: bool = False, create: bool | Literal["auto"] = True,
    lock_timeout: float | timedelta = 10.0, background: bool = True, clock: Clock | None = None,
    node_max_bytes: int | None = None, node_max_entries: int | None = None,
    segment_bytes: int | None = None, compact_rate: float | None = COMPACT_RATE_BYTES_S,
) -> Store[Any]:  # fmt: skip
    """Open a store, making it if it is missing and ``create`` allows.

    ``sync``: "always", "everysec" or "os", what a crash of the machine may lose. ``encoding``: None
    gives bytes, a codec's name gives str. ``readonly`` writes nothing, and needs no permission to.
    ``lock_timeout``: seconds to wait for another process's commit. ``background``: threads that
    keep the promise of "everysec", drop what streams do not retain, and give deleted space back at
    ``compact_rate`` bytes a second (0 or None: only ``compact`` does). The limits
    (``node_max_bytes`` and the like) are fixed when the store is made; giving others for an
    existing store is an OptionError.
    """
    if create != "auto":  # "auto"
        arguments.check_flag(create, "create")
    if encoding is not None:
        arguments.check_encoding(encoding)
    wanted = {
        name: value
        for name, value in (
            ("node_max_bytes", node_max_bytes), ("node_max_entries", node_max_entries),
            ("segment_bytes", segment_bytes),
        )
        if value is not None
    }  # fmt: skip
    limits = StoreLimits(**wanted)
    limits.check()
    options = StoreOptions(
        sync, readonly, seconds(lock_timeout, "lock_timeout"), background, checked(clock),
        0 if compact_rate is None else compact_rate,
    )  # fmt: skip
    options.check()
    store = Store[Any](
        arguments.place(path).absolute(),
        options,
        encoding,
        limits,
        create=bool(create) and not readonly,
    )
    try:
        opening.check_limits(store._live(), wanted)
    except BaseException:
        store.close()
        raise
    return store
