"""Prevents a segment that goes while a pin names it, and pins that stay for ever."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from logstore.engine.runtime import pins
from logstore.errors import FileSystemError, SnapshotExpiredError
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import pinfile
from tests.scan.look import flip, make_plan, make_store

NOW, TTL = 1_700_000_000_000, 1000


class NoWriting(FileSystem):
    """A store that may be read only."""

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        if write:
            raise FileSystemError(f"no permission while opening {path}")
        return super().open(path)


def test_a_new_pin_holds_all_there_is_and_then_what_it_names(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add_many(({"n": "x" * 300} for _ in range(1000)), batch=50)
    store_path = tmp_path / "s"
    there = {int(path.stem) for path in (store_path / "log").glob("*.log")}
    assert len(there) > 2
    assert pins.pinned_segments(LOCAL, store_path, NOW) == set()
    pin = pins.create(LOCAL, store_path, NOW, TTL)
    assert pins.pinned_segments(LOCAL, store_path, NOW) == there
    pins.narrow(LOCAL, store_path, pin, {2, 3}, NOW, TTL)
    other = pins.create(LOCAL, store_path, NOW, TTL)
    pins.narrow(LOCAL, store_path, other, {3, 4}, NOW, TTL)
    assert pins.pinned_segments(LOCAL, store_path, NOW) == {2, 3, 4}
    pins.release(LOCAL, store_path, pin.id)
    assert pins.pinned_segments(LOCAL, store_path, NOW) == {3, 4}


def test_a_pin_ends_by_time_and_takes_its_snapshot_along(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    pins.narrow(LOCAL, tmp_path, pin, {7}, NOW, TTL)
    snapshot = pinfile.snapshot_path(tmp_path, pin.id)
    snapshot.write_bytes(b"")
    (tmp_path / "pins" / f"{pin.id}.{'0' * 32}.tmp").write_bytes(b"left by a kill")
    assert pins.pinned_segments(LOCAL, tmp_path, NOW + TTL - 1) == {7}
    assert snapshot.exists()
    assert pins.pinned_segments(LOCAL, tmp_path, NOW + TTL) == set()
    assert list((tmp_path / "pins").iterdir()) == []
    with pytest.raises(SnapshotExpiredError, match="given back"):
        pins.renew(LOCAL, tmp_path, pin.id, NOW)


def test_a_pin_that_is_late_is_not_narrowed(tmp_path: Path) -> None:
    """Its segments may be gone already: it must not come back to life."""
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    with pytest.raises(SnapshotExpiredError):
        pins.narrow(LOCAL, tmp_path, pin, {7}, NOW + TTL, TTL)
    pins.release(LOCAL, tmp_path, pin.id)
    with pytest.raises(SnapshotExpiredError):
        pins.narrow(LOCAL, tmp_path, pin, {7}, NOW, TTL)
    assert list((tmp_path / "pins").iterdir()) == []


def test_what_may_name_a_segment_is_revoked_before_it_goes(tmp_path: Path) -> None:
    """A pin that is being planned may name any; one of other segments stays."""
    held = [pins.create(LOCAL, tmp_path, NOW, TTL) for _ in range(3)]
    pins.narrow(LOCAL, tmp_path, held[0], {3, 4}, NOW, TTL)
    pins.narrow(LOCAL, tmp_path, held[1], {5}, NOW, TTL)
    for pin in held[:2]:
        pinfile.snapshot_path(tmp_path, pin.id).write_bytes(b"")
    assert pins.revoke(LOCAL, tmp_path, [4, 6]) == 2
    assert {path.name for path in (tmp_path / "pins").iterdir()} == {
        held[1].id, f"{held[1].id}.snap",
    }  # fmt: skip
    assert pinfile.check_planned(LOCAL, tmp_path, held[1].id, NOW).segments == {5}
    pinfile.snapshot_path(tmp_path, held[1].id).unlink()
    with pytest.raises(SnapshotExpiredError, match="load again"):
        pinfile.check_planned(LOCAL, tmp_path, held[1].id, NOW)


def test_a_pin_is_renewed_once_half_of_its_time_is_over(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    assert pins.renew(LOCAL, tmp_path, pin.id, NOW + 100) == pin
    longer = pins.renew(LOCAL, tmp_path, pin.id, NOW + 600)
    assert longer.expires_ms == NOW + 600 + TTL
    assert pinfile.read(LOCAL, tmp_path, pin.id) == longer
    # who may not write reads on, under the time that is left
    assert pins.renew(NoWriting(), tmp_path, pin.id, NOW + 1500) == longer
    with pytest.raises(SnapshotExpiredError):
        pins.renew(NoWriting(), tmp_path, pin.id, NOW + 600 + TTL)


def test_renewing_at_once_leaves_one_whole_pin(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    failed: list[BaseException] = []

    def renew(number: int) -> None:
        try:
            for step in range(20):
                pins.renew(LOCAL, tmp_path, pin.id, NOW + 600 * (step + 1))
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=renew, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expired = [error for error in failed if not isinstance(error, SnapshotExpiredError)]
    assert expired == []
    assert [path.name for path in (tmp_path / "pins").iterdir()] == [pin.id]
    assert pinfile.read(LOCAL, tmp_path, pin.id) is not None


def test_a_damaged_pin_holds_nothing(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    path = pinfile.path(tmp_path, pin.id)
    whole = path.read_bytes()
    for offset in range(len(whole)):
        flip(path, offset)
        assert pinfile.read(LOCAL, tmp_path, pin.id) is None
        path.write_bytes(whole)
    flip(path, 20)
    assert pins.pinned_segments(LOCAL, tmp_path, NOW) == set()
    assert not path.exists()


def test_orphans_go_and_strangers_stay(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    folder = tmp_path / "pins"
    (folder / f"{'0' * 32}.snap").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    pinfile.snapshot_path(tmp_path, pin.id).write_bytes(b"")
    pins.pinned_segments(LOCAL, tmp_path, NOW)
    left = {path.name for path in folder.iterdir()}
    assert left == {pin.id, f"{pin.id}.snap", "notes.txt"}


def test_erasure_takes_every_pin(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add({"secret": "a value in the open node"})
        made = make_plan(store, b"x")
        snapshot = pinfile.snapshot_path(tmp_path / "s", made.pin_id)
        assert b"a value in the open node" in snapshot.read_bytes()
        assert pins.revoke_all(LOCAL, tmp_path / "s") == 1
        assert list((tmp_path / "s" / "pins").iterdir()) == []


def test_who_erases_leaves_no_copy_for_scans(tmp_path: Path) -> None:
    """The open node of a plan lies in its snapshot file, which no compaction rewrites."""
    with make_store(tmp_path / "s") as store:
        secret = store["x"].add({"secret": "a value in the open node"})
        made = make_plan(store, b"x")
        store["x"].add({"n": "1"})
        assert store["x"].delete(secret, purge=True) == 1
        for path in (tmp_path / "s").rglob("*"):
            assert not path.is_file() or b"a value in the open node" not in path.read_bytes(), path
        with pytest.raises(SnapshotExpiredError):
            pins.renew(LOCAL, tmp_path / "s", made.pin_id, NOW)
