"""Prevents a doubtful index from being opened, and a sound one from being rebuilt."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore import fsinfo
from logstore.engine.shm import process_identity
from logstore.errors import NotAStoreError
from logstore.fs import LOCAL
from logstore.index import env
from logstore.index.env import open_generation
from logstore.index.txn import IndexTxn
from logstore.log import file_names, segment
from logstore.options import StoreOptions
from logstore.recovery import compare, index_validity, readonly, replay
from logstore.recovery.check import check
from logstore.recovery.index_validity import ShutdownMarker
from logstore.recovery.report import Damage
from logstore.recovery.salvage.run import salvage
from tests.crash import script
from tests.crash.script import State
from tests.recovery import small_store
from tests.support import processes
from tests.support.processes import Forked, Program, run_program
from tests.support.watched_files import OperationLog, in_place

FIRST = {b"a": [(f"{number}-1", b"x" * number) for number in range(1, 30)]}


def fill(store: logstore.Store[bytes], first: int = 1, last: int = 29) -> None:
    """One entry a number."""
    for number in range(first, last + 1):
        store.stream("a").add({"v": b"x" * number}, id=f"{number}-1")


def made(path: Path) -> Path:
    """A store that was closed cleanly."""
    with script.open_store(path, "everysec") as store:
        fill(store)
    return path


def killed(path: Path, work: Callable[[logstore.Store[bytes]], None]) -> None:
    """Another process works on the store and is killed."""

    def then_die() -> None:
        store = logstore.open(path, background=False)
        work(store)
        processes.die()

    processes.killed(then_die)


def test_check_says_what_becomes_of_an_index_that_was_not_closed(tmp_path: Path) -> None:
    """Of the same boot an opener goes on with it; moved, or of another boot, it is rebuilt."""
    path = made(tmp_path / "store")
    assert check(path).index == compare.AGREES
    killed(path, lambda store: fill(store, 30, 40))
    assert check(path).index == compare.NOT_CLEAN
    copied = shutil.copytree(path, tmp_path / "copy")
    assert check(copied).index.startswith(compare.REBUILT)
    for place, rebuilt in ((path, False), (copied, True)):
        with logstore.open(place) as store:
            assert bool(store.recovery["why_not_trusted"]) == rebuilt


def opened(path: Path, expected: State) -> dict[str, object]:
    """Open, compare, and tell what the passes found."""
    with script.open_store(path, "everysec") as store:
        assert script.dump(store) == expected
        return store.recovery


def index_of(path: Path) -> Path:
    """The data file of the newest generation."""
    return file_names.generation(path, file_names.generations(LOCAL, path)[-1]) / "data.mdb"


def test_a_clean_open_reads_no_segment_body(tmp_path: Path) -> None:
    """Only headers: opening takes the same time whatever the size of the log."""
    path = tmp_path / "store"
    with script.open_store(path, "everysec") as store:
        for number in range(1, 12):
            store.stream("a").add({"v": b"x" * 20_000}, id=f"{number}-1")
    assert len(file_names.segments(LOCAL, path)) > 3
    with in_place(OperationLog()) as files, script.open_store(path, "everysec") as store:
        read = [each.size_bytes for each in files.of("read") if each.path.suffix == ".log"]
        assert sum(read) <= 64 + 32  # the header, and that of the last frame
        assert store._live().engine.segments.body_reads == 0
        assert store.recovery["index_trusted"]
        assert not store.recovery["rebuilt"]
        assert len(store.stream("a")) == 11
        assert store._live().engine.segments.body_reads == 0
        assert store.stream("a").last is not None
        assert store._live().engine.segments.body_reads == 1


def test_after_a_kill_the_index_is_trusted_and_the_tail_checked(tmp_path: Path) -> None:
    """LMDB survives kill -9 without syncs; a rebuild would make every restart slow."""
    path = made(tmp_path / "store")
    killed(path, lambda store: fill(store, 30, 40))
    expected = {b"a": [(f"{number}-1", b"x" * number) for number in range(1, 41)]}
    found = opened(path, expected)
    if not index_validity.identity(index_of(path)).known:
        pytest.skip("this kernel does not tell mounts apart: the index is rebuilt")
    assert found["index_trusted"]
    assert not found["rebuilt"]


def _other_boot(path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(process_identity, "boot_id", lambda: "another boot")


def _other_mount(path: Path, patch: pytest.MonkeyPatch) -> None:
    real = fsinfo.file_identity
    patch.setattr(fsinfo, "file_identity", lambda file: (real(file)[0] + 1, *real(file)[1:]))


def _unknown_mount(path: Path, patch: pytest.MonkeyPatch) -> None:
    real = fsinfo.file_identity
    patch.setattr(fsinfo, "file_identity", lambda file: (0, *real(file)[1:]))


def _copied(path: Path, patch: pytest.MonkeyPatch) -> None:
    aside = path.with_name("aside")
    path.rename(aside)
    shutil.copytree(aside, path)


def _replaced(path: Path, patch: pytest.MonkeyPatch) -> None:
    data = index_of(path)
    copy = data.with_name("copy")
    shutil.copy(data, copy)
    copy.replace(data)


def _no_boot(path: Path, patch: pytest.MonkeyPatch) -> None:
    (path / "BOOT").unlink()


def _torn_boot(path: Path, patch: pytest.MonkeyPatch) -> None:
    (path / "BOOT").write_bytes((path / "BOOT").read_bytes()[:-3])


def _deleted(path: Path, patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(path / "index")


@pytest.mark.parametrize(
    "change",
    [_other_boot, _other_mount, _unknown_mount, _copied, _replaced, _no_boot, _torn_boot, _deleted],
)
def test_a_doubtful_index_is_rebuilt_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:  # fmt: skip
    """After a power cut merely opening it may end the process."""
    path = made(tmp_path / "store")
    killed(path, lambda store: fill(store, 30, 33))
    change(path, monkeypatch)
    before = {int(each.name) for each in (path / "index").glob("*")}
    looked_at: list[Path] = []
    real = env.lmdb.open
    monkeypatch.setattr(
        env.lmdb, "open",
        lambda name, **rest: (looked_at.append(Path(name).resolve()), real(name, **rest))[1],
    )  # fmt: skip
    found = opened(path, {b"a": [(f"{n}-1", b"x" * n) for n in range(1, 34)]})
    assert found["rebuilt"]
    assert not found["index_trusted"]
    assert found["why_not_trusted"]
    numbers = {
        int(each.name.removesuffix(file_names.TEMPORARY))
        for each in looked_at
        if each.is_relative_to(path)  # not what a store of another test still does
    }
    assert numbers
    assert not numbers & before


@pytest.mark.parametrize("change", [_copied, _replaced, _no_boot, _torn_boot, _deleted])
def test_a_replaced_index_is_noticed_after_a_clean_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:  # fmt: skip
    """The mark of a clean close speaks of those files and no others."""
    path = made(tmp_path / "store")
    change(path, monkeypatch)
    assert opened(path, FIRST)["rebuilt"]


def test_a_clean_close_is_trusted_on_another_boot_and_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was synced: a restart of the machine costs no rebuild."""
    path = made(tmp_path / "store")
    _other_boot(path, monkeypatch)
    _other_mount(path, monkeypatch)
    found = opened(path, FIRST)
    assert found["index_trusted"]
    assert not found["rebuilt"]


@pytest.mark.parametrize("close", ["clean", "killed"])
def test_an_index_of_yesterday(tmp_path: Path, close: str) -> None:
    """Put back in place over the newer one, also with its inode kept: the answers are the same."""
    path = made(tmp_path / "store")
    yesterday = index_of(path).read_bytes()

    def more(store: logstore.Store[bytes]) -> None:
        fill(store, 30, 50)
        store.stream("a").delete("3-1")

    time.sleep(0.02)
    if close == "clean":
        with script.open_store(path, "everysec") as store:
            more(store)
    else:
        killed(path, more)
    with index_of(path).open("r+b") as file:
        file.write(yesterday)
        file.truncate(len(yesterday))
    expected = {b"a": [(f"{n}-1", b"x" * n) for n in range(1, 51) if n != 3]}
    found = opened(path, expected)
    assert found["rebuilt"] or close == "killed"
    assert opened(path, expected)["index_trusted"]


@pytest.mark.parametrize("count", [3, 60])
@pytest.mark.parametrize("close", ["clean", "killed"])
def test_an_index_of_another_store(tmp_path: Path, close: str, count: int) -> None:
    """With the inode kept: the checksum of its last frame is not in this log."""
    path, other = made(tmp_path / "store"), tmp_path / "other"
    with script.open_store(other, "everysec") as store:
        for number in range(1, count):
            store.stream("z").add({"v": b"other"}, id=f"{number}-1")
    expected = FIRST
    if close == "killed":
        killed(path, lambda store: fill(store, 30, 31))
        expected = {b"a": [(f"{n}-1", b"x" * n) for n in range(1, 32)]}
    with index_of(path).open("r+b") as file:
        file.write(index_of(other).read_bytes())
    assert opened(path, expected)["rebuilt"]


def test_the_clean_mark_is_gone_before_the_first_write(tmp_path: Path) -> None:
    """A mark that survived into a commit would make a torn index trusted."""
    path = made(tmp_path / "store")
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    assert known.clean_applied
    with script.open_store(path, "everysec"):
        known = index_validity.read_marker(LOCAL, path)
        assert known is not None
        assert not known.clean_applied


def test_the_last_closer_leaves_the_mark(tmp_path: Path) -> None:
    """While another process has the store open it is not clean."""
    path = made(tmp_path / "store")
    with script.open_store(path, "everysec") as store:
        Forked(lambda: logstore.open(path, background=False).close()).join()
        known = index_validity.read_marker(LOCAL, path)
        assert known is not None
        assert not known.clean_applied
        fill(store, 30, 30)
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    assert known.clean_applied


@pytest.mark.parametrize("how", ["built from the log", "copied"])
def test_a_generation_of_who_joined_later_promises_no_less(tmp_path: Path, how: str) -> None:
    """BOOT is written anew for it, and must still say how far the log has to reach."""
    path = made(tmp_path / "store")
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    assert known.durable

    def work(_: logstore.Store[bytes]) -> None:
        """Of the first opener; the second makes the generation. Both die."""

        def second(store: logstore.Store[bytes]) -> None:
            shared = store._live()
            with shared.committer.locked():
                build = shared.engine.copy_index if how == "copied" else None
                shared.engine.rebuild_locked(build)

        killed(path, second)

    killed(path, work)
    after = index_validity.read_marker(LOCAL, path)
    assert after is not None
    assert (after.generation, after.durable) == (known.generation + 1, known.durable)
    (log,) = (path / "log").glob("*.log")
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(logstore.DamagedStoreError, match="recover"):
        logstore.open(path)


def test_leftovers_of_a_rebuild_that_was_cut_off(tmp_path: Path) -> None:
    """A generation under its temporary name is removed, not opened."""
    path = made(tmp_path / "store")
    left = path / "index" / "7.tmp"
    left.mkdir()
    (left / "data.mdb").write_bytes(b"half")
    (path / "log" / "00000000000000000009.log.tmp").write_bytes(b"half")
    assert opened(path, FIRST)["index_trusted"]
    assert not left.exists()


def test_a_creation_that_was_cut_off_can_be_done_again(tmp_path: Path) -> None:
    """Without STORE it is not a store yet; but a log with commits in it is never written over."""
    path = made(tmp_path / "store")
    for each in path.iterdir():
        if each.is_file() and each.name != "LOCK":
            each.unlink()
    shutil.rmtree(path / "index")
    with pytest.raises(NotAStoreError, match="STORE was lost"):
        script.open_store(path, "everysec")
    log = file_names.segment(path, 1)
    log.write_bytes(log.read_bytes()[:64])
    assert opened(path, {}) is not None


BUILDER = """
import os, signal, sys, logstore
from logstore.engine.runtime.engine import Engine
with logstore.open(sys.argv[1], background=False) as store:
    Engine.settle_generation = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    store.compact(full=True)
"""
GOES_ON = """
import os, signal, sys, logstore
store = logstore.open(sys.argv[1], background=False)
stream = store.stream("a")
stream.add({"x": "1"})
print("open", flush=True)
sys.stdin.readline()
dropped = 0
for _ in range(3):
    stream.add_many([{"n": str(n), "pad": os.urandom(100)} for n in range(3000)])
    stream.trim(max_entries=10)
    dropped += store.compact().segments_dropped
assert dropped > 3
stream.add_many([{"n": str(n), "pad": os.urandom(100)} for n in range(3000)])
stream.add({"last": "1"})
print(len(stream), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def left_behind(tmp_path: Path) -> tuple[Path, int]:
    """A store whose last processes were killed so, and how many entries it has."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        store.stream("a").add_many([{"n": str(n)} for n in range(3000)])
    other = Program(GOES_ON, path)
    assert other.answer() == "open"
    run_program(BUILDER, path, exits=-signal.SIGKILL)
    entries = int(other.end("\n"))
    assert other.exit_code == -signal.SIGKILL
    return path, entries


def test_an_untrusted_index_is_rebuilt_from_the_log(left_behind: tuple[Path, int]) -> None:
    path, count = left_behind
    with logstore.open(path, background=False) as store:
        assert not store.recovery["index_trusted"]
        assert len(store.stream("a")) == count
        assert list(store.stream("a"))[-1]["last"] == b"1"
    found = check(path)
    assert not found.damage
    assert found.index == compare.AGREES


def test_a_segment_that_is_missing_amid_the_others_is_damage(
    left_behind: tuple[Path, int],
) -> None:
    path, _ = left_behind
    segments = sorted((path / file_names.LOG).glob("*.log"))
    assert len(segments) > 2
    segments[-2].unlink()
    with pytest.raises(logstore.DamagedStoreError):
        logstore.open(path, background=False)


def test_a_last_segment_that_is_missing_is_damage(left_behind: tuple[Path, int]) -> None:
    path, _ = left_behind
    for file in (path / file_names.LOG).glob("*.log"):
        file.unlink()
    with pytest.raises(logstore.DamagedStoreError):
        logstore.open(path, background=False)


X, Y = [1, 4, 5, 6, 7, 8, 10], list(range(1, 11))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that was closed cleanly."""
    small_store.make(tmp_path / "store")
    return tmp_path / "store"


def _index(path: Path) -> Path:
    return file_names.generation(path, file_names.generations(LOCAL, path)[-1])


def _changed(path: Path, change: Callable[[IndexTxn], object]) -> None:
    """Change rows of the index, and make BOOT fit its file again."""
    place = _index(path)
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    own = open_generation(LOCAL, place, known.generation)
    with own.env.begin(write=True) as txn:
        change(IndexTxn(own, txn))
    own.sync()
    own.close()
    file = LOCAL.stat(place / "data.mdb")
    index_validity.write_marker(LOCAL, path, known._replace(
        identity=index_validity.identity(place / "data.mdb"), clean_bytes=file.size_bytes,
        clean_modified_ns=file.modified_ns,
    ))  # fmt: skip


def _record(index: IndexTxn) -> None:
    """A row whose checksum does not fit."""
    with index.txn.cursor(db=index.generation.main) as cursor:
        for key, value in cursor:
            if len(value) > 60:
                index.txn.put(key, value[:-1] + bytes([value[-1] ^ 1]), db=index.generation.main)
                return


def _meta(**values: int) -> Callable[[IndexTxn], object]:
    return lambda index: index.put_meta(index.meta()._replace(**values))


def _seen(path: Path, *, careful: bool = False) -> tuple[str, list[Damage]]:
    """What a check says of the index, in this process or in another one."""
    engine, _ = readonly.open_engine(LOCAL, path, StoreOptions(readonly=True, background=False))
    try:
        damage: list[Damage] = []
        return compare.with_own_index(engine, damage, careful=careful), damage
    finally:
        readonly.close_engine(engine)


def test_a_row_that_is_not_right_is_told(path: Path) -> None:
    assert _seen(path) == (compare.AGREES, [])
    _changed(path, lambda index: None)
    assert _seen(path) == (compare.AGREES, [])
    _changed(path, _record)
    told, damage = _seen(path)
    assert told == "differs from the log"
    assert [each[:3] for each in damage] == [(0, 0, 0)]
    assert "the index is damaged at key" in damage[0].why


def test_whether_an_index_can_be_read_is_asked_of_another_process(path: Path) -> None:
    place = _index(path)
    number = int(place.name)
    assert compare.cannot_be_read(place, number) == ""
    _changed(path, lambda index: index.delete_name(b"x", 1))
    assert "the name b'x' is missing" in compare.cannot_be_read(place, number)
    _changed(path, _record)
    assert "the index is damaged at key" in compare.cannot_be_read(place, number)
    told, (damage,) = _seen(path, careful=True)
    assert told == "differs from the log"
    assert damage[:3] == (0, 0, 0)
    assert damage.why.startswith("index: the index is damaged at key")


def test_an_index_that_cannot_be_opened_is_told(path: Path) -> None:
    place = _index(path) / "data.mdb"
    size, times = place.stat().st_size, place.stat()
    with place.open("r+b") as file:
        file.write(bytes(8192))
    assert place.stat().st_size == size
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    assert times.st_ino == known.identity.inode
    now = LOCAL.stat(place)
    index_validity.write_marker(LOCAL, path, known._replace(clean_modified_ns=now.modified_ns))
    told, damage = _seen(path)
    assert told in ("cannot be opened", "differs from the log")
    assert [each[:3] for each in damage] == [(0, 0, 0)]


@pytest.mark.parametrize("values", [{"applied": 1 << 32 | 900}, {"commit": 3}, {"last_crc": 77}])
def test_an_index_that_is_not_as_it_was_closed_is_not_used(
    values: dict[str, int], path: Path, tmp_path: Path
) -> None:
    _changed(path, _meta(**values))
    copied = shutil.copytree(path, tmp_path / "copy")
    assert salvage(path, tmp_path / "new").index == "built from what the log still says"
    assert small_store.held(tmp_path / "new") == {b"x": X, b"y": Y}
    with logstore.open(path, background=False) as store:
        assert store.recovery["rebuilt"]
        assert "not as it was when it was closed" in str(store.recovery["why_not_trusted"])
    assert small_store.held(path) == {b"x": X, b"y": Y}
    assert small_store.held(copied) == {b"x": X, b"y": Y}


def test_boot_is_whole_or_none(path: Path) -> None:
    place = path / file_names.BOOT
    whole = place.read_bytes()
    known = index_validity.read_marker(LOCAL, path)
    assert known is not None
    assert not index_validity.marker_is_damaged(LOCAL, path)
    for data in (
        b"", b"\0", bytes(3), bytes(5), bytes(100), whole[:4], whole[:-1], whole + b"\0",
        *(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))),
    ):  # fmt: skip
        place.write_bytes(data)
        assert index_validity.read_marker(LOCAL, path) is None
        assert index_validity.marker_is_damaged(LOCAL, path)
    place.write_bytes(bytes(5))
    why = "BOOT is damaged: the index is rebuilt when the store is opened"
    assert check(path).damage == [Damage(0, 0, 0, why)]
    place.unlink()
    assert index_validity.read_marker(LOCAL, path) is None
    assert not index_validity.marker_is_damaged(LOCAL, path)
    place.write_bytes(whole)
    assert index_validity.read_marker(LOCAL, path) == known


def test_zeros_are_no_boot(path: Path) -> None:
    """Four of them are the checksum of nothing."""
    (path / file_names.BOOT).write_bytes(bytes(4))
    assert index_validity.read_marker(LOCAL, path) is None
    assert index_validity.marker_is_damaged(LOCAL, path)
    assert small_store.held(path) == {b"x": X, b"y": Y}


def test_boot_round_trips(path: Path) -> None:
    here = index_validity.Identity("boot", 2, 3, 4, 5)
    for known in (
        ShutdownMarker(7, here, 8, 9, 10, 11, 12, 13),
        index_validity.dirty_marker(7, here, 13),
        index_validity.invalid_marker(13),
    ):
        index_validity.write_marker(LOCAL, path, known)
        assert index_validity.read_marker(LOCAL, path) == known
    assert index_validity.dirty_marker(7, here, 13) == ShutdownMarker(7, here, 0, 0, 0, 0, 0, 13)
    assert index_validity.invalid_marker(13).generation == 0
    assert not index_validity.invalid_marker(13).identity.known
    assert here.known
    for name, nothing in (("boot_id", ""), ("mount_id", 0), ("inode", 0), ("born_ns", 0)):
        assert not here._replace(**{name: nothing}).known  # type: ignore[arg-type]


def test_why_an_index_is_not_trusted() -> None:
    here = index_validity.Identity("boot", 2, 3, 4, 5)
    file = index_validity.FileStat(3, 4, 11, 12)
    clean, open_boot = (
        ShutdownMarker(7, here, 8, 9, 10, 11, 12, 13),
        ShutdownMarker(7, here, 0, 0, 0),
    )
    why = index_validity.why_invalid
    assert why(clean, here, file) == ""
    assert why(clean, here._replace(boot_id="other", mount_id=99, born_ns=1), file) == ""
    assert why(open_boot, here, file) == ""
    for known, now, size in (
        (None, here, file), (clean._replace(version=0), here, file), (clean, None, file),
        (clean, here._replace(device=9), file), (clean, here._replace(inode=9), file),
        (clean, here, None), (clean, here, file._replace(size_bytes=9)),
        (clean, here, file._replace(modified_ns=9)), (open_boot, here._replace(boot_id=""), file),
        (open_boot, here._replace(boot_id="other"), file),
        (open_boot, here._replace(mount_id=9), file), (open_boot, here._replace(device=9), file),
        (open_boot, here._replace(inode=9), file), (open_boot, here._replace(born_ns=9), file),
    ):  # fmt: skip
        assert why(known, now, size)


def test_a_log_that_does_not_reach_so_far_is_damaged(path: Path) -> None:
    """With the place where it ends; not if it went on later, or if loss is accepted."""
    with logstore.open(path, background=False) as store:
        engine = store._engine()
        size = file_names.segment(path, 1).stat().st_size
        index_validity.check_log_reaches(engine, 1 << 32 | size)
        for position, place in ((1 << 32 | size + 1, (1, size)), (5 << 32 | 100, (5, 0))):
            with pytest.raises(logstore.DamagedStoreError) as caught:
                index_validity.check_log_reaches(engine, position)
            assert (caught.value.segment, caught.value.offset) == place
        head = segment.SegmentHead(fmt.Role.MAIN, 7, engine.uuid, 6 << 32 | 64, 1, 0)
        segment.create(LOCAL, path, head).close()
        index_validity.check_log_reaches(engine, 5 << 32 | 100)
        file_names.segment(path, 7).unlink()
        engine.accept_loss = True
        index_validity.check_log_reaches(engine, 5 << 32 | 100)
        engine.accept_loss = False


def test_a_half_copied_generation_is_ignored(path: Path) -> None:
    with logstore.open(path, background=False) as store:
        engine = store._engine()
        number = engine.index().number
        half = file_names.generation(path, number + 1)
        half = half.with_name(half.name + file_names.TEMPORARY)
        half.mkdir()
        shutil.copy(_index(path) / "data.mdb", half / "data.mdb")
        (half / "more").write_bytes(b"x")
        with engine._locked():
            assert replay.copy_used(engine) == number + 1
            known = index_validity.read_marker(LOCAL, path)
            assert known is not None
            made = file_names.generation(path, number + 1)
            assert known == index_validity.dirty_marker(
                number + 1, index_validity.identity(made / "data.mdb"), engine.promised
            )
            assert sorted(each.name for each in made.iterdir()) == ["data.mdb"]
            assert not half.exists()
            (file_names.generation(path, number + 5)).mkdir()
            assert replay.copy_used(engine) == number + 6
            engine.rebuild_locked(replay.copy_used)
    assert small_store.held(path) == {b"x": X, b"y": Y}
