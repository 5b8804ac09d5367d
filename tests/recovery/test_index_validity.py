"""Prevents a doubtful index from being opened, and a sound one from being rebuilt."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore import fsinfo
from logstore.engine.shm import process
from logstore.errors import NotAStoreError
from logstore.fs import LOCAL
from logstore.index import env
from logstore.log import names
from logstore.recovery import compare, index_validity
from logstore.recovery.check import check
from tests.crash import script, twins
from tests.crash.script import State

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
    pid = os.fork()
    if not pid:
        try:
            store = logstore.open(path, background=False)
            work(store)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])


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
    return names.generation(path, names.generations(LOCAL, path)[-1]) / "data.mdb"


def test_a_clean_open_reads_no_segment_body(tmp_path: Path) -> None:
    """Only headers: opening takes the same time whatever the size of the log."""
    path = tmp_path / "store"
    with script.open_store(path, "everysec") as store:
        for number in range(1, 12):
            store.stream("a").add({"v": b"x" * 20_000}, id=f"{number}-1")
    assert len(names.segments(LOCAL, path)) > 3
    twin = twins.TwinFileSystem()
    with twins.in_place(twin), script.open_store(path, "everysec") as store:
        read = [(name, size, offset) for name, size, offset in twin.reads if name.endswith(".log")]
        assert sum(size for _, size, _ in read) <= 64 + 32  # the header, and that of the last frame
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
    patch.setattr(process, "boot_id", lambda: "another boot")


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
        int(each.name.removesuffix(names.TEMPORARY))
        for each in looked_at
        if each.is_relative_to(path)  # not what a store of another test still does
    }
    assert numbers
    assert not numbers & before


@pytest.mark.parametrize("change", [_copied, _replaced, _no_boot, _torn_boot, _deleted])
def test_also_after_a_clean_close(
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
        pid = os.fork()
        if not pid:
            try:
                logstore.open(path, background=False).close()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
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
    log = names.segment(path, 1)
    log.write_bytes(log.read_bytes()[:64])
    assert opened(path, {}) is not None
