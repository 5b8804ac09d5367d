"""Prevents a published tail that is damaged, is of another index, or grows from being read as less
than it is, or as something else.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.api.store import Store
from logstore.engine.reading import reader_loading
from logstore.engine.shm.commit_words import Wake
from logstore.engine.snapshots import snapshot
from logstore.errors import CorruptFrameError, CorruptionError
from logstore.ids import StreamID
from logstore.index import keys
from logstore.log import file_names
from tests.support import inside
from tests.support.lagging import Lagging, commits_behind, follow
from tests.support.processes import Forked

COUNT = 20


def open_at(path: Path, **options: Any) -> Store[bytes]:
    return logstore.open(path, encoding=None, background=False, sync="os", **options)


def row(number: int) -> dict[bytes, bytes]:
    return {b"n": b"%d" % number}


@pytest.fixture(autouse=True)
def without_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read takes a snapshot: the read core follows the log by itself."""
    monkeypatch.setattr(reader_loading, "IN_USE", False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[bytes]]:
    """A store with two streams of COUNT entries each."""
    with open_at(tmp_path / "store") as opened:
        for name in (b"a", b"b"):
            opened.stream(name).add_many([row(number) for number in range(COUNT)])
        yield opened


def numbers(store: Store[bytes], name: bytes = b"a") -> list[int]:
    return [int(entry.fields[b"n"]) for entry in store.stream(name)]


def lag(store: Store[bytes], *added: int, writer: Lagging | None = None) -> Lagging:
    """Plain adds; those of another writer are in the index behind this."""
    writer = writer or Lagging(store)
    for number in added:
        writer.add(b"a", row(number))
    return writer


def upto(count: int) -> list[int]:
    return list(range(count))


@pytest.mark.parametrize("frame", [0, 2, 4])
@pytest.mark.parametrize("inside_frame", [0, 8, 30, 70])
def test_a_flipped_bit_is_an_error(store: Store[bytes], frame: int, inside_frame: int) -> None:
    engine = inside.engine_of(store)
    starts = []
    writer = Lagging(store)
    for number in range(5):
        starts.append(engine.wake.applied)
        writer.add(b"a", row(number))
    file = engine.active_file(engine.wake.log().active_segment)
    at = fmt.offset_of(starts[frame]) + inside_frame
    byte = file.pread(1, at)[0]
    file.pwrite(bytes([byte ^ 4]), at)
    for name in (b"a", b"b"):  # what is damaged may be of any stream
        with pytest.raises(CorruptFrameError) as raised:
            store.stream(name).last  # noqa: B018
        assert raised.value.segment == fmt.segment_of(starts[frame])
        assert raised.value.offset == fmt.offset_of(starts[frame])
    file.pwrite(bytes([byte]), at)
    assert len(numbers(store)) == COUNT + 5


def test_a_tail_that_was_cut_off_is_an_error(store: Store[bytes]) -> None:
    engine = inside.engine_of(store)
    writer = lag(store, 20, 21, 22)
    assert numbers(store) == upto(23)  # kept from now on
    lag(store, 23, writer=writer)
    file = engine.active_file(engine.wake.log().active_segment)
    size = file.size_bytes()
    last = file.pread(1, size - 1)
    file.truncate(size - 1)
    with pytest.raises(CorruptFrameError):
        numbers(store)
    file.pwrite(last, size - 1)  # a close lets the index follow, and would meet it, too


def test_a_stream_that_the_index_has_not(store: Store[bytes]) -> None:
    writer = lag(store, 20, writer=Lagging(store, plain=False))
    assert (numbers(store), list(store.streams())) == (upto(21), [b"a", b"b"])
    writer.add(b"new", row(0))
    lag(store, 21, writer=writer)
    assert commits_behind(store) == 3
    assert (numbers(store), numbers(store, b"new")) == (upto(22), [0])
    assert list(store.streams()) == [b"a", b"b", b"new"]


def test_a_commit_that_the_index_must_have(store: Store[bytes]) -> None:
    """One whose rows are lost cannot be laid over: it is told, until the index follows."""
    writer = lag(store, 20, writer=Lagging(store, plain=False))
    writer.add(b"new", row(0), ttl_ms=60_000)
    lag(store, 21, writer=writer)
    with pytest.raises(CorruptionError, match="the index lacks a commit"):
        numbers(store)
    store.stream(b"b").add(row(20))
    assert (numbers(store), numbers(store, b"new"), numbers(store, b"b")) == (
        upto(22), [0], upto(21),
    )  # fmt: skip


def test_frames_of_a_stream_that_has_no_open_node(store: Store[bytes]) -> None:
    lag(store, 20)
    engine = inside.engine_of(store)
    with engine.mutex:
        generation = engine.index()
        with generation.env.begin(write=True) as txn:
            from logstore.index.txn import IndexTxn

            IndexTxn(generation, txn).delete_open(1)
    with pytest.raises(CorruptionError, match="no open node"):
        store.stream(b"a").last  # noqa: B018


def test_the_first_commits_of_a_segment(store: Store[bytes]) -> None:
    inside.roll(store)
    lag(store, 20, 21)
    assert commits_behind(store) == 2
    assert numbers(store) == upto(22)
    store.stream(b"a").add(row(22))
    inside.roll(store)
    lag(store, 23)
    assert numbers(store) == upto(24)


def test_an_index_that_followed_in_between(store: Store[bytes]) -> None:
    """What is kept of the tail begins before the index then."""
    writer = lag(store, 20, 21)
    assert numbers(store) == upto(22)
    follow(store)
    assert numbers(store) == upto(22)
    lag(store, 22, 23, writer=writer)
    assert commits_behind(store) == 2
    assert numbers(store) == upto(24)
    assert len(store.stream(b"a")) == 24


def test_several_frames_of_one_commit(store: Store[bytes]) -> None:
    Lagging(store).add(b"a", row(20), row(21), row(22))
    assert commits_behind(store) == 1
    assert numbers(store) == upto(23)


def test_the_published_tail_grows_and_restarts_as_the_index_follows(tmp_path: Path) -> None:
    """It has what the index lacks, and nothing that the index has taken in since."""
    big = b"x" * 20_000
    with open_at(tmp_path / "store", node_max_bytes=60_000) as store:
        for number in range(30):
            store.stream(b"%d" % number).add({b"n": b"0"})
        writer, engine = Lagging(store), inside.engine_of(store)
        for number in range(30):
            writer.add(b"%d" % number, {b"n": big})
            found = [entry.fields[b"n"] for entry in store.stream(b"%d" % number)]
            assert found == [b"0", big]
            assert len(laid_records(store)) == number + 1
            assert engine.overlay is not None
            assert engine.overlay.meta.applied == engine.wake.applied
        assert commits_behind(store) == 30
        assert {len(store.stream(b"%d" % number)) for number in range(30)} == {2}
        store.stream(b"0").add({b"n": b"1"})  # the index follows
        writer.add(b"1", {b"n": big})
        assert len(store.stream(b"1")) == 3
        assert len(laid_records(store)) == 1


def laid_records(store: Store[bytes]) -> list[bytes]:
    """Keys of the records that are laid over the index."""
    laid = inside.engine_of(store).overlay
    assert laid is not None
    rows = laid.rows["main"].ordered
    return [key for key in rows if len(key) == keys.STREAM_KEY.size and key[-1] == keys.IS_RECORD]


SWITCHED = ("applied", "indexed_upto", "generation", "begin")


@pytest.mark.parametrize("point", SWITCHED)
@pytest.mark.parametrize("more", [False, True])
def test_a_generation_that_is_switched_meanwhile(
    store: Store[bytes], monkeypatch: pytest.MonkeyPatch, point: str, more: bool
) -> None:
    """In front of each look of a reader at what is valid. ``more``: and commits go on in it. The
    process is left as if another one had done it."""
    lag(store, 20, 21, 22)
    engine, done = inside.engine_of(store), []
    generation = engine.index()

    def switch() -> None:
        if done:
            return
        done.append(True)
        with inside.committer_of(store).locked():
            engine.rebuild_locked()
        if more:
            store.stream(b"new").add(row(0))
            store.stream(b"a").add(row(23))
            lag(store, 24)

    if point == "begin":
        generation.env = Beginning(generation.env, switch)
    elif point == "generation":
        look = Wake.generation
        monkeypatch.setattr(Wake, point, lambda self: (switch(), look(self))[1])
    else:
        get = getattr(Wake, point).fget
        setter = getattr(Wake, point).fset
        monkeypatch.setattr(Wake, point, property(lambda self: (switch(), get(self))[1], setter))
    found = numbers(store)
    assert done
    assert found == upto(len(found))
    assert 23 <= len(found) <= (25 if more else 23)
    assert numbers(store) == (upto(25) if more else upto(23))


class Beginning:
    """An environment of LMDB of which a reader is about to begin a transaction."""

    def __init__(self, env: Any, before: Callable[[], None]) -> None:
        self._env, self._before = env, before

    def begin(self, **options: Any) -> Any:
        if not options:
            self._before()
        return self._env.begin(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def test_threads_that_read_while_others_add(store: Store[bytes]) -> None:
    """Each reader's looks only grow, and hold every entry up to the last one."""
    over, failed = threading.Event(), []

    def look() -> None:
        seen = 0
        try:
            while not over.is_set():
                found = numbers(store)
                assert found == upto(len(found))
                assert len(found) >= seen
                seen = len(found)
        except BaseException as exc:
            failed.append(exc)
            raise

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # else the writer waits for readers at each system call
    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        writer = Lagging(store)
        for number in range(COUNT, 160):
            writer.add_anyhow(b"a", row(number), StreamID(1 << 50, number))
            if number % 30 == 0:
                store.stream(b"b").add(row(0))
    finally:
        over.set()
        sys.setswitchinterval(before)
        for reader in readers:
            reader.join()
    assert not failed
    assert numbers(store) == upto(160)


def test_a_child_process_sees_it(store: Store[bytes]) -> None:
    writer = lag(store, 20, 21)
    assert numbers(store) == upto(22)
    with Forked(lambda: check_numbers(store, upto(22))):
        pass
    assert numbers(store) == upto(22)
    lag(store, 22, writer=writer)
    assert numbers(store) == upto(23)
    assert commits_behind(store) == 3


def check_numbers(store: Store[bytes], wanted: list[int]) -> None:
    assert numbers(store) == wanted


def test_a_readonly_handle_follows(store: Store[bytes], tmp_path: Path) -> None:
    writer = lag(store, 20)
    with open_at(tmp_path / "store", readonly=True) as reader:
        assert numbers(reader) == upto(21)
        lag(store, 21, writer=writer)
        assert numbers(reader) == upto(22)
        assert commits_behind(store) == 2


def test_a_process_that_opens_reads_the_published_tail(store: Store[bytes], tmp_path: Path) -> None:
    lag(store, 20, 21)

    def work() -> None:
        with open_at(tmp_path / "store") as other:
            assert numbers(other) == upto(22)
            assert commits_behind(other) == 2

    with Forked(work):
        pass


@pytest.mark.parametrize("group", [False, True])
def test_a_read_that_waits_is_given_it(store: Store[bytes], group: bool) -> None:
    found: list[Any] = []
    stream = store.stream(b"a")
    last = stream.last_id
    waiting = stream.group(b"g", start="$")
    assert waiting.read(b"c") == []

    def read() -> None:
        found.extend(waiting.read(b"c", timeout=60) if group else stream.read(last, timeout=60))

    reader = threading.Thread(target=read)
    reader.start()
    lag(store, 20)
    reader.join()
    assert [entry.fields for entry in found] == [row(20)]


def test_an_index_that_is_ahead(store: Store[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is laid over what LMDB knows and WAKE does not say yet."""
    inside.let_lag(monkeypatch, 0)
    engine = inside.engine_of(store)
    words = engine.wake.log()
    store.stream(b"a").add(row(20))
    engine.wake.set_log(words)
    engine.wake.indexed_upto = 0
    assert numbers(store) == upto(21)
    assert snapshot.read(engine, lambda view: view.meta.commit) == words.commit + 1


def test_the_index_is_rebuilt_with_the_tail(store: Store[bytes]) -> None:
    lag(store, 20, 21)
    engine = inside.engine_of(store)
    inside.delete_index(engine.path)
    assert file_names.generations(engine.fs, engine.path) == []
    engine.replace_index(engine.wake.generation())
    assert numbers(store) == upto(22)
    assert commits_behind(store) == 0
