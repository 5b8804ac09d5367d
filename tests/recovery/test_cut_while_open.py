"""Prevents a log that was cut, or written over, under an open store from being shipped, backed up,
compacted, synced or closed as good: the copy that is there for such a day would lack the same.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.fs import LOCAL
from logstore.log import file_names, log_reader
from logstore.log.shipped import ShipTarget
from logstore.recovery.recover import recover
from tests.support.inside import engine_of

Store = logstore.Store[bytes]
Deed = Callable[[Store, Path], object]

DEEDS: dict[str, Deed] = {
    "ship": lambda store, away: store.ship(away / "shipped"),
    "backup": lambda store, away: store.backup(away / "backup"),
    "compact": lambda store, _: store.compact(),
    "compact full": lambda store, _: store.compact(full=True),
    "checkpoint": lambda store, _: store.checkpoint(),
    "sync": lambda store, _: store.sync(),
    "close": lambda store, _: store.close(),
    "add": lambda store, _: store.stream("s").add({"n": 60}),
    "transaction": lambda store, _: added_in_a_transaction(store),
}
COPIES = ("ship", "backup")


@pytest.fixture(autouse=True)
def _looks_at_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that cuts the log and adds within the time between two looks at its end."""
    monkeypatch.setattr(log_tail, "END_LOOK_NS", 0)


def added_in_a_transaction(store: Store) -> None:
    with store.transaction() as txn:
        txn.stream("s").add({"n": 60})


def made(path: Path) -> Store:
    """Sealed segments, and some commits in the active one; all of it durable."""
    store = logstore.open(path, background=False, segment_bytes=64 << 10)
    store.stream("s").add_many([{"n": n, "pad": b"v" * 400} for n in range(500)])
    for n in range(500, 560):
        store.stream("s").add({"n": n})
    store.sync()
    return store


def frames_of_active(store: Store) -> list[log_reader.LogFrame]:
    """Of the segment that is written to."""
    engine = engine_of(store)
    number = engine.wake.log().active_segment
    file = LOCAL.open(file_names.segment(Path(store.path), number))
    try:
        scanned = log_reader.scan(
            file, engine.seed, number, fmt.SEGMENT_HEAD_BYTES, file.size_bytes()
        )
        return list(scanned)
    finally:
        file.close()


def active(store: Store) -> Path:
    return file_names.segment(Path(store.path), engine_of(store).wake.log().active_segment)


def nothing_is_there(away: Path) -> bool:
    """Neither a backup nor anything at the URI."""
    at_uri = ShipTarget(str(away / "shipped")).manifest() if (away / "shipped").exists() else None
    return at_uri is None and not (away / "backup" / file_names.STORE).exists()


@pytest.mark.parametrize("where", ["between two commits", "in a commit"])
@pytest.mark.parametrize("deed", DEEDS)
def test_a_cut_of_the_active_segment_is_seen(tmp_path: Path, deed: str, where: str) -> None:
    store = made(tmp_path / "store")
    frames = frames_of_active(store)
    offset = frames[-20].offset
    os.truncate(active(store), offset + (7 if where == "in a commit" else 0))
    with pytest.raises(logstore.DamagedStoreError, match=r"restore|recover") as caught:
        DEEDS[deed](store, tmp_path)
    assert caught.value.segment == frames[-1].segment
    assert nothing_is_there(tmp_path)
    if deed != "close":
        with pytest.raises(logstore.DamagedStoreError):
            store.close()
    # Nor is it forgotten: what was durable is missing.
    with pytest.raises(logstore.DamagedStoreError, match="recover"):
        logstore.open(tmp_path / "store")
    recover(tmp_path / "store")
    with logstore.open(tmp_path / "store") as again:
        assert len(again.stream("s")) == 540


@pytest.mark.parametrize("deed", [*COPIES, "close", "sync", "checkpoint", "compact"])
def test_a_log_without_its_last_commit_is_seen(tmp_path: Path, deed: str) -> None:
    """The same length, other bytes at the end: it was cut, and grew again with zeros."""
    store = made(tmp_path / "store")
    frames = frames_of_active(store)
    os.truncate(active(store), frames[-1].offset)
    os.truncate(active(store), frames[-1].end_offset)
    with pytest.raises(logstore.DamagedStoreError, match=r"restore|recover"):
        DEEDS[deed](store, tmp_path)
    assert nothing_is_there(tmp_path)
    if deed != "close":
        with pytest.raises(logstore.DamagedStoreError):
            store.close()


@pytest.mark.parametrize("deed", COPIES)
@pytest.mark.parametrize("which", ["active", "sealed"])
def test_a_log_changed_in_the_middle_is_not_copied(tmp_path: Path, deed: str, which: str) -> None:
    store = made(tmp_path / "store")
    path = active(store) if which == "active" else file_names.segment(Path(store.path), 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    with pytest.raises(logstore.DamagedStoreError, match="recover"):
        DEEDS[deed](store, tmp_path)
    assert nothing_is_there(tmp_path)
    store.close()


@pytest.mark.parametrize("deed", [*COPIES, "checkpoint", "compact"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_sealed_segment_that_was_cut_is_seen(tmp_path: Path, deed: str, compacted: bool) -> None:
    """Between two frames: what is left of it is sound."""
    store = made(tmp_path / "store")
    if compacted:
        store.stream("s").trim(max_entries=300, approximate=False)
        store.compact(threshold=0.0)
    engine = engine_of(store)
    number = file_names.segments(LOCAL, Path(store.path))[0]
    path = file_names.segment(Path(store.path), number)
    file = LOCAL.open(path)
    scanned = log_reader.scan(file, engine.seed, number, fmt.SEGMENT_HEAD_BYTES, file.size_bytes())
    last = list(scanned)[-1]
    file.close()
    os.truncate(path, last.offset)
    with pytest.raises(logstore.DamagedStoreError, match=r"restore|recover") as caught:
        DEEDS[deed](store, tmp_path)
    assert caught.value.segment == number
    assert nothing_is_there(tmp_path)
    store.close()


def test_a_damaged_log_leaves_the_shipped_copy_whole(tmp_path: Path) -> None:
    store = made(tmp_path / "store")
    store.ship(tmp_path / "shipped")
    before = ShipTarget(str(tmp_path / "shipped")).published()
    for n in range(560, 580):
        store.stream("s").add({"n": n})
    frames = frames_of_active(store)
    with active(store).open("r+b") as file:
        file.seek(frames[-5].offset + 40)
        file.write(b"\0\0")
    with pytest.raises(logstore.DamagedStoreError, match="recover"):
        store.ship(tmp_path / "shipped")
    assert ShipTarget(str(tmp_path / "shipped")).published() == before
    store.close()


def test_a_backup_after_a_compaction_has_what_was_moved(tmp_path: Path) -> None:
    """Its segments have higher numbers than the one that is written to."""
    store = made(tmp_path / "store")
    store.stream("s").trim(max_entries=300, approximate=False)
    store.compact(threshold=0.0)
    want = [entry.id for entry in store.stream("s")]
    store.backup(tmp_path / "backup")
    store.close()
    shutil.rmtree(tmp_path / "store")
    with logstore.open(tmp_path / "backup") as backup:
        assert [entry.id for entry in backup.stream("s")] == want
