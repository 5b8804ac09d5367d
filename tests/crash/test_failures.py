"""Prevents a full disk, an I/O error or a failed sync from losing or inventing a commit."""

from __future__ import annotations

import copy
import errno
import multiprocessing
from pathlib import Path

import pytest

import logstore
from logstore.errors import CommittedError, DiskFullError, StoreFailedError
from tests.crash import script
from tests.crash.script import SCRIPT, State
from tests.support.failing_files import FailingFileSystem
from tests.support.watched_files import in_place

CHANGES = ("write", "create", "rename", "truncate", "make_directory")


def run_script(store: logstore.Store[bytes], state: State) -> list[logstore.Error]:
    """Every step; one that fails with a typed error did not happen, or says that it did."""
    errors: list[logstore.Error] = []
    for step in SCRIPT:
        after = copy.deepcopy(state)
        step.model(after)
        error: logstore.Error | None = None
        try:
            step.do(store)
        except logstore.Error as exc:
            error = exc
            errors.append(exc)
        found = script.dump(store)
        if error is None:
            assert found == after, step.name
        elif not (isinstance(error, CommittedError) and found == after):
            assert found == state, f"{step.name}: half of it after {error!r}"
        state = found
    return errors


def reopened(path: Path) -> State:
    """What another opener finds."""
    with script.open_store(path, "always") as store:
        return script.dump(store)


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_one_failing_operation(tmp_path: Path, code: int, caplog: pytest.LogCaptureFixture) -> None:
    """A typed error, the step did not happen, all others did, and the store goes on."""
    at = count = 0
    while True:
        at += 1
        path = tmp_path / f"at-{at}"
        twin = FailingFileSystem(code, only=CHANGES, part=(at % 3) / 2)
        with in_place(twin), script.open_store(path, "always") as store:
            twin.at = twin.operations + at
            errors = run_script(store, {})
            over = not twin.failed
            twin.at = 0
            found = script.dump(store)
        # On a full disk a delete that fails is done again in the space set aside.
        again = code == errno.ENOSPC and "space set aside is given up" in caplog.text
        caplog.clear()
        assert over or errors or again or "tmp" in twin.failed[0], twin.failed
        if code == errno.ENOSPC:
            assert all(isinstance(each, DiskFullError | CommittedError) for each in errors)
        assert reopened(path) == found
        count += len(errors)
        if over:
            break
    print(f"{at - 1} operations failed once with {errno.errorcode[code]}, {count} errors seen")
    assert count > 20


@pytest.mark.slow
def test_a_disk_that_stays_full_until_there_is_room(tmp_path: Path) -> None:
    """From some operation on nothing can be written; reads work, and later everything does."""
    for at in range(1, 60, 3):
        path = tmp_path / f"at-{at}"
        twin = FailingFileSystem(errno.ENOSPC, only=CHANGES, part=0.5, forever=True)
        with in_place(twin), script.open_store(path, "everysec") as store:
            twin.at = twin.operations + at
            run_script(store, {})
            twin.at = 0
            store.stream("after").add({"v": b"x"}, id="1-1")
            found = script.dump(store)
        assert reopened(path) == found


@pytest.mark.slow
def test_a_failed_sync_is_never_believed(tmp_path: Path) -> None:
    """Nothing is acknowledged behind it; opened again, what was acknowledged is there."""
    at = 0
    while True:
        at += 1
        path = tmp_path / f"at-{at}"
        twin = FailingFileSystem(errno.EIO, only=("sync",))
        state: State = {}
        failed = False
        with in_place(twin), script.open_store(path, "always") as store:
            twin.at = twin.operations + at
            for step in SCRIPT:
                after = copy.deepcopy(state)
                step.model(after)
                try:
                    step.do(store)
                except StoreFailedError:
                    assert failed, "refused before anything failed"
                    continue
                except logstore.Error as exc:
                    assert not failed
                    # A new file that nobody has yet may be made once more; the log may not.
                    failed = twin.failed[0].endswith(".log")
                    possible = [state, after] if isinstance(exc, CommittedError) else [state]
                    assert script.dump(store) == state, "a reader saw what may be lost"
                    continue
                assert not failed, "acknowledged after a failed sync"
                state = after
            twin.at = 0
        if not twin.failed:
            break
        possible = possible if failed else [state]
        with script.open_store(path, "always") as store:
            found = script.dump(store)
            assert found in possible
            assert bool(store.recovery["restated_segments"]) is failed
            store.stream("after").add({"v": b"x"}, id="1-1")
    print(f"{at - 1} syncs failed")
    assert at > 15


def test_a_failed_sync_is_known_to_every_process(tmp_path: Path) -> None:
    """The mark is a word that all share: also another process refuses, and says what to do."""
    path = tmp_path / "store"
    twin = FailingFileSystem(errno.EIO, only=("sync",))
    context = multiprocessing.get_context("spawn")
    with in_place(twin), script.open_store(path, "always") as store:
        twin.at = twin.operations + 1
        with pytest.raises(CommittedError, match="durable"):
            store.stream("a").add({"v": b"x"})
        queue = context.Queue()
        child = context.Process(target=_add_elsewhere, args=(path, queue))
        child.start()
        assert queue.get(timeout=60) == "StoreFailedError"
        child.join()
        with pytest.raises(StoreFailedError, match="open it again"):
            store.sync()


def _add_elsewhere(path: Path, queue: object) -> None:
    store = logstore.open(path, background=False)
    try:
        store.stream("a").add({"v": b"y"})
        found = "acknowledged"
    except logstore.Error as exc:
        found = type(exc).__name__
    queue.put(found)  # type: ignore[attr-defined]
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_opening_that_fails_can_be_done_again(tmp_path: Path, code: int) -> None:
    """Creating, opening after a kill, closing: a typed error each time, and nothing is lost."""
    at = 0
    while True:
        at += 1
        path = tmp_path / f"at-{at}"
        twin = FailingFileSystem(code, at, part=(at % 3) / 2)
        with in_place(twin):
            done = False
            for _ in range(3):  # it fails once; then it must work
                try:
                    with script.open_store(path, "everysec") as store:
                        if not len(store.stream("a")):
                            store.stream("a").add({"v": b"x"}, id="1-1")
                            done = True
                except logstore.Error:
                    continue
        assert done
        assert reopened(path) == {b"a": [("1-1", b"x")]}
        if not twin.failed:
            break
    print(f"{at - 1} operations of opening and closing failed with {errno.errorcode[code]}")
    assert at > 20
