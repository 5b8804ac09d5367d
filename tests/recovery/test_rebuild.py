"""Prevents a rebuild that makes other rows than the commits did, or writes them many times."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.apply.bulk_create import BulkCreate
from logstore.engine.commit import log_tail
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.errors import CorruptionError
from logstore.fs import FileSystem
from logstore.index import keys
from logstore.index import txn as index_txn
from logstore.index.env import DATABASES, open_untouched
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import SegmentRow, StreamRecord
from logstore.log import file_names as names
from logstore.recovery import compare, index_validity
from logstore.recovery.check import check
from tests.compaction.dumps import dump
from tests.corruption import shop
from tests.schedules.due import opened
from tests.support.inside import START_MS, FixedClock, do_due_work

LATER_MS = 1 << 42


def _segments(engine: Engine) -> dict[int, SegmentRow]:
    return snapshot.read(engine, lambda view: view.index.segment_rows())


def _counted(rows: dict[int, SegmentRow], active: int) -> dict[int, tuple[int, ...]]:
    """What must be the same: of the active segment the size is not counted yet."""
    return {
        number: (row.role, row.live_bytes, row.live_nodes, row.total_bytes * (number < active))
        for number, row in rows.items()
    }


@pytest.mark.parametrize("compacted", [False, True])
def test_a_rebuilt_index_has_the_rows_of_the_one_before(tmp_path: Path, compacted: bool) -> None:
    path = tmp_path / "store"
    shop.make(path, 9, compacted=compacted)
    with logstore.open(path, encoding=None, background=False) as store:
        before = _segments(store._engine())
        active = max(before)
        assert len(before) > 3
        assert any(row.live_nodes for row in before.values())
    generation = names.generation(path, names.generations(FileSystem(), path)[-1])
    old = shutil.copytree(generation, tmp_path / "old")
    shutil.rmtree(path / "index")
    with logstore.open(path, encoding=None, background=False) as store:
        engine = store._engine()
        assert store.recovery["rebuilt"]
        assert _counted(_segments(engine), active) == _counted(before, active)
        was = open_untouched(old, 1)
        assert compare._differences(engine.index(), was) == []
        was.close()


def _group(engine: Engine, stream: bytes, name: bytes) -> GroupRecord:
    def look(view: snapshot.Snapshot) -> GroupRecord:
        record = view.index.record_by_name(stream)
        assert record is not None
        found = view.index.groups.named(record.number, name)
        assert found is not None
        return found

    return snapshot.read(engine, look)


def test_a_group_knows_the_last_frame_that_changed_it(tmp_path: Path) -> None:
    """Or a frame that is applied once more would count again."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        engine = store._engine()
        stream = store.stream("s")
        ids = [stream.add({b"f": b"v"}, f"{ms}-0") for ms in range(1, 6)]
        group = stream.group("g")
        seen = []
        for change in (
            lambda: group.create(start="0"),
            lambda: group.configure(max_deliveries=7, dead_letter="dead"),
            lambda: group.read("ann", count=3),
            lambda: group.ack(ids[0]),
            lambda: group.claim("bob", ids[1], min_idle=0),
            lambda: group.set_id(ids[4]),
        ):
            start = engine.wake.applied
            change()
            seen.append(_group(engine, b"s", b"g").position)
            assert start <= seen[-1] < engine.wake.applied
        assert seen == sorted(set(seen))


def _nodes(view: snapshot.Snapshot) -> tuple[StreamRecord, list[int]]:
    """The record of stream s, and the sizes of its sealed nodes."""
    record = view.index.record_by_name(b"s")
    assert record is not None
    return record, [each.payload_bytes for _, each in view.index.nodes(record.number)]


def test_a_sealed_node_that_is_opened_again_is_counted_no_more(tmp_path: Path) -> None:
    """A stream has so many nodes and bytes of them as the index has rows, also after a rebuild."""
    path = tmp_path / "store"

    def counted() -> tuple[int, int]:
        """Sealed nodes, and where the open one begins."""
        with logstore.open(path, encoding=None, background=False, node_max_bytes=1000) as store:
            record, sizes = snapshot.read(store._engine(), _nodes)
            assert (record.nodes, record.node_bytes) == (len(sizes), sum(sizes))
            assert store.stream("s").info().node_bytes == sum(sizes)
        return record.nodes, record.open_master.ms if record.open_version else 0

    def add(ms: int, size: int) -> None:
        with logstore.open(path, encoding=None, background=False, node_max_bytes=1000) as store:
            store.stream("s").add({b"f": bytes(size)}, f"{ms}-0")

    for ms, size in ((1, 900), (2, 100), (3, 900)):
        add(ms, size)
    assert counted() == (2, 3)
    with logstore.open(path, encoding=None, background=False) as store:
        store.stream("s").delete("3-0")
    assert counted() == (2, 0)
    add(4, 100)  # fits into the one before
    assert counted() == (1, 2)
    shutil.rmtree(path / "index")
    assert counted() == (1, 2)


def test_the_next_due_time_survives_a_rebuild(tmp_path: Path) -> None:
    """After each commit that changes it, and after the stream went."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        wake = store._engine().wake
        stream, other = store.stream("s"), store.stream("t")
        later = stream.schedule({b"f": b"1"}, at=LATER_MS + 2000)
        assert wake.next_due_ms == LATER_MS + 2000
        sooner = stream.schedule({b"f": b"2"}, at=LATER_MS + 1000)
        assert wake.next_due_ms == LATER_MS + 1000
        other.schedule({b"f": b"3"}, at=LATER_MS + 3000)
        assert wake.next_due_ms == LATER_MS + 1000
        stream.cancel(sooner)
        assert wake.next_due_ms == LATER_MS + 2000
        store.drop("s")
        assert wake.next_due_ms == LATER_MS + 3000
        store.drop("t")
        assert wake.next_due_ms == 0
        assert later is not None


def test_an_index_names_a_frame_that_the_log_must_hold(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, encoding=None, background=False) as store:
        engine = store._engine()
        store.stream("s").add({b"f": b"v"})
        open_boot = index_validity.read_marker(engine.fs, engine.path)
        assert open_boot is not None
        index_validity.check_applied(engine, engine.index(), open_boot)
        segment = names.segment(path, 1)
        whole = segment.read_bytes()
        last = snapshot.read(engine, lambda view: view.meta.last_frame)
        _, at = fmt.position_parts(last)
        for data, why in (
            (whole[:at], "ahead"),
            (whole[: at + fmt.FRAME_HEAD_BYTES - 1], "ahead"),
            (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], "another log"),
        ):
            segment.write_bytes(data)
            with pytest.raises(CorruptionError, match=why):
                index_validity.check_applied(engine, engine.index(), open_boot)
        segment.write_bytes(whole)
        segment.rename(path / "away")
        with pytest.raises(CorruptionError, match="ahead"):
            index_validity.check_applied(engine, engine.index(), open_boot)
        (path / "away").rename(segment)


STREAMS = 300
Store = logstore.Store[bytes]
Rows = dict[str, list[tuple[bytes, bytes]]]


def _roll(store: Store) -> None:
    with Committer(store._engine()).locked() as words:
        log_tail.roll_locked(store._engine(), words)


def _many(store: Store, mark: bytes, first: int = 0) -> None:
    with store.transaction() as tx:
        for number in range(first, first + STREAMS):
            tx.stream(b"%s-%d" % (mark, number)).add({b"n": b"%d" % number})


def only_new(store: Store) -> None:
    """Each stream has one entry, and a hint tells of all."""
    _many(store, b"s")
    _roll(store)


def without_a_hint(store: Store) -> None:
    """The segment is the active one."""
    _many(store, b"s")


def some_go_on(store: Store) -> None:
    """Further entries, deletes, trims, groups, settings, times to live, in all orders."""
    rng = random.Random(3)
    for turn in range(4):
        _many(store, b"s", turn * 100)
        for _ in range(200):
            stream = store.stream(b"s-%d" % rng.randrange(turn * 100 + STREAMS))
            what = rng.randrange(10)
            if what < 3:
                stream.add({b"more": b"1"})
            elif what == 3:
                stream.add_many({b"row": b"%d" % row} for row in range(40))
            elif what == 4 and (first := stream.first) is not None:
                stream.delete(first.id)
            elif what == 5:
                stream.trim(max_entries=1, approximate=False)
            elif what == 6:
                stream.configure(max_entries=900)
            elif what == 7:
                stream.expire(after=9e6)
            elif what == 8:
                stream.schedule({b"later": b"1"}, after=9e6)
            else:
                stream.add({b"once": b"1"}, producer=b"p", idempotent_id=b"i")
        store.stream(b"s-%d" % turn).group(b"g", start="0").read(consumer=b"c")
        if turn % 2:
            _roll(store)


def names_change_hands(store: Store) -> None:
    """Dropped, made again under the same name, renamed onto each other, copied."""
    _many(store, b"s")
    for number in range(20):
        store.drop(b"s-%d" % number)
        store.stream(b"s-%d" % number).add({b"again": b"1"})
        store.rename(b"s-%d" % (number + 20), b"other-%d" % number)
        store.stream(b"s-%d" % (number + 20)).add({b"in its place": b"1"})
        store.copy(b"s-%d" % (number + 40), b"copy-%d" % number)
    _many(store, b"t")
    store.rename(b"t-1", b"s-1")
    _roll(store)


def behind_a_checkpoint(store: Store) -> None:
    """What the checkpoint knows is not new."""
    _many(store, b"s")
    store.checkpoint()
    _many(store, b"t")
    store.stream(b"s-3").add({b"more": b"1"})
    _roll(store)


def without_entries(store: Store) -> None:
    """Made by a group, and never added to; and first nodes too large to stand in the index."""
    for number in range(50):
        store.stream(b"empty-%d" % number).group(b"g", start="0")
        store.stream(b"large-%d" % number).add({b"v": bytes(1500 * number)})
    _roll(store)


LOGS = [
    only_new, without_a_hint, some_go_on, names_change_hands, behind_a_checkpoint, without_entries,
]  # fmt: skip


def _rebuilt(path: Path) -> Rows:
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False, encoding=None) as store:
        assert store.recovery["rebuilt"]
        generation = store._engine().index()
        rows: Rows = {}
        with generation.env.begin() as txn:
            for name in DATABASES:
                with txn.cursor(db=generation.databases[name]) as cursor:
                    rows[name] = list(cursor)
            with txn.cursor(db=generation.main) as cursor:
                rows["main"] = [row for row in cursor if row[0] not in map(str.encode, DATABASES)]
    return rows


def _written(path: Path, made: Callable[[Store], None]) -> Path:
    with logstore.open(
        path, background=False, encoding=None, sync="os", node_max_entries=10
    ) as store:
        made(store)
    return path


@pytest.mark.parametrize("made", LOGS, ids=lambda made: made.__name__)
def test_rows_are_those_of_the_frames_one_by_one(
    tmp_path: Path, made: Callable[[Store], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _written(tmp_path / "store", made)
    at_once = _rebuilt(path)
    assert at_once["names"]
    monkeypatch.setattr(BulkCreate, "take", lambda *_: False)
    one_by_one = _rebuilt(path)
    for name, rows in one_by_one.items():
        assert at_once[name] == rows, name


@pytest.mark.parametrize("made", LOGS, ids=lambda made: made.__name__)
def test_the_rebuilt_index_agrees_with_the_log(
    tmp_path: Path, made: Callable[[Store], None]
) -> None:
    path = _written(tmp_path / "store", made)
    assert check(path).damage == []  # the live index, against one that is replayed
    shutil.rmtree(path / "index")
    logstore.open(path, background=False, encoding=None).close()
    assert check(path).damage == []


MANY = 3000


def _made(path: Path, *, dropped: bool) -> None:
    rng = random.Random(1)
    with logstore.open(path, background=False, encoding=None, sync="os") as store:
        for first in range(0, MANY, 500):
            with store.transaction() as tx:
                for number in range(first, first + 500):
                    tx.stream(b"stream-%d" % number).add({b"n": b"%d" % number})
        if dropped:  # names that are given again, and away
            for number in rng.sample(range(MANY), 20):
                store.drop(b"stream-%d" % number)
                store.stream(b"stream-%d" % number).add({b"again": b"1"})
            for number in range(5):
                store.rename(b"stream-%d" % number, b"renamed-%d" % number)
                store.stream(b"stream-%d" % number).add({b"of the same name": b"1"})
            store.checkpoint()
            for number in rng.sample(range(MANY), 20):
                store.drop(b"stream-%d" % number)
        with Committer(store._engine()).locked() as words:
            log_tail.roll_locked(store._engine(), words)


def test_a_rebuilt_index_equals_the_lost_one(tmp_path: Path) -> None:
    path = tmp_path / "store"
    _made(path, dropped=True)
    with logstore.open(path, background=False, encoding=None) as store:
        before = dump(store)
    for without in ("", "checkpoint"):
        shutil.rmtree(path / "index")
        if without:
            shutil.rmtree(path / without)
        with logstore.open(path, background=False, encoding=None) as store:
            assert store.recovery["rebuilt"]
            assert dump(store) == before
    assert check(path).damage == []


def test_each_row_is_written_once(tmp_path: Path) -> None:
    """Records, open nodes and names go into the index in their order, each once."""
    path = tmp_path / "store"
    _made(path, dropped=False)
    shutil.rmtree(path / "index")
    sealed: list[bytes] = []
    seal = index_txn._seal

    def counted(key: bytes, value: bytes) -> bytes:
        sealed.append(key)
        return seal(key, value)

    index_txn._seal = keys.seal = counted
    try:
        with logstore.open(path, background=False, encoding=None) as store:
            assert store.recovery["rebuilt"]
            names = snapshot.read(store._engine(), lambda view: list(view.index.records()))
    finally:
        index_txn._seal = keys.seal = seal
    assert len(names) == MANY
    assert 4 * MANY <= len(sealed) <= 4 * MANY + 100


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_stream_that_expires_is_dropped_after_a_reopen_too(tmp_path: Path, rebuilt: bool) -> None:
    """Nothing else is due and nothing is committed: the word that says when comes from the open."""
    clock, path = FixedClock(), tmp_path / "s"
    with opened(path, clock) as store:
        store.stream("a").add({"n": 1})
        store.stream("a").expire(after=5)
        store.stream("b").schedule({"n": 2}, after=9)
    if rebuilt:
        shutil.rmtree(path / "index")
    with opened(path, clock) as store:
        engine = store._engine()
        assert store.recovery["index_trusted"] is not rebuilt
        assert engine.wake.next_due_ms == START_MS + 5_000
        clock.ms += 5_000
        do_due_work(store)
        assert engine.wake.next_due_ms == START_MS + 9_000
        assert [each.name for each in snapshot.read(engine, lambda v: list(v.index.records()))] == [
            b"b"
        ]
