"""Prevents a read-only store from writing, lagging behind, or tripping over compaction."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore.recovery.check import check
from tests.compaction.dumps import dump
from tests.recovery.shipped import names_and_bytes


def test_it_follows_writers_and_compactions(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 17) as writer:
        reader = logstore.open(path, readonly=True)
        into, out = writer.stream("x"), reader.stream("x")
        for turn in range(12):
            into.add_many({"n": n} for n in range(2000))
            into.add({"turn": turn})
            assert len(out) == len(into)
            into.trim(maxlen=3000)
            assert out.first == into.first
            if turn % 4 == 3:
                writer.compact()
            assert [entry.id for entry in out] == [entry.id for entry in into]
        reader.close()


def test_it_writes_nothing_and_needs_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 17) as store:
        store.stream("x").add_many({"n": n} for n in range(9000))
        expected = dump(store)
    before = names_and_bytes(path)
    for file in path.rglob("*"):
        file.chmod(0o555 if file.is_dir() else 0o444)
    path.chmod(0o555)
    try:
        with logstore.open(path, readonly=True) as store:
            assert dump(store) == expected
            for refused in (
                lambda: store.stream("x").add({"n": 1}),
                lambda: store.stream("x").delete("1-1"),
                lambda: store.drop("x"),
                store.compact,
                store.checkpoint,
                store.sync,
            ):
                with pytest.raises(logstore.ReadOnlyError):
                    refused()
        assert names_and_bytes(path) == before
    finally:
        for file in [path, *path.rglob("*")]:
            file.chmod(0o755)


def test_a_backup_of_a_store_to_which_nothing_was_ever_added_is_a_store(tmp_path: Path) -> None:
    """It held no segment, and could not be opened."""
    with logstore.open(tmp_path / "store") as store:
        store.backup(tmp_path / "copy")
    assert check(tmp_path / "copy").damage == []
    with logstore.open(tmp_path / "copy") as copy:
        assert copy.streams() == []
        copy.stream("a").add({"n": 1})
        assert copy.stream("a").info().length == 1


def test_a_backup_is_a_store(tmp_path: Path) -> None:
    path, copy = tmp_path / "store", tmp_path / "backup"
    with logstore.open(path, segment_bytes=1 << 17) as store:
        store.stream("x").add_many({"n": n} for n in range(9000))
        store.stream("x").trim(maxlen=5000)
        store.compact()
        store.stream("y").add({"late": 1})
        store.backup(copy)
        expected = dump(store)
        store.stream("y").add({"after": 1})
        with pytest.raises(logstore.OptionError, match="empty"):
            store.backup(copy)
    with logstore.open(copy, readonly=True) as store:
        assert dump(store) == expected
    with logstore.open(copy) as store:
        assert dump(store) == expected


def test_a_directory_copied_while_others_write_can_be_read(tmp_path: Path) -> None:
    path, copy = tmp_path / "store", tmp_path / "copy"
    with logstore.open(path) as store:
        store.stream("x").add_many({"n": n} for n in range(500))
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns("lock.mdb"))
        store.stream("x").add({"after": 1})
    with logstore.open(copy, readonly=True) as store:
        assert len(store.stream("x")) == 500
    with logstore.open(copy) as store:
        assert store.recovery["rebuilt"], "the index of another place must not be trusted"
        assert len(store.stream("x")) == 500


def test_a_directory_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(logstore.NotAStoreError):
        logstore.open(tmp_path / "none", readonly=True)
    assert not (tmp_path / "none").exists()


def test_it_notices_that_the_segment_it_stood_before_was_dropped(tmp_path: Path) -> None:
    """A gap in the chain of segments is no torn tail."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16) as writer:
        writer.stream("kept").add({"n": 0})
        reader = logstore.open(path, readonly=True)
        assert len(reader.stream("kept")) == 1
        writer.compact()
        writer.stream("gone").add_many({"n": n, "pad": "x" * 40} for n in range(4000))
        writer.drop("gone")
        writer.compact()
        writer.stream("kept").add({"n": 1})
        assert [entry.fields["n"] for entry in reader.stream("kept")] == [b"0", b"1"]
        assert reader.streams() == [b"kept"]
        reader.close()
