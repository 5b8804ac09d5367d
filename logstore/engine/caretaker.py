"""What a process does for the store in the background after a segment was sealed.

It writes the hints that sealed segments lack, and takes a checkpoint when operation frames since
the last one exceed the larger of 64 MiB and its own size. Invariants: nothing here is needed for
correctness; if another process has the care lock, it is left to that one.
"""

from __future__ import annotations

from logstore.engine import care, checkpoints, snapshot
from logstore.engine.commit import Committer
from logstore.engine.core import Engine
from logstore.engine.snapshot import Snapshot
from logstore.errors import LockTimeoutError
from logstore.format import Role
from logstore.log import names

OPERATIONS_MAX_BYTES = 64 << 20


class Caretaker:
    """Looks after one store for one process."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._active = 0

    def tick(self) -> None:
        """Act if a segment was sealed since the last call."""
        active = self._engine.wake.log().active_segment
        if active == self._active:
            return
        self._active = active
        care.write_missing_hints(self._engine)
        if due(self._engine):
            try:
                with care.alone(self._engine, 0):
                    checkpoints.take_alone(self._engine, self._committer)
            except LockTimeoutError:
                return  # somebody compacts or takes one already


def due(engine: Engine) -> bool:
    """Whether enough operation frames stand behind the last checkpoint."""
    positions = names.checkpoints(engine.fs, engine.path)
    last = positions[-1] if positions else 0
    own = 0
    if last:
        own = engine.fs.stat(names.checkpoint(engine.path, last)).size_bytes
    since = snapshot.read(engine, lambda view: _operation_bytes(view, last >> 32))
    return since > max(OPERATIONS_MAX_BYTES, own)


def _operation_bytes(view: Snapshot, from_segment: int) -> int:
    """Bytes of sealed main segments that are no living nodes."""
    return sum(
        row.total_bytes - row.live_bytes
        for number, row in view.index.segment_rows().items()
        if row.role == Role.MAIN and number >= from_segment and row.total_bytes
    )
