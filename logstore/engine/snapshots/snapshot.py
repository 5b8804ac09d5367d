"""Read snapshots: an LMDB read transaction, held for one batch only.

Invariants: no snapshot outlives a batch or is held across the caller's code; node bytes are copied
or decoded inside; if a segment was dropped meanwhile, a new snapshot is taken and the batch is
looked up again by ID. Readers take no lock, but to open the index anew (after a fork, or when it
was switched), and that never inside the gate: who shuts the gate may hold that lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from logstore.engine.runtime import reopen
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import NodeSource, SegmentGone
from logstore.engine.snapshots.published_tail import index_upto
from logstore.errors import CorruptionError, DamagedStoreError
from logstore.index import env
from logstore.index.env import Generation
from logstore.index.keys import Meta, OpenNode, StreamRecord
from logstore.index.txn import IndexTxn
from logstore.options import IMPORTING
from logstore.row_seal import LostRowsError

T = TypeVar("T")
TRIES = 5
DOUBTS_MAX = 3  # each copy that a program makes of its open store takes the reader's place again
_UNREGISTERED = (
    "the index could not be read in peace: this process closes its lock.mdb again and again; copy "
    "the store with store.backup(), or from another process"
)


class NotNow(Exception):  # noqa: N818  (control flow)
    """It cannot be read without waiting, or mending something, first."""


class _IndexMoved(Exception):  # noqa: N818  (control flow)
    """The index is not open here, or not any more the one that is valid."""


class _Unregistered(Exception):  # noqa: N818  (control flow)
    """Others could write over the pages that were read."""


class Snapshot:
    """The store at one moment."""

    __slots__ = ("_clock", "_meta", "_now_ms", "_open", "index", "segments")

    def __init__(self, index: IndexTxn, segments: NodeSource, clock: Callable[[], int]) -> None:
        self.index = index
        self.segments = segments
        self._clock = clock
        self._now_ms: int | None = None
        self._meta: Meta | None = None
        self._open: tuple[int, OpenNode | None] = (0, None)  # the one that was asked for last

    @property
    def now_ms(self) -> int:
        """The store's clock when it was first asked here (unix ms)."""
        if self._now_ms is None:
            self._now_ms = self._clock()
        return self._now_ms

    @property
    def meta(self) -> Meta:
        """Where the index stood."""
        if self._meta is None:
            self._meta = self.index.meta()
        return self._meta

    def open_node(self, stream: int) -> OpenNode | None:
        """A stream's open node."""
        if self._open[0] != stream:
            self._open = (stream, self.index.open_node(stream))
        return self._open[1]

    def record(self, name: bytes) -> StreamRecord | None:
        """A stream's record by name; None also for one that has expired.

        LostRowsError if the index knows of it, and has no record.
        """
        try:
            found = self.index.named(name)
        except CorruptionError as exc:
            raise LostRowsError(exc.message, self.index.generation.number) from exc
        expired = found is not None and found.expires_ms and found.expires_ms <= self.now_ms
        return None if expired else found

    def confirm_nodes(self, record: StreamRecord, *, given: bool = False) -> None:
        """LostRowsError if a stream has not as many nodes as its record says; ``given``: what was
        read of it without them was given away."""
        number = record.number
        there = self.index.node_count(number)
        lost = record.open_version and self.index.open_node(number) is None
        if there != record.nodes or lost:
            raise self.lost(record, f"{there} of {record.nodes} nodes", given=given)

    def lost(self, record: StreamRecord, what: str, *, given: bool = False) -> LostRowsError:
        """The error that says that only so much of a stream is in the index."""
        more = ": it was incomplete, read it again" if given else ""
        return LostRowsError(
            f"the index has {what} of stream {record.name!r}{more}",
            self.index.generation.number,
            given=given,
        )

    def records(self, after: int = 0) -> Iterator[StreamRecord]:
        """The records of streams that have not expired, with numbers above ``after``, ascending.

        What an import has not finished is among them: it is stored, and so it is salvaged, and its
        deleted bytes are looked for, as of any other stream.
        """
        for record in self.index.records(after):
            if not record.expires_ms or record.expires_ms > self.now_ms:
                yield record

    def listed(self, after: int = 0) -> Iterator[StreamRecord]:
        """The same for a list of streams: without what an import has not finished, or was killed
        over, which stands under a name that begins with ``IMPORTING``."""
        for record in self.records(after):
            if not record.name.startswith(IMPORTING):
                yield record


def read(engine: Engine, batch: Callable[..., T], *args: Any) -> T:
    """Run one batch of reading on a fresh snapshot; what it returns.

    ``batch`` takes the snapshot, then ``args``. It is called again, on a newer snapshot, if what it
    read was moved meanwhile.
    """
    missing: int | None = None
    doubts = 0
    tries = 0
    while tries < TRIES:
        follow = engine.follow  # goes when the store is closed
        if follow is not None:
            follow()
        generation = engine.generation
        try:
            result: T = inside(engine, _once, batch, args)
            return result
        except _IndexMoved:  # by a fork or another process, or it was not open yet: not counted
            try:
                engine.index()
            except (FileNotFoundError, CorruptionError):  # deleted by hand: the log has it all
                engine.repair_index()
            continue
        except SegmentGone as gone:
            missing = gone.args[0]
        except LostRowsError as lost:
            reopen.rebuild(engine, lost)
        except Exception as exc:
            last = tries == TRIES - 1
            if isinstance(exc, env.GaveUp) and not last:
                reopen.revive(engine)
            elif generation is None or last or not _again(engine, exc, generation, doubts):
                if isinstance(exc, _Unregistered):
                    raise CorruptionError(_UNREGISTERED) from None
                if (error := env.typed(exc)) is exc:
                    raise
                raise error from exc
            doubts += 1
        tries += 1
    raise DamagedStoreError(
        "a segment that the index names is missing: run 'logstore check'", segment=missing
    )


def read_at_once(engine: Engine, batch: Callable[..., T], *args: Any) -> T:
    """What a short batch reads on a fresh snapshot, without waiting for anybody.

    Raises:
        NotNow: ``read`` would wait, open the index anew or look twice, or the batch failed: nothing
            was read, and ``read`` is to be called, in a thread that may wait.
    """
    gate, token = engine.gate, object()
    readers = gate.inside
    try:
        readers[token] = threading.get_ident()
        if gate.is_shut or engine.follow is not None:
            raise NotNow
        return _once(engine, batch, args)
    except Exception as exc:
        raise NotNow from exc
    finally:
        readers.pop(token, None)


def inside(engine: Engine, work: Callable[..., T], *args: Any) -> T:
    """Do something with the index while nobody closes it: inside the gate. What it returns."""
    gate, token = engine.gate, object()
    readers = gate.inside
    try:
        readers[token] = threading.get_ident()
        if gate.is_shut:  # looked at after the token was shown: the closer sees it, or we do
            gate.wait(token)
        return work(engine, *args)
    finally:
        readers.pop(token, None)


def _once(engine: Engine, batch: Callable[..., T], args: tuple[Any, ...]) -> T:
    if engine.closed or engine.gone:
        engine.check_open()
    # No local variable for WAKE: an error keeps this frame, and so it mapped behind a close.
    # In this order. What was published by the first word must be seen. What LMDB had by the second
    # is in a snapshot that begins behind it; it speaks of the generation that is valid then, so
    # that is looked at next: the word of another one would hide what this one lacks.
    published = engine.wake.applied
    indexed = engine.wake.indexed_upto
    generation = engine.generation
    if generation is None or generation.number != engine.wake.generation():
        raise _IndexMoved
    if engine.wake.dropped != engine.dropped_seen:
        engine.notice_drops()
    with generation.env.begin() as txn:
        if indexed >= published:
            index = IndexTxn(generation, txn)
        else:
            index = index_upto(engine, generation, txn, published)
        result = batch(Snapshot(index, engine.segments, engine.clock.now_ms), *args)
        if generation.lost:
            raise LostRowsError(env.LOST_PAGES, generation.number)
        changed = engine.wake.readers_changed
        if changed != generation.registered_at:
            if not generation.is_registered(txn):
                raise _Unregistered
            generation.registered_at = changed
        return result


def _again(engine: Engine, exc: Exception, tried: Generation, doubts: int) -> bool:
    """Whether to read once more. In an environment that was opened again: this process may have
    lost its place among the readers; what still looks like damage after ``DOUBTS_MAX`` times is.
    In one that was built anew, where pages of this one were lost.
    """
    if tried.lost:
        reopen.rebuild(engine, LostRowsError(env.LOST_PAGES, tried.number))
        return True
    if isinstance(exc, _Unregistered | env.LostReader):
        return reopen.reopen(engine, tried)
    return env.is_doubtful(exc) and doubts < DOUBTS_MAX and reopen.reopen(engine, tried)
