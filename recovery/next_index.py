"""The next generation of the index, built while others commit (``runtime.engine.NextIndex``).

It is a copy of the rows of the one there is, as of a moment, so that it is as small as it can be
and has no byte of what was deleted. Then it takes in what was published since, until little is
left, or those who commit are as fast. The rest is taken in under LOCK, a slice at a time, and
others commit in between; so is the switch done. From checkpoint and log an index is built only
where there is none to copy (``recovery.replay``): somebody adds about as fast as frames are
applied, so that would not come to an end.

Lock order: the maintenance lock is held all the time; the mutex and LOCK only in ``follow_locked``
and ``switch_locked``. Writing to this index needs no lock before that, as nobody else knows it.

Crash order: (1) it has a temporary name of its own, and no other process opens or removes it; (2)
what BOOT is to say is written and synced, under a temporary name; (3) under LOCK, with all of the
log taken in, the directory gets its name, then BOOT, then WAKE says so; the index before gets a
temporary name, so that nobody opens it while it goes; (4) the directory of BOOT is synced, and the
index before goes. A kill before (3) leaves a directory that the next one who builds, or the first
opener, removes. A kill among the steps of (3) leaves two. Each says up to which commit it has the
log, and whoever opens it takes in the rest; the one that BOOT names is built anew if others went on
without it and dropped segments behind it (``index_validity``). LMDB is not synced: what a power cut
leaves is not trusted, as ever.

Invariants: nothing is taken in before it was published; the record cache and the open files of the
engine stay as they are, for a commit of this process may need them; an index that somebody else
built meanwhile is never replaced by this one.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from pathlib import Path

from logstore import format as fmt
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.writer_lock import PAUSE_S
from logstore.engine.snapshots import snapshot
from logstore.errors import CorruptionError
from logstore.index import env
from logstore.index.env import LOST_PAGES, Generation, RowPiece, open_generation, translated
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names
from logstore.recovery import index_validity
from logstore.recovery.replay import take_in

LEFT_BYTES = 64 << 10  # of the log, which is little
# What a round must leave of what it began with. Where it leaves more, adders are as fast as this
# is, on a busy machine, and each round would leave more than the one before.
SHRINKS_TO = 0.75
# A slice under LOCK: of the log, how long it is to take, and when it is as small as it gets.
SLICE_BYTES, SLICE_S, SLICE_MIN_BYTES = 16 << 10, 0.01, 4 << 10
PIECES_A_COMMIT = 128  # 16 MiB
_CLOSED = "the index was closed while it was copied"


class NextIndex:
    """One that is being built."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        home = engine.index_home
        self._replaced = engine.wake.generation()
        self._number = 1 + max([self._replaced, *file_names.generations(engine.fs, home)])
        self._temporary = file_names.generation_beside(home, self._number)
        self._marker: Path | None = None  # what BOOT is to say
        self._aside = aside(engine)
        self._made: Generation | None = None
        self._applied = 0  # where it stands
        self._slice_bytes = SLICE_BYTES

    @translated()
    def build(self) -> None:
        """Build it, then let it follow those who commit."""
        engine = self._engine
        _remove_left(engine)  # the names of these are needed under LOCK
        self._made = made = open_generation(engine.fs, self._temporary, self._number, build=True)
        _copy(engine, made)
        self._name()  # a sync: what is added meanwhile would be left for LOCK
        wake = engine.wake
        with made.env.begin() as txn:
            self._applied = IndexTxn(made, txn).applied()
        before = 0
        while (left := self._left_bytes(published := wake.applied)) > LEFT_BYTES:
            if before and left > SHRINKS_TO * before:
                break
            self._take_in(published)
            before = left

    def _left_bytes(self, published: int) -> int:
        """About how much of the log is to be taken in. Segments in between count as full ones."""
        between = fmt.segment_of(published) - fmt.segment_of(self._applied) - 1
        if between < 0:
            return published - self._applied
        segment_bytes = self._engine.limits.segment_bytes
        rest = segment_bytes - fmt.offset_of(self._applied)
        return max(0, rest) + between * segment_bytes + fmt.offset_of(published)

    def _take_in(self, bound: int) -> None:
        assert self._made is not None
        self._applied = take_in(self._aside, self._made, bound).applied

    def _name(self) -> None:
        """What BOOT is to say, durable under a temporary name: no sync is left for LOCK."""
        engine = self._engine
        here = index_validity.identity(self._temporary / "data.mdb")
        marker = index_validity.dirty_marker(self._number, here, engine.promised)
        self._marker = file_names.boot_beside(engine.index_home)
        index_validity.prepare_marker(engine.fs, self._marker, marker)

    @translated()
    def follow_locked(self, applied: int) -> bool:
        """Take in a slice of what is left; whether it was the last one. LOCK is held."""
        before, end, began_s = self._applied, self._slice_end(applied), time.perf_counter()
        if before < applied:
            self._take_in(end)
            took_s = time.perf_counter() - began_s
            larger = 2.0 if self._applied == before else min(2.0, SLICE_S / max(took_s, 1e-6))
            self._slice_bytes = max(SLICE_MIN_BYTES, int(self._slice_bytes * larger))
        return end == applied  # what is lacking then is not in the log

    def _slice_end(self, published: int) -> int:
        """Up to where a slice goes: a commit that is larger has a larger one the next time."""
        engine, at = self._engine, self._applied
        links = chain.main_links(engine.fs, engine.path, engine.uuid, fmt.segment_of(at))
        if len(links) > 1 and fmt.offset_of(at) >= links[0].end_offset:
            at = fmt.position(links[1].number, links[1].start_offset)
        return min(published, at + self._slice_bytes)

    @translated()
    def switch_locked(self, applied: int) -> bool:
        """All processes use it from now on. LOCK is held."""
        engine, made = self._engine, self._made
        fs, home = engine.fs, engine.index_home
        assert made is not None
        assert self._marker is not None
        path = file_names.generation(home, self._number)
        if engine.wake.generation() != self._replaced or fs.exists(path):
            return False
        if self._applied != applied:
            return False  # the log is not what WAKE says: the tail check finds it
        fs.rename(self._temporary, path)
        made.path = path
        # A crash before this names the index before, which nobody has written to meanwhile.
        fs.rename(self._marker, home / file_names.BOOT)
        self._marker = self._made = None
        engine.generation = made
        engine.settle_generation(made)
        for old in file_names.generations(fs, home):  # who has it open keeps what is mapped
            if old < self._number:
                fs.rename(file_names.generation(home, old), file_names.generation_beside(home, old))
        log.info("index generation %d takes the place of %d", self._number, self._replaced)
        return True

    @translated()
    def leave(self) -> None:
        """Remove what is not used any more, or this one."""
        fs, home = self._engine.fs, self._engine.index_home
        self._aside.segments.close()
        made, self._made = self._made, None
        if made is not None:
            made.close()
        if self._marker is not None:
            fs.remove(self._marker)
        fs.sync_directory(home)  # of BOOT
        _remove_left(self._engine)


def _remove_left(engine: Engine) -> None:
    """Remove what nobody opens any more. The maintenance lock is held, so nobody else builds."""
    for path in file_names.generations_beside(engine.fs, engine.index_home):
        engine.fs.remove_tree(path)


def _copy(engine: Engine, made: Generation) -> None:
    """Copy all rows as of a moment. Some at a time are read inside the gate: who shuts it, and may
    have LOCK, does not wait for all of them. Some more are one transaction, which is in memory.

    CorruptionError if the index there is was closed meanwhile, or is not sound to the end.
    """
    engine.index()
    steps = _steps(engine)
    try:
        while True:
            with made.env.begin(write=True) as writing:
                for _ in range(PIECES_A_COMMIT):
                    piece: RowPiece | None = snapshot.inside(engine, _next, steps)
                    if piece is None:
                        return
                    env.put_piece(made, writing, piece)
                    if engine.lock.held:  # a thread of this process needs the interpreter, soon
                        time.sleep(PAUSE_S)
    finally:
        snapshot.inside(engine, lambda _: steps.close())


def _next(_: Engine, steps: Iterator[RowPiece]) -> RowPiece | None:
    return next(steps, None)


def _steps(engine: Engine) -> Generator[RowPiece, None, None]:
    """All rows, some at each step; CorruptionError if the index is replaced or lost meanwhile."""
    generation = engine.generation
    if generation is None:
        raise CorruptionError(_CLOSED)
    with generation.env.begin() as reading:
        for piece in env.row_pieces(generation, reading):
            yield piece
            if engine.generation is not generation:
                raise CorruptionError(_CLOSED)
        if generation.lost or not generation.is_registered(reading):
            raise CorruptionError(LOST_PAGES)


def aside(engine: Engine) -> Engine:
    """An engine of the same store that builds an index: with a record cache and files of its own."""
    made = Engine(
        engine.fs,
        engine.path,
        engine.uuid,
        engine.limits,
        engine.options,
        lock=engine.lock,
        users=None,
        wake=engine.wake,
        rebuild=_never,
    )
    made.promised, made.accept_loss = engine.promised, engine.accept_loss
    return made


def _never(_: Engine) -> int:
    raise AssertionError("an index that is being built is not looked up")
