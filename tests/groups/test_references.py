"""Prevents deletes and trims that forget what groups hold, or leave an empty node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import DeleteOutcome
from tests.groups.shop import numbers, shop
from tests.support.inside import delete_index

DELETED, MISSING, KEPT = DeleteOutcome.DELETED, DeleteOutcome.MISSING, DeleteOutcome.KEPT


def two_groups(store: logstore.Store[Any], group: logstore.Group[Any]) -> logstore.Group[Any]:
    """Of five entries "g" read four and acked 1 and 2; "h" read and acked 1 to 3."""
    other = group.stream.group("h", start="0")
    group.read("alice", count=4)
    group.ack("1-0", "2-0")
    other.read("bob", count=3, noack=True)
    return other


def test_a_delete_tells_of_each_id(tmp_path: Path) -> None:
    with shop(tmp_path, 5) as (store, group, _):
        two_groups(store, group)
        work = store.stream("work")
        told = work.delete_each("1-0", "3-0", "4-0", "9-0", "1-0", references="acked")
        assert told == [DELETED, KEPT, KEPT, KEPT, MISSING]
        assert numbers(work) == [2, 3, 4, 5]
        assert work.delete("2-0", "3-0", references="acked") == 1
        assert work.delete_each("3-0", "3-0") == [DELETED, MISSING]
        assert numbers(group.pending_entries()) == [3, 4]
        assert work.delete("3-0", "4-0", references="delete") == 1
        assert numbers(group.pending_entries()) == []
        assert numbers(work) == [5]
        assert work.delete_each() == []
        assert store.stream("none").delete_each("1-0", references="acked") == [MISSING]


@pytest.mark.parametrize("where", ["trim", "add", "add_many", "transaction"])
@pytest.mark.parametrize(
    ("mode", "left", "pending"),
    [("keep", [9], [3, 4]), ("delete", [9], []), ("acked", [3, 4, 5, 9], [3, 4])],
)
def test_trims_heed_references(
    tmp_path: Path, where: str, mode: Any, left: list[int], pending: list[int]
) -> None:
    with shop(tmp_path, 5) as (store, group, _):
        two_groups(store, group)
        work = store.stream("work")
        rule = {"max_entries": 1, "approximate": False, "references": mode}
        if where == "trim":
            work.add({"n": "9"}, id="9-0")
            work.trim(**rule)
        elif where == "add":
            work.add({"n": "9"}, id="9-0", **rule)
        elif where == "add_many":
            work.add_many([("9-0", {"n": "9"})], **rule)
        else:
            with store.transaction() as tx:
                tx.stream("work").add({"n": "9"}, id="9-0", **rule)
        assert numbers(work) == left
        assert numbers(group.pending_entries()) == pending
    delete_index(tmp_path / "store")
    with shop(tmp_path) as (store, group, _):
        assert numbers(store.stream("work")) == left
        assert numbers(group.pending_entries()) == pending


def test_outcomes_of_an_ack_that_deletes(tmp_path: Path) -> None:
    with shop(tmp_path, 5) as (store, group, _):
        two_groups(store, group)
        assert group.ack_delete("1-0", "4-0", "3-0", references="acked") == [MISSING, KEPT, DELETED]


def test_invalid_references_are_refused(tmp_path: Path) -> None:
    bad: Any = "all"
    with shop(tmp_path, 2) as (store, _, _):
        work = store.stream("work")
        before = store.metrics()["commits"]
        with store.transaction() as tx:
            for call in (
                lambda: work.delete("1-0", references=bad),
                lambda: work.delete_each("1-0", references=bad),
                lambda: work.trim(max_entries=0, references=bad, approximate=False),
                lambda: work.add({"a": "1"}, references="acked"),  # there is nothing to trim
                lambda: work.add_many([{"a": "1"}], max_entries=1, references=bad),
                lambda: tx.stream("work").delete("1-0", references=bad),
                lambda: tx.stream("work").delete_each("1-0", references=bad),
                lambda: tx.stream("work").trim(max_entries=0, references=bad, approximate=False),
            ):
                with pytest.raises(logstore.OptionError, match="references"):
                    call()
        assert store.metrics()["commits"] == before
        assert len(work) == 2


def test_a_gone_entry_between_live_ones_hides_no_node_that_got_empty(tmp_path: Path) -> None:
    """The peers take the node away, and so do we."""
    with logstore.open(tmp_path / "store", background=False) as store:
        stream = store.stream("s")
        for number in range(1, 5):
            stream.add({"a": "1"}, id=f"{number}-0")
        stream.delete("2-0")
        assert stream.delete("1-0", "2-0", "3-0", "4-0") == 3
        assert stream.info().radix_tree_keys == 0
