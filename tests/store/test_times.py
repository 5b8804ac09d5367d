"""Prevents times and intervals that are taken for others: seconds, swapped ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import logstore
import logstore.aio
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


def test_relative_times_under_a_clock_of_1970(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False, clock=FixedClock(1000)) as store:
        assert store.stream("s").schedule({"a": "b"}, at=5000).due_ms == 5000  # type: ignore[union-attr]


ENDS: list[tuple[Any, Any]] = [
    ("4-0", "2-0"), ("4", "2"), ((4, 0), (2, 0)), (b"4", "2"), ("+", "-"), ("+", "1-0"),
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


HOUR_MS = 3_600_000
NOON_MS = int(datetime(2023, 11, 14, 12, tzinfo=UTC).timestamp()) * 1000  # of the clock's day


@pytest.fixture
def day(tmp_path: Path) -> Any:
    """A store at 22:13:20 of a day, with an entry at noon of this day and of those beside it, one
    half an hour ago and one of now."""
    now_ms = NOW_S * 1000
    ids = [NOON_MS - 24 * HOUR_MS, NOON_MS, now_ms - HOUR_MS // 2, now_ms, NOON_MS + 24 * HOUR_MS]
    clock = FixedClock(now_ms)
    with logstore.open(tmp_path / "day", sync="os", background=False, clock=clock) as store:
        store.stream("s").add_many([(f"{ms}-{n}", {"n": n}) for n, ms in enumerate(ids)])
        yield store


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (timedelta(hours=1), None, [2, 3, 4]), ("-1h", None, [2, 3, 4]), ("-1h", "-1s", [2]),
        ("1h", None, [2, 3, 4]), ("1h", "1s", [2]), ("now", "now", [3]),
        ("today", None, [1, 2, 3, 4]), (None, "today", [0, 1, 2, 3]), ("-30m", None, [2, 3, 4]),
        ("-29m59s", None, [3, 4]), ("-1799.999s", "-0s", [3]),
        (timedelta(0), timedelta(0), [3]), ("-1d12h", "-0.5h", [0, 1, 2]), (None, "-9w", []),
        (date(2023, 11, 14), date(2023, 11, 14), [1, 2, 3]), ("2023-11-15", None, [4]),
        (None, "2023-11-13", [0]), ("2023-11-14T12:00:00", "2023-11-14 12:00Z", [1]),
        (datetime(2023, 11, 14, 13, tzinfo=timezone(timedelta(hours=1))), None, [1, 2, 3, 4]),
        ("2023-11-14T12:00:00.001+00:00", None, [2, 3, 4]),
        (timedelta(days=365_000), None, [0, 1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_moments_are_what_people_mean(
    day: Store[bytes], since: Any, until: Any, expected: list[int]
) -> None:
    stream = day.stream("s")
    assert [int(entry["n"]) for entry in stream.range(since=since, until=until)] == expected
    back = stream.range(since=since, until=until, reverse=True, count=9)
    assert [int(entry["n"]) for entry in back] == expected[::-1]
    if since is not None and until is None:
        assert [int(entry["n"]) for entry in stream.follow(since=since, timeout=0)] == expected
        both = day.follow(["s", "none"], since=since, timeout=0)
        assert [(name, int(entry["n"])) for name, entry in both] == [(b"s", n) for n in expected]


@pytest.mark.parametrize(
    "odd",
    ["1 hour ago", "-1", "-", "0", "+1h", "--1h", "Now",
     "-1y", "yesterday", "-1h ", "2023-13-01", "1700000000000-0", "", 5, 1.5,
     datetime(2023, 1, 1),  # noqa: DTZ001 - it is refused
     datetime(1969, 1, 1, tzinfo=UTC), timedelta(-1), b"-1h", "-9999999999w",
     "\ud800"],
)  # fmt: skip
def test_an_invalid_moment_is_refused(day: Store[bytes], odd: Any) -> None:
    stream = day.stream("s")
    for call in (
        lambda: stream.range(since=odd), lambda: stream.range(until=odd),
        lambda: stream.follow(since=odd), lambda: day.follow(["s"], since=odd),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=r"since|until"):
            call()


def test_an_end_is_given_once(day: Store[bytes]) -> None:
    stream = day.stream("s")
    for call in (
        lambda: stream.range("5", since="-1h"), lambda: stream.range(end="5", until="-1h"),
        lambda: stream.follow("0", since="-1h"), lambda: day.follow({"s": "0"}, since="-1h"),
        lambda: stream.range(since="-1h", until="-2h"), lambda: stream.range(since="-1h", end="5"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match="give"):
            call()
    for odd in ([], {}, "s", 5):
        with pytest.raises(logstore.UsageError):
            day.follow(odd)  # type: ignore[arg-type]


def test_several_streams_are_followed(day: Store[bytes]) -> None:
    for n in range(4):
        day.stream("ab"[n % 2]).add({"n": n}, id=(n + 1, 0))
    names = {"a": "0", "b": "0"}
    told = [(name, int(entry["n"])) for name, entry in day.follow(names, timeout=0, count=9)]
    assert told == [(b"a", 0), (b"b", 1), (b"a", 2), (b"b", 3)]
    newest = day.follow({"a": "+", "b": "2-0"}, timeout=0, count=1)
    assert [int(entry["n"]) for _, entry in newest] == [2, 3]
    assert list(day.follow(["a", b"b"], timeout=0)) == []
    waiting = day.follow(["a", "later"], timeout=60)
    day.stream("later").add({"n": 9})
    name, entry = next(waiting)
    assert (name, entry["n"]) == (b"later", b"9")


def test_several_streams_are_followed_by_tasks(tmp_path: Path) -> None:
    async def follow() -> None:
        async with logstore.aio.open(tmp_path / "store", encoding="utf-8") as store:
            for n in range(4):
                await store.stream("ab"[n % 2]).add({"n": n}, id=(n + 1, 0))
            seen: list[Any] = []
            async for name, entry in store.follow({"a": "0", "b": "0"}, timeout=60):
                seen.append((name, entry["n"]))
                if len(seen) == 4:
                    await store.stream("b").add({"n": "last"})
                if len(seen) == 5:
                    break
            assert seen == [("a", "0"), ("b", "1"), ("a", "2"), ("b", "3"), ("b", "last")]
            recent = store.stream("b").range(since="-1h", until=timedelta(0))
            assert [entry["n"] async for entry in recent] == ["last"]
            later = store.stream("b").follow(since="-1h", timeout=0)
            assert [entry["n"] async for entry in later] == ["last"]

    asyncio.run(follow())
