"""Prevents a reader without an index of its own from taking in what was not published, from missing
what was, and from reading all of it anew where following is enough.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.runtime.engine import REBUILD_TRIES, Engine
from logstore.engine.shm import process
from logstore.engine.snapshots import snapshot
from logstore.errors import CorruptFrameError, DamagedStoreError
from logstore.fs import LOCAL, File, FileSystem
from logstore.index.txn import IndexTxn
from logstore.log import frame, names
from logstore.options import StoreOptions
from logstore.recovery import index_validity, readonly
from tests.corruption import frames
from tests.recovery import forged, little

Store = logstore.Store[bytes]
OPTIONS = StoreOptions(readonly=True, background=False)
NOTE = frame.Note(b"x")


def _writer(path: Path) -> Store:
    return logstore.open(path, encoding=None, background=False, segment_bytes=64 << 10)


Opened = Callable[..., Engine]


@pytest.fixture
def reader() -> Iterator[Opened]:
    """Engines that only read; closed at the end, and nothing is left of them."""
    engines: list[Engine] = []

    def make(path: Path, fs: FileSystem = LOCAL) -> Engine:
        engines.append(readonly.open_engine(fs, path, OPTIONS)[0])
        return engines[-1]

    yield make
    for engine in engines:
        assert engine.index_home.exists()
        readonly.close_engine(engine)
        assert not engine.index_home.exists()


def _seen(engine: Engine) -> tuple[list[int], int]:
    """Lengths of all streams, and the segment that is the active one."""

    def look(view: snapshot.Snapshot) -> tuple[list[int], int]:
        return [each.length for each in view.index.records()], view.meta.active_segment

    return snapshot.read(engine, look)


def test_segments_that_are_begun_are_followed_and_nothing_is_read_anew(
    tmp_path: Path, reader: Opened
) -> None:
    with _writer(tmp_path / "store") as store:
        store.stream("s").add({b"n": b"0"})
        engine = reader(tmp_path / "store")
        first = engine.index().number
        assert _seen(engine) == ([1], 1)
        for turn in range(1, 6):
            store.stream("s").add({b"pad": bytes(30_000)})
            store.stream("s").add({b"pad": bytes(30_000)})
            assert _seen(engine) == ([1 + 2 * turn], store._engine().wake.log().active_segment)
        for _ in range(4):  # some at once
            store.stream("s").add({b"pad": bytes(60_000)})
        assert _seen(engine) == ([15], store._engine().wake.log().active_segment)
        assert engine.index().number == first
        assert engine.wake.log().applied == store._engine().wake.applied
        assert engine.follow is not None


@pytest.mark.parametrize("sealed", [True, False])
def test_what_is_damaged_is_told_and_not_taken_for_the_end(
    tmp_path: Path, reader: Opened, sealed: bool
) -> None:
    """In a sealed segment, and where the writer has published what stands there."""
    with _writer(tmp_path / "store") as store:
        store.stream("s").add({b"n": b"0"})
        engine = reader(tmp_path / "store")
        before = store._engine().wake.log()
        for _ in range(5 if sealed else 1):
            store.stream("s").add({b"pad": bytes(30_000)})
        assert (store._engine().wake.log().active_segment > 1) is sealed
        at = (fmt.offset_of(before.applied)) + 100
        frames.flip(frames.file(tmp_path / "store", 1), at)
        for _ in range(2):
            with pytest.raises(CorruptFrameError) as caught:
                _seen(engine)
            assert (caught.value.segment, caught.value.offset) == (1, at - 100)
        frames.flip(frames.file(tmp_path / "store", 1), at)
        assert _seen(engine)[0] == [6 if sealed else 2]


def test_what_compaction_dropped_is_read_anew(tmp_path: Path, reader: Opened) -> None:
    with _writer(tmp_path / "store") as store:
        ids = list(store.stream("s").add_many([{b"pad": bytes(300)}] * 500))
        engine = reader(tmp_path / "store")
        first = engine.index().number
        store.stream("s").delete(*ids[::2])
        store.compact(threshold=0.0)
        store.stream("s").add({b"n": b"1"})
        store.compact(threshold=0.0)
        assert _seen(engine)[0] == [251]
        assert engine.index().number > first


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A directory that nobody has open, in which no process of this boot published anything."""
    path = tmp_path / "alone"
    little.make(path)
    shutil.rmtree(path / "index")
    (path / names.WAKE).unlink()
    return path


RECORD = frame.Record(2, 10, 99, 10, 10, 1, 1, 0, 0)


def _added(engine: Engine) -> int:
    def look(view: snapshot.Snapshot) -> int:
        record = view.index.record_by_name(b"y")
        assert record is not None
        return record.entries_added

    return snapshot.read(engine, look)


def test_the_log_itself_is_followed_commit_by_commit(alone: Path, reader: Opened) -> None:
    """What is there of a commit that is being written is passed over until it is whole."""
    engine = reader(alone)
    first = engine.index().number
    assert _added(engine) == 10
    before = engine.wake.log()
    at = forged.append(alone, NOTE, RECORD)
    whole = frames.file(alone, 1).read_bytes()
    for cut in range(at + 1, len(whole)):
        frames.file(alone, 1).write_bytes(whole[:cut])
        assert _added(engine) == 10
    frames.file(alone, 1).write_bytes(whole)
    assert _added(engine) == 99
    after = engine.wake.log()
    assert after.commit == before.commit + 1
    assert after.applied == 1 << 32 | len(whole)
    assert engine.index().number == first


def test_a_number_that_does_not_follow_is_not_taken(alone: Path, reader: Opened) -> None:
    engine = reader(alone)
    forged.append(alone, RECORD, skipped=1)
    assert _added(engine) == 10


def test_what_was_not_published_does_not_count(tmp_path: Path, reader: Opened) -> None:
    """A writer of this boot says how far it is; one of another boot says nothing."""
    path = tmp_path / "store"
    little.make(path)
    here = process.boot_id()
    if not here:
        pytest.skip("this system does not tell its boots apart")
    end = 1 << 32 | frames.everything(path)[-1].end_offset
    forged.append(path, NOTE, RECORD)
    engine = reader(path)
    assert readonly.published(engine, here) == end
    assert readonly.published(engine, "") is None
    assert readonly.published(engine, here + "x") is None
    assert _added(engine) == 10
    words = engine.wake.peek(LOCAL, path / names.WAKE)
    assert words is not None
    wake = type(engine.wake)(LOCAL, path / names.WAKE)
    wake.set_log(words._replace(applied=0))
    assert readonly.published(engine, here) is None
    assert _added(engine) == 99
    wake.set_log(words)
    kept = (path / names.BOOT).read_bytes()
    (path / names.BOOT).unlink()
    assert readonly.published(engine, here) is None
    (path / names.BOOT).write_bytes(kept)
    assert readonly.published(engine, here) == end
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    index_validity.write_marker(
        LOCAL, path, known._replace(identity=known.identity._replace(boot_id="other"))
    )
    assert readonly.published(engine, here) is None
    assert readonly.published(engine, "other") == end
    (path / names.WAKE).unlink()
    assert readonly.published(engine, "other") is None


def test_up_to_what_was_published_it_is_built(tmp_path: Path, reader: Opened) -> None:
    """Also behind it, whole commits stand in the log: their writer may not be through."""
    path = tmp_path / "store"
    little.make(path)
    end = 1 << 32 | frames.everything(path)[-1].end_offset
    forged.append(path, RECORD)
    engine = reader(path)
    with engine.index().env.begin() as txn:
        meta = IndexTxn(engine.index(), txn).meta()
    assert (meta.applied, meta.active_segment) == (end, 1)


class Gone(FileSystem):
    """Segments that are gone so many times when somebody looks for them."""

    def __init__(self, times: int) -> None:
        self.times = times

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        if path.suffix == names.segment(path, 1).suffix and self.times:
            self.times -= 1
            raise FileNotFoundError(path)
        return super().open(path, write=write, create=create, exclusive=exclusive)


def test_a_store_that_changes_while_it_is_read_is_read_again(alone: Path, reader: Opened) -> None:
    for times in range(4):
        assert _added(reader(alone, Gone(times))) == 10


class Here(FileSystem):
    """Segments that are there to be listed, and gone when they are read."""

    def __init__(self) -> None:
        self.opened = 0
        self.homes: list[Path] = []

    def temporary_directory(self) -> Path:
        self.homes.append(super().temporary_directory())
        return self.homes[-1]

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        if path.suffix == names.segment(path, 1).suffix:
            self.opened += 1
            if self.opened % 2 == 0:
                raise FileNotFoundError(path)
        return super().open(path, write=write, create=create, exclusive=exclusive)


def test_why_a_store_cannot_be_read_is_told(alone: Path) -> None:
    """And the private directory is removed."""
    fs = Here()
    with pytest.raises(DamagedStoreError, match="go while they are read") as caught:
        readonly.open_engine(fs, alone, OPTIONS)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert fs.opened == 2 * REBUILD_TRIES * readonly.BUILD_TRIES
    assert [each.exists() for each in fs.homes] == [False]
    names.segment(alone, 1).unlink()
    fs = Here()
    with pytest.raises(DamagedStoreError, match="has no segment"):
        readonly.open_engine(fs, alone, OPTIONS)
    assert [each.exists() for each in fs.homes] == [False]


def test_who_closed_follows_no_more(alone: Path) -> None:
    engine, _ = readonly.open_engine(LOCAL, alone, OPTIONS)
    follow = engine.follow
    assert follow is not None
    follow()
    readonly.close_engine(engine)
    with pytest.raises(logstore.Error, match="closed"):
        follow()
