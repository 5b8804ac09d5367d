"""Prevents a look that reads a whole history first, or that changes what it sees."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import logstore
from logstore.api import store as store_module
from logstore.api.opening import opened_of
from logstore.api.store import open_to_look
from tests.support.processes import Program
from tests.tools.commands import contents, environment, invoke, ok
from tests.tools.conftest import ODD_NAME

HOLD = """
import sys, logstore
with logstore.open(sys.argv[1]) as store:
    print("open", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The store is open in another process."""
    with Program(HOLD, path, env=environment()) as holder:
        assert holder.answer() == "open"
        yield
    assert holder.exit_code == 0


def joined(path: Path) -> bool:
    """Whether a look is one from inside; it sees what is there in any case."""
    with open_to_look(path) as store:
        assert store.streams() == [ODD_NAME, b"race"]
        return not opened_of(store).engine().options.readonly


def test_a_store_that_is_open_elsewhere_is_joined(store: Path) -> None:
    with held(store):
        assert joined(store)
        for command in ("streams", "info", "groups", "du", "map", "pins", "metrics", "ping"):
            assert ok(command, store)


def test_a_store_that_is_closed_is_left_as_it_is(store: Path) -> None:
    before = contents(store)
    assert not joined(store)
    assert contents(store) == before


def test_another_users_store_is_not_joined(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could not write to what this user makes."""
    with held(store):
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert not joined(store)


def test_a_store_whose_lock_is_stuck_is_looked_at_from_outside(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "JOIN_WAIT_S", 0.05)
    with held(store), (store / "LOCK").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not joined(store)
        fcntl.flock(lock, fcntl.LOCK_UN)


@pytest.mark.parametrize(
    "words", ["add race a=b", "trim race --max-entries 0 --yes", "drop race --yes", "web"]
)
def test_a_store_that_is_being_recovered_is_changed_by_nobody_else(
    words: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens one that has crashed holds its lock until it is as it was; others are told so."""
    quick = partial(store_module.open_store, lock_timeout=0.05)
    monkeypatch.setattr(store_module, "open_store", quick)
    before = contents(store / "log")
    command, *rest = words.split()
    more = ["--write", "--port", "0"] if command == "web" else rest
    with (store / "LOCK").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = invoke(command, store, *more)
        fcntl.flock(lock, fcntl.LOCK_UN)
    assert (done.exit_code, "try again when it is done" in done.stderr) == (1, True), done.stderr
    assert contents(store / "log") == before


def test_a_backup_is_left_as_it_is(store: Path, tmp_path: Path) -> None:
    ok("backup", store, tmp_path / "saved")
    before = contents(tmp_path / "saved")
    assert not joined(tmp_path / "saved")
    assert contents(tmp_path / "saved") == before


def test_a_closed_store_is_looked_at_by_its_own_index(store: Path) -> None:
    """And not by one that somebody wrote to since it was closed."""
    with open_to_look(store) as looking:
        assert not looking.recovery["why_not_trusted"]
    data = next(store.glob("index/*/data.mdb"))
    os.utime(data, ns=(1, 1))
    with open_to_look(store) as looking:
        assert looking.recovery["why_not_trusted"]
        assert looking.streams() == [ODD_NAME, b"race"]


def test_an_index_that_is_damaged_is_built_anew(store: Path) -> None:
    data = next(store.glob("index/*/data.mdb"))
    at = data.stat()
    data.write_bytes(bytes(at.st_size))
    os.utime(data, ns=(at.st_atime_ns, at.st_mtime_ns))
    with open_to_look(store) as looking:
        assert looking.streams() == [ODD_NAME, b"race"]


def test_a_copied_index_takes_in_what_comes_later(store: Path) -> None:
    with open_to_look(store) as looking, logstore.open(store) as opened:
        for n in range(3):
            opened.stream("race").add({"n": n})
            assert len(looking.stream("race")) == 5 + n
