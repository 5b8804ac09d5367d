"""Sealing the active segment and beginning the next one.

Invariants: the mutex and LOCK are held; the log has one active segment, and each later segment
names the position at which the one before it ended.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.engine.apply import write_txn
from logstore.engine.runtime import identity
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.control_block import LogWords
from logstore.index.txn import IndexTxn
from logstore.log import frame as frames
from logstore.log import names, segment


def roll_locked(engine: Engine, words: LogWords) -> LogWords:
    """Seal the active segment and begin the next one.

    Crash order: seal frame, sync of the old segment under every policy, new segment under a
    temporary name, sync, rename, directory sync, index, WAKE. A writer that dies after the
    seal frame leaves a tail whose last commit is the seal: the tail check makes the segment.
    """
    identity.check_whole(engine)
    generation = engine.index()
    with generation.env.begin(write=True) as txn:
        index = IndexTxn(generation, txn)
        meta = index.meta()
        number = words.commit + 1
        state = write_txn.begin(engine, index, meta, engine.start_of_next(words), number)
        following = max(meta.next_segment, names.segments(engine.fs, engine.path)[-1] + 1)
        state.emit(frames.Seal(following))
        buffer = state.buffer
        assert buffer is not None
        engine.wake.begin(number)
        file = engine.active_file(words.active_segment)
        data = buffer.encode(engine.seed, engine.wake.durable_upto)
        file.pwrite(data, fmt.offset_of(buffer.start))
        engine.sync_file(file, buffer.start)
        make_segment(engine, following, buffer.end, number)
        state.meta = state.meta._replace(
            applied=buffer.end, commit=number, last_frame=buffer.last_start,
            last_crc=buffer.last_crc,
        )  # fmt: skip
        state.flush()
    engine.wake.raise_durable(buffer.end)
    engine.wake.oldest_unsynced_ms = 0
    engine.cache.clear()
    return engine.publish(state.meta)


def make_segment(engine: Engine, number: int, previous_end: int, previous_commit: int) -> None:
    """Create a main segment that follows ``previous_end``, durable."""
    head = segment.SegmentHead(
        fmt.Role.MAIN, number, engine.uuid, previous_end, previous_commit, engine.clock.now_ms()
    )
    segment.create(engine.fs, engine.path, head).close()
