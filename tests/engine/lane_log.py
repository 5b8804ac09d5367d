"""What the lane committed for groups, told by the store and by its log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.index.group_txn import FIRST, LAST
from logstore.log import frame as frame_bodies
from logstore.log import log_reader
from tests.support.inside import engine_of

Store = logstore.Store[bytes]
LANE_ONLY = [
    pytest.mark.skipif(native_or_none is None, reason="the lane was not compiled"),
    pytest.mark.usefixtures("by_lane"),
]


def made(path: Path, *, lane: bool = True, entries: int = 450) -> Store:
    """A store with one stream of some nodes, and two groups; IDs are the same in each."""
    store = logstore.open(path, encoding=None, background=False)
    stream = store.stream(b"s")
    for number in range(1, entries + 1):
        stream.add({b"n": number}, f"{number}-1")
    for name in (b"g", b"h"):
        stream.group(name, start="0")
    if not lane:
        shared = store._opened.live()
        shared.lane = engine_of(store).lane = None
    return store


def counts(store: Store) -> tuple[int, int]:
    """Deliveries and acks that were commits of the lane since this was asked last."""
    lane = store._opened.live().lane
    told: dict[str, int] = {} if lane is None else dict(lane.take_counts())
    return told.get("deliveries", 0), told.get("acks", 0)


def groups_of(view: Snapshot, *, times: bool) -> dict[bytes, Any]:
    """All that is kept of groups; the rows of the idle index must be those of the runs."""
    found: dict[bytes, Any] = {}
    index = view.index.groups
    for group in index.all_groups():
        runs = list(index.runs(group.number))
        rows = [row for run in runs for row in run.between(FIRST, LAST)]
        assert rows == sorted(rows)
        assert len(rows) == group.pending
        assert sorted(index.idle(group.number)) == sorted(
            (run.oldest_ms, run.first) for run in runs
        )
        consumers = index.consumers(group.number)
        for who in consumers:
            assert who.pending == sum(row[2] == who.number for row in rows)
        told: dict[str, Any] = {"last": group.last, "read": group.entries_read, "group": group.name}
        if times:
            told |= {"record": group.pack(), "rows": rows}
            told["consumers"] = [(who.number, who.pack()) for who in consumers]
        else:
            told["rows"] = [(*row[:3], row[4]) for row in rows]
            told["consumers"] = [(who.number, who.name, who.pending) for who in consumers]
        found[group.name] = told
    return found


def told_by(store: Store, *, times: bool = True) -> dict[bytes, Any]:
    return snapshot.read(engine_of(store), lambda view: groups_of(view, times=times))


def told_by_log(path: Path, to: Path) -> dict[bytes, Any]:
    """The same of a copy that has nothing but the log."""
    shutil.rmtree(to, ignore_errors=True)
    left_out = shutil.ignore_patterns("index", "WAKE", "LOCK", "USERS")
    shutil.copytree(path, to, ignore=left_out)
    with logstore.open(to, encoding=None, background=False) as judge:
        return told_by(judge)


def frames_of(store: Store, *, ids: bool = True) -> list[tuple[Any, ...]]:
    """What adds and groups wrote to the log, but for times of the two clocks. Which consumer was
    seen when is left out, for that is a matter of time, and what tells positions. Without
    ``ids`` those of adds are left out, too."""
    engine, found = engine_of(store), []
    upto = engine.wake.applied
    number, end = fmt.position_parts(upto)
    source = engine.segments.source(number)
    scanned = log_reader.scan(source, engine.seed, number, fmt.SEGMENT_HEAD_BYTES, end)
    for frame in scanned:
        body = frame.body()
        if isinstance(body, frame_bodies.Append) and not ids:
            body = body._replace(last_ms=0, last_seq=0, data=None)
        elif isinstance(body, frame_bodies.Deliver):
            body = body._replace(time_ms=0)
        elif isinstance(body, frame_bodies.Claim):
            items = tuple((*item[:2], 0, item[3]) for item in body.items)
            body = body._replace(seen_ms=0, active_ms=0, items=items)
        if frame.kind in (fmt.Kind.APPEND, fmt.Kind.DELIVER, fmt.Kind.ACK, fmt.Kind.CLAIM):
            found.append((frame.ordinal, frame.last, frame.kind, body))
    return found


def told_ids(store: Store, name: bytes) -> list[logstore.StreamID]:
    """The IDs that are pending in a group."""
    return [entry.id for entry in store.stream(b"s").group(name).pending_entries()]


def log_of(store: Store) -> list[bytes]:
    """The segments, as bytes."""
    path = Path(str(engine_of(store).path)) / "log"
    return [file.read_bytes() for file in sorted(path.iterdir()) if file.suffix != ".hint"]
