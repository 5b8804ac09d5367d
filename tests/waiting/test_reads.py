"""Prevents a wait that sleeps through an entry, ends early, never ends, or keeps a core busy."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.shm.wait_words import bucket_of
from tests.support.processes import Forked
from tests.support.threads import running
from tests.support.waits import eventually
from tests.waiting.crowd import LONG_S, SOON_S


def later(
    seconds: float, work: Callable[[], object], waits: Store[Any] | None = None
) -> threading.Timer:
    """Run ``work`` in a thread, in a while, but not before somebody waits in a store."""
    before = 0 if waits is None else waits.metrics()["waits"]

    def run() -> None:
        if waits is not None:
            eventually(lambda: waits.metrics()["waits"] > before)
        work()

    timer = threading.Timer(seconds, run)
    timer.start()
    return timer


def took(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and how long it took."""
    began = time.monotonic()
    return work(), time.monotonic() - began


def ids(entries: list[logstore.Entry[Any]]) -> list[int]:
    """The milliseconds of their IDs."""
    return [entry.id.ms for entry in entries]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("timeout", [0.05, 0.23, timedelta(milliseconds=110)])
def test_a_time_out_is_neither_early_nor_late(store: Store[Any], timeout: Any) -> None:
    wanted = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    for read in (
        lambda: store.stream("a").read(timeout=timeout),
        lambda: store.read({"a": "0", "b": "$"}, timeout=timeout),
        lambda: list(store.stream("a").follow(timeout=timeout)),
    ):
        found, seconds = took(read)
        assert not found
        assert wanted <= seconds < SOON_S


@pytest.mark.usefixtures("patient")
def test_without_a_time_out_nothing_waits(store: Store[Any]) -> None:
    assert took(lambda: store.stream("a").read("$"))[1] < SOON_S
    assert took(lambda: store.read({"a": "0"}))[1] < SOON_S


@pytest.mark.usefixtures("patient")
def test_a_wake_up_comes_from_the_commit_and_not_from_the_slice(store: Store[Any]) -> None:
    """Many at random moments."""
    stream = store.stream("a")
    for at in range(1, 21):
        timer = later(0.02, lambda at=at: stream.add({"n": at}, f"{at}-0"))  # type: ignore[misc]
        after = f"{at - 1}-1" if at > 1 else "0"
        found, seconds = took(lambda after=after: stream.read(after, timeout=LONG_S))  # type: ignore[misc]
        timer.join()
        assert ids(found) == [at]
        assert seconds < SOON_S


@pytest.mark.usefixtures("patient")
def test_another_process_wakes_it(store: Store[Any], tmp_path: Path) -> None:
    asleep, go = os.pipe()

    def add() -> None:
        with logstore.open(tmp_path / "store", sync="os", background=False) as theirs:
            os.read(asleep, 1)
            time.sleep(0.2)
            theirs.stream("a").add({"a": "b"}, "5-0")

    with Forked(add):
        later(0.0, lambda: os.write(go, b"x"), store)
        found, seconds = took(lambda: store.stream("a").read(timeout=LONG_S))
    assert ids(found) == [5]
    assert seconds < SOON_S


@pytest.mark.usefixtures("patient")
def test_a_reader_without_the_right_to_write(store: Store[Any], tmp_path: Path) -> None:
    store.stream("a").add({"a": "b"}, "1-0")
    with logstore.open(tmp_path / "store", readonly=True) as reader:
        timer = later(0.1, lambda: store.stream("a").add({"a": "b"}, "2-0"))
        found, seconds = took(lambda: reader.stream("a").read("1-0", timeout=LONG_S))
        timer.join()
        assert ids(found) == [2]
        assert seconds < SOON_S
        assert 0.15 <= took(lambda: reader.stream("a").read(timeout=0.15))[1] < SOON_S


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.02, 0.3])
def test_a_reader_without_the_right_to_write_is_called(
    store: Store[Any], tmp_path: Path, after_s: float
) -> None:
    """It sleeps, not only looks, when nothing happened for a while; the first commit wakes it, and
    it sees those that follow at once, which call nobody.
    """
    stream = store.stream("a")
    with logstore.open(tmp_path / "store", readonly=True) as reader:
        for round_number in range(3):
            last = f"{round_number}-9"

            def add(last: str = last, number: int = round_number) -> None:
                stream.add({"a": "b"}, f"{number}-8")
                time.sleep(after_s)
                stream.add({"a": "b"}, last)

            timer = later(0.15, add)
            found, seconds = took(lambda last=last: first_from(reader, last))  # type: ignore[misc]
            timer.join()
            assert str(found) == last
            assert seconds < SOON_S


def first_from(store: Store[Any], id: str) -> Any:
    """The first entry from an ID on; waits for it."""
    ms, seq = id.split("-")
    (found,) = store.stream("a").read(f"{ms}-{int(seq) - 1}", timeout=LONG_S)
    return found.id


def test_the_dollar_sign_is_settled_at_the_call(store: Store[Any]) -> None:
    stream = store.stream("a")
    stream.add({"a": "b"}, "1-0")
    following = stream.follow(timeout=0.1)
    stream.add({"a": "b"}, "2-0")
    assert ids(list(following)) == [2]
    assert ids(list(stream.follow("+", timeout=0.01))) == [2]
    assert ids(list(stream.follow("0", timeout=0.01, count=1))) == [1, 2]


@pytest.mark.usefixtures("patient")
def test_several_streams(store: Store[Any]) -> None:
    store.stream("other").add({"a": "b"})
    timer = later(0.05, lambda: store.stream("b").add({"a": "b"}, "7-0"), store)
    found, seconds = took(lambda: store.read({"a": "0", "b": "$", "c": "$"}, timeout=LONG_S))
    timer.join()
    assert {name: ids(entries) for name, entries in found.items()} == {b"b": [7]}
    assert seconds < SOON_S


def test_streams_of_one_word_do_not_end_the_wait(store: Store[Any]) -> None:
    twin = next(f"s{n}" for n in range(10_000) if bucket_of(b"s%d" % n) == bucket_of(b"a"))
    timer = later(0.05, lambda: store.stream(twin).add({"a": "b"}))
    found, seconds = took(lambda: store.stream("a").read(timeout=0.2))
    timer.join()
    assert found == []
    assert seconds >= 0.2


def test_a_busy_store_does_not_put_off_the_time_out(store: Store[Any]) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.stream("a").add({"a": "b"}, max_entries=10)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        far = logstore.StreamID(2**63, 0)
        assert took(lambda: store.stream("a").read(far, timeout=0.3))[1] < SOON_S
    finally:
        stop.set()
        writer.join()


def test_removing_the_stream_wakes(store: Store[Any]) -> None:
    """The waiter looks again, finds nothing, and gets what comes in the stream's next life."""
    store.stream("a").add({"a": "b"}, "1-0")
    looked: list[float] = []
    original = store.stream("a").last_id
    dropped = later(0.05, lambda: (looked.append(time.monotonic()), store.drop("a")))
    added = later(0.1, lambda: store.stream("a").add({"a": "b"}, "9-0"))
    assert ids(store.stream("a").read(original, timeout=LONG_S)) == [9]
    dropped.join()
    added.join()


def test_closing_the_store_ends_the_wait(tmp_path: Path) -> None:
    store = logstore.open(tmp_path / "closing", sync="os", background=False)
    timer = later(0.1, store.close, store)
    with pytest.raises(logstore.ClosedError):
        store.stream("a").read(timeout=None)
    timer.join()


def test_ctrl_c_ends_the_wait(store: Store[Any]) -> None:
    # A shell that runs the tests in the background has them ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = later(0.1, lambda: os.kill(os.getpid(), signal.SIGINT), store)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        store.stream("a").read(timeout=LONG_S)
    assert time.monotonic() - began < SOON_S
    timer.join()
    signal.signal(signal.SIGINT, before)
    store.stream("a").add({"a": "b"})


def test_waiting_needs_next_to_no_processor(store: Store[Any]) -> None:
    began = time.process_time()
    store.stream("a").read(timeout=2)
    assert time.process_time() - began < 0.2


def test_nothing_is_lost_between_threads(store: Store[Any]) -> None:
    """Readers at the tail while writers add as fast as they can: each sees all, in order."""
    readers, count = 4, 300
    seen: list[list[int]] = [[] for _ in range(readers)]

    def read(mine: list[int]) -> None:
        for entry in store.stream("a").follow("0", timeout=LONG_S):
            mine.append(int(entry.fields["n"]))
            if len(mine) == count:
                return

    threads = [threading.Thread(target=read, args=(mine,)) for mine in seen]
    with running(threads, SOON_S):
        for n in range(count):
            store.stream("a").add({"n": n})
            if n % 7 == 0:
                time.sleep(0.001)
    assert seen == [list(range(count))] * readers


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True, timedelta(seconds=-1)])
def test_a_wrong_time_out_is_refused(store: Store[Any], timeout: Any) -> None:
    with pytest.raises(logstore.OptionError, match="timeout"):
        store.stream("a").read(timeout=timeout)
    with pytest.raises(logstore.OptionError, match="timeout"):
        store.read({"a": "0"}, timeout=timeout)
    with pytest.raises(logstore.OptionError, match="timeout"):
        store.stream("a").follow(timeout=timeout)


def test_block_is_no_option(store: Store[Any]) -> None:
    """XREAD BLOCK takes milliseconds, ``timeout`` takes seconds: the name must not be both."""
    given: Any = {"block": 1000}
    with pytest.raises(TypeError, match="block"):
        store.stream("a").read(**given)
    with pytest.raises(TypeError, match="block"):
        store.read({"a": "0"}, **given)
    with pytest.raises(TypeError, match="block"):
        store.stream("a").group("g", "0").read("c", **given)
