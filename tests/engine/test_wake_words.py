"""Prevents words of WAKE that are seen half stored, or that say of the index what is not so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.shm import commit_words as words
from logstore.engine.shm.commit_words import Wake
from logstore.fs import LOCAL
from tests.support import inside
from tests.support.dying import killed_at
from tests.support.processes import Forked

STORED = 60_000  # times
VALUES = (3, 1 << 40 | 5)
Storing = Callable[[Wake, int], object]


def publish(wake: Wake, value: int) -> None:
    """Where the log stands behind a commit."""
    wake.publish((value, 1, value, 1, 1))


def set_log(wake: Wake, value: int) -> None:
    """Where the log stands, with a generation."""
    wake.set_log(wake.log()._replace(applied=value))


def attribute(name: str) -> Storing:
    """A word that is set as an attribute."""
    return lambda wake, value: setattr(wake, name, value)


STORES: dict[str, tuple[Storing, int]] = {
    "publish": (publish, words._LOG_OFFSET),
    "set_log": (set_log, words._LOG_OFFSET),
    "reset_durable": (Wake.reset_durable, words._DURABLE_OFFSET),
    "index_files": (lambda wake, value: setattr(wake, "index_files", (value, 1)),
                    words._INDEX_FILES_OFFSET),
    "compacted": (lambda wake, value: setattr(wake, "compacted", (value, 1)),
                  words._COMPACTED_OFFSET),
    "announce_waiting": (lambda wake, _: wake.announce_waiting(), words._WAITING_OFFSET),
    **{name: (attribute(name), offset) for name, offset in {
        "indexed_upto": words._INDEXED_OFFSET, "oldest_unsynced_ms": words._UNSYNCED_OFFSET,
        "failed_at": words._FAILED_OFFSET, "namespace": words._NAMESPACE_OFFSET,
        "dropped": words._DROPPED_OFFSET, "readers_changed": words._READERS_OFFSET,
        "next_due_ms": words._DUE_OFFSET, "lock_file": words._LOCK_FILE_OFFSET,
    }.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", STORES)
def test_a_word_is_stored_whole(name: str, tmp_path: Path) -> None:
    store, offset = STORES[name]
    Wake.create(LOCAL, tmp_path / "WAKE")
    wake = Wake(LOCAL, tmp_path / "WAKE")
    store(wake, VALUES[0])
    ready, go = os.pipe()

    def look() -> None:
        seen, there = set(), memoryview(wake.memory).cast("Q")
        os.write(go, b"x")
        while not there[words._COUNT_OFFSET >> 3]:
            seen |= {there[offset >> 3] for _ in range(100)}
        assert 0 not in seen, sorted(seen)

    with Forked(look):
        os.read(ready, 1)
        try:
            for number in range(STORED):
                store(wake, VALUES[number % 2])
        finally:
            memoryview(wake.memory).cast("Q")[words._COUNT_OFFSET >> 3] = 1
    os.close(ready)
    os.close(go)


Store = logstore.Store[Any]


def _open(path: Path) -> Store:
    return logstore.open(path, encoding=None, background=False)


def _words(store: Store) -> tuple[int, int]:
    engine = inside.engine_of(store)
    return engine.wake.indexed_upto, engine.wake.applied


def test_the_word_follows_every_kind_of_commit(tmp_path: Path) -> None:
    with _open(tmp_path / "s") as store:
        assert _words(store) == (0, 0)
        stream = store.stream("a")
        stream.add({b"f": b"1"})
        stream.group("g").create()
        stream.group("g").read("c", count=1)
        inside.roll(store)
        assert _words(store) == (inside.indexed(store),) * 2 != (0, 0)
        stream.add_many([{b"f": b"%d" % number} for number in range(500)])
        assert _words(store) == (inside.indexed(store),) * 2


def test_the_word_is_known_when_a_store_is_opened_again(tmp_path: Path) -> None:
    for again in range(3):
        with _open(tmp_path / "s") as store:
            assert _words(store) == (inside.indexed(store),) * 2
            store.stream("a").add({b"f": b"1"})
        if again == 1:
            shutil.rmtree(tmp_path / "s" / "index")
    with logstore.open(tmp_path / "s", readonly=True) as store:
        assert _words(store) == (inside.indexed(store),) * 2 != (0, 0)  # type: ignore[arg-type]


def test_another_generation_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _open(tmp_path / "s") as store:
        store.stream("a").add({b"f": b"1"})
        engine = inside.engine_of(store)
        seen: list[int] = []
        put = Wake.set_log

        def look(wake: Wake, words: Any) -> None:
            if words.generation != wake.generation():
                seen.append(wake.indexed_upto)
            put(wake, words)

        monkeypatch.setattr(Wake, "set_log", look)
        with inside.committer_of(store).locked():
            engine.rebuild_locked()
        assert seen == [0]
        assert _words(store) == (inside.indexed(store),) * 2 != (0, 0)


@pytest.mark.parametrize("point", ["appended", "indexed"])
def test_a_dead_writers_commit_is_in_it_when_it_is_finished(tmp_path: Path, point: str) -> None:
    with _open(tmp_path / "s") as store:
        store.stream("a").add({b"f": b"1"})
        before = _words(store)
        killed_at(point, store, lambda: store.stream("a").add({b"f": b"2"}))
        assert _words(store) == before  # a lower bound: LMDB may have committed
        assert inside.indexed(store) >= before[0]
        store.stream("a").add({b"f": b"3"})
        assert _words(store) == (inside.indexed(store),) * 2
        assert len(store.stream("a")) == 3
