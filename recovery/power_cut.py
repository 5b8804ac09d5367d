"""After a power cut: the segment that was written to is left, and a new one begun.

Commits that were lost may stand on the disk behind the end of that segment, in blocks that a file
system shows again when the file grows over them and its new bytes are lost: whole frames, at their
place, with the next number. An opening that did not see them has told what there is; they must not
come back. The seal is synced over them, and what a sealed segment holds behind its end is void.

Invariants: LOCK is held, nobody else has the store open; a full disk does not stand in the way.
Knows nothing of how the index came to be.
"""

from __future__ import annotations

from logstore.engine.commit import log_tail
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.control_block import LogWords
from logstore.errors import DiskFullError
from logstore.log import chain, names
from logstore.recovery.shutdown_marker import Boot, Identity, dirty, identity, write


def was_cut(known: Boot | None, here: Identity) -> bool:
    """Whether the power may have gone while the store was open, as BOOT has it: another boot, mount
    or device. A process that was killed loses nothing that the system was given.
    """
    if known is None or known.clean_applied:
        return False
    return not here.known or here[:3] != known.identity[:3]


def written_to(engine: Engine, known: Boot | None) -> int:
    """The segment that a power cut met, before the tail is finished; 0: there was none."""
    if not was_cut(known, identity(engine.path / names.LOCK)):
        return 0
    return chain.main_links(engine.fs, engine.path, engine.uuid)[-1].number


def leave(engine: Engine, segment: int) -> None:
    """Seal it, unless the tail has already gone on in another one.

    Crash order: the seal, the new segment, then BOOT, which the rebuild has left as it was: whoever
    opens the store before that does all of it again.
    """
    if not segment:
        return
    words = engine.wake.log()
    if words.active_segment == segment:
        _seal(engine, words)
    generation = engine.index()
    here = identity(generation.path / "data.mdb")
    write(engine.fs, engine.path, dirty(generation.number, here, engine.promised))


def _seal(engine: Engine, words: LogWords) -> None:
    try:
        log_tail.roll_locked(engine, words)
    except DiskFullError as exc:  # reads, deletes and acks must go on
        log_tail.finish_locked(engine)
        log.warning("the segment of before the power cut is written on: %s", exc)
