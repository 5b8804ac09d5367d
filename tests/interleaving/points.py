"""Names of points: which protocol, which part of it, what is about to be done.

Steps of commits, compaction, checkpoints, recovery are called as the crash states call them. Every
name in ``LOOKED_FOR`` must be met, so that none is lost in silence.
"""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import NamedTuple

from tests.crash.states.steps import step_of
from tests.crash.states.table import label

# (module, function), wherever it stands among the callers: what it does is called so.
OUTER = {
    ("check", "run"): "check",
    ("readonly", "open_engine"): "read-only",
    ("readonly", "follow"): "read-only",
    ("backup", "take"): "backup",
    ("plan", "make"): "plan of a scan",
    ("engine", "repair_index"): "an index that is gone",
    ("maintenance_locks", "write_missing_hints"): "hints",
    ("retention", "run"): "retention",
}
# Only if nothing else has a name.
INNER = {("snapshot", "read"): "reader", ("rebuild", "copy_used"): "copy of the index"}


class Point(NamedTuple):
    """A place to stop at: the how manieth time that this is about to be done."""

    name: str
    nth: int


def name_of(frame: FrameType | None, kind: str, path: Path | None) -> str:
    """What is about to be done, told by who called for it."""
    inner = ""
    at = frame
    while at is not None:
        key = at.f_code.co_filename.rpartition("/")[2].removesuffix(".py"), at.f_code.co_name
        found = OUTER.get(key)
        if found is not None:
            step = step_of(frame, kind, path)
            return f"{found}: {_within(step.protocol, step.part)}{step.doing}"
        inner = inner or INNER.get(key, "")
        at = at.f_back
    step = step_of(frame, kind, path)
    return f"{inner}: {step.doing}" if inner else f"{step.protocol}: {label(step)}"


def _within(protocol: str, part: str) -> str:
    return f"{part}, " if part else ""
