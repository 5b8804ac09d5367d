"""Prevents an entry that is handled twice because a worker that stalled did not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from tests.groups.shop import numbers, shop
from tests.support.inside import log_bytes


def test_a_stalled_worker_leaves_nothing(tmp_path: Path) -> None:
    """It reads, stalls, another claims; both commit add and ack: exactly one output."""
    with shop(tmp_path, 1) as (store, group, clock):
        out = store.stream("out")
        stalled = group.read("alice")[0]
        clock.ms += 60_000
        taken = group.claim("bob", "1-0", min_idle=30)[0]
        with store.transaction() as tx:
            tx.stream("out").add({"by": "bob"})
            acked = tx.ack(taken)
        assert acked.result == 1
        assert taken.settled
        before = log_bytes(store.path)
        with pytest.raises(logstore.NotOwnerError, match="1-0"), store.transaction() as tx:  # noqa: PT012
            tx.stream("out").add({"by": "alice"})
            tx.stream("new").add({"by": "alice"})
            tx.ack(stalled)
        assert log_bytes(store.path) == before
        assert [entry.fields for entry in out] == [{"by": "bob"}]
        assert store.streams() == ["out", "work"]
        assert not stalled.settled
        assert group.pending().count == 0


def test_the_stalled_one_commits_first(tmp_path: Path) -> None:
    """The other order: who claimed owns it already, whether it is done or not."""
    with shop(tmp_path, 1) as (store, group, clock):
        stalled = group.read("alice")[0]
        clock.ms += 60_000
        taken = group.autoclaim("bob", min_idle=30).entries[0]
        with pytest.raises(logstore.NotOwnerError), store.transaction() as tx:  # noqa: PT012
            tx.ack(stalled)
            tx.stream("out").add({"by": "alice"})
        with store.transaction() as tx:
            tx.stream("out").add({"by": "bob"})
            tx.ack(taken)
        assert [entry.fields for entry in store.stream("out")] == [{"by": "bob"}]


@pytest.mark.parametrize("how", ["again", "back", "own claim", "acked", "removed", "destroyed"])
def test_what_changed_since_is_noticed(tmp_path: Path, how: str) -> None:
    with shop(tmp_path, 2) as (store, group, clock):
        one, two = group.read("alice")
        clock.ms += 1
        changes = {
            "again": lambda: group.backlog("alice"),
            "back": two.nack,
            "own claim": lambda: group.claim("alice", "2-0", min_idle=0, just_id=True),
            "acked": two.ack,
            "removed": lambda: group.remove_consumer("alice"),
            "destroyed": group.destroy,
        }
        changes[how]()
        with pytest.raises(logstore.NotOwnerError), store.transaction() as tx:  # noqa: PT012
            tx.stream("out").add({"n": "1"})
            tx.ack(one, two)
        assert "out" not in store
        if how in {"back", "acked"}:  # the other one is as it was
            assert numbers(group.pending_entries(consumer="alice")) == [1]


def test_one_delivery_is_not_acked_twice(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, _):
        found = group.read("alice")[0]
        with pytest.raises(logstore.NotOwnerError), store.transaction() as tx:  # noqa: PT012
            tx.ack(found)
            tx.ack(found)
        assert group.pending().count == 1


def test_noack_deliveries_are_nobodys(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, _):
        found = group.read("alice", noack=True)[0]
        with pytest.raises(logstore.NotOwnerError), store.transaction() as tx:
            tx.ack(found)


def test_an_exception_in_the_block_acks_nothing(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, _):
        found = group.read("alice")[0]
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:  # noqa: PT012
            tx.ack(found)
            1 / 0  # noqa: B018
        assert group.pending().count == 1
        assert not found.settled


def test_a_delivery_of_another_store_is_refused(tmp_path: Path) -> None:
    with (
        shop(tmp_path / "a", 1) as (_, group, _),
        shop(tmp_path / "b", 1) as (other, _, _),
    ):
        with pytest.raises(logstore.UsageError, match="another store"), other.transaction() as tx:
            tx.ack(group.read("alice")[0])
        assert group.pending().count == 1
