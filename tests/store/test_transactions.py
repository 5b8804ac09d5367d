"""Prevents transactions that are done by halves, hold a lock, or work on after their end."""

from __future__ import annotations

from typing import Any

import pytest

from logstore import IDOrderError, OptionError, UsageError
from logstore.api.store import Store
from logstore.options import Sync
from tests.store.conftest import OpenStore
from tests.store.whole_store import everything
from tests.support.inside import FixedClock, delete_index, engine_of, log_bytes


def test_one_commit_over_several_streams(store: Store[bytes], clock: FixedClock) -> None:
    store.stream("a").add_many(((ms, 0), {"n": ms}) for ms in range(1, 13))
    store.stream("gone").add({"a": 1})
    before = store.metrics()["commits"]
    with store.transaction() as tx:
        first = tx.stream("b").add({"x": 1})
        second = tx.stream("b").add({"x": 2})
        deleted = tx.stream("a").delete("3", "4", "77")
        ranged = tx.stream("a").delete_range("5", "(7-0")
        trimmed = tx.stream("a").trim(max_entries=3, approximate=False)
        dropped = tx.drop("gone")
        missing = tx.stream("none").add({"x": 1}, create=False)
    assert store.metrics()["commits"] - before == 1
    assert (first.id, second.id) == ((clock.ms, 0), (clock.ms, 1))
    assert (deleted.result, ranged.result, trimmed.result, dropped.result) == (2, 2, 5, True)
    assert missing.result is None
    assert [entry.id.ms for entry in store.stream("a")] == [10, 11, 12]
    assert store.streams() == [b"a", b"b"]
    everything(store)


def test_each_step_sees_the_ones_before(store: Store[bytes], open_store: OpenStore) -> None:
    """Also nodes that were sealed, opened and deleted from in the same commit."""
    with store.transaction() as tx:
        stream = tx.stream("s")
        added = [stream.add({"n": n, "text": "x" * 50}, id=(n, 0)) for n in range(1, 24)]
        gone = stream.delete("2", "3", "23")
        trimmed = stream.trim(max_entries=15, approximate=False)
        last = stream.add({"n": 24}, id="24-*")
        again = stream.delete((24, 0))
        tx.stream("big").add({"v": b"v" * 100_000}, id="1-0")
        big = tx.stream("big").delete("1-0")
    assert [one.id.ms for one in added] == list(range(1, 24))
    assert (gone.result, trimmed.result, last.id, again.result) == (3, 5, (24, 0), 1)
    assert big.result == 1
    before = everything(store)
    assert [id.ms for id, _ in before[b"s"][1]] == list(range(8, 23))
    store.close()
    delete_index(store.path)
    assert everything(open_store()) == before


def test_a_refused_step_takes_all_back(store: Store[bytes]) -> None:
    store.stream("a").add({"n": 1}, id="5-0")
    before, size = everything(store), log_bytes(store.path)
    tx = store.transaction()
    first = tx.stream("new").add({"x": 1})
    tx.drop("a")
    tx.stream("b").add({"x": 1}, id="9-0")
    tx.stream("b").add({"x": 1}, id="9-0")
    with pytest.raises(IDOrderError):
        tx.commit()
    assert everything(store) == before
    assert log_bytes(store.path) == size
    with pytest.raises(UsageError, match="after the commit"):
        _ = first.id
    assert store.stream("a").add({"n": 2}, id="5-1") == (5, 1)
    assert "new" not in store


def test_an_exception_in_the_block_commits_nothing(store: Store[bytes]) -> None:
    tx = store.transaction()

    def block() -> None:
        with tx:
            tx.stream("a").add({"x": 1})
            raise RuntimeError("the caller's own")

    with pytest.raises(RuntimeError, match="the caller's own"):
        block()
    assert store.streams() == []
    with pytest.raises(UsageError, match="over"):
        tx.stream("a").add({"x": 1})


def test_wrong_arguments_are_refused_where_they_stand(store: Store[bytes]) -> None:
    with store.transaction() as tx:
        stream = tx.stream("a")
        for wrong in (
            lambda: stream.add({}),
            lambda: stream.add({"x": None}),
            lambda: stream.add({"x": 1}, id="0-0"),
            lambda: stream.delete("x"),
            lambda: stream.delete_range("x", "+"),
            stream.trim,
            lambda: tx.stream(5),  # type: ignore[arg-type]
        ):
            with pytest.raises(UsageError):
                wrong()
        stream.add({"fine": 1})
    assert len(store.stream("a")) == 1


def test_no_lock_is_held_while_it_is_collected(store: Store[bytes]) -> None:
    with store.transaction() as tx:
        added = tx.stream("a").add({"x": 1}, id="1-*")
        assert not engine_of(store).lock.held
        store.stream("a").add({"x": 0}, id="1-5")
        with store.transaction() as inner:
            inner.stream("a").add({"x": 2}, id="1-*")
    assert added.id == (1, 7)


def test_after_its_end(store: Store[bytes]) -> None:
    with store.transaction() as tx:
        added = tx.stream("a").add({"x": 1}, id="1-1")
        with pytest.raises(UsageError, match="after the commit"):
            _ = added.result
        tx.commit()
        assert added.id == (1, 1)
        with pytest.raises(UsageError, match="over"):
            tx.drop("a")
    for late in (tx.commit, lambda: tx.stream("a").delete("1-1"), lambda: tx.drop("a")):
        with pytest.raises(UsageError, match="over"):
            late()
    assert len(store.stream("a")) == 1
    with store.transaction() as empty:
        pass
    assert not empty._steps._taken
    with store.transaction() as counted:
        count = counted.stream("a").delete("1-1")
    with pytest.raises(UsageError, match="gives no ID"):
        _ = count.id


@pytest.mark.parametrize("weak", ["os", "everysec"])
def test_a_step_may_ask_for_a_stronger_promise(open_store: OpenStore, weak: Sync) -> None:
    """A step that is weaker than one before takes nothing back."""
    with open_store(sync="os") as store:
        with store.transaction(sync=weak) as tx:
            tx.stream("a").add({"n": 1})
        before = store.durable_upto
        with store.transaction(sync=weak) as tx:
            tx.stream("a").add({"n": 2}, sync="always")
            tx.stream("a").delete("1-1", sync=weak)
        assert store.durable_upto > before
        assert [entry["n"] for entry in store.stream("a")] == [b"1", b"2"]


def test_an_erasure_is_no_step(store: Store[bytes]) -> None:
    """A commit that counts, and then fails to erase, would look as if nothing had happened."""
    secret = store.stream("a").add({"n": "s3cr3t"})
    with store.transaction() as tx:
        with pytest.raises(OptionError, match=r"compact\(purge=True\)"):
            tx.stream("a").delete(secret, purge=True)
        with pytest.raises(OptionError, match="purge"):
            tx.stream("a").delete_range("-", "+", purge=True)
    assert [entry.id for entry in store.stream("a")] == [secret]


def test_a_promise_that_there_is_not_leaves_no_step_behind(store: Store[bytes]) -> None:
    wrong: Any = "bogus"
    with store.transaction() as tx:
        stream = tx.stream("x", codec="json")
        for call in (stream.add, lambda row, **how: stream.add_many([row], **how)):
            with pytest.raises(OptionError, match="sync"):
                call({"a": 1}, sync=wrong)
        with pytest.raises(OptionError, match="sync"):
            stream.schedule({"a": 1}, after=1, sync=wrong)
    assert store.streams() == []


def test_an_option_that_there_is_not_is_refused(store: Store[bytes]) -> None:
    given: Any = {"max_entires": 5}
    with pytest.raises(TypeError, match=r"argument 'max_entires'\. Did you mean 'max_entries'\?$"):
        store.stream("a").add({"n": 1}, **given)
    of_redis: Any = {"minid": "1-1"}
    with pytest.raises(TypeError, match=r"argument 'minid'\. Did you mean 'min_id'\?$"):
        store.stream("a").add({"n": 1}, **of_redis)
    of_nobody: Any = {"qqq": 1}
    with pytest.raises(TypeError, match=r"add\(\) got an unexpected keyword argument 'qqq'$"):
        store.stream("a").add({"n": 1}, **of_nobody)
    with pytest.raises(TypeError, match=r"add_many\(\)"):
        store.stream("a").add_many([{"n": 1}], **given)
    with store.transaction() as tx, pytest.raises(TypeError, match=r"add\(\)"):
        tx.stream("a").add({"n": 1}, **given)
    with pytest.raises(TypeError, match=r"schedule\(\)"):
        store.stream("a").schedule({"n": 1}, after=1, **given)
    coded = store.stream("c", codec="json")
    with pytest.raises(TypeError, match=r"add_many\(\)"):
        coded.add_many([{"n": 1}], **given)
    with pytest.raises(TypeError, match=r"add\(\)"):
        coded.add({"n": 1}, **given)
    assert store.streams() == []
