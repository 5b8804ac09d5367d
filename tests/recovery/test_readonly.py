"""Prevents a read-only store from writing, lagging behind, or leaving private indexes for ever."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.runtime.engine import REBUILD_TRIES, Engine
from logstore.engine.shm import process_identity
from logstore.engine.shm.commit_words import Wake
from logstore.engine.snapshots import snapshot
from logstore.errors import CorruptFrameError, DamagedStoreError
from logstore.fs import LOCAL, FileSystem
from logstore.index.txn import IndexTxn
from logstore.log import file_names, frame
from logstore.options import StoreOptions
from logstore.recovery import index_validity, readonly
from logstore.recovery.check import check
from tests.compaction.dumps import dump
from tests.corruption import frames
from tests.recovery import forged, small_store
from tests.recovery.shipped import names_and_bytes
from tests.support.processes import Forked, Program
from tests.support.watched_files import FileOperation, WatchedFileSystem


def test_a_readonly_store_follows_writers_and_compactions(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 17) as writer:
        reader = logstore.open(path, readonly=True)
        into, out = writer.stream("x"), reader.stream("x")
        for turn in range(12):
            into.add_many({"n": n} for n in range(2000))
            into.add({"turn": turn})
            assert len(out) == len(into)
            into.trim(max_entries=3000, approximate=False)
            assert out.first == into.first
            if turn % 4 == 3:
                writer.compact()
            assert [entry.id for entry in out] == [entry.id for entry in into]
        reader.close()


def test_a_readonly_store_writes_nothing_and_needs_no_permission(tmp_path: Path) -> None:
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
        store.stream("x").trim(max_entries=5000, approximate=False)
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


def test_a_readonly_store_notices_a_dropped_next_segment(tmp_path: Path) -> None:
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


READER = """
import sys, logstore
store = logstore.open(sys.argv[1], readonly=True)
print(len(store.stream("s")), flush=True)
sys.stdin.read()
print(len(store.stream("s")), flush=True)
store.close()
"""


def test_temporary_indexes_of_dead_readers_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next one that needs a directory there, and never those of the living."""
    path, temporary = tmp_path / "store", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with logstore.open(path) as store:
        store.stream("s").add({"a": 1})
    foreign = [temporary / name for name in ("logstore-private-link", "other", "logstore-x")]
    foreign[0].symlink_to(tmp_path)
    foreign[1].mkdir()
    foreign[2].mkdir()
    before = set(temporary.iterdir())
    assert before == set(foreign)
    readers = [Program(READER, path) for _ in range(3)]
    for reader in readers:
        assert reader.answer() == "1"
    assert len(set(temporary.iterdir()) - before) == 3
    for reader in readers[:2]:
        reader.kill()
    assert len(set(temporary.iterdir()) - before) == 3
    with logstore.open(path, readonly=True) as store:
        assert len(store.stream("s")) == 1
        assert len(set(temporary.iterdir()) - before) == 2
        with Forked(lambda: len(store.stream("s"))):
            pass
        assert len(store.stream("s")) == 1
    assert readers[2].end() == "1\n"
    logstore.open(path, readonly=True).close()  # the child of the fork never closed its own
    assert set(temporary.iterdir()) == before
    assert os.listdir(path)


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
def test_damage_is_not_taken_for_the_end_of_the_log(
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


def test_a_reader_looks_up_nodes_that_compaction_moved(tmp_path: Path, reader: Opened) -> None:
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
    small_store.make(path)
    shutil.rmtree(path / "index")
    (path / file_names.WAKE).unlink()
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


def test_unpublished_commits_are_not_read(tmp_path: Path, reader: Opened) -> None:
    """A writer of this boot says how far it is; one of another boot says nothing."""
    path = tmp_path / "store"
    small_store.make(path)
    here = process_identity.boot_id()
    if not here:
        pytest.skip("this system does not tell its boots apart")
    end = 1 << 32 | frames.everything(path)[-1].end_offset
    forged.append(path, NOTE, RECORD)
    engine = reader(path)
    assert readonly.published(engine, here) == end
    assert readonly.published(engine, "") is None
    assert readonly.published(engine, here + "x") is None
    assert _added(engine) == 10
    words = engine.wake.peek(LOCAL, path / file_names.WAKE)
    assert words is not None
    wake = type(engine.wake)(LOCAL, path / file_names.WAKE)
    wake.set_log(words._replace(applied=0))
    assert readonly.published(engine, here) is None
    assert _added(engine) == 99
    wake.set_log(words)
    kept = (path / file_names.BOOT).read_bytes()
    (path / file_names.BOOT).unlink()
    assert readonly.published(engine, here) is None
    (path / file_names.BOOT).write_bytes(kept)
    assert readonly.published(engine, here) == end
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    index_validity.write_marker(
        LOCAL, path, known._replace(identity=known.identity._replace(boot_id="other"))
    )
    assert readonly.published(engine, here) is None
    assert readonly.published(engine, "other") == end
    (path / file_names.WAKE).unlink()
    assert readonly.published(engine, "other") is None


def _copied_with_older_wake(path: Path, copy: Path) -> None:
    """Copy a store that is open, as what copies file by file may: the words of WAKE are older than
    the log, by three adds that were acknowledged."""
    with logstore.open(path) as store:
        store.stream("x").add_many({"n": n} for n in range(5))
        wake = (path / file_names.WAKE).read_bytes()
        for number in range(3):
            store.stream("x").add({"n": 5 + number}, sync="always")
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns("lock.mdb", "index"))
        (copy / file_names.WAKE).write_bytes(wake)


def test_a_copy_made_in_the_same_boot_is_read_to_the_end_of_its_log(tmp_path: Path) -> None:
    _copied_with_older_wake(tmp_path / "store", tmp_path / "copy")
    with logstore.open(tmp_path / "copy", readonly=True) as store:
        assert len(store.stream("x")) == 8
        assert store.durable_upto == (0, 0), "nothing in a copy tells"
        store.backup(tmp_path / "backup")
    with logstore.open(tmp_path / "backup") as store:
        assert len(store.stream("x")) == 8


@pytest.mark.parametrize("part", range(4))
def test_words_of_another_place_are_not_believed(part: int, tmp_path: Path, reader: Opened) -> None:
    """Another mount, device, inode or creation time: a snapshot of a disk, a copy, or a writer that
    lives, seen by another mount. All that was acknowledged stands in the log."""
    path = tmp_path / "store"
    small_store.make(path)
    here = process_identity.boot_id()
    end = 1 << 32 | frames.everything(path)[-1].end_offset
    durable = readonly.durable_upto(reader(path))
    wake = Wake(LOCAL, path / file_names.WAKE)
    made = wake.made_as
    if not here or 0 in made:
        pytest.skip("this system does not tell its boots, mounts and files apart")
    engine = reader(path)
    forged.append(path, NOTE, RECORD)
    assert readonly.published(engine, here) == end
    wake.made_as = (*made[:part], made[part] + 1, *made[part + 1 :])
    assert readonly.published(engine, here) is None
    assert _added(engine) == 99
    wake.raise_durable(engine.wake.applied)
    only_mounted = part == 0  # it is the same file, and so is what it says to be durable
    assert readonly.durable_upto(engine) == (engine.wake.applied if only_mounted else durable)
    wake.made_as = made
    assert readonly.published(engine, here) == end
    wake.made_as = (0, *made[1:])
    assert readonly.published(engine, here) is None, "0: the system did not tell"


BY_ANOTHER_MOUNT = """
mount --bind "$1" "$2" && "$3" -c '
import sys, logstore
with logstore.open(sys.argv[1], readonly=True) as store:
    print(len(store.stream("x")), store.durable_upto)
' "$2"
"""


def test_a_living_writer_is_followed_by_another_mount(tmp_path: Path) -> None:
    """As from another container: the log says what was acknowledged, WAKE what is durable."""
    path, other = tmp_path / "store", tmp_path / "other"
    other.mkdir()
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mounts can be made here")
    with logstore.open(path) as store:
        store.stream("x").add_many(({"n": n} for n in range(5)), sync="always")
        seen = subprocess.run(
            ["unshare", "-rm", "sh", "-c", BY_ANOTHER_MOUNT, "sh", path, other, sys.executable],
            check=True,
            capture_output=True,
            text=True,
        )
        assert seen.stdout == f"5 {store.durable_upto}\n"


def test_a_readonly_index_ends_at_the_published_position(tmp_path: Path, reader: Opened) -> None:
    """Also behind it, whole commits stand in the log: their writer may not be through."""
    path = tmp_path / "store"
    small_store.make(path)
    end = 1 << 32 | frames.everything(path)[-1].end_offset
    forged.append(path, RECORD)
    engine = reader(path)
    with engine.index().env.begin() as txn:
        meta = IndexTxn(engine.index(), txn).meta()
    assert (meta.applied, meta.active_segment) == (end, 1)


def opens_segment(operation: FileOperation) -> bool:
    path = operation.path
    return operation.kind == "open" and path.suffix == file_names.segment(path, 1).suffix


class SegmentsMissing(WatchedFileSystem):
    """The first so many openings of a segment find none."""

    def __init__(self, times: int) -> None:
        self.times = times

    def before(self, operation: FileOperation) -> None:
        if self.times and opens_segment(operation):
            self.times -= 1
            raise FileNotFoundError(operation.path)


def test_a_store_that_changes_while_it_is_read_is_read_again(alone: Path, reader: Opened) -> None:
    for times in range(4):
        assert _added(reader(alone, SegmentsMissing(times))) == 10


class SegmentsGoWhenRead(WatchedFileSystem):
    """Segments are there to be listed, and missing when they are read."""

    def __init__(self) -> None:
        self.opened = 0
        self.homes: list[Path] = []

    def temporary_directory(self) -> Path:
        self.homes.append(super().temporary_directory())
        return self.homes[-1]

    def before(self, operation: FileOperation) -> None:
        if opens_segment(operation):
            self.opened += 1
            if self.opened % 2 == 0:
                raise FileNotFoundError(operation.path)


def test_why_a_store_cannot_be_read_is_told(alone: Path) -> None:
    """And the private directory is removed."""
    fs = SegmentsGoWhenRead()
    with pytest.raises(DamagedStoreError, match="go while they are read") as caught:
        readonly.open_engine(fs, alone, OPTIONS)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert fs.opened == 2 * REBUILD_TRIES * readonly.BUILD_TRIES
    assert [each.exists() for each in fs.homes] == [False]
    file_names.segment(alone, 1).unlink()
    fs = SegmentsGoWhenRead()
    with pytest.raises(DamagedStoreError, match="has no segment"):
        readonly.open_engine(fs, alone, OPTIONS)
    assert [each.exists() for each in fs.homes] == [False]


def test_a_closed_reader_follows_no_more(alone: Path) -> None:
    engine, _ = readonly.open_engine(LOCAL, alone, OPTIONS)
    follow = engine.follow
    assert follow is not None
    follow()
    readonly.close_engine(engine)
    with pytest.raises(logstore.Error, match="closed"):
        follow()
