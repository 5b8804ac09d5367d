"""Prevents a frame that is applied once more from counting twice, one of a stream or group that is
gone from bringing it back, and a change from leaving those asleep who wait for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from operator import ne
from pathlib import Path

import pytest

import logstore
from logstore.codec import codec
from logstore.engine.apply.streams import apply
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.wait_words import EVERY, bucket_of
from logstore.features.idempotent_ids import NOTHING, Idempotent, ProducerRows
from logstore.features.schedule_rows import ScheduleRows
from logstore.features.setting_rows import OF_GROUP, OF_STREAM, SettingRows
from logstore.fs import FileSystem
from logstore.index.env import open_generation, open_untouched
from logstore.index.keys import Meta
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, log_reader
from logstore.log import frame as frames
from logstore.log.log_reader import LogFrame
from logstore.recovery import compare
from tests.corruption import shop


def _log(engine: Engine) -> list[LogFrame]:
    """Every frame of the main segments, in order."""
    found: list[LogFrame] = []
    for link in chain.main_links(engine.fs, engine.path, engine.uuid):
        file = engine.fs.open(file_names.segment(engine.path, link.number))
        try:
            found += log_reader.scan(
                file, engine.seed, link.number, link.start_offset, link.end_offset
            )
        finally:
            file.close()
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with frames of every kind."""
    path = tmp_path_factory.mktemp("again") / "store"
    shop.make(path, 5, compacted=False)
    return path


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 0.99])
def test_frames_applied_again_give_the_same_index(share: float, made: Path, tmp_path: Path) -> None:
    """From any place of the log on: the index is the same as before."""
    fs = FileSystem()
    generation = file_names.generation(made, file_names.generations(fs, made)[-1])
    copy = shutil.copytree(generation, tmp_path / "copy")
    store = shutil.copytree(made, tmp_path / "store")
    with logstore.open(store, encoding=None, background=False) as opened:
        engine = opened._engine()
        log = _log(engine)
        own = open_generation(fs, copy, 1)
        with own.env.begin(write=True) as txn:
            index = IndexTxn(own, txn)
            engine.cache.clear()
            state = WriteTxn(engine, index, index.meta(), 0, 0)
            for each in log[int(share * len(log)) :]:
                body = each.body()
                assert body is not None
                apply(state, each.position, each.payload_bytes, body)
            state.flush()
        engine.cache.clear()
        own.close()
    was, now = open_untouched(generation, 1), open_untouched(copy, 1)
    assert compare._differences(was, now) == []
    with was.env.begin() as one, now.env.begin() as other:
        nodes = [list(IndexTxn(g, t).all_nodes()) for g, t in ((was, one), (now, other))]
        assert nodes[0] == nodes[1]
        rows = [IndexTxn(g, t).segment_rows() for g, t in ((was, one), (now, other))]
        living = [{n: (r.live_nodes, r.live_bytes) for n, r in each.items()} for each in rows]
        assert living[0] == living[1]
    was.close()
    now.close()


Step = Callable[[logstore.Store[bytes]], object]
LATER_MS = 1 << 42

# What wakes those who wait for the stream.
WAKING: dict[str, Step] = {
    "add": lambda store: store.stream("s").add({b"f": b"v"}),
    "add many": lambda store: store.stream("s").add_many([{b"f": b"v"}] * 300),
    "schedule": lambda store: store.stream("s").schedule({b"f": b"v"}, at=LATER_MS),
    "settings of a group": lambda store: store.stream("s").group("g").configure(
        max_deliveries=3, dead_letter="dead"
    ),
    "drop of a group": lambda store: store.stream("s").group("g").destroy(),
    "nack": lambda store: store.stream("s").group("g").nack("1-0"),
    "expiry": lambda store: store.stream("s").expire(at=LATER_MS),
    "rename": lambda store: store.rename("s", "t"),
    "drop": lambda store: store.drop("s"),
    "delete": lambda store: store.stream("s").delete("1-0"),
}  # fmt: skip


@pytest.mark.parametrize("name", WAKING)
def test_applying_a_frame_wakes_waiters_of_its_stream(name: str, tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        store.stream("s").add({b"f": b"v"}, "1-0")
        store.stream("s").add({b"f": b"v"}, "2-0")
        store.stream("s").group("g").create(start="0")
        store.stream("s").group("g").read("ann", count=2)
        waits = store._engine().wake.waits
        words = [waits.load(bucket) for bucket in (bucket_of(b"s"), EVERY)]
        WAKING[name](store)
        now = [waits.load(bucket) for bucket in (bucket_of(b"s"), EVERY)]
        assert all(map(ne, words, now))


def test_frames_of_what_is_gone_change_nothing(tmp_path: Path) -> None:
    """A stream with groups, pending entries, settings and scheduled ones was dropped, its frames
    are in the log."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        engine = store._engine()
        stream = store.stream("s")
        for ms in range(1, 9):
            stream.add({b"f": b"v"}, f"{ms}-0")
        stream.add_many([{b"f": bytes(50)}] * 300)
        group = stream.group("g")
        group.create(start="0")
        group.configure(max_deliveries=3, dead_letter="dead")
        group.read("ann", count=5)
        group.ack("1-0")
        group.claim("bob", logstore.StreamID(2, 0), min_idle=0)
        group.set_id("3-0")
        stream.configure(max_entries=1000)
        stream.schedule({b"f": b"v"}, at=LATER_MS)
        stream.add({b"f": b"v"}, producer="p", idempotent_id="one")
        stream.expire(at=LATER_MS)
        stream.delete("4-0")
        stream.trim(min_id="3-0", approximate=False)
        store.rename("s", "t")
        log = _log(engine)
        store.drop("t")
        store.stream("other").add({b"f": b"v"}, "1-0")

        def again(state: WriteTxn) -> None:
            for each in log:
                body = each.body()
                assert body is not None
                if type(body).__name__ not in ("Create", "Node", "Group"):
                    apply(state, each.position, each.payload_bytes, body)
            assert len(list(state.index.records())) == 1
            assert list(state.index.groups.all_groups()) == []
            assert list(ScheduleRows(state.index).due()) == []
            assert list(ProducerRows(state.index).all()) == []
            (kept,) = state.index.records()
            assert (kept.name, kept.length) == (b"other", 1)
            state.flush()

        Committer(engine).run(again)


def test_forgetting_of_idempotent_ids_applied_again(tmp_path: Path) -> None:
    """One entry, an interval, or all of a producer up to an entry; nothing if none is named."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        stream = store.stream("s")
        ids = [
            stream.add({b"f": b"v"}, producer="q" if nth % 2 else "p", idempotent_id=f"{nth}")
            for nth in range(8)
        ]

        def forget(**change: object) -> Callable[[WriteTxn], list[int]]:
            def step(state: WriteTxn) -> list[int]:
                body = Idempotent(1, 8, 0, *NOTHING)._replace(**change)  # type: ignore[arg-type]
                state.emit(body)
                return [ids.index(id) for id in ProducerRows(state.index).by_age(1)]

            return step

        run = Committer(store._engine()).run
        assert run(forget()) == [0, 1, 2, 3, 4, 5, 6, 7]
        assert run(forget(first=ids[2], last=ids[2])) == [0, 1, 3, 4, 5, 6, 7]
        assert run(forget(first=ids[3], last=ids[4])) == [0, 1, 5, 6, 7]
        assert run(forget(producer=b"p", upto=ids[0])) == [1, 5, 6, 7]
        assert run(forget(producer=b"q", upto=ids[5])) == [6, 7]
        assert run(forget(producer=b"q", upto=(0, 0))) == [6, 7]


def test_numbers_and_live_nodes_after_frames_applied_again(tmp_path: Path) -> None:
    """Numbers of streams and segments are never given twice; a node that is written once more
    lives where it was written last."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        store.stream("s").add({b"f": b"v"}, "1-0")
        lp = codec().new_node(50, 0, [b"f", b"v"])

        def step(state: WriteTxn) -> None:
            at = 7 << 32

            def done(body: frames.Body) -> Meta:
                nonlocal at
                at += 100
                apply(state, at, 60, body)
                return state.meta

            assert done(frames.Create(40, b"t")).next_stream == 41
            assert done(frames.Create(20, b"u")).next_stream == 41
            assert done(frames.Adopt(30, ())).next_segment == 31
            assert done(frames.Adopt(20, ())).next_segment == 31
            item = frames.AdoptItem(99, 1, 0, 1, 0, 64, 9, 1, ())
            done(frames.Adopt(30, (item, item._replace(stream=40, master_ms=3, last_ms=4))))
            assert [master.ms for master, _ in state.index.nodes(40)] == [3]
            assert done(frames.DropSegment(40)).next_segment == 41
            assert done(frames.DropSegment(20)).next_segment == 41
            assert done(frames.Seal(50))[:] == state.meta
            assert (state.meta.active_segment, state.meta.next_segment) == (50, 51)
            done(frames.Seal(45))
            assert (state.meta.active_segment, state.meta.next_segment) == (50, 51)
            for number, living in ((8, {8: (1, 60)}), (9, {8: (0, 0), 9: (1, 60)})):
                at = number << 32
                done(frames.Node(40, 50, 0, 50, 0, 1, lp))
                for segment, counted in living.items():
                    row = state.segment(segment)
                    assert row is not None
                    assert (row.live_nodes, row.live_bytes) == counted
            record = state.record(40)
            assert record is not None
            assert record.nodes == 3  # as each frame says; a replay counts from what is there
            raise StopIteration

        with pytest.raises(StopIteration):
            Committer(store._engine()).run(step)
        assert store.streams() == [b"s"]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_a_group_that_was_destroyed_stays_so(share: float, tmp_path: Path) -> None:
    """From any place of the log on; its stream is there."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        stream = store.stream("s")
        for ms in range(1, 5):
            stream.add({b"f": b"v"}, f"{ms}-0")
        group = stream.group("g")
        group.create(start="0")
        group.configure(max_deliveries=3, dead_letter="dead")
        group.read("ann", count=3)
        group.ack("1-0")
        group.nack("2-0")
        group.remove_consumer("ann")
        group.read("bob", count=3)
        group.destroy()
        log = _log(store._engine())

        def again(state: WriteTxn) -> None:
            for each in log[int(share * len(log)) :]:
                body = each.body()
                assert body is not None
                apply(state, each.position, each.payload_bytes, body)
            assert list(state.index.groups.all_groups()) == []
            state.flush()
            settings = SettingRows(state.index)
            assert [list(settings.rows(which)) for which in (OF_GROUP, OF_STREAM)] == [[], []]
            raise StopIteration

        with pytest.raises(StopIteration):
            Committer(store._engine()).run(again)
        assert not group.exists()
