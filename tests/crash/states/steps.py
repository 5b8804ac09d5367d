"""Which step of which protocol an operation belongs to, told by who called for it.

The functions of the code under test that stand for a step are the keys here, and not their names:
one that is renamed fails the import. ``LOOKED_FOR`` holds that the table loses no row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from logstore.compaction import closing, runner, segment_rewrite
from logstore.engine.commit import committer, log_tail, pipeline, write_back
from logstore.engine.maintenance import checkpoint
from logstore.log import file_names
from logstore.recovery import create, replay, store_opening, unsynced

COMMIT, ROLL, CHECKPOINT, COMPACTION = "commit", "seal and roll", "checkpoint", "compaction"
RECOVERY, CREATE, CLOSE, UPGRADE = "recovery", "create", "close", "upgrade"
FULL, GIVING_BACK = "full compaction", "close that gives back"
LANE, FOLLOW = "lane", "the index follows"
PROTOCOLS = (
    COMMIT, LANE, FOLLOW, ROLL, CHECKPOINT, COMPACTION, FULL, GIVING_BACK, RECOVERY, CREATE, CLOSE,
    UPGRADE,
)  # fmt: skip


# Of a commit of the lane: words of WAKE are stored one after the other.
LANE_STEPS = (
    "begin", "write segment", "sync segment", "commit the index", "store where the index is",
    "store the commit's number",
    "store where its last frame is", "store the CRC of that", "store where the log ends",
    "store that none is in progress", "let go of LOCK",
)  # fmt: skip


class ProtocolStep(NamedTuple):
    """A row of the table."""

    protocol: str
    part: str  # of the protocol; empty: it has no parts
    doing: str


def code_of(function: Callable[..., Any]) -> CodeType:
    """What a frame of it runs."""
    return inspect.unwrap(function).__code__


# A function: protocol, part. The innermost one that is found names the step.
_FUNCTIONS: dict[Callable[..., Any], tuple[str, str]] = {
    pipeline.commit_locked: (COMMIT, ""),
    committer.Committer.run: (COMMIT, ""),
    write_back.follow_locked: (FOLLOW, ""),
    log_tail.follow_locked: (FOLLOW, ""),
    log_tail.roll_locked: (ROLL, ""),
    checkpoint.take_alone: (CHECKPOINT, ""),
    create.create_store: (CREATE, ""),
    store_opening._upgrade: (UPGRADE, ""),
    store_opening.close_engine: (CLOSE, ""),
    store_opening._leave_hints: (CLOSE, "hints"),
    store_opening._mark_clean: (CLOSE, "clean mark"),
    store_opening.open_engine: (RECOVERY, "open"),
    store_opening._finish_tail: (RECOVERY, "tail"),
    log_tail.check_locked: (RECOVERY, "tail"),
    log_tail._cut: (RECOVERY, "cut the tail"),
    log_tail._complete_roll: (RECOVERY, "end a roll"),
    unsynced.rewrite: (RECOVERY, "after a failed sync"),
    replay.build: (RECOVERY, "rebuild"),
    runner.run: (COMPACTION, "run"),
    closing._copy_index: (COMPACTION, "copy the index"),
    segment_rewrite.seal: (COMPACTION, "seal"),
    segment_rewrite.write_and_adopt: (COMPACTION, "write"),
    segment_rewrite.adopt: (COMPACTION, "adopt"),
    segment_rewrite.CompactedSegment.finish: (COMPACTION, "write"),
    segment_rewrite.rewrite_open_nodes: (COMPACTION, "rewrite open nodes"),
    segment_rewrite.drop_dead: (COMPACTION, "drop"),
    segment_rewrite.unlink: (COMPACTION, "unlink"),
    segment_rewrite.remove_garbage: (COMPACTION, "garbage"),
    runner._erase_copies: (COMPACTION, "erase copies"),
    runner._shrink_index: (COMPACTION, "shrink the index"),
}
CALLERS = {code_of(function): step for function, step in _FUNCTIONS.items()}
# A part that others call for, too, and whose it is then.
PARTS_OF = {("unlink", "garbage"), ("rebuild", "shrink the index")}
_KINDS = {
    "create": "create", "write": "write", "truncate": "cut or grow", "sync": "sync",
    "rename": "rename to", "remove": "remove", "make_directory": "make", "sync_directory": "sync",
}  # fmt: skip


def step_of(frame: FrameType | None, kind: str, path: Path | None) -> ProtocolStep:
    """The step of an operation, from the stack of those who called for it."""
    found: tuple[str, str] | None = None
    creating = False
    whole = ""
    while frame is not None:
        here = CALLERS.get(frame.f_code)
        if here is not None:
            if found is None or _owns(here, found):
                found = here
            if here[1] == "open":
                creating = _creating(frame)
        whole = _whole(frame) or whole
        frame = frame.f_back
    protocol, part = found if found is not None else (COMMIT, "")
    if creating and protocol == RECOVERY:
        protocol, part = CREATE, part if part != "open" else ""
    if whole:
        protocol, part = whole, part or protocol
    what = kind if path is None else f"{_KINDS.get(kind, kind)} {_called(path)}"
    return ProtocolStep(protocol, part, what)


def _whole(frame: FrameType) -> str:
    """What a compaction as a whole is part of, if that is told by itself."""
    if frame.f_code is code_of(closing.run):
        return GIVING_BACK
    return FULL if frame.f_code is code_of(runner.run) and frame.f_locals["full"] else ""


def _owns(here: tuple[str, str], found: tuple[str, str]) -> bool:
    """Whether a step is part of one that is farther out."""
    return (found[0] == COMMIT and here[0] == COMPACTION) or (found[1], here[1]) in PARTS_OF


def _creating(frame: FrameType) -> bool:
    """Whether an opening makes the store: it did, or there is none so far."""
    report, store = frame.f_locals.get("report"), frame.f_locals["path"]
    return bool(getattr(report, "created", False)) or not (store / file_names.STORE).exists()


def _called(path: Path) -> str:
    """What kind of file it is."""
    if path.parent.name == file_names.INDEX or file_names.INDEX in path.parts[-3:-1]:
        return "index/<generation>"
    temporary = ".tmp" if path.name.endswith(file_names.TEMPORARY) else ""
    plain = path.name.removesuffix(file_names.TEMPORARY)
    kinds = {".log": "segment", ".hint": "hint", ".ckpt": "checkpoint", ".tail": "quarantined tail"}
    suffix = Path(plain).suffix
    if suffix in kinds:
        return kinds[suffix] + temporary
    folders = {
        file_names.LOG,
        file_names.CHECKPOINTS,
        file_names.PINS,
        file_names.INDEX,
        file_names.QUARANTINE,
    }
    if plain in folders:
        return f"{plain}/"
    if plain == "store":
        return "the store's directory"
    return plain + temporary if plain.isupper() else "a directory above it"


# Every named step of every protocol: the table must have met each of them.
LOOKED_FOR: dict[str, tuple[str, ...]] = {
    COMMIT: (
        "announce the commit in WAKE", "write segment", "sync segment", "publish in WAKE",
        "published", "let go of LOCK",
    ),
    LANE: tuple(
        f"{what}: {step}" for what in ("add", "begin a node", "be a node", "read", "ack")
        for step in LANE_STEPS
        if what == "be a node" or not step.endswith(("the index", "the index is"))
    ),
    FOLLOW: ("LMDB has committed", "WAKE says so"),
    ROLL: (
        "announce the commit in WAKE", "write segment", "sync segment", "create segment.tmp",
        "write segment.tmp", "sync segment.tmp", "rename to segment", "sync log/",
        "publish in WAKE", "published",
    ),
    CHECKPOINT: (
        "create checkpoint.tmp", "write checkpoint.tmp", "sync checkpoint.tmp",
        "rename to checkpoint", "sync checkpoint/", "remove checkpoint",
    ),
    COMPACTION: (
        "write: create segment.tmp", "write: rename to segment", "write: write segment",
        "write: sync segment", "write: rename to hint", "adopt: write segment",
        "adopt: sync segment", "adopt: publish in WAKE", "rewrite open nodes: write segment",
        "drop: write segment", "drop: sync segment", "unlink: remove hint",
        "unlink: remove segment", "unlink: sync log/", "garbage: remove segment",
        "garbage: sync log/",
        "shrink the index: rename to index/<generation>", "shrink the index: rename to BOOT",
    ),
    FULL: (
        "seal and roll: create segment.tmp", "write: write segment", "adopt: write segment",
        "adopt: publish in WAKE", "rewrite open nodes: write segment", "drop: write segment",
        "unlink: remove segment", "checkpoint: rename to checkpoint",
        "shrink the index: rename to index/<generation>", "shrink the index: rename to BOOT",
    ),
    GIVING_BACK: (
        "seal and roll: create segment.tmp", "write: write segment", "adopt: write segment",
        "adopt: publish in WAKE", "rewrite open nodes: write segment", "drop: write segment",
        "drop: sync segment", "unlink: remove segment", "unlink: sync log/",
        "checkpoint: write checkpoint.tmp", "checkpoint: rename to checkpoint",
        "copy the index: rename to index/<generation>", "copy the index: rename to BOOT",
    ),
    RECOVERY: (
        "open: rename to WAKE", "open: rename to BOOT", "rebuild: rename to index/<generation>",
        "rebuild: rename to BOOT", "tail: sync segment", "tail: publish in WAKE", "tail: sync log/",
        "cut the tail: write quarantined tail.tmp", "cut the tail: rename to quarantined tail",
        "cut the tail: cut or grow segment", "cut the tail: rename to segment",
        "end a roll: rename to segment", "after a failed sync: rename to segment",
        "after a failed sync: sync segment.tmp",
    ),
    CREATE: (
        "make the store's directory", "make a directory above it", "sync a directory above it",
        "make log/", "write segment.tmp", "sync segment.tmp",
        "rename to segment", "sync log/", "sync the store's directory", "write STORE.tmp",
        "sync STORE.tmp", "rename to STORE",
    ),
    CLOSE: (
        "hints: write hint.tmp", "hints: rename to hint", "clean mark: sync segment",
        "clean mark: sync the index", "clean mark: write BOOT.tmp", "clean mark: sync BOOT.tmp",
        "clean mark: rename to BOOT", "clean mark: sync the store's directory",
    ),
    UPGRADE: (
        "write STORE.tmp", "sync STORE.tmp", "rename to STORE", "sync the store's directory",
    ),
}  # fmt: skip
