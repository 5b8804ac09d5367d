"""When an engine has a lane, what that asks of the index, and what became of a commit that failed.

Invariants: a lane is only made where it does what the pipeline would: with the system's clock, on
the real file system, in a store that may be written to; and it is made once, when the store is
opened. Whether a failed commit counts is asked of the log, as the pipeline does (``resolve``).
"""

from __future__ import annotations

import os
import sys
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from logstore import format as fmt
from logstore.clock import SYSTEM_CLOCK
from logstore.engine.commit import log_tail, pipeline, write_back
from logstore.engine.lane.indexed import Indexed
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.runtime import identity
from logstore.engine.runtime.plain_frames import mark_sealed
from logstore.engine.shm import process_identity
from logstore.engine.shm.waiters import PACE
from logstore.engine.shm.writer_lock import PASSED_OVER_MAX, through
from logstore.errors import FileSystemError, typed
from logstore.features.setting_rows import SettingRows
from logstore.fs import FileSystem
from logstore.index.group_txn import LAST
from logstore.index.txn import IndexTxn
from logstore.log import file_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.engine.commit.committer import Committer
    from logstore.engine.lane.native import Lane
    from logstore.engine.runtime.engine import Engine
    from logstore.ids import StreamID
    from logstore.index.group_keys import ConsumerRecord, GroupRecord
    from logstore.index.group_txn import RunPlace
    from logstore.index.keys import Locator, OpenNode, StreamRecord

T = TypeVar("T")
MAX_POSITION = (1 << 64) - 1
NO_MORE = ((1 << 64) - 1, LAST)  # where a group's runs by their oldest delivery end
IN_USE = True


def open_lane(engine: Engine, committer: Committer) -> Lane | None:
    """The lane of an engine that was just opened; None where there is none."""
    options = engine.options
    if (
        not IN_USE
        or native_or_none is None
        or options.readonly
        or options.clock is not SYSTEM_CLOCK
    ):
        return None
    if type(engine.fs) is not FileSystem:
        return None  # one of the tests, which must see every write
    return make(engine, committer)


def make(engine: Engine, committer: Committer) -> Lane:
    """The lane of an engine, wherever it is: ``open_lane`` asks whether there may be one."""
    assert native_or_none is not None
    packed, port = process_identity.packed_self(), IndexPort(engine)
    lane: Lane = native_or_none.Lane(
        engine,
        committer.calls,
        committer.queue,
        (int.from_bytes(packed[:8], sys.byteorder), int.from_bytes(packed[8:], sys.byteorder)),
        vars(write_back),
        partial(_follow, engine),
        partial(_ask, engine, port),
        identity.LOOK_NS,
        log_tail.END_LOOK_NS,
        PASSED_OVER_MAX,
        port,
        process_identity.state_of,
        (process_identity.RUNS, process_identity.STOPPED),
        PACE,
    )
    engine.lane = lane
    engine.metrics.more = lane.take_counts
    return lane


def _follow(engine: Engine) -> None:
    write_back.follow_locked(engine, engine.wake.log())


class IndexPort(Indexed):
    """What a lane asks of the index, which it does not know. None also where the index cannot be
    read: the pipeline says why. The mutex is held, and no commit of this process is in progress.

    What plain commits change counts only if the index is not ahead of the lane (``upto``). If it is
    behind, no frame in between is of that row: whoever took such a frame in had the row, or was
    told so (``skipped``). Sealed nodes that it lacks are above all that it has, but where IDs were
    lowered: who asks for ``node`` lets it follow first.
    """

    def node(
        self, stream: int, start: StreamID
    ) -> tuple[StreamID, StreamID, int, bytes, bytes] | None:
        """The sealed node with the first entries from an ID on: master ID, last ID, position, what
        was deleted of it where the record cache stands, listpack. None if there is none, or the
        next one overlaps it."""
        segments = self._engine.segments

        def look(index: IndexTxn) -> tuple[StreamID, StreamID, int, bytes, bytes] | None:
            found = index.node_from(stream, start)
            if found is None:
                return None
            master, locator, above = found
            if not locator.live or (above is not None and above <= locator.last):
                return None
            lp = segments.node(stream, master, locator)
            locator = self._marked(locator)
            return master, locator.last, locator.position, locator.vector, lp

        return self._look(MAX_POSITION, look)

    def load(
        self, name: bytes | None, number: int | None
    ) -> tuple[StreamRecord, OpenNode | None] | Literal[False] | None:
        """A stream's record and open node, by its name or its number; False if there is none.

        As the record cache has them, and else the index; that may be beyond where the cache stands,
        as far as WAKE says. Then the cache lacks the stream from here on, and the lane passes over
        frames that the record has already.
        """
        cache = self._engine.cache

        def look(
            index: IndexTxn,
        ) -> tuple[StreamRecord, OpenNode | None] | Literal[False]:
            record = index.record(number or 0) if name is None else index.named(name)
            if record is None:
                return False
            if index.applied() > cache.applied:
                cache.lack(record.number)
            record, node = cache.records.get(record.number, record), cache.opens.get(record.number)
            if node is None and record.open_version:
                node = index.open_node(record.number)
            return record, node

        return self._look(max(cache.applied, self._engine.wake.indexed_upto), look)

    def first_node(self, stream: int) -> tuple[int, int, int, int] | None:
        """The first sealed node: its live entries where the record cache stands, its last ID in two
        parts, its position."""
        found = self._look(MAX_POSITION, lambda index: index.first_node(stream))
        if found is None:
            return None
        locator = self._marked(found[1])
        return locator.live, locator.last.ms, locator.last.seq, locator.position

    def _marked(self, locator: Locator) -> Locator:
        """A locator with the tombstones that the record cache owes to the index."""
        return mark_sealed(locator, self._engine.cache.owed_tombstones)

    def learn_settings(self, group: int) -> None:
        """Have the record cache know the settings of a group: the commit that changes them is not
        plain, and writes them."""
        settings = self._look(MAX_POSITION, lambda index: SettingRows(index).group(group))
        if settings is not None:
            self._engine.cache.settings.groups[group] = settings

    def learn_group(self, stream: int, number: int | None, name: bytes | None, upto: int) -> None:
        """Have the record cache know a group, by its number, or by its stream and name."""

        def look(index: IndexTxn) -> GroupRecord | None:
            at = number
            if at is None and name is not None:
                at = index.groups.number(stream, name)
            return None if at is None else index.groups.group(at)

        found, known = self._look(upto, look), self._engine.cache.groups
        if found is not None:
            known.numbers[found.stream, found.name] = found.number
            known.groups[found.number] = found

    def learn_consumer(self, group: int, number: int | None, name: bytes | None, upto: int) -> None:
        """Have the record cache know a consumer of a group, by number or name."""

        def look(index: IndexTxn) -> ConsumerRecord | None:
            at = number
            if at is None and name is not None:
                at = index.groups.consumer_number(group, name)
            return None if at is None else index.groups.consumer(group, at)

        found, known = self._look(upto, look), self._engine.cache.groups
        if found is not None:
            known.consumer_numbers[group, found.name] = found.number
            known.consumers[group, found.number] = found

    def around(self, group: int, id: bytes, upto: int) -> RunPlace | None:
        """The run of pending entries to which an ID belongs, with its bounds."""
        return self._look(upto, lambda index: index.groups.around(group, id))

    def idle(
        self, group: int, since: tuple[int, bytes], upto: int
    ) -> tuple[RunPlace | None, int, bytes] | None:
        """Of a group's runs by their oldest delivery, the first one from such a time and first ID
        on; and these of the one behind it. What is given back is before all deliveries."""

        def look(index: IndexTxn) -> tuple[RunPlace | None, int, bytes]:
            groups = index.groups
            first, behind, *_ = *islice(groups.idle(group, since), 2), NO_MORE, NO_MORE
            near = None if first is NO_MORE else groups.around(group, first[1])
            return near, behind[0], behind[1]

        return self._look(upto, look)

    def _look(self, upto: int, look: Callable[[IndexTxn], T]) -> T | None:
        """What a look at the index gives; None if that has commits beyond ``upto``, or it cannot be
        read."""
        generation = self._engine.generation
        if generation is None or generation.number != self._engine.wake.generation():
            return None
        try:
            with generation.env.begin() as txn:
                index = IndexTxn(generation, txn)
                return look(index) if index.applied() <= upto else None
        except Exception:  # noqa: BLE001  the pipeline meets it, too
            return None


def _ask(
    engine: Engine,
    port: IndexPort,
    synced: bool,
    error: int,
    start: int,
    last: int,
    number: int,
    crc: int,
) -> None:
    """Raise what a failed append, or with ``synced`` a failed sync, means for its commit; nothing
    if that counts and all is well. The mutex and LOCK are held."""
    port.take_back()  # the tail check writes to the index
    path = file_names.segment(engine.path, fmt.segment_of(start))
    exc: Exception = FileSystemError(f"{path} could not be synced before")
    if error:
        exc = typed(OSError(error, os.strerror(error)), path, "syncing" if synced else "writing")
    request = pipeline.Request(_nothing, (), 0, 0)
    batch = pipeline.Batch([request])
    batch.start, batch.last_frame = start, last
    batch.number, batch.last_crc, batch.appended = number, crc, synced
    through(pipeline.resolve, engine, batch, exc)
    if request.error is not None:
        try:
            raise request.error
        finally:
            del request, batch, exc  # or its frames keep it, and the index that was valid now


def _nothing(*_: Any) -> None:
    """The operation of a request that only waits for its outcome."""
