"""Prevents a look at an open node that is kept from telling what is so no more: after a commit of
any process, of an expired or renamed stream, behind a close or a fork, or less than was seen once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.shm.control_block import Wake
from logstore.errors import ClosedError
from logstore.ids import StreamID
from tests.engine.procs import Forked
from tests.support.inside import FixedClock, engine_of

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


def is_kept(store: Store[bytes], name: bytes = b"s") -> bool:
    engine = engine_of(store)
    opens = engine.recent_opens.now(engine.wake)
    return opens is not None and name in opens.nodes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[bytes]]:
    with open_at(tmp_path / "store") as opened:
        fill(opened)
        yield opened


def test_every_entry_is_found_and_no_other(store: Store[bytes]) -> None:
    assert [seen(store, id) for id in IDS] == [b"%d" % id.ms for id in IDS]
    assert is_kept(store)
    for id in (StreamID(0, 1), StreamID(1, 1), StreamID(8, 0), StreamID(2**64 - 1, 2**64 - 1)):
        assert seen(store, id) is None
    assert seen(store, name="other") is None
    told = engine_of(store).metrics.as_dict()["read_entries"]
    assert told == 3 * len(IDS)


def _again(store: Store[bytes]) -> None:
    store.drop("s")
    store.stream("s").add(row("again"), id=HERE)


CHANGES: dict[str, tuple[Change, bytes | None]] = {
    "delete": (lambda store: store.stream("s").delete(HERE), None),
    "delete another": (lambda store: store.stream("s").delete(IDS[1]), b"4"),
    "trim": (lambda store: store.stream("s").trim(maxlen=1), None),
    "drop": (lambda store: store.drop("s"), None),
    "drop and make again": (_again, b"again"),
    "rename": (lambda store: store.rename("s", "t"), None),
    "add": (lambda store: store.stream("s").add(row(9), id=StreamID(9, 0)), b"4"),
}


@pytest.mark.parametrize("beside", [False, True], ids=["here", "another process"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_commit_is_seen_at_once(store: Store[bytes], what: str, beside: bool) -> None:
    change, then = CHANGES[what]
    assert seen(store) == b"4"
    assert is_kept(store)
    if beside:
        path = engine_of(store).path

        def work() -> None:
            with open_at(path) as other:
                change(other)

        with Forked(work):
            pass
    else:
        change(store)
    assert not is_kept(store)
    assert seen(store) == then
    if what == "add":
        assert seen(store, StreamID(9, 0)) == b"9"


def test_nothing_that_is_kept_is_used_while_a_commit_is_in_progress(store: Store[bytes]) -> None:
    assert seen(store) == b"4"
    engine = engine_of(store)
    with engine.mutex:
        engine.lock.acquire(engine.wake, 10)
        try:
            engine.wake.begin(1_000_000)
            assert not is_kept(store)
            assert seen(store) == b"4"
        finally:
            engine.wake.begin(0)
            engine.lock.release(engine.wake)
    assert is_kept(store)


@pytest.mark.inside
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
    deleting = threading.Thread(target=lambda: store.stream("s").delete(HERE))
    deleting.start()
    try:
        assert at.wait(60)
        assert len(store.stream("s")) == len(IDS) - 1  # LMDB has it
        assert seen(store) is None
    finally:
        go.set()
        deleting.join()
    assert seen(store) is None


def test_nothing_is_kept_of_a_read_that_a_commit_came_into(store: Store[bytes]) -> None:
    engine = engine_of(store)
    opens = engine.recent_opens.now(engine.wake)
    assert opens is not None
    store.stream("s").get(HERE)
    node = opens.nodes.pop(b"s")
    store.stream("s").add(row(9), id=StreamID(9, 0))
    engine.recent_opens.keep(engine.wake, opens, b"s", node)
    assert opens.nodes == {}
    assert not is_kept(store)


def test_a_stream_that_expires_is_not_kept(tmp_path: Path) -> None:
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


def test_what_is_kept_is_bounded(store: Store[bytes]) -> None:
    from logstore.engine.runtime import recent_opens

    for number in range(3 * recent_opens.STREAMS_MAX):
        store.stream(f"n{number}").add(row(number), id=HERE)
    for number in range(3 * recent_opens.STREAMS_MAX):
        assert seen(store, name=f"n{number}") == b"%d" % number
    engine = engine_of(store)
    opens = engine.recent_opens.now(engine.wake)
    assert opens is not None
    assert 0 < len(opens.nodes) <= recent_opens.STREAMS_MAX
