"""Prevents segments with one number twice, or that go while somebody still needs them."""

from __future__ import annotations

import os
import select
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.compaction import compactor, node_choice, runner, segment_rewrite
from logstore.engine.runtime.background import no_pause
from logstore.log import segment
from logstore.recovery.check import check
from tests.compaction.dumps import dump
from tests.support.processes import Forked

ROW = {"pad": "x" * 1000}


def test_a_writer_that_rolls_meanwhile_takes_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It committed last before compaction took a number, so it has not read that from the index."""
    path = tmp_path / "store"
    (told, tell), (heard, hear) = os.pipe(), os.pipe()

    def rolls() -> None:
        with logstore.open(path, background=False) as store:
            for _ in range(2):
                os.read(told, 1)
                for _ in range(100):
                    store.stream("other").add(ROW)
                os.write(hear, b"x")

    with logstore.open(path, segment_bytes=1 << 16, background=False) as store:
        ids = list(store.stream("s").add_many([ROW] * 600, batch=10))
        store.stream("s").delete(*ids[::2], *ids[1::4])
        child = Forked(rolls)
        made: list[Any] = []
        adopt = segment.create

        def create(*given: Any) -> Any:
            if not made:
                made.append(given)
                os.write(tell, b"x")
                select.select([heard], [], [], 1.0)  # it must wait for the lock, or be done
            return adopt(*given)

        os.write(tell, b"x")
        os.read(heard, 1)
        with monkeypatch.context() as patched:
            patched.setattr(segment_rewrite.segment, "create", create)
            patched.setattr(compactor, "MIN_AGE_MS", 0)
            shared = store._live()
            compactor.Compactor(shared.engine, shared.committer).tick(no_pause)
        child.join()
        assert made
        assert len(store.stream("other")) == sum(1 for _ in store.stream("other")) == 200
        assert [entry.id for entry in store.stream("s")] == ids[3::4]
    assert check(path).damage == []
    for end in (told, tell, heard, hear):
        os.close(end)


SEGMENT = 64 * 1024


class KilledError(Exception):
    """Stands for a kill at this step."""


def rows(count: int) -> list[dict[str, Any]]:
    return [{"n": n, "pad": "x" * 60} for n in range(count)]


def without_index(path: Path) -> logstore.Store[bytes]:
    shutil.rmtree(path / "index")
    return logstore.open(path)


def test_a_compacted_segment_that_the_older_checkpoint_needs_is_no_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rebuild from the newer one it must not look like one that was never adopted."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=SEGMENT) as store:
        stream = store.stream("s")
        ids = list(stream.add_many(rows(2000)))
        stream.delete(*ids[::3], *ids[1::3])
        assert store.compact().segments_written
        store.checkpoint()
        stream.trim(max_entries=0, approximate=False)
        store.checkpoint()

    def killed(*_: object) -> None:
        raise KilledError

    with without_index(path) as store, monkeypatch.context() as patched:
        patched.setattr(segment_rewrite, "seal", killed)
        with pytest.raises(KilledError):
            store.compact()
    max((path / "checkpoint").iterdir()).unlink()
    with without_index(path) as store:
        assert len(store.stream("s")) == 0
        store.compact()
    assert check(path).damage == []
    with without_index(path) as store:
        assert store.stream("s").last_id == ids[-1]


def test_a_segment_that_empties_behind_the_checkpoints_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node is changed while it is copied, so it stays; then it goes, behind the checkpoints."""
    path = tmp_path / "store"
    adopt, checkpoint_twice = segment_rewrite.write_and_adopt, runner._checkpoint_twice
    with logstore.open(path, segment_bytes=SEGMENT) as store:
        stream = store.stream("s")
        ids = list(stream.add_many(rows(2000)))
        stream.delete(*(each for n, each in enumerate(ids) if n % 3))

        def changed(
            engine: Any, committer: Any, groups: Iterable[node_choice.Group], *rest: Any
        ) -> None:
            read = list(groups)
            stream.delete(ids[0])
            adopt(engine, committer, read, *rest)

        def emptied(*given: Any) -> None:
            checkpoint_twice(*given)
            stream.trim(max_entries=0, approximate=False)

        with monkeypatch.context() as patched:
            patched.setattr(segment_rewrite, "write_and_adopt", changed)
            patched.setattr(runner, "_checkpoint_twice", emptied)
            assert store.compact().nodes_skipped
        expected = dump(store)
    with without_index(path) as store:
        assert dump(store) == expected
        store.compact()
        assert dump(store).entries == expected.entries


def test_a_reader_that_follows_notices_that_the_next_segment_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=SEGMENT) as store:
        stream = store.stream("s")
        stream.add_many(rows(200))
        with logstore.open(path, readonly=True) as reader:
            assert len(reader.stream("s")) == 200
            store.compact()
            store.stream("short").add_many(rows(20))
            store.drop("short")
            assert store.compact().segments_dropped
            stream.add({"n": "late"})
            assert dump(reader) == dump(store)


def test_a_run_that_only_removed_empty_nodes_may_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment that it adopted holds no node; the next run must find its file, and drop it."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=SEGMENT, node_max_entries=4) as store:
        stream = store.stream("s")
        ids = list(stream.add_many(rows(8), batch=1))
        store.compact()
        stream.delete(ids[3])
        stream.trim(
            min_id=ids[3], approximate=False
        )  # empties a node, and leaves it, as the peers do

        def killed(*_: object, **__: object) -> None:
            raise KilledError

        with monkeypatch.context() as patched:
            patched.setattr(segment_rewrite, "rewrite_open_nodes", killed)
            with pytest.raises(KilledError):
                store.compact()
        store.compact()
        assert [entry.id for entry in stream] == ids[4:]
    assert check(path).damage == []
