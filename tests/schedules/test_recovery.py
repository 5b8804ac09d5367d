"""Prevents scheduled entries that a checkpoint taken meanwhile, a death or an erasure harms."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.maintenance import checkpoint
from logstore.engine.runtime.engine import Engine
from logstore.features import feature, schedule_rows
from logstore.index.txn import IndexTxn
from logstore.recovery import compare
from logstore.recovery.check import check
from tests.schedules.due import opened, values, waiting
from tests.support.dying import POINTS, killed_at
from tests.support.inside import START_MS, FixedClock, delete_index, do_due_work

NAMES = ("a", "b", "c")


def all_of_store(store: Store[Any]) -> dict[str, tuple[list[str], list[str], int]]:
    """All that a store holds: entries, what waits, how many of them."""
    return {
        name: (values(stream), waiting(stream), stream.info().scheduled)
        for name in store.streams()
        for stream in [store.stream(name)]
    }


def step(store: Store[Any], clock: FixedClock, chance: random.Random) -> None:
    """One change of what is scheduled."""
    stream = store.stream(chance.choice(NAMES))
    what = chance.random()
    if what < 0.5:
        text = str(chance.randrange(1 << 40))
        stream.schedule({"n": text}, at=clock.ms + chance.randrange(-10, 60))
    elif what < 0.6:
        waits = list(stream.scheduled())
        if waits:
            assert stream.cancel(chance.choice(waits).key)
    elif what < 0.65:
        store.drop(stream.name)
    else:
        clock.ms += chance.randrange(10)
        do_due_work(store)


@pytest.mark.parametrize("seed", range(25))
def test_a_checkpoint_while_all_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Entries are scheduled, added, cancelled and dropped between any two snapshots of it."""
    chance = random.Random(seed)
    clock = FixedClock()
    pages = 0
    with opened(tmp_path / "s", clock) as store:
        read = checkpoint.snapshot.read

        def between(engine: Engine, batch: Any, *args: Any) -> Any:
            nonlocal pages
            which = getattr(batch, "func", None)
            if which is checkpoint._groups:
                for _ in range(chance.randrange(8)):
                    step(store, clock, chance)
            elif which is checkpoint._of_feature and batch.args[0].kind == "scheduled":
                pages += 1
                for _ in range(chance.randrange(4)):
                    step(store, clock, chance)
            return read(engine, batch, *args)

        monkeypatch.setattr(feature, "ROWS_A_CHUNK", 2)
        monkeypatch.setattr(checkpoint.snapshot, "read", between)
        for _ in range(30):
            step(store, clock, chance)
        store.checkpoint()
        before = all_of_store(store)
        monkeypatch.undo()
        for _ in range(seed % 3):
            step(store, clock, chance)
            before = all_of_store(store)
    assert pages
    delete_index(tmp_path / "s")
    with opened(tmp_path / "s", clock) as store:
        assert store.recovery["rebuilt"]
        assert all_of_store(store) == before
        clock.ms += 100
        do_due_work(store)
        every = [text for added, _, _ in before.values() for text in added]
        every += [text for _, waits, _ in before.values() for text in waits]
        assert sorted(text for name in store.streams() for text in values(store.stream(name))) == (
            sorted(every)
        )
    assert check(tmp_path / "s").index == compare.AGREES


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_due_add_is_finished_by_the_next_writer(tmp_path: Path, point: str) -> None:
    """Before the append, behind it, behind LMDB's commit: it is added once, and the word that says
    what is due next is right."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = store.stream("a")
        stream.schedule({"n": "1"}, after=1)
        stream.schedule({"n": "2"}, after=5)
        clock.ms += 2_000

        killed_at(point, store, lambda: do_due_work(store))
        assert store._engine().wake.log().in_progress
        do_due_work(store)
        assert values(stream) == ["1"]
        assert waiting(stream) == ["2"]
        assert store._engine().wake.next_due_ms == START_MS + 5_000


def test_erasure_takes_the_bytes_of_what_was_scheduled(tmp_path: Path) -> None:
    """Of an entry that was added and deleted, and of one that was cancelled; not of what waits."""
    clock = FixedClock()
    path = tmp_path / "s"
    with opened(path, clock) as store:
        stream = store.stream("a")
        stream.schedule({"n": "secret-added"}, after=0)
        do_due_work(store)
        key = stream.schedule({"n": "secret-cancelled"}, after=1)
        assert key is not None
        stream.schedule({"n": "waits-on"}, after=60)
        store.checkpoint()
        assert stream.cancel(key)
        assert stream.last is not None
        stream.delete(stream.last.id, purge=True)
        assert waiting(stream) == ["waits-on"]
    held = b"".join(each.read_bytes() for each in path.rglob("*") if each.is_file())
    assert b"secret" not in held
    assert b"waits-on" in held
    delete_index(path)
    clock.ms += 60_000
    with opened(path, clock) as store:
        do_due_work(store)
        assert values(store.stream("a")) == ["waits-on"]


def test_check_sees_a_schedule_that_the_index_lost(tmp_path: Path) -> None:
    """The comparison of indexes covers what is scheduled."""
    path = tmp_path / "s"
    with opened(path, FixedClock()) as store:
        key = store.stream("a").schedule({"n": "1"}, after=1)
        assert key is not None
        generation = store._engine().index()
        with generation.env.begin(write=True) as txn:
            assert schedule_rows.ScheduleRows(IndexTxn(generation, txn)).delete(1, tuple(key))
    assert [each.why for each in check(path).damage] == [
        "index: scheduled entries differ: delete the index directory",
    ]


def test_a_word_that_is_wrong_is_put_right(tmp_path: Path) -> None:
    """Whoever finds nothing due although the word says so sets it; nobody looks again and again."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = store.stream("a")
        stream.schedule({"n": "1"}, after=5)
        engine = store._engine()
        engine.wake.next_due_ms = 1
        do_due_work(store)
        assert engine.wake.next_due_ms == START_MS + 5_000
        assert waiting(stream) == ["1"]


def test_a_backup_holds_what_waits(tmp_path: Path) -> None:
    """And adds it once, as the store itself does."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        store.stream("a").schedule({"n": "1"}, after=5)
        store.backup(tmp_path / "copy")
    clock.ms += 5_000
    with opened(tmp_path / "copy", clock) as store:
        do_due_work(store)
        assert values(store.stream("a")) == ["1"]
    with logstore.open(tmp_path / "s", encoding="utf-8", readonly=True) as store:
        assert waiting(store.stream("a")) == ["1"]


def test_a_stream_with_a_damaged_node_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Its last node is sealed, has room, and cannot be read: nothing can be added to it."""
    clock, path = FixedClock(), tmp_path / "s"
    with opened(path, clock, node_max_entries=3) as store:
        damaged = store.stream("damaged")
        ids = list(damaged.add_many({"n": f"value {number}"} for number in range(4)))
        damaged.delete(ids[3])
        damaged.schedule({"n": "later"}, after=1)
        store.stream("other").schedule({"n": "now"}, after=2)
    (log,) = (path / "log").glob("*.log")
    data = bytearray(log.read_bytes())
    data[data.rindex(b"value 2")] ^= 1
    log.write_bytes(data)
    with opened(path, clock) as store:
        clock.ms += 3_000
        do_due_work(store)
        assert values(store.stream("other")) == ["now"]
        assert waiting(store.stream("damaged")) == ["later"]
        with pytest.raises(logstore.CorruptFrameError):
            store.stream("damaged").add({"n": "refused as well"})
