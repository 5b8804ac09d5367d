"""Prevents times and intervals that are taken for others: seconds, swapped ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import OptionError
from logstore.api.store import Store
from logstore.redis import Redis
from tests.support.inside import FixedClock

NOW_S = 1_700_000_000
TODAY_S = 1_795_000_000
SECONDS = r"looks like seconds.*1000 \* time\.time\(\).*after=0"


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    """A store of November 2023 with a stream of five entries."""
    clock = FixedClock(NOW_S * 1000)
    with logstore.open(tmp_path / "store", sync="os", background=False, clock=clock) as store:
        store.stream("s").add_many([(f"{ms}-0", {"n": ms}) for ms in range(1, 6)])
        yield store


@pytest.mark.parametrize("at", [NOW_S, NOW_S + 3600, TODAY_S, 0, 99_999_999_999])
def test_seconds_are_not_taken_for_milliseconds(shop: Store[bytes], at: int) -> None:
    stream = shop.stream("s")
    for call in (
        lambda: stream.schedule({"a": "b"}, at=at),
        lambda: stream.expire(at=at),  # which would drop the stream at once
        lambda: shop.transaction().stream("s").schedule({"a": "b"}, at=at),
        lambda: shop.transaction().stream("s").expire(at=at),
    ):
        with pytest.raises(OptionError, match=SECONDS):
            call()
    with pytest.raises(OptionError, match="unix milliseconds as an int"):
        stream.schedule({"a": "b"}, at=float(at))  # type: ignore[call-overload]
    assert len(stream) == 5
    assert stream.info().scheduled == 0


def test_milliseconds_and_moments_are_taken_as_they_are(shop: Store[bytes]) -> None:
    stream = shop.stream("s")
    for at in (
        100_000_000_000, NOW_S * 1000, datetime(1970, 1, 2, tzinfo=UTC),
        datetime.fromtimestamp(NOW_S, UTC) + timedelta(days=1),
    ):  # fmt: skip
        assert stream.schedule({"a": "b"}, at=at) is not None
    assert stream.info().scheduled == 4
    assert stream.schedule({"a": "b"}, after=0) is not None


def test_where_the_clock_stands_in_1970_so_do_times(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False, clock=FixedClock(1000)) as store:
        assert store.stream("s").schedule({"a": "b"}, at=5000).due_ms == 5000  # type: ignore[union-attr]


ENDS: list[tuple[Any, Any]] = [
    ("4-0", "2-0"), ("4", "2"), ((4, 0), (2, 0)), (4, 2), (b"4", "2"), ("+", "-"), ("+", "1-0"),
    ("2-0", "-"), ("(4-0", "2-0"), ("4-0", "(2-0"), ("(4", "(2"),
    (datetime(2023, 1, 2, tzinfo=UTC), datetime(2023, 1, 1, tzinfo=UTC)),
]  # fmt: skip
# An interval in which there is nothing, as who reads on behind what he has seen comes to it.
EMPTY: list[tuple[Any, Any]] = [
    ("(5-0", "5-0"), ("5-0", "(5-0"), ("(5-0", "(5-0"), ("5-1", "5-0"), ((5, 1), (5, 0)),
    ("(9", "(9"), ("7-0", "9-0"),
]  # fmt: skip
CALLS: list[Callable[[Store[bytes], Any, Any], Any]] = [
    lambda store, start, end: list(store.stream("s").range(start, end)),
    lambda store, start, end: list(store.stream("s").range(start, end, reverse=True)),
    lambda store, start, end: store.stream("s").delete_range(start, end),
    lambda store, start, end: list(store.stream("s").group("g", "0").pending_entries(start, end)),
    lambda store, start, end: store.transaction().stream("s").delete_range(start, end),
    lambda store, start, end: store.stream("s").scan(start, end).read_all().num_rows,
]


@pytest.mark.parametrize("call", range(len(CALLS)))
@pytest.mark.parametrize(("start", "end"), ENDS, ids=str)
def test_swapped_ends_are_refused(shop: Store[bytes], start: Any, end: Any, call: int) -> None:
    with pytest.raises(OptionError, match=r"start .* is above end .*reverse=True"):
        CALLS[call](shop, start, end)
    assert len(shop.stream("s")) == 5


@pytest.mark.parametrize("call", range(len(CALLS)))
@pytest.mark.parametrize(("start", "end"), EMPTY, ids=str)
def test_an_empty_interval_is_none(shop: Store[bytes], start: Any, end: Any, call: int) -> None:
    CALLS[call](shop, start, end)
    assert len(shop.stream("s")) == 5


def test_redis_gives_nothing_as_it_does(tmp_path: Path) -> None:
    with Redis(tmp_path / "store") as client:
        client.xadd("s", {"a": "b"}, "5-0")
        assert client.xrange("s", "9-0", "1-0") == []
        assert client.xrevrange("s", "1-0", "9-0") == []
