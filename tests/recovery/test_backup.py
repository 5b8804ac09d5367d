"""Prevents a backup that lacks bytes or hints, or is taken for a store before it is durable."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.engine.commit.committer import Committer
from logstore.errors import DamagedStoreError
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.recovery import backup
from logstore.recovery.check import check
from tests.support.watched_files import DurableOrder


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
