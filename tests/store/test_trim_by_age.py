"""Prevents a retention by age that cuts by another clock, another unit, or a millisecond off."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from logstore import OptionError
from logstore.api.store import Store
from tests.store.look import everything
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
def test_what_is_exactly_of_that_age_stays(hourly: Store[bytes], age: Any) -> None:
    assert hourly.stream("s").trim(max_age=age) == 6
    assert ages(hourly) == [3, 2, 1, 0]
    everything(hourly)


def test_the_clock_of_the_store_counts(hourly: Store[bytes], clock: FixedClock) -> None:
    clock.ms += 1
    assert hourly.stream("s").trim(max_age=timedelta(hours=3)) == 7
    clock.ms -= 3_600_000 * 100
    assert hourly.stream("s").trim(max_age=timedelta(hours=3)) == 0
    clock.ms += 3_600_000 * 1000
    assert hourly.stream("s").trim(max_age=timedelta(hours=3)) == 3
    assert (len(hourly.stream("s")), "s" in hourly) == (0, True)


def test_nothing_and_all(hourly: Store[bytes]) -> None:
    assert hourly.stream("s").trim(max_age=timedelta(days=365 * 900)) == 0
    assert hourly.stream("s").trim(max_age=0) == 9
    assert ages(hourly) == [0]


def test_approximately_only_whole_nodes_go(hourly: Store[bytes]) -> None:
    assert hourly.stream("s").trim(max_age=timedelta(hours=3), approximate=True) == 5
    assert ages(hourly) == [4, 3, 2, 1, 0]


def test_in_a_transaction_the_commit_s_clock_counts(
    hourly: Store[bytes], clock: FixedClock
) -> None:
    with hourly.transaction() as tx:
        trimmed = tx.stream("s").trim(max_age=timedelta(hours=3))
        clock.ms += 3_600_000
    assert trimmed.result == 7


@pytest.mark.parametrize("age", [-1, timedelta(-1), float("inf"), float("nan"), "3", True])
def test_what_is_no_age_is_refused(hourly: Store[bytes], age: Any) -> None:
    with pytest.raises(OptionError):
        hourly.stream("s").trim(max_age=age)
    assert len(ages(hourly)) == 10


def test_one_rule_at_a_time(hourly: Store[bytes]) -> None:
    for other in ({"maxlen": 1}, {"minid": "1"}):
        with pytest.raises(OptionError, match="not compatible"):
            hourly.stream("s").trim(max_age=1, **other)
