"""Prevents a length of time or a moment that one call reads, and another one refuses or takes for
something else: every parameter gets the same spellings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import logstore
import logstore.aio
from logstore import OptionError
from logstore.api.store import Store
from logstore.jobs import Jobs
from logstore.spark_io.spark_options import parse_read
from tests.support.inside import FixedClock
from tests.tools.commands import invoke

NOW_MS = 1_700_000_000_000
GOOD: dict[str, tuple[Any, timedelta]] = {
    "1h": ("1h", timedelta(hours=1)),
    "30d": ("30d", timedelta(days=30)),
    "10m": ("10m", timedelta(minutes=10)),
    "1h30m": ("1h30m", timedelta(hours=1, minutes=30)),
    "2w": ("2w", timedelta(weeks=2)),
    "1.5s": ("1.5s", timedelta(seconds=1.5)),
    "5250ms": ("5250ms", timedelta(milliseconds=5250)),
    "timedelta": (timedelta(minutes=2), timedelta(minutes=2)),
    "1001 ms": (timedelta(milliseconds=1001), timedelta(milliseconds=1001)),
    "1.5": (1.5, timedelta(seconds=1.5)),
    "3": (3, timedelta(seconds=3)),
}
BAD_TEXTS = (
    "", " ", "1", "30", "1.5", "1 hour ago", "1 h", "h", "1H", "1y", "-1h", "+1h", "1h-30m", "nan",
    "inf", "1e300", "1e300s", "today", "9" * 90 + "w", "9" * 500 + "s", "\u0661h", "True", "\ud800",
)  # fmt: skip
BAD: tuple[Any, ...] = (
    *BAD_TEXTS, -1, -0.5, timedelta(-1), math.nan, -math.inf, True, False, b"1h", [], (), object(),
)  # fmt: skip
ENDLESS: tuple[Any, ...] = (math.inf, 1e300, 10**400)  # a time-out may be so long, and nothing else
Call: TypeAlias = Callable[[Store[bytes], Any], Any]
Told: TypeAlias = Callable[[Store[bytes], Any], "timedelta | None"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Store[bytes]]:
    """A store whose clock stands, with a stream of one entry that a group has."""
    clock = FixedClock(NOW_MS)
    with logstore.open(tmp_path / "store", sync="os", background=False, clock=clock) as store:
        store.stream("s").add({"n": 1})
        group = store.stream("s").group("g", start="0")
        group.configure(min_idle=1)
        group.read("c")
        yield store


@pytest.fixture
def place(shop: Store[bytes]) -> Path:
    """The same, closed: for commands."""
    shop.close()
    return shop.path


def _of_ms(ms: int | None) -> timedelta:
    assert ms is not None
    return timedelta(milliseconds=ms)


def _of_backoff(store: Store[bytes], given: Any) -> timedelta:
    group = store.stream("s").group("g")
    return _of_ms(group.configure(min_idle=1, backoff=given).backoff_ms)


def _due(store: Store[bytes], given: Any) -> timedelta:
    key: Any = store.stream("s").schedule({"a": "b"}, after=given)
    return _of_ms(key.due_ms - NOW_MS)


def _every(store: Store[bytes], given: Any) -> timedelta:
    store.stream("s").schedule({"a": "b"}, every=given, name="n")
    (found,) = store.stream("s").scheduled()
    assert found.every is not None
    return found.every


def _expires(store: Store[bytes], given: Any) -> timedelta | None:
    store.stream("s").expire(after=given)
    return store.stream("s").expires_in


# What keeps a length, and what is kept.
KEPT: dict[str, Told] = {
    "max_age": lambda store, given: _of_ms(store.stream("s").configure(max_age=given).max_age_ms),
    "min_idle": lambda store, given: _of_ms(
        store.stream("s").group("g").configure(min_idle=given).min_idle_ms
    ),
    "backoff": _of_backoff,
    "backoff_max": lambda store, given: _of_ms(
        store.stream("s").group("g").configure(backoff_max=given).backoff_max_ms
    ),
    "after": _due,
    "every": _every,
    "expire": _expires,
    "keep_results": lambda store, given: Jobs(store, keep_results=given)._keep_results,
    "job min_idle": lambda store, given: Jobs(store, min_idle=given)._min_idle,
    "job backoff": lambda store, given: timedelta(seconds=Jobs(store, backoff=given)._backoff_s),
}


async def _async_read(store: Store[bytes], given: Any) -> None:
    how: dict[str, Any] = {"sync": "os", "background": False, "clock": FixedClock(NOW_MS)}
    async with logstore.aio.open(store.path, **how) as other:
        await other.stream("s").read("0", timeout=given)


def _consume(store: Store[bytes], **options: Any) -> int:
    return store.stream("s").group("h", start="0").consume("c", lambda entry: None, **options)


def _opened(store: Store[bytes], given: Any) -> None:
    logstore.open(store.path.parent / "other", lock_timeout=given).close()


# What takes a length, and shows it in no plain way.
TAKEN: dict[str, Call] = {
    "add ttl": lambda store, given: store.stream("s").add({"a": "b"}, ttl=given),
    "transaction ttl": lambda store, given: (
        store.transaction().stream("s").add({"a": "b"}, ttl=given)
    ),
    "trim max_age": lambda store, given: store.stream("s").trim(max_age=given),
    "group read min_idle": lambda store, given: (
        store.stream("s").group("g").read("d", min_idle=given)
    ),
    "nack delay": lambda store, given: store.stream("s").group("g").nack("1-0", delay=given),
    "claim min_idle": lambda store, given: (
        store.stream("s").group("g").claim("d", "1-0", min_idle=given)
    ),
    "claim idle": lambda store, given: (
        store.stream("s").group("g").claim("d", "1-0", min_idle=0, idle=given)
    ),
    "autoclaim": lambda store, given: store.stream("s").group("g").autoclaim("d", min_idle=given),
    "pending_entries": lambda store, given: list(
        store.stream("s").group("g").pending_entries(min_idle=given)
    ),
    "consume min_idle": lambda store, given: _consume(store, min_idle=given, timeout=0),
    "consume backoff_max": lambda store, given: _consume(store, backoff_max=given, timeout=0),
    "idempotent_duration": lambda store, given: store.stream("s").configure(
        idempotent_duration=given
    ),
    "lock_timeout": _opened,
}


def _group_read(store: Store[bytes], given: Any) -> None:
    store.stream("s").group("k", start="0").read("c", timeout=given)
    store.stream("s").group("k").destroy()


# Time-outs, which may be endless; each of them finds an entry at once.
WAITING: dict[str, Call] = {
    "read": lambda store, given: store.stream("s").read("0", timeout=given),
    "store read": lambda store, given: store.read({"s": "0"}, timeout=given),
    "follow": lambda store, given: next(store.stream("s").follow("0", timeout=given)),
    "store follow": lambda store, given: next(store.follow({"s": "0"}, timeout=given)),
    "group read": _group_read,
    "aio read": lambda store, given: asyncio.run(_async_read(store, given)),
}


@pytest.mark.parametrize("spelled", GOOD)
@pytest.mark.parametrize("name", KEPT)
def test_a_kept_length_is_the_given_one(shop: Store[bytes], name: str, spelled: str) -> None:
    given, expected = GOOD[spelled]
    assert KEPT[name](shop, given) == expected


@pytest.mark.parametrize("name", [*TAKEN, *WAITING])
def test_every_spelling_is_taken(shop: Store[bytes], name: str) -> None:
    for given, length in GOOD.values():
        if name == "idempotent_duration" and (
            length % timedelta(seconds=1) or length > timedelta(days=1)
        ):
            continue  # whole seconds, a day at most
        (TAKEN | WAITING)[name](shop, given)


@pytest.mark.parametrize("name", [*KEPT, *TAKEN, *WAITING])
def test_an_invalid_length_is_refused(shop: Store[bytes], name: str) -> None:
    call: Any = (KEPT | TAKEN | WAITING)[name]
    before = len(shop.stream("s"))
    for odd in (*BAD, *(() if name in WAITING else ENDLESS)):
        with pytest.raises(OptionError, match=r".") as told:
            call(shop, odd)
        if odd == "30":
            assert "'30s'" in told.value.message
    assert len(shop.stream("s")) == before


# -- the command line ---------------------------------------------------------------------------
OF_COMMANDS: dict[str, tuple[str, ...]] = {
    "add --ttl": ("add", "{}", "s", "a=b", "--ttl"),
    "trim": ("trim", "{}", "s", "--yes", "--max-age"),
    "configure --max-age": ("configure", "{}", "s", "--yes", "--max-age"),
    "configure --min-idle": ("configure", "{}", "s", "--group", "g", "--min-idle"),
    "configure --backoff-max": ("configure", "{}", "s", "--group", "g", "--backoff-max"),
    "configure --backoff": (
        "configure", "{}", "s", "--group", "g", "--min-idle", "1s", "--backoff",
    ),
    "expire": ("expire", "{}", "s", "--after"),
    "schedule --after": ("schedule", "{}", "s", "a=b", "--after"),
    "schedule --every": ("schedule", "{}", "s", "a=b", "--name", "n", "--every"),
    "pending": ("pending", "{}", "s", "g", "--min-idle"),
    "claim": ("claim", "{}", "s", "g", "d", "--min-idle"),
    "doctor --idle": ("doctor", "{}", "--watch", "0", "--idle"),
}  # fmt: skip
# They would run on: only what is refused can be tried here.
RUNNING: dict[str, tuple[str, ...]] = {
    "doctor --watch": ("doctor", "{}", "--watch"),
    "top": ("top", "{}", "-n", "1", "--interval"),
    "serve": ("serve", "{}", "--port", "0", "--auth-timeout"),
    "work": ("work", "none:none", "--grace"),
    "redis import": ("redis", "import", "{}", "redis://127.0.0.1:1", "--follow", "--every"),
}


@pytest.mark.parametrize("name", [*OF_COMMANDS, *RUNNING])
def test_a_command_wants_a_unit(place: Path, name: str) -> None:
    words = [word.format(place) for word in (OF_COMMANDS | RUNNING)[name]]
    for odd in BAD_TEXTS:
        if odd == "\ud800":
            continue  # no terminal gives it so
        done = invoke(*words, odd)
        assert done.exit_code == 2, (odd, done.output)
        assert words[-1] in done.stderr
        if odd == "30":
            assert "it has no unit: for seconds give '30s', not '30'" in done.stderr
    if name in OF_COMMANDS:
        for text in ("1h", "30d", "10m", "5250ms", "1h30m", "1.5s", "2w"):
            assert invoke(*words, text).exit_code in (0, 3), text


# -- moments ------------------------------------------------------------------------------------
DAY_MS = 1_699_920_000_000  # of the clock's day: 2023-11-14
MOMENTS: dict[str, tuple[Any, int]] = {
    "now": ("now", NOW_MS),
    "today": ("today", DAY_MS),
    "date": ("2023-11-14", DAY_MS),
    "time": ("2023-11-14T12:00", DAY_MS + 43_200_000),
    "Z": ("2023-11-14T12:00:00Z", DAY_MS + 43_200_000),
    "zone": ("2023-11-14T13:00+01:00", DAY_MS + 43_200_000),
    "datetime": (datetime(2023, 11, 14, 12, tzinfo=UTC), DAY_MS + 43_200_000),
}
AGO: dict[str, tuple[Any, int]] = {
    "1h": ("1h", NOW_MS - 3_600_000),
    "-1h": ("-1h", NOW_MS - 3_600_000),
    "250ms": ("-250ms", NOW_MS - 250),
    "timedelta": (timedelta(minutes=1), NOW_MS - 60_000),
}
NO_MOMENTS: tuple[Any, ...] = (
    "", " ", "30", "1.5", "1 hour ago", "+1h", "--1h", "-1", "nan", "inf", "1e300", "yesterday",
    "NOW", "2023-13-01", "9" * 500, "\ud800", math.nan, math.inf, 1e300, True, b"now", [],
    datetime(2023, 1, 1),  # noqa: DTZ001 - it is refused
)  # fmt: skip
FIRST: dict[str, Call] = {
    "range": lambda store, given: list(store.stream("t").range(since=given)),
    "merge": lambda store, given: list(store.merge(["t"], since=given)),
    "follow": lambda store, given: list(store.stream("t").follow(since=given, timeout=0)),
    "store follow": lambda store, given: list(store.follow(["t"], since=given, timeout=0)),
}


@pytest.mark.parametrize("name", FIRST)
def test_where_to_begin(shop: Store[bytes], name: str) -> None:
    for given, first_ms in (MOMENTS | AGO).values():
        shop.stream("t").add_many([((first_ms - 1, 0), {"a": "b"}), ((first_ms, 0), {"a": "b"})])
        assert len(FIRST[name](shop, given)) == 1, given
        shop.drop("t")
    for odd in NO_MOMENTS:
        with pytest.raises(OptionError, match="since"):
            FIRST[name](shop, odd)


def test_when_it_is_due(shop: Store[bytes]) -> None:
    stream = shop.stream("s")
    for given, ms in MOMENTS.values():
        key: Any = stream.schedule({"a": "b"}, at=given)
        assert key.due_ms == ms
    for odd in (*NO_MOMENTS, *(text for text, _ in AGO.values())):
        for call in (
            lambda odd=odd: stream.schedule({"a": "b"}, at=odd),
            lambda odd=odd: stream.expire(at=odd),
        ):
            with pytest.raises(OptionError, match=r"\bat\b"):
                call()
    assert "s" in shop


def test_moments_of_commands_and_of_spark(place: Path) -> None:
    for given, ms in MOMENTS.values():
        if isinstance(given, str) and given not in ("now", "today"):
            done = invoke("schedule", place, "s", "a=b", "--at", given, "--json")
            assert f'"{ms}-' in done.stdout, done.output
            asked = parse_read({"path": str(place), "stream": "s", "startTime": given})
            assert asked.start.ms == ms
    for text in ("now", "today", "1h", "-1h"):
        assert invoke("range", place, "s", "--since", text).exit_code == 0
        parse_read({"path": str(place), "stream": "s", "endTime": text})
    for odd in (each for each in NO_MOMENTS if isinstance(each, str) and each != "\ud800"):
        assert invoke("schedule", place, "s", "a=b", "--at", odd).exit_code == 2
        assert invoke("range", place, "s", "--since", odd).exit_code == 1, odd
        if odd != "30":  # milliseconds there
            with pytest.raises(OptionError, match="'startTime'"):
                parse_read({"path": str(place), "stream": "s", "startTime": odd})


def test_the_end_that_was_given_is_named(shop: Store[bytes]) -> None:
    stream = shop.stream("s")
    for given in ("2023-11-14", "today", "-1h", timedelta(hours=1)):
        odd: Any = given
        with pytest.raises(logstore.InvalidIDError, match=r"\(start\).*range takes that as since="):
            stream.range(odd)
        with pytest.raises(logstore.InvalidIDError, match=r"\(end\).*range takes that as until="):
            stream.range(end=odd)
        with pytest.raises(logstore.InvalidIDError, match=r"\(start\)"):
            stream.delete_range(odd, "+")
    with pytest.raises(logstore.InvalidIDError, match=r"or an aware datetime \(end\)$"):
        stream.range("-", "x")
    with pytest.raises(OptionError, match=r"^since \(.*\) is above until \("):
        stream.range(since="-1h", until="-2h")
    with pytest.raises(OptionError, match=r"^since \(.*\) is above end \("):
        stream.range(since="-1h", end="5")
    with pytest.raises(OptionError, match=r"^start \(.*\) is above until \("):
        stream.range(str(NOW_MS), until="-2h")
