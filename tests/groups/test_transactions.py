"""Prevents changes and acks of groups in a transaction that are done by halves, or twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import DeleteOutcome
from tests.crash import steps
from tests.crash.steps import CommitStep
from tests.groups.shop import numbers, shop
from tests.support.inside import delete_index, log_bytes
from tests.support.processes import killed


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
def test_changes_since_the_delivery_fail_the_fenced_ack(tmp_path: Path, how: str) -> None:
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


def everything(store: logstore.Store[Any]) -> Any:
    """All that can be seen of streams and groups, without settings of the moment."""
    return [
        (
            name, [(entry.id, entry.pairs) for entry in store.stream(name)],
            store.stream(name).last_id,
            [
                (
                    info.as_dict(), group.consumers(),
                    [each.as_dict() for each in group.pending_entries()],
                )
                for info in store.stream(name).groups()
                for group in [store.stream(name).group(info.name)]
            ],
        )
        for name in store.streams()
    ]  # fmt: skip


def prepared(store: logstore.Store[Any], group: logstore.Group[Any]) -> None:
    group.read("alice", count=6)
    group.nack("6-0")
    group.stream.group("old", start="0").read("zoe")


STEPS: list[tuple[str, Callable[[Any], Any]]] = [
    ("create", lambda on: on("work").group("new").create("3-0", entries_read=3)),
    ("set_id", lambda on: on("work").group("new").set_id("$")),
    ("create_with_stream", lambda on: on("fresh").group("g").create()),
    ("add_consumer", lambda on: on("work").group("g").add_consumer("bob")),
    ("add_consumer_again", lambda on: on("work").group("g").add_consumer("bob")),
    ("ack", lambda on: on("work").group("g").ack("1-0", "77-0")),
    ("nack", lambda on: on("work").group("g").nack("2-0", "77-0", mode="silent")),
    ("force", lambda on: on("work").group("g").nack("8-0", retry_count=4, force=True)),
    ("ack_delete", lambda on: on("work").group("g").ack_delete("3-0", references="acked")),
    ("delete_each", lambda on: on("work").delete_each("4-0", "77-0", references="delete")),
    ("remove_consumer", lambda on: on("work").group("g").remove_consumer("alice")),
    ("destroy", lambda on: on("work").group("old").destroy()),
    ("destroy_again", lambda on: on("work").group("old").destroy()),
    ("add_many", lambda on: on("work").add_many([{"n": "1"}] * 2500, max_entries=2000)),
    ("stream_id", lambda on: on("work").set_id("99999999999999-0")),
    ("delete", lambda on: on("work").delete("7-0")),
]


def test_a_transaction_does_what_calls_outside_do(tmp_path: Path) -> None:
    """The same results and the same store; also when its index was built anew."""
    with (
        shop(tmp_path / "calls", 10) as (outside, group, _),
        shop(tmp_path / "tx", 10) as (inside, same, _),
    ):
        prepared(outside, group)
        prepared(inside, same)
        before, untouched = inside.metrics()["commits"], everything(inside)
        with inside.transaction() as tx:
            handles = [(name, step(tx.stream)) for name, step in STEPS]
            assert everything(inside) == untouched  # nothing happens before the end
        assert inside.metrics()["commits"] - before == 1
        for (name, handle), (_, step) in zip(handles, STEPS, strict=True):
            told = step(outside.stream)
            same_ids = name == "add_many" and list(handle.result) == list(told)
            assert same_ids or handle.result == told, name
        found = everything(inside)
        assert found == everything(outside)
    delete_index(tmp_path / "tx" / "store")
    with shop(tmp_path / "tx") as (inside, _, _):
        assert everything(inside) == found


def test_a_claim_is_known_after_the_commit(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (store, group, clock):
        group.read("alice")
        clock.ms += 60_000
        with store.transaction() as tx:
            taken = tx.stream("work").group("g").claim("bob", "1-0", "2-0", "9-0", min_idle=30)
            tx.stream("audit").add({"who": "bob"})
            with pytest.raises(logstore.UsageError):
                _ = taken.result
        one, two = taken.result
        assert (one.consumer, one.delivery_count, one.fields) == ("bob", 2, {"n": "1"})
        assert one.ack()
        with store.transaction() as tx:  # what was claimed is owned: the fence holds
            tx.ack(two)
        assert numbers(group.pending_entries()) == [3]


def test_a_nack_is_fenced(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (store, group, clock):
        one, two, three = group.read("alice")
        with store.transaction() as tx:
            back = tx.nack(one, mode="silent")
            done = tx.ack(two)
        assert (back.result, done.result) == (1, 1)
        assert one.settled
        assert [(each.id.ms, each.consumer, each.delivery_count)
                for each in group.pending_entries()] == [(1, None, 0), (3, "alice", 1)]  # fmt: skip
        clock.ms += 60_000
        group.claim("bob", "3-0", min_idle=30)
        before = log_bytes(store.path)
        with pytest.raises(logstore.NotOwnerError, match="3-0"), store.transaction() as tx:  # noqa: PT012
            tx.stream("out").add({"a": "1"})
            tx.nack(three, retry_count=9)
        assert log_bytes(store.path) == before
        assert not three.settled
        assert "out" not in store


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda tx: tx.stream("work").group("g").create(), logstore.GroupExistsError),
        (lambda tx: tx.stream("work").group("x").set_id("0"), logstore.GroupNotFoundError),
        (lambda tx: tx.stream("x").group("x").destroy(), logstore.StreamNotFoundError),
        (lambda tx: tx.stream("x").group("g").nack("1-0"), logstore.GroupNotFoundError),
        (lambda tx: tx.stream("work").set_id("1-0"), logstore.UsageError),
    ],
)
def test_a_refused_step_takes_all_back(tmp_path: Path, refused: Any, error: Any) -> None:
    """It is told at the end, and nothing of the steps before it stays."""
    with shop(tmp_path, 4) as (store, group, _):
        prepared(store, group)
        before, size = everything(store), log_bytes(store.path)
        tx = store.transaction()
        tx.stream("work").group("g").ack("1-0")
        tx.stream("work").group("g").remove_consumer("alice")
        tx.stream("work").group("old").destroy()
        tx.create("made")
        refused(tx)
        with pytest.raises(error):
            tx.commit()
        assert (everything(store), log_bytes(store.path)) == (before, size)
        group.ack("1-0")  # and the store goes on
        assert numbers(group.pending_entries())[0] == 2


def test_bad_arguments_are_refused_at_the_call(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, _):
        found = group.read("alice")
        with store.transaction() as tx:
            inside = tx.stream("work").group("g")
            for call in (
                lambda: inside.nack("1-0", mode="never"),
                lambda: inside.ack_delete("1-0", references="all"),
                lambda: inside.claim("bob", "1-0", min_idle=-1),
                lambda: inside.add_consumer(""),
                lambda: tx.nack(found[0], mode="never"),
                lambda: tx.stream("work").trim(max_entries=-1, approximate=False),
            ):
                with pytest.raises(logstore.OptionError):
                    call()
            assert not hasattr(inside, "read")
        with pytest.raises(logstore.UsageError, match="over"):
            inside.ack("1-0")
        assert group.pending().count == 2
        assert not found[0].settled


def test_outcomes_have_names(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, _):
        group.read("alice", count=1)
        with store.transaction() as tx:
            told = tx.stream("work").group("g").ack_delete("1-0", "2-0")
        assert told.result == [DeleteOutcome.DELETED, DeleteOutcome.MISSING]


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize(
    "step",
    [
        CommitStep.HALF_APPENDED,
        CommitStep.APPENDED,
        CommitStep.INDEXING,
        CommitStep.INDEXED,
        CommitStep.PUBLISHED,
    ],
)
def test_a_kill_leaves_all_or_nothing(tmp_path: Path, step: CommitStep, rebuilt: bool) -> None:
    """At each step of the commit; the next one to open finds the whole of it, or nothing."""
    with shop(tmp_path, 10) as (store, group, _):
        prepared(store, group)
        before = everything(store)
        store.checkpoint()
    killed(lambda: _commit_and_die_at(step, tmp_path))
    if rebuilt:
        delete_index(tmp_path / "store")
    with shop(tmp_path) as (store, _, _):
        found = everything(store)
    with shop(tmp_path / "whole", 10) as (store, group, _):
        prepared(store, group)
        with store.transaction() as tx:
            for _, each in STEPS:
                each(tx.stream)
        after = everything(store)
    assert found == (before if step == CommitStep.HALF_APPENDED else after)


def _commit_and_die_at(target: CommitStep, path: Path) -> None:
    watch = steps.watch(path / "step", 0, CommitStep.OUTSIDE)
    with shop(path) as (store, _, _):
        watch.die_at(target)
        with store.transaction() as tx:
            for _, each in STEPS:
                each(tx.stream)
