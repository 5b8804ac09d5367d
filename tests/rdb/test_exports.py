"""Prevents an export that mixes moments, or a restore that a kill leaves half done."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.dump import export as exports
from logstore.engine.dump import restore
from logstore.engine.snapshots import snapshot
from logstore.errors import (
    DamagedStoreError,
    ReadOnlyError,
    SnapshotExpiredError,
    StreamNotFoundError,
)
from logstore.rdb import dump_payload
from logstore.rdb.value import StreamValue
from logstore.recovery.check import check
from tests.store.conftest import OpenStore
from tests.support.inside import delete_index
from tests.support.processes import Forked


def fill(store: Store[bytes], name: str, count: int, seed: int = 1) -> logstore.Stream[bytes]:
    """A stream with deletes, groups and pending entries."""
    rng = random.Random(seed)
    stream = store.stream(name)
    stream.add_many(((at, 0), {"f": at, "pad": "p" * rng.randrange(9)}) for at in range(1, count))
    stream.delete(*((at, 0) for at in rng.sample(range(1, count), count // 5)))
    group = stream.group("g", start="0")
    for who in ("alice", "bob"):
        for each in group.read(who, count=count // 10)[::7]:
            each.nack()
    return stream


def test_in_pieces_it_is_the_same(store: Store[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = fill(store, "s", 700)
    whole = stream.dump()
    for piece in (1, 2, 7, 140):
        monkeypatch.setattr(exports, "PIECE_NODES", piece)
        assert stream.dump() == whole


def test_a_missing_stream_is_refused(store: Store[bytes]) -> None:
    with pytest.raises(StreamNotFoundError):
        store.stream("s").dump()


def test_a_stream_comes_back_from_its_own_value(store: Store[bytes]) -> None:
    """What DUMP cannot carry too: the line of entries that were given back."""
    fill(store, "s", 300)
    value = exports.read(store._engine(), b"s")
    assert value.info.groups[0].nacked
    prepared = restore.prepare(value)
    store._opened.commit(lambda state: restore.install(state, b"t", prepared), None)
    assert exports.read(store._engine(), b"t") == value
    again = [delivery.id for delivery in store.stream("t").group("g").autoclaim(
        "eve", min_idle=0, count=5
    ).entries]  # fmt: skip
    assert [id.packed() for id in again] == value.info.groups[0].nacked[:5]
    assert check(store.path).damage == []


class Churn(threading.Thread):
    """Adds at one end and deletes at the other until it is told to stop; all IDs have a seq of 0
    and milliseconds without a gap."""

    def __init__(self, store: Store[bytes], *, deletes: bool) -> None:
        super().__init__()
        self.store, self.deletes = store, deletes
        self.over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """The thread."""
        try:
            stream = self.store.stream("s")
            group = stream.group("g")
            low, high = 1, stream.last_id.ms
            while not self.over.is_set():
                high += 1
                stream.add({"f": high}, id=(high, 0))
                with self.store.transaction() as tx:  # one moment: its entry and its ack
                    tx.stream("s").add({"f": high + 1}, id=(high + 1, 0))
                high += 1
                if self.deletes and high % 3 == 0:
                    stream.delete((low, 0))
                    low += 1
                for each in group.read("alice", count=2):
                    if each.id.ms % 2:
                        each.ack()
        except BaseException as error:
            self.error = error
            raise


@pytest.mark.parametrize("deletes", [False, True])
def test_an_export_beside_writers_is_of_one_moment(
    store: Store[bytes], monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    monkeypatch.setattr(exports, "PIECE_NODES", 4)
    stream = store.stream("s")
    stream.add_many(((at, 0), {"f": at}) for at in range(1, 500))
    stream.group("g", start="0")
    churn = Churn(store, deletes=deletes)
    churn.start()
    try:
        for at in range(40):
            copy = store.restore(f"copy{at}", stream.dump())
            seen = [entry.id.ms for entry in copy.range()]
            assert seen == list(range(seen[0], copy.last_id.ms + 1))
            info = copy.info()
            assert info.entries_added == copy.last_id.ms
            [group] = copy.groups()
            assert group.last_delivered_id <= copy.last_id
            assert group.entries_read is None or group.entries_read <= info.entries_added
            pending = [each.id.ms for each in copy.group("g").pending_entries()]
            assert all(each % 2 == 0 or each >= group.last_delivered_id.ms - 2 for each in pending)
            store.drop(f"copy{at}")
    finally:
        churn.over.set()
        churn.join()
    assert churn.error is None


class Between:
    """Snapshots, and what happens before the second one and those behind it."""

    def __init__(self, happens: Callable[[], object], times: int) -> None:
        self.happens, self.times, self.taken = happens, times, 0

    def read(self, engine: Any, batch: Any) -> Any:
        """In the place of ``snapshot.read``."""
        self.taken += 1
        if 1 < self.taken <= self.times + 1:
            self.happens()
        return snapshot.read(engine, batch)


def test_adds_between_two_pieces_are_left_out_of_the_export(
    store: Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = fill(store, "s", 200)
    whole = stream.dump()
    monkeypatch.setattr(exports, "PIECE_NODES", 3)
    between = Between(lambda: stream.add_many({"f": at} for at in range(4)), 100)
    monkeypatch.setattr(exports, "snapshot", between)
    assert stream.dump() == whole
    nodes = len(exports.read(store._engine(), b"s").nodes)
    assert between.taken < nodes, "it was read anew"


@pytest.mark.parametrize("times", [1, 2, 1000])
@pytest.mark.parametrize("what", ["delete", "trim", "compact", "replace"])
def test_a_delete_between_two_pieces_restarts_the_export(
    store: Store[bytes], monkeypatch: pytest.MonkeyPatch, times: int, what: str
) -> None:
    stream = fill(store, "s", 400)
    other = fill(store, "other", 300, seed=2).dump()
    left = iter([entry.id for entry in stream.range()])
    stream.delete(*(id for at, id in enumerate([*left]) if at % 4))
    left = iter([entry.id for entry in stream.range(reverse=True)][5:])
    happens: dict[str, Callable[[], object]] = {
        "delete": lambda: stream.delete(next(left)),
        "trim": lambda: stream.trim(max_entries=len(stream) - 1, approximate=False),
        "compact": lambda: store.compact(threshold=0.2),
        "replace": lambda: store.restore("s", other, replace=True),
    }
    monkeypatch.setattr(exports, "PIECE_NODES", 3)
    monkeypatch.setattr(exports, "snapshot", Between(happens[what], times))
    engine = store._engine()
    with exports.pinned(engine, b"s") as found:  # else dropped segments make it begin again
        payload = dump_payload.encode(StreamValue(list(found.nodes(engine)), found.info))
    monkeypatch.undo()
    assert payload == stream.dump()


def test_removed_segments_restart_the_export(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(segment_bytes=1 << 16, node_max_entries=10)
    stream = fill(store, "s", 6000)
    other = fill(store, "other", 6000)
    find, found = exports._find, list[exports.Export]()

    def find_and_compact(*args: Any) -> exports.Export:
        found.append(find(*args))
        if len(found) == 1:
            other.trim(max_entries=10, approximate=False)
            stream.delete_range((100, 0), (4000, 0))
            for _ in range(2):
                store.compact(threshold=0.9)
                store.sync()
            assert len(stream)  # a reader that looks lets go of the maps of segments that went
        return found[-1]

    monkeypatch.setattr(exports, "_find", find_and_compact)
    payload = stream.dump()
    monkeypatch.undo()
    assert len(found) == 2, "no segment went: the test tests nothing"
    assert payload == stream.dump()


def test_a_pinned_export_stays_readable(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 16, node_max_entries=10)
    stream = fill(store, "s", 6000)
    engine = store._engine()
    whole = stream.dump()
    with exports.pinned(engine, b"s") as export:
        stream.trim(max_entries=5, approximate=False)
        for _ in range(3):
            store.compact(threshold=0.9)
            store.sync()
        value = StreamValue(list(export.nodes(engine)), export.info)
        assert dump_payload.encode(value) == whole
    assert not list((store.path / "pins").iterdir())
    store.restore("t", whole)
    with pytest.raises(SnapshotExpiredError):
        _erase_meanwhile(store)


def _erase_meanwhile(store: Store[bytes]) -> None:
    with exports.pinned(store._engine(), b"t") as export:
        store.drop("t")
        store.compact(purge=True)
        assert len(store.stream("s"))
        list(export.nodes(store._engine()))


def test_a_segment_that_is_gone_is_damage_while_the_pin_holds(open_store: OpenStore) -> None:
    """To begin again would end the same way, for ever."""
    store = open_store(segment_bytes=1 << 16, node_max_entries=10)
    fill(store, "s", 6000)
    segment = min((store.path / "log").glob("*.log"))
    store._engine().segments.forget()
    with pytest.raises(DamagedStoreError, match="logstore check"):
        _lose_meanwhile(store, segment)
    assert not list((store.path / "pins").iterdir())


def _lose_meanwhile(store: Store[bytes], segment: Path) -> None:
    with exports.pinned(store._engine(), b"s") as export:
        segment.unlink()
        list(export.nodes(store._engine()))


def _restore_for_ever(path: Path, payloads: list[bytes]) -> None:
    with logstore.open(path, sync="os", background=False) as store:
        while True:
            for payload in payloads:
                store.restore("s", payload, replace=True)


def test_a_kill_leaves_the_stream_before_or_the_one_after(open_store: OpenStore) -> None:
    store = open_store(node_max_entries=5)
    payloads = [fill(store, name, size).dump() for name, size in (("a", 900), ("b", 500))]
    for name in ("a", "b"):
        store.drop(name)
    store.restore("s", payloads[0])
    store.close()
    rng = random.Random(4)
    seen: set[int] = set()
    for turn in range(9):
        child = Forked(lambda: _restore_for_ever(store.path, payloads))
        time.sleep(rng.uniform(0.05, 0.25))
        child.kill()
        with logstore.open(store.path, sync="os", background=False) as again:
            seen.add(payloads.index(again.stream("s").dump()))
            assert again.streams() == [b"s"]
            if turn % 4 == 0:
                again.checkpoint()
        if turn % 3 == 0:
            assert check(store.path).damage == []
    assert seen == {0, 1}


def test_a_stream_larger_than_a_segment_stands_in_one_of_its_own(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 16, node_max_entries=10)
    stream = fill(store, "s", 8000)
    payload = stream.dump()
    assert len(payload) > 3 << 15
    before = store.metrics()["rolls"]
    store.restore("t", payload)
    assert store.metrics()["rolls"] == before + 1
    store.stream("t").add({"a": 1})
    with store.transaction() as tx:
        tx.stream("t").add({"a": 1})
    whole = {name: store.stream(name).dump() for name in "st"}
    store.close()
    assert check(store.path).damage == []
    delete_index(store.path)
    store = open_store()
    assert {name: store.stream(name).dump() for name in "st"} == whole


def test_a_store_that_is_only_read_gives_dumps_and_takes_none(open_store: OpenStore) -> None:
    store = open_store(node_max_entries=5)
    payload = fill(store, "s", 200).dump()
    for store_closed in (False, True):
        if store_closed:
            store.close()
        with logstore.open(store.path, readonly=True, background=False) as looking:
            assert looking.stream("s").dump() == payload
            with pytest.raises(ReadOnlyError):
                looking.restore("t", payload)
