"""Prevents a backup that lacks bytes or hints, or is taken for a store before it is durable."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import maintenance_locks
from logstore.errors import DamagedStoreError, LockTimeoutError, ReadOnlyError
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.recovery import backup
from logstore.recovery.check import check
from tests.support.watched_files import DurableOrder
from tests.tools.commands import ok


@pytest.mark.parametrize("limit", [None, 0, 1, 9, 10, 11, 25])
def test_a_copy_has_as_many_bytes_as_it_should(
    limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they are no multiple of what is copied at once; a file that is shorter than it was
    is told, as a copy of it would be taken for whole."""
    monkeypatch.setattr(backup, "COPY_BYTES", 4)
    source, target = tmp_path / "from", tmp_path / "to"
    source.write_bytes(b"0123456789")
    fs = DurableOrder()
    if limit is not None and limit > 10:
        with pytest.raises(DamagedStoreError, match="shorter than it was"):
            backup._copy(fs, source, fs.open_new(target), limit)
        return
    backup._copy(fs, source, fs.open_new(target), limit)
    assert target.read_bytes() == b"0123456789"[:limit]
    assert fs.done == [("sync", "to")]


def test_a_backup_takes_along_the_hints_that_there_are(tmp_path: Path) -> None:
    path, copy = tmp_path / "store", tmp_path / "copy"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        for _ in range(5):
            store.stream("s").add({"v": b"x" * 60_000})
        store.checkpoint()
    assert file_names.hint(path, 1).exists()
    file_names.hint(path, 2).unlink()
    with logstore.open(path, background=False) as store:
        store.backup(copy)
        active = store._engine().wake.log().active_segment
    assert file_names.hint(copy, 1).read_bytes() == file_names.hint(path, 1).read_bytes()
    assert not file_names.hint(copy, 2).exists()
    assert file_names.segments(LOCAL, copy) == list(range(1, active + 1))
    assert file_names.checkpoints(LOCAL, copy) == file_names.checkpoints(LOCAL, path) != []
    assert check(copy).as_dict()["clean"]


def test_a_backup_is_durable_before_it_is_a_store(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("s").add({"n": 1})
        store.checkpoint()
        engine = store._engine()
        fs = engine.fs = DurableOrder()
        backup.take(engine, Committer(engine), copy)
        engine.fs = LOCAL
    made = fs.done.index(("rename", file_names.STORE))
    for done in (
        ("sync", file_names.segment(copy, 1).name), ("directory", file_names.LOG),
        ("directory", file_names.CHECKPOINTS),
    ):  # fmt: skip
        assert done in fs.done[:made]


# -- of a store that may not be written -----------------------------------------------------------
def tree(path: Path) -> dict[str, tuple[int, int]]:
    """Names, sizes and times of what lies below a path."""
    return {
        str(each.relative_to(path)): (each.stat().st_size, each.stat().st_mtime_ns)
        for each in path.rglob("*")
    }


def values(path: Path) -> list[str]:
    with logstore.open(path, readonly=True, encoding="utf-8") as store:
        return [entry["n"] for entry in store.stream("s")]


def test_a_handle_that_only_reads_makes_a_backup(tmp_path: Path) -> None:
    """Beside a writer, whose last entry is in it, and when nobody writes; nothing is written."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        for n in range(9):
            store.stream("s").add({"n": str(n), "v": b"x" * 20_000})
        with logstore.open(path, readonly=True) as reader:
            store.stream("s").add({"n": "last"})
            before = tree(path)
            reader.backup(tmp_path / "beside")
            assert tree(path) == before
        store.stream("s").add({"n": "later"})
    before = tree(path)
    with logstore.open(path, readonly=True) as reader:
        reader.backup(tmp_path / "alone")
    assert tree(path) == before
    assert values(tmp_path / "beside") == [*map(str, range(9)), "last"]
    assert values(tmp_path / "alone") == [*map(str, range(9)), "last", "later"]
    for copy in ("beside", "alone"):
        assert check(tmp_path / copy).as_dict()["clean"]


@pytest.fixture
def readonly_mount(tmp_path: Path) -> Iterator[Path]:
    """A directory, which ``tmp_path / "data"`` is mounted at, to be read only."""
    mount, data = tmp_path / "mount", tmp_path / "data"
    mount.mkdir()
    data.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    for words in (["--bind", str(data), str(mount)], ["-o", "remount,bind,ro", str(mount)]):
        done = subprocess.run(["mount", *words], capture_output=True, check=False)
        if done.returncode:
            subprocess.run(["umount", "-l", str(mount)], capture_output=True, check=False)
            pytest.skip(f"a directory cannot be mounted read-only here: {done.stderr.decode()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_store_on_a_readonly_mount_is_copied_beside_its_writer(
    readonly_mount: Path, tmp_path: Path
) -> None:
    with logstore.open(tmp_path / "data" / "store", background=False) as store:
        for n in range(5):
            store.stream("s").add({"n": str(n)})
        ok("backup", readonly_mount / "store", tmp_path / "copy")
        assert values(tmp_path / "copy") == ["0", "1", "2", "3", "4"]
        store.stream("s").add({"n": "5"})
    ok("backup", readonly_mount / "store", tmp_path / "again")
    assert values(tmp_path / "again") == ["0", "1", "2", "3", "4", "5"]
    ok("verify", tmp_path / "again")


def test_a_backup_by_a_readonly_mount_and_a_compaction_keep_apart(
    readonly_mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else segments would go while they are copied."""
    monkeypatch.setattr(maintenance_locks.alone.__wrapped__, "__defaults__", (0.1, "checkpoint"))
    with logstore.open(tmp_path / "data" / "store", background=False) as store:
        store.stream("s").add({"n": "1"})
        reader = logstore.open(readonly_mount / "store", readonly=True)
        with maintenance_locks.alone(store._engine()), pytest.raises(LockTimeoutError):
            reader.backup(tmp_path / "copy")
        with maintenance_locks.alone(reader._engine()), pytest.raises(LockTimeoutError):
            store.compact()
        reader.backup(tmp_path / "copy")
        reader.close()
    assert values(tmp_path / "copy") == ["1"]


def test_a_segment_that_went_meanwhile_fails_a_backup_by_a_reader(tmp_path: Path) -> None:
    """As another machine would take it away, which does not know of the lock."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        store.stream("s").add_many({"n": str(n), "v": b"x" * 2000} for n in range(99))
        store.compact(purge=True)
        numbers = file_names.segments(LOCAL, path)
        with logstore.open(path, readonly=True) as reader:
            assert len(reader.stream("s")) == 99
            file_names.segment(path, numbers[0]).rename(tmp_path / "gone")
            with pytest.raises(DamagedStoreError, match="missing"):
                reader.backup(tmp_path / "copy")
            assert not (tmp_path / "copy").exists()
        (tmp_path / "gone").rename(file_names.segment(path, numbers[0]))


def test_a_store_at_a_uri_is_no_source_of_a_backup(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("s").add({"n": "1"})
        store.ship(tmp_path / "shipped")
        with logstore.open(tmp_path / "store", readonly=True) as reader:
            before = tree(tmp_path / "store")
            with pytest.raises(ReadOnlyError):
                reader.ship(tmp_path / "other")
            assert tree(tmp_path / "store") == before
    with (
        logstore.open(f"file://{tmp_path}/shipped", readonly=True) as reader,
        pytest.raises(ReadOnlyError, match="logstore restore"),
    ):
        reader.backup(tmp_path / "copy")
