"""Prevents a rebuild from a checkpoint from giving another store than a rebuild without one."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.maintenance import checkpoint
from logstore.engine.snapshots import snapshot
from logstore.errors import DamagedStoreError
from logstore.format import segment_of
from logstore.fs import LOCAL
from logstore.log import checkpoint_file, file_names
from logstore.recovery.check import check
from logstore.recovery.recover import recover
from tests.compaction.dumps import Dump, dump
from tests.support.threads import running


def rebuilt(path: Path) -> tuple[Dump, int]:
    """What a store says after its index was deleted, and from which checkpoint it was rebuilt."""
    shutil.rmtree(path / "index")
    with logstore.open(path) as store:
        assert store.recovery["rebuilt"]
        found = store._live().report.checkpoint_position
        return dump(store), found


def churn(store: logstore.Store[bytes], seed: int, steps: int) -> None:
    """Random operations on four streams."""
    chance = random.Random(seed)
    for step in range(steps):
        name = f"s{chance.randrange(4)}"
        stream = store.stream(name)
        kind = chance.randrange(9)
        if kind < 4:
            stream.add({"step": step, "pad": "p" * chance.randrange(60)})
        elif kind == 4:
            stream.add_many({"n": n} for n in range(chance.randrange(1, 400)))
        elif kind == 5:
            ids = [entry.id for entry in stream.range(count=150)]
            if ids:
                stream.delete(*chance.sample(ids, max(1, len(ids) // 3)))
        elif kind == 6:
            stream.trim(max_entries=chance.randrange(800), approximate=chance.random() < 0.5)
        elif kind == 7 and chance.random() < 0.2:
            store.drop(name)
        else:
            last = stream.last
            if last is not None:
                stream.delete(last.id)


@pytest.mark.parametrize("seed", range(6))
def test_the_answers_are_the_same_with_and_without(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16) as store:
        churn(store, seed, 120)
        store.checkpoint()
        churn(store, seed + 100, 80)
        expected = dump(store)
    found, position = rebuilt(path)
    assert position, "the checkpoint must have been used"
    assert found == expected
    shutil.rmtree(path / "checkpoint")
    found, position = rebuilt(path)
    assert not position
    assert found == expected


def test_a_checkpoint_may_be_taken_while_others_write(tmp_path: Path) -> None:
    path = tmp_path / "store"
    # A close that compacted would join nodes, which the dump tells of.
    with logstore.open(path, segment_bytes=1 << 16, compact_rate=None) as store:
        churn(store, 1, 100)
        stop = threading.Event()

        def write(seed: int) -> None:
            turn = seed
            while not stop.is_set():
                churn(store, turn, 10)
                turn += 10

        threads = [threading.Thread(target=write, args=(1000 * n,)) for n in (1, 2)]
        with running(threads):
            for _ in range(12):
                store.checkpoint()
            stop.set()
        expected = dump(store)
    found, position = rebuilt(path)
    assert position
    assert found == expected
    assert check(path).damage == []


def test_a_damaged_one_falls_back_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16) as store:
        churn(store, 3, 60)
        store.checkpoint()
        churn(store, 4, 60)
        store.checkpoint()
        churn(store, 5, 60)
        expected = dump(store)
    first, second = sorted((path / "checkpoint").iterdir())
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 1
    second.write_bytes(data)
    assert check(path).damage
    found, position = rebuilt(path)
    assert position == int(first.stem)
    assert found == expected


def test_compaction_leaves_two_and_survives_the_loss_of_one(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16) as store:
        churn(store, 8, 300)
        assert store.compact().segments_dropped
        churn(store, 9, 30)
        expected = dump(store)
    kept = sorted((path / "checkpoint").iterdir())
    assert len(kept) == 2
    kept[1].unlink()
    found, position = rebuilt(path)
    assert position == int(kept[0].stem)
    assert found == expected


def test_without_any_checkpoint_a_compacted_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16) as store:
        churn(store, 8, 300)
        assert store.compact().segments_dropped
    shutil.rmtree(path / "checkpoint")
    shutil.rmtree(path / "index")
    with pytest.raises(logstore.DamagedStoreError, match="checkpoint"):
        logstore.open(path)


def test_a_store_that_holds_nothing_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        store.checkpoint()
        store.stream("s").add({"n": 1})
        expected = dump(store)
    assert rebuilt(path)[0] == expected


def test_a_stream_made_anew_while_it_is_taken_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint holds both streams of that name; the drop of the first is replayed."""
    path = tmp_path / "store"
    with logstore.open(path) as store:
        for name in ("again", "other"):
            store.stream(name).add({"n": name})
        read = snapshot.read
        done: list[Any] = []

        def between(engine: Any, batch: Any) -> Any:
            found = read(engine, batch)
            streams = getattr(batch, "func", None) is checkpoint._streams
            if not done and streams and found is not None and found[1] == 1:
                done.append(found)
                store.drop("again")
                store.stream("again").add({"n": "new"})
            return found

        monkeypatch.setattr(checkpoint, "STREAMS_A_CHUNK", 1)
        monkeypatch.setattr(snapshot, "read", between)
        store.checkpoint()
        monkeypatch.undo()
        assert done
        expected = dump(store)
        assert len(expected.entries[b"again"]) == 1
    found, position = rebuilt(path)
    assert position
    assert found == expected
    with logstore.open(path) as store:
        store.stream("again").add({"n": "next"})
        assert len(store.stream("again")) == 2


def test_a_checkpoint_syncs_the_log_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit between the checkpoint's position and its snapshots is in the file: a power cut that
    took it from the log would leave a store that counts an entry it does not have."""
    with logstore.open(tmp_path / "store", sync="os", background=False) as store:
        store.stream("s").add({"n": 1})
        meta, write = checkpoint._meta, checkpoint.checkpoint_file.write
        seen: list[tuple[int, int]] = []

        def meta_later(engine: Any) -> Any:
            store.stream("s").add({"n": 2})
            return meta(engine)

        def written(*given: Any) -> int:
            words = store._engine().wake
            seen.append((words.durable_upto, words.applied))
            return write(*given)

        monkeypatch.setattr(checkpoint, "_meta", meta_later)
        monkeypatch.setattr(checkpoint.checkpoint_file, "write", written)
        store.checkpoint()
        assert seen == [(store._engine().wake.applied,) * 2]


def test_a_group_made_anew_meanwhile_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its name came and went between the position and the snapshot that saw the second."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        stream = store.stream("s")
        stream.add({"n": 1})
        read = checkpoint.snapshot.read

        def groups_change(engine: Any, batch: Any) -> Any:
            if getattr(batch, "func", None) is checkpoint._groups:
                monkeypatch.undo()
                group = stream.group("g")
                group.create(start="0")
                group.destroy()
                group.create(start="$")
                group.configure(min_idle=5)
            return read(engine, batch)

        monkeypatch.setattr(checkpoint.snapshot, "read", groups_change)
        store.checkpoint()
        expected = stream.groups()
    assert check(path).damage == []
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False) as store:
        assert store.stream("s").groups() == expected


def test_the_segment_in_which_a_checkpoint_ends_must_not_be_missing(tmp_path: Path) -> None:
    """What came behind the checkpoint in it would be gone without a word, though the next segment
    is there."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16, background=False, encoding=None) as store:
        stream = store.stream("s")
        stream.add_many({"n": n, "pad": "p" * 200} for n in range(400))
        store.checkpoint()
        at = segment_of(file_names.checkpoints(LOCAL, path)[-1])
        stream.add({"behind": "the checkpoint"})
        while store._engine().wake.log().active_segment == at:
            stream.add({"pad": "p" * 20_000})
    shutil.rmtree(path / "index")
    kept = file_names.segment(path, at).read_bytes()
    for left in (path / "log").glob(f"*{at}.*"):
        left.unlink()
    with pytest.raises(DamagedStoreError, match="missing and was not dropped") as caught:
        logstore.open(path)
    assert caught.value.segment == at
    file_names.segment(path, at).write_bytes(kept)
    with logstore.open(path, background=False) as store:
        assert len(list(store.stream("s"))) == len(store.stream("s")) > 400
    shutil.rmtree(path / "index")
    file_names.segment(path, at).unlink()
    report = recover(path)
    assert any(each.segment == at for each in report.damage)


def test_a_checkpoint_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    """What a chunk of an unknown kind holds would be lost without a word."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("s").add({"f": "v"})
        store.checkpoint()
        engine = store._engine()
        position = file_names.checkpoints(engine.fs, engine.path)[-1]
        head, chunks = checkpoint_file.read(engine.fs, engine.path, engine.uuid, position)
        chunks.append({"kind": "labels", "rows": []})
        checkpoint_file.write(engine.fs, engine.path, engine.uuid, head, chunks)
    shutil.rmtree(path / "index")
    with pytest.raises(logstore.FormatVersionError, match=r"chunk 'labels'.*newer"):
        logstore.open(path, background=False)
