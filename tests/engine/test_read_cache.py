"""Prevents a look at what is kept of a stream from telling what is so no more: after a commit of
any process, of an expired or renamed stream, behind a close or a fork, or less than was seen once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.api.entry import entry_maker
from logstore.api.store import Store
from logstore.engine.reading import pure_reader, reader_loading
from logstore.engine.reading.reader_interface import NODES_MAX_BYTES
from logstore.engine.shm import commit_words
from logstore.engine.shm.commit_words import Wake
from logstore.engine.snapshots import snapshot
from logstore.engine.streams import read as ranges
from logstore.errors import ClosedError
from logstore.ids import StreamID
from tests import seeds
from tests.support.inside import FixedClock, engine_of
from tests.support.processes import Forked

IDS = [StreamID(ms, 0) for ms in range(1, 8)]
LAST, HERE = IDS[-1], IDS[3]
Change = Callable[[Store[bytes]], object]


def row(text: object) -> dict[bytes, bytes]:
    return {b"n": b"%d" % text if isinstance(text, int) else str(text).encode()}


def fill(store: Store[bytes], name: str = "s") -> None:
    for id in IDS:
        store.stream(name).add(row(id.ms), id=id)


def open_at(path: Path, **options: Any) -> Store[bytes]:
    return logstore.open(path, encoding=None, background=False, sync="os", **options)


def seen(store: Store[bytes], id: StreamID = HERE, name: str = "s") -> bytes | None:
    """The value of an entry: looked up until it is looked up in what is kept."""
    found = None
    for _ in range(3):
        entry = store.stream(name).get(id)
        found = None if entry is None else entry[b"n"]
    return found


def is_kept(store: Store[bytes], id: StreamID = HERE, name: bytes = b"s") -> bool:
    """Whether an entry is told, or said not to be there, without a snapshot."""
    reader = engine_of(store).reader
    assert reader is not None
    return reader.get(name, id, entry_maker(None)) is not reader_loading.MISS


@pytest.fixture(autouse=True, params=["core", "twin"])
def has_core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the read core is there; what is told is the same."""
    if reader_loading.native_or_none is None and request.param == "core":
        pytest.skip("the read core is not built")
    monkeypatch.setattr(reader_loading, "IN_USE", request.param == "core")
    return bool(request.param == "core")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[bytes]]:
    with open_at(tmp_path / "store") as opened:
        fill(opened)
        yield opened


def test_every_entry_is_found_and_no_other(store: Store[bytes], has_core: bool) -> None:
    assert [seen(store, id) for id in IDS] == [b"%d" % id.ms for id in IDS]
    assert not has_core or is_kept(store)
    for id in (StreamID(0, 1), StreamID(1, 1), StreamID(8, 0), StreamID(2**64 - 1, 2**64 - 1)):
        assert seen(store, id) is None
    assert seen(store, name="other") is None
    told = engine_of(store).metrics.as_dict()["read_entries"]
    assert told == 3 * len(IDS)


def _again(store: Store[bytes]) -> None:
    store.drop("s")
    store.stream("s").add(row("again"), id=HERE)


# What is done; what is told of the entry then; whether it is told without another snapshot.
CHANGES: dict[str, tuple[Change, bytes | None, bool]] = {
    "delete": (lambda store: store.stream("s").delete(HERE), None, True),
    "delete another": (lambda store: store.stream("s").delete(IDS[1]), b"4", True),
    "trim": (lambda store: store.stream("s").trim(max_entries=1, approximate=False), None, True),
    "drop": (lambda store: store.drop("s"), None, False),
    "drop and make again": (_again, b"again", False),
    "rename": (lambda store: store.rename("s", "t"), None, False),
    "set the last ID": (lambda store: store.stream("s").set_id(StreamID(50, 0)), b"4", True),
    "purge": (lambda store: store.stream("s").delete(HERE, purge=True), None, False),
    "add": (lambda store: store.stream("s").add(row(9), id=StreamID(9, 0)), b"4", True),
    "add to another": (lambda store: store.stream("t").add(row(9)), b"4", True),
    "read in a group": (
        lambda store: store.stream("s").group("g", start="0").read("c", count=3), b"4", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("beside", [False, True], ids=["here", "another process"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_commit_is_seen_at_once(
    store: Store[bytes], what: str, beside: bool, has_core: bool
) -> None:
    change, then, still = CHANGES[what]
    assert seen(store) == b"4"
    assert not has_core or is_kept(store)
    if beside:
        path = engine_of(store).path

        def work() -> None:
            with open_at(path) as other:
                change(other)

        with Forked(work):
            pass
    else:
        change(store)
    if has_core and not beside:
        assert is_kept(store) == still
    assert seen(store) == then
    if what == "add":
        assert seen(store, StreamID(9, 0)) == b"9"


def test_nothing_that_is_kept_is_used_while_a_commit_is_in_progress(
    store: Store[bytes], has_core: bool
) -> None:
    assert seen(store) == b"4"
    engine = engine_of(store)
    with engine.mutex:
        engine.lock.acquire(engine.wake, 10)
        try:
            engine.wake.begin(1_000_000)
            assert not has_core or not is_kept(store)
            assert seen(store) == b"4"
        finally:
            engine.wake.begin(0)
            engine.lock.release(engine.wake)
    assert not has_core or is_kept(store)


def test_a_commit_that_is_not_published_is_seen_by_all_or_by_none(
    store: Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB shows it before: who saw it there, as the length, sees it from then on."""
    assert seen(store) == b"4"
    publish, at, go = Wake.publish, threading.Event(), threading.Event()

    def later(self: Wake, *given: Any) -> Any:
        at.set()
        assert go.wait(60)
        return publish(self, *given)

    monkeypatch.setattr(Wake, "publish", later)
    deleting = threading.Thread(target=lambda: store.stream("s").delete(HERE, HERE))
    deleting.start()
    try:
        assert at.wait(60)
        assert len(store.stream("s")) == len(IDS) - 1  # LMDB has it
        assert seen(store) is None
    finally:
        go.set()
        deleting.join()
    assert seen(store) is None


def test_the_cache_keeps_a_row_at_the_position_of_its_snapshot_only(
    store: Store[bytes], has_core: bool
) -> None:
    if not has_core:
        return
    engine = engine_of(store)
    reader = engine.reader
    assert reader is not None
    loaded = snapshot.read(engine, lambda view: reader.of(view, b"s"))
    store.stream("s").add(row(9), id=StreamID(9, 0))
    assert reader.record(b"s") is reader_loading.MISS  # it follows the log
    reader.keep(loaded)
    assert reader.record(b"s") is reader_loading.MISS
    assert len(store.stream("s")) == len(IDS) + 1
    assert reader.record(b"s") is not reader_loading.MISS


def test_a_stream_that_expires_is_gone_in_time(tmp_path: Path) -> None:
    clock = FixedClock(1_000_000)
    with open_at(tmp_path / "store", clock=clock) as store:
        fill(store)
        store.stream("s").expire(after=5)
        assert seen(store) == b"4"
        clock.ms += 6_000
        assert seen(store) is None


def test_a_closed_store_tells_nothing(tmp_path: Path) -> None:
    store = open_at(tmp_path / "store")
    fill(store)
    stream = store.stream("s")
    assert seen(store) == b"4"
    store.close()
    with pytest.raises(ClosedError):
        stream.get(HERE)


def test_a_child_sees_what_comes_behind_its_fork(store: Store[bytes]) -> None:
    assert seen(store) == b"4"

    def work() -> None:
        assert seen(store) == b"4"
        store.stream("s").delete(HERE)
        assert seen(store) is None

    with Forked(work):
        pass
    assert seen(store) is None


def test_a_read_only_handle_follows_the_log(store: Store[bytes]) -> None:
    with open_at(engine_of(store).path, readonly=True) as reader:
        assert seen(reader) == b"4"
        store.stream("s").delete(HERE)
        assert seen(reader) is None


def test_the_read_cache_is_bounded(store: Store[bytes], has_core: bool) -> None:
    rows = [{b"v": random.Random(at).randbytes(3_000)} for at in range(300)]
    ids = list(store.stream("big").add_many(rows))
    held = engine_of(store).segments.nodes
    if has_core:
        assert reader_loading.native_or_none is not None
        small: Any = reader_loading.native_or_none.NodeCache(100_000)
    else:
        small = pure_reader.NodeCache(100_000)
    for _ in range(2):
        for id, wanted in zip(ids, rows, strict=True):
            entry = store.stream("big").get(id)
            assert entry is not None
            assert entry.fields == wanted
    assert 0 < held.held_bytes <= NODES_MAX_BYTES
    for at in range(400):
        lp = b"%d" % at * 1_000
        small.put(at, 1, (at, 0), lp)
        assert small.held_bytes <= 100_000
        assert small.get(at, 1, (at, 0), len(lp)) in (None, lp)
    assert small.get(at, 2, (at, 0), len(lp)) is None
    assert small.get(at, 1, (at, 1), len(lp)) is None
    assert small.get(at, 1, (at, 0), len(lp) - 1) is None
    small.clear()
    assert small.held_bytes == 0
    assert small.get(at, 1, (at, 0), len(lp)) is None


def test_numbers_that_stand_twice_are_the_same() -> None:
    if reader_loading.native_or_none is None:
        return
    words = reader_loading.native_or_none.words_of_reading()
    assert words.pop("_DROPPED_OFFSET") == commit_words._DROPPED_OFFSET
    assert words.pop("NODE_BODY") == fmt.NODE_BODY.size
    assert words.pop("NODE_KEY") == fmt.NODE_KEY.size
    assert words.pop("LOCATOR") == fmt.LOCATOR.size
    assert words == {name: fmt.Kind[name] for name in words}
    limits = reader_loading.native_or_none.limits_of_reading()
    assert limits == {name: getattr(ranges, name) for name in limits}


def test_an_interval_from_its_end_over_pages_that_are_kept(tmp_path: Path, has_core: bool) -> None:
    """Prevents: entries left out where a page that is looked up reaches over one that is kept."""
    with open_at(tmp_path / "s", node_max_entries=5) as store:
        stream = store.stream("s")
        ids = list(stream.add_many((StreamID(ms, 0), row(ms)) for ms in range(1, 651)))
        assert stream.get(ids[5 * 100]) is not None  # nodes from here on are known
        assert stream.get(ids[5 * 60]) is not None  # and from here to those
        ids += [stream.add(row(ms), id=(ms, 0)) for ms in range(651, 661)]  # the first are not
        found = stream.range("-", ids[5 * 110], count=300, reverse=True)
        assert [entry.id for entry in found] == ids[5 * 110 :: -1][:300]
        assert not has_core or is_kept(store, ids[5 * 110])


@pytest.mark.parametrize("case", range(20))
def test_intervals_over_pages_in_any_order(tmp_path: Path, case: int) -> None:
    """The same, at random, from both ends; entries are added in between."""
    draw = random.Random(f"{seeds.seed()}-{case}")
    with open_at(tmp_path / "s", node_max_entries=2) as store:
        stream, ids = store.stream("s"), list[StreamID]()
        for _ in range(40):
            size = draw.choice((1, 3, 100))
            rows = [(StreamID(len(ids) + place + 1, 0), row(place)) for place in range(size)]
            ids += stream.add_many(rows)
            for _ in range(draw.randrange(5)):
                assert stream.get(draw.choice(ids)) is not None
            low, high = sorted((draw.randrange(len(ids)), draw.randrange(len(ids))))
            count = draw.choice((1, 30, 1000))
            back = stream.range(ids[low], ids[high], count=count, reverse=True)
            assert [entry.id for entry in back] == ids[low : high + 1][::-1][:count]
            some = stream.range(ids[low], ids[high], count=count)
            assert [entry.id for entry in some] == ids[low : high + 1][:count]
