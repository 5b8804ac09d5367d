"""The points that must be met, by the scene in which A is stopped there."""

from __future__ import annotations

from tests.interleaving.points import Point

NAMED: dict[str, tuple[str, ...]] = {
    "add": (
        "commit: lock LOCK", "commit: LOCK was taken", "commit: decide", "commit: encode",
        "commit: announce the commit in WAKE", "commit: write segment",
        "commit: write the rest of segment", "commit: keep the promise", "commit: sync segment",
        "commit: commit in LMDB", "commit: publish in WAKE", "commit: published",
        "commit: unlock LOCK", "commit: LOCK was given back",
    ),
    "add that rolls": (
        "seal and roll: decide", "seal and roll: announce the commit in WAKE",
        "seal and roll: write segment", "seal and roll: sync segment",
        "seal and roll: create segment.tmp", "seal and roll: write segment.tmp",
        "seal and roll: rename to segment", "seal and roll: sync log/",
        "seal and roll: publish in WAKE", "seal and roll: published",
    ),
    "transaction": ("commit: sync segment",),
    "group read": ("commit: commit in LMDB",),
    "ack": ("commit: publish in WAKE",),
    "delete": ("commit: write the rest of segment",),
    "rename": ("commit: LOCK was taken", "commit: commit in LMDB", "commit: published"),
    "copy": ("commit: decide", "commit: sync segment", "commit: publish in WAKE"),
    "retention": (
        "retention: begin a snapshot", "retention: in a snapshot", "retention: lock LOCK",
        "retention: commit in LMDB", "retention: LOCK was given back",
    ),
    "range": ("reader: begin a snapshot", "reader: in a snapshot", "reader: a snapshot was ended"),
    "scan": (
        "plan of a scan: begin a snapshot", "plan of a scan: in a snapshot",
        "plan of a scan: a snapshot was ended", "plan of a scan: sync pins/",
        "plan of a scan: rename to a directory above it",
    ),
    "fork, range": ("reader: lock LOCK", "reader: open the index", "reader: begin a snapshot"),
    "read-only": (
        "read-only: rebuild, list log/", "read-only: rebuild, list checkpoint/",
        "read-only: rebuild, open segment", "read-only: rename to WAKE",
        "read-only: publish in WAKE",
    ),
    "follow": ("read-only: list log/", "read-only: decide", "read-only: open segment"),
    "info": ("commit: look at segment",),
    "check": ("read-only: rebuild, decide", "check: begin a snapshot", "check: in a snapshot"),
    "checkpoint": (
        "checkpoint: lock LOCK", "checkpoint: LOCK was taken", "checkpoint: LOCK was given back",
        "checkpoint: list log/", "reader: begin a snapshot", "reader: in a snapshot",
        "checkpoint: create checkpoint.tmp", "checkpoint: write checkpoint.tmp",
        "checkpoint: rename to checkpoint", "checkpoint: sync checkpoint/",
    ),
    "compact": (
        "compaction: garbage: list log/", "compaction: seal: lock LOCK",
        "compaction: seal: LOCK was given back", "compaction: run: look at segment",
        "compaction: write: LOCK was taken", "compaction: write: rename to segment",
        "compaction: write: write segment", "compaction: write: rename to hint",
        "compaction: adopt: lock LOCK", "compaction: adopt: decide",
        "compaction: adopt: write segment", "compaction: adopt: commit in LMDB",
        "compaction: adopt: published", "compaction: rewrite open nodes: lock LOCK",
        "compaction: rewrite open nodes: commit in LMDB",
        "compaction: rewrite open nodes: LOCK was given back",
        "compaction: run: list pins/", "compaction: drop: lock LOCK", "compaction: drop: decide",
        "compaction: drop: commit in LMDB", "compaction: drop: published",
        "compaction: drop: LOCK was given back", "compaction: unlink: remove hint",
        "compaction: unlink: remove segment", "compaction: unlink: sync log/",
    ),
    "purge": (
        "compaction: erase copies: lock LOCK", "compaction: shrink the index: LOCK was taken",
        "compaction: shrink the index: rename to index/<generation>",
        "compaction: shrink the index: rename to BOOT",
        "compaction: shrink the index: unlock LOCK",
    ),
    "backup": (
        "backup: LOCK was taken", "backup: list log/", "backup: open segment",
        "backup: list checkpoint/", "backup: open STORE", "backup: rename to STORE",
    ),
    "copy the index": (
        "copy of the index: copy the index", "copy of the index: rename to index/<generation>",
        "copy of the index: rename to BOOT", "commit: remove index/<generation>",
    ),
    "repair": (
        "an index that is gone: lock LOCK",
        "an index that is gone: rebuild, rename to index/<generation>",
        "an index that is gone: LOCK was given back",
    ),
    "index deleted": ("recovery: open: open the index", "recovery: rebuild: rename to BOOT"),
    "join": ("recovery: open: lock USERS", "reader: in a snapshot", "close: lock USERS"),
    "close": ("close: lock LOCK", "close: lock USERS", "close: LOCK was closed"),
    "dead writer, whole": ("commit: LOCK was taken", "recovery: tail: publish in WAKE"),
    "dead writer, torn": (
        "recovery: cut the tail: write quarantined tail.tmp",
        "recovery: cut the tail: cut or grow segment",
    ),
    "dead writer, roll": ("recovery: end a roll: rename to segment",),
    "open": (
        "recovery: open: lock LOCK", "recovery: open: lock USERS", "recovery: open: rename to WAKE",
        "recovery: rebuild: list log/", "recovery: rebuild: rename to index/<generation>",
        "recovery: rebuild: rename to BOOT", "recovery: tail: published",
        "recovery: open: LOCK was given back",
    ),
    "open, whole tail": (
        "recovery: tail: decide", "recovery: tail: sync segment",
        "recovery: tail: publish in WAKE",
    ),
    "open, torn tail": ("recovery: cut the tail: cut or grow segment",),
    "open, roll": ("recovery: end a roll: rename to segment",),
    "last close": (
        "close: lock USERS", "close: clean mark: sync the index",
        "close: clean mark: rename to BOOT", "close: LOCK was closed",
    ),
    "create": (
        "create: create LOCK", "create: LOCK was taken", "create: rename to segment",
        "create: rename to STORE", "create: rename to WAKE", "create: rebuild: rename to BOOT",
        "create: LOCK was given back",
    ),
}  # fmt: skip

# Pairs that are always tried: these were seen to fail when a rule of the code was broken.
PAIRS = (
    ("join", "reader: in a snapshot", "purge"),
    ("compact", "compaction: adopt: lock LOCK", "delete"),
    ("add", "commit: published", "read"),
    ("add", "commit: sync segment", "read-only"),
    ("add", "commit: sync segment", "fork, read"),
    ("scan", "plan of a scan: in a snapshot", "compact"),
    ("read-only", "read-only: rebuild, open segment", "purge"),
    ("check", "read-only: rebuild, decide", "compact"),
    ("check", "read-only: rebuild, decide", "add, roll"),
    ("copy the index", "copy of the index: copy the index", "index deleted"),
    ("follow", "read-only: look at segment", "purge"),
    ("last close", "close: clean mark: sync the index", "index deleted"),
    ("repair", "an index that is gone: rebuild, rename to index/<generation>", "index deleted"),
)


def named() -> list[tuple[str, Point]]:
    """Every one of them, with its scene: the first time that it is about to be done."""
    return [(scene, Point(name, 1)) for scene, names in NAMED.items() for name in names]
