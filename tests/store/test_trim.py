"""Prevents a trim by another clock or unit, or with all nodes in memory."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import OptionError
from logstore.api.store import Store
from logstore.recovery.check import check
from tests.store.whole_store import everything
from tests.support.inside import FixedClock


@pytest.fixture
def hourly(store: Store[bytes], clock: FixedClock) -> Store[bytes]:
    """Ten entries of the last ten hours, the newest of now."""
    now = clock.ms
    store.stream("s").add_many(
        ((now - ago * 3_600_000, 0), {"ago": ago}) for ago in range(9, -1, -1)
    )
    return store


def ages(store: Store[bytes]) -> list[int]:
    """How many hours old the entries are."""
    return [int(entry.fields["ago"]) for entry in store.stream("s")]


@pytest.mark.parametrize("age", [timedelta(hours=3), 3 * 3600, 3 * 3600.0])
def test_a_trim_keeps_entries_of_exactly_that_age(hourly: Store[bytes], age: Any) -> None:
    assert hourly.stream("s").trim(max_age=age, approximate=False) == 6
    assert ages(hourly) == [3, 2, 1, 0]
    everything(hourly)


def test_the_clock_of_the_store_counts(hourly: Store[bytes], clock: FixedClock) -> None:
    clock.ms += 1
    assert hourly.stream("s").trim(max_age=timedelta(hours=3), approximate=False) == 7
    clock.ms -= 3_600_000 * 100
    assert hourly.stream("s").trim(max_age=timedelta(hours=3), approximate=False) == 0
    clock.ms += 3_600_000 * 1000
    assert hourly.stream("s").trim(max_age=timedelta(hours=3), approximate=False) == 3
    assert (len(hourly.stream("s")), "s" in hourly) == (0, True)


def test_trims_of_nothing_and_of_everything(hourly: Store[bytes]) -> None:
    assert hourly.stream("s").trim(max_age=timedelta(days=365 * 900), approximate=False) == 0
    assert hourly.stream("s").trim(max_age=0, approximate=False) == 9
    assert ages(hourly) == [0]


def test_approximately_only_whole_nodes_go(hourly: Store[bytes]) -> None:
    assert hourly.stream("s").trim(max_age=timedelta(hours=3), approximate=True) == 5
    assert ages(hourly) == [4, 3, 2, 1, 0]


def test_in_a_transaction_the_commit_s_clock_counts(
    hourly: Store[bytes], clock: FixedClock
) -> None:
    with hourly.transaction() as tx:
        trimmed = tx.stream("s").trim(max_age=timedelta(hours=3), approximate=False)
        clock.ms += 3_600_000
    assert trimmed.result == 7


@pytest.mark.parametrize("age", [-1, timedelta(-1), float("inf"), float("nan"), "3", True])
def test_an_invalid_age_is_refused(hourly: Store[bytes], age: Any) -> None:
    with pytest.raises(OptionError):
        hourly.stream("s").trim(max_age=age, approximate=False)
    assert len(ages(hourly)) == 10


def test_one_rule_at_a_time(hourly: Store[bytes]) -> None:
    for other in ({"max_entries": 1}, {"min_id": "1"}):
        with pytest.raises(OptionError, match="not compatible"):
            hourly.stream("s").trim(max_age=1, **other)


NODES = 12_345
KEPT = 3
PEAK_MAX_BYTES = 3 << 20  # a locator in memory takes 350 bytes, a reference to a node as many


def trimmed(store: logstore.Store[str]) -> int:
    return store.stream("s").trim(max_entries=KEPT, approximate=False)


def trimmed_by_id(store: logstore.Store[str]) -> int:
    return store.stream("s").trim(min_id=f"{NODES - KEPT + 1}-0", approximate=False)


def dropped(store: logstore.Store[str]) -> int:
    store.drop("s")
    return NODES - KEPT


@pytest.mark.parametrize("without", [trimmed, trimmed_by_id, dropped])
def test_all_nodes_go_and_few_are_in_memory(
    tmp_path: Path, without: Callable[[logstore.Store[str]], int]
) -> None:
    path = tmp_path / "store"
    with logstore.open(
        path, encoding="utf-8", background=False, sync="os", node_max_entries=1
    ) as store:
        rows = ((f"{number}-0", {"n": str(number)}) for number in range(1, NODES + 1))
        store.stream("s").add_many(rows, batch=10_000)
        store.stream("t").add_many([{"n": "1"}, {"n": "2"}])
        assert store.info().nodes == NODES + 2  # an entry each
        tracemalloc.start()
        try:
            assert without(store) == NODES - KEPT
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < PEAK_MAX_BYTES
        left = [] if without is dropped else [str(number) for number in range(NODES - 2, NODES + 1)]
        assert [entry["n"] for entry in store.stream("s")] == left
        assert store.info().nodes == len(left) + 2
        assert len(store.stream("t")) == 2
    assert check(path).damage == []
    shutil.rmtree(path / "index")
    with logstore.open(path, encoding="utf-8", background=False) as store:
        assert [entry["n"] for entry in store.stream("s")] == left
        assert store.info().nodes == len(left) + 2
