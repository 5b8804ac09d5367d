"""Prevents a process that joins an open store from believing what it must look at: an index that is
gone, a commit whose writer died, a sync that failed, users who do not see each other.

The other process is a fork that has the store open first, until it is told to go.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import logstore
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm import process_identity
from logstore.errors import CorruptionError, StoreInUseError
from logstore.fs import LOCAL, FileStat, FileSystem
from logstore.index.txn import IndexTxn
from logstore.log import file_names
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import index_validity, store_opening
from logstore.recovery.recover import recover
from logstore.recovery.report import RecoveryReport
from tests.corruption import frames
from tests.recovery import small_store
from tests.support import processes

Store = logstore.Store[bytes]


def _open(path: Path) -> Store:
    return logstore.open(path, encoding=None, background=False, sync="always")


def _ids(store: Store) -> list[int]:
    return [entry.id.ms for entry in store.stream("s")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that was closed cleanly."""
    with _open(tmp_path / "store") as store:
        for ms in range(1, 6):
            store.stream("s").add({b"f": b"v"}, f"{ms}-0")
    return tmp_path / "store"


@contextmanager
def _other(path: Path, then: Callable[[Store], None] = lambda store: None) -> Iterator[None]:
    """A process that has the store open, and did something in it."""
    ready, begun = os.pipe()
    wait, go = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(go)
            store = _open(path)
            then(store)
            os.write(begun, b"1")
            os.read(wait, 1)
            store.close()
        finally:
            os._exit(0)
    for fd in (begun, wait):
        os.close(fd)
    try:
        assert os.read(ready, 1) == b"1"
        yield
    finally:
        for fd in (go, ready):
            os.close(fd)
        os.waitpid(pid, 0)


def _joined(path: Path, fs: FileSystem = LOCAL) -> tuple[Engine, RecoveryReport]:
    options = StoreOptions(background=False)
    return store_opening.open_engine(fs, path, options, create=False, limits=StoreLimits())


def test_a_joining_process_uses_the_index_in_use(path: Path) -> None:
    known = index_validity.read_marker(LOCAL, path)
    with _other(path, lambda store: store.stream("s").add({b"f": b"v"}, "6-0") and None):
        engine, report = _joined(path)
        assert not report.first_opener
        assert (report.index_trusted, report.rebuilt, report.why_not_trusted) == (True, False, "")
        assert (report.commits_finished, report.torn_bytes, report.at_risk) == (0, 0, None)
        assert engine.promised == index_validity.promised(LOCAL, path, known) > 0
        store_opening.close_engine(engine)
        now = index_validity.read_marker(LOCAL, path)
        assert now is not None
        assert not now.clean_applied  # another one has it open
        with _open(path) as store:
            assert _ids(store) == [1, 2, 3, 4, 5, 6]
            store.stream("s").add({b"f": b"v"}, "7-0")
    with _open(path) as store:
        assert _ids(store) == [1, 2, 3, 4, 5, 6, 7]
        assert store.recovery["index_trusted"]


def test_an_opener_that_accepts_loss_promises_nothing_as_durable(path: Path) -> None:
    with _other(path):
        engine, _ = store_opening.open_engine(
            LOCAL, path, StoreOptions(background=False), create=False, limits=StoreLimits(),
            accept_loss=True,
        )  # fmt: skip
        assert engine.promised == 0
        store_opening.close_engine(engine)


def test_an_index_that_went_is_built_anew_for_all(path: Path) -> None:
    with _other(path):
        shutil.rmtree(path / "index")
        engine, report = _joined(path)
        assert not report.index_trusted
        assert report.why_not_trusted
        assert report.rebuilt
        with engine.index().env.begin() as txn:
            assert IndexTxn(engine.index(), txn).meta().applied == engine.wake.applied > 0
        store_opening.close_engine(engine)
        with _open(path) as store:
            assert _ids(store) == [1, 2, 3, 4, 5]
            store.stream("s").add({b"f": b"v"}, "6-0")
    with _open(path) as store:
        assert _ids(store) == [1, 2, 3, 4, 5, 6]


def test_a_damaged_store_is_not_recovered_while_another_one_has_it_open(path: Path) -> None:
    before = sorted((path / file_names.LOG).iterdir())
    small_store.cut(path, frames.everything(path)[3])
    with _other(path):
        shutil.rmtree(path / "index")
        with pytest.raises(StoreInUseError, match="open in another process"):
            recover(path)
        assert sorted((path / file_names.LOG).iterdir()) == before
    report = recover(path)
    assert report.damage
    assert report.first_opener
    with _open(path) as store:
        assert _ids(store) == [1, 2, 4, 5]


def _dies(path: Path) -> None:
    """One more process, which dies when its commit stands in the log and nowhere else."""

    def add_and_die() -> None:
        store = _open(path)
        store._engine().sync_file = lambda *_: processes.die()  # type: ignore[method-assign]
        store.stream("s").add({b"f": b"v"}, "6-0")

    processes.killed(add_and_die)


def test_a_commit_whose_writer_died_is_finished_by_who_joins(path: Path) -> None:
    with _other(path):
        _dies(path)
        engine, _ = _joined(path)
        assert not engine.wake.in_progress
        assert engine.wake.log().commit == 6
        store_opening.close_engine(engine)
        with _open(path) as store:
            assert _ids(store) == [1, 2, 3, 4, 5, 6]


def test_after_a_failed_sync_nothing_is_finished(path: Path) -> None:
    """The next sync would work, and be believed; who joins is told what is at risk."""
    failed: list[int] = []
    with _other(path):
        _dies(path)
        wake = store_opening.Wake(LOCAL, path / file_names.WAKE)
        failed.append(wake.log().applied)
        wake.failed_at = failed[0]
        engine, report = _joined(path)
        assert engine.wake.in_progress
        assert report.at_risk is not None
        assert report.at_risk.from_position == failed[0]
        assert [each[1:] for each in report.at_risk.streams] == [((6, 0), (6, 0), 1)]
        store_opening.close_engine(engine)
        assert wake.failed_at == failed[0]  # nor is it closed cleanly


def test_an_opener_that_cannot_share_the_store_is_refused(path: Path) -> None:
    """Held exclusively, seen from another pid namespace, or without WAKE or the same LOCK."""
    users = LOCAL.open(path / file_names.USERS, write=True, create=True)
    assert users.try_lock(exclusive=True)
    with pytest.raises(StoreInUseError, match="held exclusively"):
        _joined(path)
    users.close()

    class Replaced(FileSystem):
        def stat(self, path: Path) -> FileStat:
            found = super().stat(path)
            return found._replace(inode=found.inode + (path.name == file_names.LOCK))

    with pytest.raises(StoreInUseError, match="was replaced"):
        _joined(path, Replaced())

    def elsewhere(store: Store) -> None:
        wake = store._engine().wake
        wake.namespace = wake.namespace + 1

    with _other(path, elsewhere), pytest.raises(StoreInUseError, match="pid namespace"):
        _joined(path)

    def nowhere(store: Store) -> None:
        store._engine().wake.namespace = 0  # not known: the same then

    with _other(path, nowhere):
        store_opening.close_engine(_joined(path)[0])
    with _other(path):
        assert (
            store_opening.Wake(LOCAL, path / file_names.WAKE).namespace
            == process_identity.pid_namespace()
        )
        (path / file_names.WAKE).unlink()
        with pytest.raises(StoreInUseError, match="was removed"):
            _joined(path)


def test_an_index_that_was_found_damaged_is_trusted_by_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = _joined(path)
    durable = engine.wake.durable_upto
    assert durable > 0

    def damaged(engine: Engine, _: object) -> None:
        raise CorruptionError("a row is not right")

    with monkeypatch.context() as patch:
        patch.setattr(store_opening, "_mark_clean", damaged)
        with pytest.raises(CorruptionError, match="not right"):
            store_opening.close_engine(engine)
    known = index_validity.read_marker(LOCAL, path)
    assert known == index_validity.ShutdownMarker(
        0, index_validity.Identity("", 0, 0, 0, 0), 0, 0, 0, durable=durable
    )
    with _open(path) as store:
        assert store.recovery["rebuilt"]
        assert _ids(store) == [1, 2, 3, 4, 5]


def test_a_store_that_another_process_makes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed half made, and whole when it is looked at: it is joined, as any other is."""
    path = tmp_path / "store"
    half = file_names.segment(path, 1)
    half = half.with_name(half.name + file_names.TEMPORARY)
    half.parent.mkdir(parents=True)
    half.write_bytes(b"")
    listed, ends = FileSystem.names, []

    def then_it_is_made(self: FileSystem, folder: Path) -> list[str]:
        found = listed(self, folder)
        if half.name in found and not ends:
            ends.append(other := _other(path, lambda store: store.stream("s").add({"n": "1"})))
            other.__enter__()
        return found

    monkeypatch.setattr(FileSystem, "names", then_it_is_made)
    with logstore.open(path) as store:
        assert len(_ids(store)) == 1
    assert not half.exists()
    ends[0].__exit__(None, None, None)
