"""Prevents an index that lags behind plain adds from losing any of them, and from being taken for
what is published: by whatever takes LOCK next, in this process or another, dead or alive.

The index is asked itself here, or after it was built anew from the log: whoever reads the store by
its face sees what is published in any case.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.commit import pipeline, write_back
from logstore.engine.features import setting_changes
from logstore.engine.shm.commit_words import Wake
from logstore.errors import (
    CommittedError,
    CorruptionError,
    DamagedStoreError,
    IDOrderError,
)
from logstore.format import offset_of, segment_of
from logstore.index.txn import IndexTxn
from logstore.log import file_names
from logstore.recovery import compare
from logstore.recovery.check import check
from tests.faults.layer import KINDS, Kind, faulty
from tests.support import inside
from tests.support.processes import Forked, ForkedOnGo

Store = logstore.Store[bytes]
MOST = 8  # commits that the index may be behind


@pytest.fixture(autouse=True)
def _lags(monkeypatch: pytest.MonkeyPatch) -> None:
    inside.let_lag(monkeypatch, MOST)


def _open(path: Path, **options: Any) -> Store:
    return logstore.open(path, encoding=None, background=False, **options)


def _add(store: Store, n: int, name: str = "a") -> None:
    store.stream(name).add({b"n": b"%d" % n})


def _all(store: Store, name: str = "a") -> list[int]:
    """What the index has, once it has followed."""
    _locked(store)
    return [int(entry.fields[b"n"]) for entry in store.stream(name)]


def _behind(store: Store) -> bool:
    """Whether LMDB lacks what is published; WAKE never says that it has more than it has."""
    wake = inside.engine_of(store).wake
    assert wake.indexed_upto <= inside.indexed(store) <= wake.applied
    return inside.indexed(store) < wake.applied


def _commits_behind(store: Store) -> int:
    engine = inside.engine_of(store)
    with engine.index().env.begin() as txn:
        return engine.wake.log().commit - IndexTxn(engine.index(), txn).meta().commit


@contextmanager
def _lagging(path: Path, count: int = 5, **options: Any) -> Iterator[Store]:
    """A store whose stream ``a`` has entries 0 to ``count``, all but the first not in the index."""
    with _open(path, **options) as store:
        store.stream("b").add_many([{b"n": b"%d" % n} for n in range(300)])
        store.stream("b").group("g").create("0")
        for n in range(count + 1):
            _add(store, n)
        assert _behind(store) == (count > 0)
        yield store


def _rebuilt(path: Path) -> Store:
    inside.delete_index(path)
    return _open(path)


def _is_whole(path: Path, expected: list[int]) -> None:
    """Closed and cleanly so; what the index has is what the log gives."""
    found = check(path)
    assert found.as_dict()["clean"], found
    assert found.index == compare.AGREES
    with _open(path) as store:
        assert store.recovery["index_trusted"]
        assert _all(store) == expected
    with _rebuilt(path) as store:
        assert _all(store) == expected


# -- how far it lags ------------------------------------------------------------------------------
def test_the_index_lags_so_many_commits_and_no_more(tmp_path: Path) -> None:
    with _lagging(tmp_path / "s", 0) as store:
        lag = []
        for n in range(1, 4 * MOST + 1):
            _add(store, n)
            assert _behind(store)
            lag.append(_commits_behind(store))
        assert lag == list(range(1, MOST + 1)) * 4
    _is_whole(tmp_path / "s", list(range(n + 1)))


def test_the_index_lags_so_many_bytes_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.let_lag(monkeypatch, 1000, 1000)
    with _lagging(tmp_path / "s", 0) as store:
        wake = inside.engine_of(store).wake
        most = 0
        for n in range(1, 100):
            _add(store, n)
            most = max(most, wake.applied - inside.indexed(store))
        assert 800 < most <= 1000
        store.stream("a").add({b"n": b"100", b"pad": bytes(1000)})
        assert not _behind(store)
    _is_whole(tmp_path / "s", list(range(101)))


def test_a_batch_of_several_threads_is_one_commit(tmp_path: Path) -> None:
    """Of adds to several streams; one that is refused leaves the others as they are."""
    with _lagging(tmp_path / "s") as store:
        with store.transaction() as tx:
            tx.stream("a").add({b"n": b"6"})
            tx.stream("a").add({b"n": b"7"})
        assert _behind(store)
        with pytest.raises(IDOrderError):
            store.stream("a").add({b"n": b"8"}, id="1-1")
        assert _behind(store)
        _add(store, 8)
        assert _behind(store)
    _is_whole(tmp_path / "s", list(range(9)))


def test_reads_do_not_write_the_lagging_index(tmp_path: Path) -> None:
    with _lagging(tmp_path / "s") as store:
        assert store.stream("a").delete("1-1") == 0
        assert not store.drop("none")
        assert _behind(store)
        _add(store, 6)
    _is_whole(tmp_path / "s", list(range(7)))


# -- whatever takes LOCK next ---------------------------------------------------------------------
def _first(store: Store) -> Any:
    first = store.stream("a").first
    assert first is not None
    return first.id


NEXT: dict[str, tuple[Callable[[Store, Path], object], list[int]]] = {
    "delete": (lambda store, _: store.stream("a").delete(_first(store)), [1, 2, 3, 4, 5]),
    "delete of another stream": (
        lambda store, _: store.stream("b").delete_range("-", "+"), [0, 1, 2, 3, 4, 5],
    ),
    "trim": (lambda store, _: store.stream("a").trim(max_entries=2, approximate=False), [4, 5]),
    "create": (lambda store, _: store.create("new"), [0, 1, 2, 3, 4, 5]),
    "add to a new stream": (lambda store, _: _add(store, 1, "new"), [0, 1, 2, 3, 4, 5]),
    "full node": (
        lambda store, _: store.stream("a").add_many([{b"n": b"%d" % n} for n in range(6, 306)]),
        list(range(306)),
    ),
    "large entry": (
        lambda store, _: store.stream("a").add({b"n": b"6", b"pad": bytes(100_000)}),
        list(range(7)),
    ),
    "group": (lambda store, _: store.stream("a").group("g").create("0"), [0, 1, 2, 3, 4, 5]),
    "group read": (
        lambda store, _: store.stream("b").group("g").read("c", count=3), [0, 1, 2, 3, 4, 5],
    ),
    "rename": (
        lambda store, _: (store.rename("a", "c"), store.rename("c", "a")), [0, 1, 2, 3, 4, 5],
    ),
    "copy": (lambda store, _: store.copy("a", "copy"), [0, 1, 2, 3, 4, 5]),
    "drop of another": (lambda store, _: store.drop("b"), [0, 1, 2, 3, 4, 5]),
    "drop": (lambda store, _: store.drop("a"), []),
    "dump and restore": (
        lambda store, _: store.restore("copy", store.stream("a").dump()), [0, 1, 2, 3, 4, 5],
    ),
    "configure": (
        lambda store, _: store.stream("a").configure(max_entries=1000), [0, 1, 2, 3, 4, 5],
    ),
    "expire": (lambda store, _: store.stream("a").expire(after=1000), [0, 1, 2, 3, 4, 5]),
    "schedule": (
        lambda store, _: store.stream("a").schedule({b"n": b"9"}, after=1000), [0, 1, 2, 3, 4, 5],
    ),
    "set_id": (lambda store, _: store.stream("a").set_id("9999999999999-0"), [0, 1, 2, 3, 4, 5]),
    "idempotent add": (
        lambda store, _: store.stream("a").add({b"n": b"6"}, producer="p", idempotent_id="1"),
        list(range(7)),
    ),
    "checkpoint": (lambda store, _: store.checkpoint(), [0, 1, 2, 3, 4, 5]),
    "compact": (lambda store, _: store.compact(), [0, 1, 2, 3, 4, 5]),
    "purge": (lambda store, _: store.compact(purge=True), [0, 1, 2, 3, 4, 5]),
    "roll": (lambda store, _: inside.roll(store), [0, 1, 2, 3, 4, 5]),
    "work under LOCK": (lambda store, _: _locked(store), [0, 1, 2, 3, 4, 5]),
    "limits of nodes": (
        lambda store, _: setting_changes.limit_nodes(
            inside.engine_of(store), inside.committer_of(store), {"node_max_entries": 50}
        ),
        [0, 1, 2, 3, 4, 5],
    ),
    "index copied": (lambda store, _: _copy_index(store), [0, 1, 2, 3, 4, 5]),
}  # fmt: skip


def _locked(store: Store) -> None:
    with inside.committer_of(store).locked() as words:
        assert inside.indexed(store) == words.applied


def _copy_index(store: Store) -> None:
    engine = inside.engine_of(store)
    with inside.committer_of(store).locked():
        engine.rebuild_locked(engine.copy_index)


@pytest.mark.parametrize("name", NEXT)
@pytest.mark.parametrize("cached", [True, False], ids=["from memory", "from the log"])
def test_the_index_follows_before_anything_else_happens(
    tmp_path: Path, name: str, cached: bool
) -> None:
    path, (work, expected) = tmp_path / "s", NEXT[name]
    with _lagging(path) as store:
        if not cached:
            inside.engine_of(store).cache.clear()
        work(store, path)
        assert not _behind(store)
        assert _all(store) == expected
        if expected:
            _add(store, 400)
            _add(store, 401)
            expected = [*expected, 400, 401]
    _is_whole(path, expected)


def test_a_killed_process_leaves_what_the_next_opener_takes_in(tmp_path: Path) -> None:
    path = tmp_path / "s"

    def work() -> None:
        with _lagging(path):
            os.kill(os.getpid(), signal.SIGKILL)

    child = Forked(work)
    os.waitpid(child.pid, 0)
    with _open(path) as store:
        assert not _behind(store)
        assert _all(store) == [0, 1, 2, 3, 4, 5]
    _is_whole(path, [0, 1, 2, 3, 4, 5])


def test_an_index_that_was_deleted_meanwhile_takes_nothing_along(tmp_path: Path) -> None:
    with _lagging(tmp_path / "s") as store:
        inside.delete_index(tmp_path / "s")
        store.stream("c").add({b"n": b"1"})
        _add(store, 6)
    with _open(tmp_path / "s") as store:
        assert store.recovery["rebuilt"]
        assert _all(store) == list(range(7))
    _is_whole(tmp_path / "s", list(range(7)))


def test_a_backup_has_it(tmp_path: Path) -> None:
    with _lagging(tmp_path / "s") as store:
        store.backup(tmp_path / "copy")
    with _open(tmp_path / "copy") as store:
        assert _all(store) == [0, 1, 2, 3, 4, 5]


# -- checkpoints ----------------------------------------------------------------------------------
def test_a_checkpoint_loses_nothing_that_the_index_lacked(tmp_path: Path) -> None:
    """What stands before its position is not replayed, so its rows must have all of that."""
    path = tmp_path / "s"
    with _lagging(path) as store:
        store.checkpoint()
        for n in range(6, 9):
            _add(store, n)
        store.checkpoint()
        _add(store, 9)
    with _rebuilt(path) as store:
        assert store.recovery["rebuilt"]
        assert _all(store) == list(range(10))
        assert store.stream("a").info().entries_added == 10


def test_no_checkpoint_is_taken_of_an_index_that_lags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most dangerous place: it would say that it stands for adds that it has not got."""
    path = tmp_path / "s"
    with _lagging(path) as store:
        with monkeypatch.context() as broken:
            broken.setattr(write_back, "follow_locked", lambda _, words: words)
            with pytest.raises(CorruptionError, match="no checkpoint is taken"):
                store.checkpoint()
            assert not file_names.checkpoints(inside.engine_of(store).fs, path)
        store.checkpoint()
    _is_whole(path, [0, 1, 2, 3, 4, 5])


# -- two processes --------------------------------------------------------------------------------
def _lmdb_commits(store: Store) -> int:
    return int(inside.engine_of(store).index().env.info()["last_txnid"])


def test_two_processes_in_turn_add_without_the_index(tmp_path: Path) -> None:
    """Each takes from the log what the other added: LMDB is needed no more often than by one."""
    path, rounds = tmp_path / "s", 40
    to_child, to_parent = os.pipe(), os.pipe()

    def child() -> None:
        with _open(path) as other:
            for turn in range(rounds):
                os.read(to_child[0], 1)
                _add(other, 2 * turn + 1)
                os.write(to_parent[1], b"x")
            os.read(to_child[0], 1)
            assert _all(other) == list(range(-1, 2 * rounds))

    with ForkedOnGo(child) as other:
        with _open(path) as store:
            _add(store, -1)
            os.write(other._go, b"x")
            _turns(store, rounds, to_child[1], to_parent[0])
        os.close(other._go)
    _is_whole(path, list(range(-1, 2 * rounds)))


def _turns(store: Store, rounds: int, tell: int, hear: int) -> None:
    before = 0
    for turn in range(rounds):
        _add(store, 2 * turn)
        os.write(tell, b"x")
        os.read(hear, 1)
        if turn == 1:
            before = _lmdb_commits(store)
    assert _lmdb_commits(store) - before <= 2 * rounds / MOST + 2
    os.write(tell, b"x")


def test_deletes_of_another_process_are_followed(tmp_path: Path) -> None:
    """A cache that took in the adds alone would bring back what the other one deleted."""
    path = tmp_path / "s"

    def others() -> None:
        with _open(path) as other:
            _locked(other)
            stream = other.stream("a")
            stream.delete(*[entry.id for entry in stream][:2])
            stream.group("g").create("0")
            _add(other, 100)
            _add(other, 101)

    with ForkedOnGo(others) as other, _lagging(path) as store:
        os.write(other._go, b"x")
        os.close(other._go)
        other.join()
        _add(store, 102)
        assert _all(store) == [2, 3, 4, 5, 100, 101, 102]
        assert [each.name for each in store.stream("a").groups()] == [b"g"]
        other.join = lambda: None  # type: ignore[method-assign]
    _is_whole(path, [2, 3, 4, 5, 100, 101, 102])


# -- who dies, and what is synced ------------------------------------------------------------------
@contextmanager
def _syncs(store: Store) -> Iterator[list[int]]:
    engine, counted = inside.engine_of(store), [0]
    before = store.metrics()["syncs"]
    yield counted
    assert inside.engine_of(store) is engine
    counted[0] = store.metrics()["syncs"] - before


@pytest.mark.parametrize("cached", [True, False], ids=["from memory", "from the log"])
def test_following_the_log_does_not_sync(tmp_path: Path, cached: bool) -> None:
    """What is published keeps the promise that it had: a sync each time would be one a turn."""
    with _lagging(tmp_path / "s", sync="os") as store:
        durable = store.durable_upto
        if not cached:
            inside.engine_of(store).cache.clear()
        with _syncs(store) as counted:
            _locked(store)
            store.stream("a").delete("1-1")
        assert counted == [0]
        assert store.durable_upto == durable


@pytest.mark.parametrize("point", ["announced", "appended", "promised", "published"])
def test_a_writer_dies_at_any_step_of_a_plain_commit(tmp_path: Path, point: str) -> None:
    """Its complete commit is synced, with all that lagged behind it, and counts once."""
    path = tmp_path / "s"

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        with _open(path) as other:
            _add(other, 6)  # which it must look up in the index
            _add(other, 7)
            assert _behind(other)
            engine = inside.engine_of(other)
            if point == "announced":
                file = engine.active_file(engine.wake.log().active_segment)
                file.pwrite = die  # type: ignore[method-assign]
            elif point == "appended":
                pipeline._keep_promise = die
            elif point == "promised":
                Wake.publish = die  # type: ignore[method-assign]
            else:
                pipeline.Batch.over = property(lambda _: False, die)  # type: ignore[assignment]
            _add(other, 8)

    with ForkedOnGo(work) as other, _lagging(path, sync="os") as store:
        os.write(other._go, b"x")
        os.close(other._go)
        assert os.waitstatus_to_exitcode(os.waitpid(other.pid, 0)[1]) == -signal.SIGKILL
        other.join = lambda: None  # type: ignore[method-assign]
        wake = inside.engine_of(store).wake
        assert bool(wake.in_progress) == (point != "published")
        assert _behind(store)
        with _syncs(store) as counted:
            _locked(store)
        assert counted == [0 if point == "published" else 1]
        assert not _behind(store)
        expected = [0, 1, 2, 3, 4, 5, 6, 7, 8][: 8 if point == "announced" else 9]
        _add(store, 9)
        assert _all(store) == [*expected, 9]
    _is_whole(path, [*expected, 9])


def test_an_interrupted_plain_add_counts_as_the_log_says(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with _lagging(tmp_path / "s") as store:
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(pipeline, "_keep_promise", interrupt)
            with pytest.raises(logstore.CommittedInterrupt):
                _add(store, 6)
        assert not _behind(store)
        _add(store, 7)
        assert _all(store) == [0, 1, 2, 3, 4, 5, 6, 7]
    _is_whole(tmp_path / "s", list(range(8)))


# -- errors ---------------------------------------------------------------------------------------
def test_a_damaged_tail_is_told_and_not_cut(tmp_path: Path) -> None:
    """A bit that flips in what is published is damage, never the torn tail of a dead writer."""
    path = tmp_path / "s"
    with _lagging(path) as store:
        engine = inside.engine_of(store)
        at = inside.indexed(store)
        engine.cache.clear()
        file = file_names.segment(path, segment_of(at))
        before = bytearray(file.read_bytes())
        damaged = before[:]
        damaged[offset_of(at) + 60] ^= 1
        file.write_bytes(damaged)
        for work in (lambda: _add(store, 6), lambda: _locked(store), lambda: inside.roll(store)):
            with pytest.raises(DamagedStoreError, match="damaged before its durable end"):
                work()
            assert file.read_bytes() == damaged
            assert not (path / file_names.QUARANTINE).exists() or not any(
                (path / file_names.QUARANTINE).iterdir()
            )
        file.write_bytes(before)
        _add(store, 6)
        assert _all(store) == [0, 1, 2, 3, 4, 5, 6]
    _is_whole(path, list(range(7)))


@pytest.mark.parametrize("what", ["index: begin", "index: put", "index: commit"])
def test_adds_that_were_told_are_never_told_as_failed(tmp_path: Path, what: str) -> None:
    """The index can take nothing for a while: plain adds go on up to the bound, then the next
    operation is refused before it appends anything, and nothing is lost when it can again."""
    path = tmp_path / "s"
    fails = [False]

    def fault(met: str, where: object) -> Kind | None:
        return KINDS[what][-1] if fails[0] and met == what else None

    with faulty() as faults, _open(path, sync="os") as store:
        faults.fault = fault  # type: ignore[method-assign]
        faults.counting = True
        for n in range(2):
            _add(store, n)
        fails[0] = True
        told, refused = [0, 1], list[logstore.Error]()
        for n in range(2, 3 * MOST):
            size = inside.log_bytes(path)
            try:
                _add(store, n)
                told.append(n)
            except logstore.FileSystemError as exc:
                refused.append(exc)
                assert inside.log_bytes(path) == size
        assert len(told) >= MOST
        assert refused
        assert not any(isinstance(error, CommittedError) for error in refused)
        with suppress(logstore.Error):
            store.checkpoint()
        assert not file_names.checkpoints(inside.engine_of(store).fs, path)
        fails[0] = False
        _add(store, 1000)
        found = _all(store)
        assert [n for n in found if n in told] == told
        assert found[-1] == 1000
    _is_whole(path, found)


def test_a_refused_append_needs_no_index_to_be_taken_back(tmp_path: Path) -> None:
    """On a full disk: nothing happened, and to know that nothing must be written."""
    path = tmp_path / "s"
    fails: list[str] = []

    def fault(met: str, where: object) -> Kind | None:
        return KINDS[met][0] if met in fails else None

    with faulty() as faults, _open(path, sync="os") as store:
        faults.fault = fault  # type: ignore[method-assign]
        faults.counting = True
        for n in range(4):
            _add(store, n)
        fails += ["write", "index: begin", "index: put", "index: commit"]
        with pytest.raises(logstore.FileSystemError) as told:
            _add(store, 4)
        assert not isinstance(told.value, logstore.CommittedError)
        assert not inside.engine_of(store).wake.in_progress
        fails.clear()
        _add(store, 5)
        assert _all(store) == [0, 1, 2, 3, 5]
    _is_whole(path, [0, 1, 2, 3, 5])
