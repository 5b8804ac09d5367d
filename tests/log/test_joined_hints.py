"""Prevents a hint that joins appends from giving another index than the frames themselves."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.engine.commit.committer import Committer
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.log import chain, hint, names, storefile
from logstore.recovery.check import check
from tests.compaction.dumps import dump


def _single_adds(path: Path, seed: int, *, checkpoint: bool) -> None:
    """Streams by single adds, between them all else that changes a stream's record."""
    rng = random.Random(seed)
    with logstore.open(
        path, node_max_entries=8, segment_bytes=1 << 16, background=False, encoding=None, sync="os"
    ) as store:
        for step in range(900):
            stream = store.stream(b"s%d" % rng.randrange(3))
            kind = rng.randrange(40)
            if kind == 0 and (last := stream.last) is not None:
                stream.delete(last.id)
            elif kind == 1:
                stream.trim(maxlen=rng.randrange(30), approximate=False)
            elif kind == 2 and (first := stream.first) is not None:
                stream.delete(first.id)
            elif kind == 3:
                stream.add_many({"n": n} for n in range(rng.randrange(1, 20)))
            elif kind == 4:
                group = stream.group("g", start="0")
                for each in group.read("c", count=3):
                    each.ack()
            elif kind == 5 and step > 200:
                store.drop(stream.name)
            elif kind == 6:
                stream.configure(max_entries=10_000 + step)
            else:
                stream.add({"step": step, "pad": "p" * rng.randrange(200)})
            if checkpoint and step in (300, 600):
                store.checkpoint()
        with Committer(store._engine()).locked() as words:
            log_tail.roll_locked(store._engine(), words)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_index_is_the_same_with_and_without_hints(
    tmp_path: Path, seed: int, checkpoint: bool
) -> None:
    path = tmp_path / "store"
    _single_adds(path, seed, checkpoint=checkpoint)
    with logstore.open(path, background=False, encoding=None) as store:
        wanted = dump(store)
    assert check(path).damage == []
    assert list((path / "log").glob("*.hint"))
    for without in ("index", "hints"):
        shutil.rmtree(path / "index")
        if without == "hints":
            for each in (path / "log").glob("*.hint"):
                each.unlink()
        with logstore.open(path, background=False, encoding=None) as store:
            assert store.recovery["rebuilt"]
            assert dump(store) == wanted, without


def test_a_hint_of_single_adds_is_small(tmp_path: Path) -> None:
    """Beside three frames a node there is next to nothing; who begins in the middle gets none."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, encoding=None, sync="os") as store:
        for number in range(2000):
            store.stream(b"s").add({b"n": b"%d" % number}, f"{number + 1}-0")
        engine = store._engine()
        with Committer(engine).locked() as words:
            log_tail.roll_locked(engine, words)
    uuid = storefile.read(LOCAL, path).uuid
    link = chain.main_links(LOCAL, path, uuid)[0]
    place = names.hint(path, 1)
    found = hint.read(LOCAL, path, uuid, link)
    assert found is not None
    appends = [each for each in found if each.kind == Kind.APPEND]
    opens = sum(each.kind == Kind.OPEN for each in found)
    added = sum(fmt.APPEND_BODY.unpack_from(each.payload)[3] for each in appends)
    assert added + opens == 2000
    assert len(appends) < 130  # one for each of the 19 nodes that are sealed, and the last node's
    assert place.stat().st_size < 0.1 * names.segment(path, 1).stat().st_size
    assert hint.read(LOCAL, path, uuid, link, joined=False) is None
    assert [each.offset for each in found] == sorted(each.offset for each in found)


@pytest.mark.parametrize("before", range(1, 10))
def test_a_checkpoint_in_the_middle_of_appends_that_are_joined(tmp_path: Path, before: int) -> None:
    """What the checkpoint counted is not counted once more."""
    path = tmp_path / "store"
    with logstore.open(
        path, node_max_entries=8, background=False, encoding=None, sync="os"
    ) as store:
        for number in range(30):
            store.stream(b"s").add({b"n": b"%d" % number}, f"{number + 1}-0")
            if number + 1 == before:
                store.checkpoint()
        with Committer(store._engine()).locked() as words:
            log_tail.roll_locked(store._engine(), words)
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False, encoding=None) as store:
        assert store.recovery["rebuilt"]
        info = store.stream(b"s").info()
        assert (info.length, info.entries_added) == (30, 30)
        assert [entry.id.ms for entry in store.stream(b"s")] == list(range(1, 31))
    assert check(path).damage == []
