"""Names of points: which protocol, which part of it, what is about to be done.

Steps of commits, compaction, checkpoints, recovery are called as the crash states call them. Every
name in ``LOOKED_FOR`` must be met, so that none is lost in silence.
"""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import NamedTuple

from logstore.engine.features import retention
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.recovery import backup, check, readonly, replay
from logstore.scan import split_plan
from tests.crash.states.steps import code_of, step_of
from tests.crash.states.table import label

# A function, wherever it stands among the callers: what it does is called so.
OUTER = {
    code_of(check.check): "check",
    code_of(readonly.open_engine): "read-only",
    code_of(readonly.Follower.follow): "read-only",
    code_of(backup.take): "backup",
    code_of(split_plan.make): "plan of a scan",
    code_of(Engine.repair_index): "an index that is gone",
    code_of(maintenance_locks.write_missing_hints): "hints",
    code_of(retention.run): "retention",
}
# Only if nothing else has a name.
INNER = {code_of(snapshot.read): "reader", code_of(replay.copy_used): "copy of the index"}


class Point(NamedTuple):
    """A place to stop at: the how manieth time that this is about to be done."""

    name: str
    nth: int


def name_of(frame: FrameType | None, kind: str, path: Path | None) -> str:
    """What is about to be done, told by who called for it."""
    inner = ""
    at = frame
    while at is not None:
        found = OUTER.get(at.f_code)
        if found is not None:
            step = step_of(frame, kind, path)
            return f"{found}: {_within(step.protocol, step.part)}{step.doing}"
        inner = inner or INNER.get(at.f_code, "")
        at = at.f_back
    step = step_of(frame, kind, path)
    return f"{inner}: {step.doing}" if inner else f"{step.protocol}: {label(step)}"


def _within(protocol: str, part: str) -> str:
    return f"{part}, " if part else ""
