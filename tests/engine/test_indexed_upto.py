"""Prevents WAKE from saying that the index has what it lacks: a reader would miss acknowledged
entries, for it does not look for them in the log then.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.commit import pipeline
from logstore.engine.shm.control_block import Wake
from tests.support import inside

Store = logstore.Store[bytes]


def _open(path: Path) -> Store:
    return logstore.open(path, encoding=None, background=False)


def _words(store: Store) -> tuple[int, int]:
    engine = inside.engine_of(store)
    return engine.wake.indexed_upto, engine.wake.applied


def test_it_follows_every_kind_of_commit(tmp_path: Path) -> None:
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


def test_it_is_known_when_a_store_is_opened_again(tmp_path: Path) -> None:
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
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        if point == "appended":
            pipeline._keep_promise = die
        else:
            Wake.publish = die  # type: ignore[method-assign]
        store.stream("a").add({b"f": b"2"})

    with _open(tmp_path / "s") as store:
        store.stream("a").add({b"f": b"1"})
        before = _words(store)
        pid = os.fork()
        if not pid:
            try:
                work()
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        assert _words(store) == before  # a lower bound: LMDB may have committed
        assert inside.indexed(store) >= before[0]
        store.stream("a").add({b"f": b"3"})
        assert _words(store) == (inside.indexed(store),) * 2
        assert len(store.stream("a")) == 3
