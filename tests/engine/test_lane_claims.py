"""Prevents a nack, a claim or a read of a backlog in compiled code that does otherwise than Python.

Two copies of one store are driven alike at the same times, one of them without a lane: the same
results or errors are told, the log is the same byte for byte, and so is what is kept of groups.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.clock import SYSTEM_CLOCK
from logstore.codec import codec
from logstore.engine.groups import claim, deliver
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.shm.wait_words import bucket_of
from tests import seeds
from tests.engine.lane_log import log_of, told_by, told_by_log
from tests.support.inside import engine_of, follow, let_lag
from tests.support.log_limit import room_for
from tests.support.processes import ForkedOnGo

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

Store = logstore.Store[bytes]
SEED = seeds.seed()
NOW_MS = 1_800_000_000_000
OURS = ("claims", "nacks", "redeliveries")


class Times:
    """The clock of both stores."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def of_lane(self, call: str, first: int, second: int, held: int) -> int:
        """What the lane is told of each call of the system."""
        del second, held
        if call != "clock":
            return 0
        return time.monotonic_ns() if first else self.ms * 1_000_000


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> Iterator[Times]:
    let_lag(monkeypatch, 64, lane=True)
    clock = Times()
    monkeypatch.setattr(type(SYSTEM_CLOCK), "now_ms", lambda _: clock.ms)
    native_or_none.simulate(clock.of_lane)
    yield clock
    native_or_none.simulate(None)


def made(path: Path, entries: int = 450) -> None:
    """A store with a stream of some nodes, and two groups with two consumers each."""
    with logstore.open(path, encoding=None, background=False) as store:
        stream = store.stream(b"s")
        for number in range(1, entries + 1):
            stream.add({b"n": number}, f"{number}-1")
        for name in (b"g", b"h"):
            group = stream.group(name, start="0")
            for who in (b"a", b"b", b"c"):
                group.add_consumer(who)


def opened(path: Path, *, lane: bool = True) -> Store:
    store = logstore.open(path, encoding=None, background=False, sync="os")
    if not lane:
        engine_of(store)._close_lane()
        store._opened.live().lane = None
    return store


def pair(path: Path, entries: int = 450) -> tuple[Store, Store]:
    """Two copies of a store, the second without a lane."""
    made(path / "one", entries)
    shutil.copytree(path / "one", path / "two")
    return opened(path / "one"), opened(path / "two", lane=False)


def lane_of(store: Store) -> Any:
    lane = store._opened.live().lane
    assert lane is not None
    return lane


def counts(store: Store) -> dict[str, int]:
    """What was committed beside the pipeline since this was asked last."""
    told = lane_of(store).take_counts()
    return {name: count for name, count in told.items() if name in OURS and count}


def plain_result(found: Any) -> Any:
    """All that a call gave."""
    if isinstance(found, list):
        return [plain_result(each) for each in found]
    if isinstance(found, logstore.Delivery):
        given = (found.id, found.pairs, found.idle, found.delivery_count, found.deleted)
        return (*given, found.consumer, found._delivered_ms)
    if hasattr(found, "cursor"):
        return found.cursor, plain_result(found.entries), found.deleted
    return found


class Script:
    """Calls that are drawn from a seed, so that two stores get the same; what they say."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.draw = store, random.Random(seed)
        self.stream = store.stream(b"s")
        self.last = 450
        self.given: dict[bytes, list[logstore.StreamID]] = {b"g": [], b"h": []}
        self.cursor: logstore.StreamID | None = None

    def step(self) -> Any:
        draw = self.draw
        name, who = draw.choice([b"g", b"g", b"h"]), draw.choice([b"a", b"b", b"c"])
        if draw.random() < 0.02:
            who = b"new %d" % draw.randrange(9)
        group, given = self.stream.group(name), self.given[name]
        few = draw.choice([1, 1, 1, 2, 9, 40])
        some = draw.sample(given, min(len(given), few))
        what = draw.choices(list(STEPS), [weight for weight, _ in STEPS.values()])[0]
        try:
            return what, plain_result(STEPS[what][1](self, group, given, who, some))
        except logstore.Error as exc:
            return what, type(exc), str(exc)

    def read(self, group: Any, given: Any, who: bytes, _: Any) -> Any:
        found = group.read(who, count=self.draw.choice([1, 5, 60]))
        given += [entry.id for entry in found]
        return found

    def ack(self, group: Any, given: Any, _: bytes, some: Any) -> Any:
        given[:] = [id for id in given if id not in some]
        return group.ack(*some)

    def add(self, *_: Any) -> None:
        self.last += 1
        sync = self.draw.choice([None, "os"])  # one that asks for more comes through the pipeline
        self.stream.add({b"n": self.last}, f"{self.last}-1", sync=sync)

    def delete(self, _: Any, __: Any, ___: bytes, some: Any) -> Any:
        return self.stream.delete(*some[:2]) if some else 0

    def nack(self, group: Any, _: Any, __: bytes, some: Any) -> Any:
        options: dict[str, Any] = {"mode": self.draw.choice(["fail", "fail", "silent", "fatal"])}
        if self.draw.random() < 0.2:
            options["retry_count"] = self.draw.choice([0, 1, 7, -1])
        if self.draw.random() < 0.1:
            options["force"] = True
        if self.draw.random() < 0.1:
            options["delay"] = self.draw.choice([0, 5])
        if self.draw.random() < 0.1:
            some = [*some, *some[:1], "9999-1"]
        return group.nack(*some, **options, error="why")

    def claim(self, group: Any, _: Any, who: bytes, some: Any) -> Any:
        draw = self.draw
        options: dict[str, Any] = {"min_idle": draw.choice([0, 0, 0, 0.01, 2, 60])}
        if draw.random() < 0.2:
            options["idle"] = draw.choice([0, 0.5, timedelta(days=30_000)])
        if draw.random() < 0.1:
            ms = NOW_MS + draw.choice([-5000, 10**7, -NOW_MS - 1000])
            options["time"] = datetime.fromtimestamp(ms / 1000, UTC)
        if draw.random() < 0.2:
            options["retry_count"] = draw.choice([0, 1, 9])
        for flag in ("force", "just_id"):
            if draw.random() < 0.1:
                options[flag] = True
        if draw.random() < 0.03:
            options["last_id"] = self.given[b"g"][-1] if self.given[b"g"] else "1-0"
        if draw.random() < 0.1:
            some = [*some, *some[:1], "9999-1"]
        return group.claim(who, *some, **options)

    def autoclaim(self, group: Any, _: Any, who: bytes, __: Any) -> Any:
        draw = self.draw
        options: dict[str, Any] = {"min_idle": draw.choice([0, 0, 0.02, 1, 60])}
        if draw.random() < 0.5:
            options["start"] = draw.choice(["0", "100-0", self.cursor or "0"])
        if draw.random() < 0.1:
            options["just_id"] = True
        found = group.autoclaim(who, count=draw.choice([1, 1, 1, 3, 100, 120, 0]), **options)
        self.cursor = found.cursor
        return found

    def backlog(self, group: Any, _: Any, who: bytes, some: Any) -> Any:
        after = self.draw.choice(["0", "200-0", *some[:1]])
        return group.backlog(who, after, count=self.draw.choice([1, 3, 30, None]))

    def idle(self, group: Any, given: Any, who: bytes, _: Any) -> Any:
        found = group.read(who, count=3, min_idle=self.draw.choice([0, 1]))
        given += [entry.id for entry in found if entry.id not in given]
        return found

    def transaction(self, group: Any, given: Any, who: bytes, _: Any) -> Any:
        found = group.read(who, count=2)
        if not found:
            return None
        with self.store.transaction() as tx:
            tx.ack(found[0])
            if len(found) > 1:
                tx.nack(found[1])
        given += [entry.id for entry in found[1:]]
        return found

    def remove(self, group: Any, _: Any, who: bytes, __: Any) -> Any:
        return group.remove_consumer(who)


STEPS: dict[str, tuple[float, Any]] = {
    "read": (10, Script.read),
    "ack": (8, Script.ack),
    "add": (2, Script.add),
    "delete": (2, Script.delete),
    "nack": (14, Script.nack),
    "claim": (20, Script.claim),
    "autoclaim": (20, Script.autoclaim),
    "backlog": (14, Script.backlog),
    "idle": (2, Script.idle),
    "transaction": (1, Script.transaction),
    "remove": (0.5, Script.remove),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "redelivery": {"min_idle": 0.5},
    "dead letters": {"max_deliveries": 4, "dead_letter": b"dead"},
    "backoff": {"min_idle": 1, "backoff": 0.2, "max_deliveries": 9, "dead_letter": b"dead"},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_claims_of_the_lane_do_what_the_pipeline_does(
    tmp_path: Path, times: Times, settings: str
) -> None:
    print(f"LOGSTORE_SEED={SEED}")
    one, two = pair(tmp_path)
    with one, two:
        if SEED % 2:
            lane_of(one).held_max = 6
        for store in (one, two):
            if SETTINGS[settings]:
                store.stream(b"s").group(b"g").configure(**SETTINGS[settings])
        ours, theirs, pace = Script(one, SEED), Script(two, SEED), random.Random(SEED)
        lane: dict[str, int] = {}
        for number in range(400):
            times.ms += pace.choice([0, 0, 1, 3, 20, 700])
            assert ours.step() == theirs.step(), number
            for name, count in counts(one).items():
                lane[name] = lane.get(name, 0) + count
            if not number % 20:
                assert log_of(one) == log_of(two), number
                assert told_by(one) == told_by(two), number
        assert log_of(one) == log_of(two)
        assert told_by(one) == told_by(two) == told_by_log(tmp_path / "one", tmp_path / "copy")
        follow(one)
        assert told_by(one) == told_by(two)
        assert sum(lane.values()) > 60, lane


def test_numbers_of_claims_are_those_of_python() -> None:
    layout = native_or_none.claim_layout()
    assert layout.pop("COUNT_MAX") == deliver.COUNT_MAX
    assert layout == {"ATTEMPTS_AN_ENTRY": claim.ATTEMPTS_AN_ENTRY}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made(tmp_path / "store")
    with opened(tmp_path / "store") as store:
        yield store


def test_the_longest_idle_entry_is_found_among_many_runs(store: Store, times: Times) -> None:
    """The lane holds no run that it need not."""
    group = store.stream(b"s").group(b"g")
    for _ in range(15):
        group.read(b"a", count=30)
        times.ms += 10
    for entry in group.backlog(b"a", count=200)[50:150]:  # in the middle of two runs, one is split
        group.ack(entry.id)
    times.ms += 10
    group.claim(b"b", "3-1", "440-1", min_idle=0, idle=5000)
    group.nack("300-1", "20-1")
    store.create("other")  # through the pipeline: from here on groups are learned anew
    counts(store)
    given = [group.autoclaim(b"c", min_idle=0, count=1).entries[0].id.ms for _ in range(250)]
    assert given[:6] == [300, 20, 3, 440, 201, 202]
    times.ms += 1
    store.create("another")
    again = [group.autoclaim(b"c", min_idle=0, count=1).entries[0].id.ms for _ in range(350)]
    redelivered = [number for number in (*range(1, 51), *range(151, 201)) if number not in (3, 20)]
    assert again == [449, 450, *redelivered, 3, 20, *range(201, 449)]


@pytest.mark.parametrize("call", ["nack", "claim", "autoclaim", "backlog", "nothing"])
def test_calls_are_commits_of_the_lane(store: Store, times: Times, call: str) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"a", count=100)
    store.stream(b"s").delete("7-1")
    ids = [logstore.StreamID(number, 1) for number in range(5, 9)]
    group.claim(b"b", ids[0], min_idle=0)
    counts(store)
    times.ms += 100
    commits = lane_of(store).take_counts()["commits"]
    if call == "nack":
        assert group.nack(*ids) == 4
        assert lane_of(store).take_counts()["nacks"] == 4
    elif call == "claim":
        assert [each.id for each in group.claim(b"b", *ids, min_idle=0)] == [*ids[:2], ids[3]]
        told = lane_of(store).take_counts()
        assert (told["claims"], told["acks"], told["commits"]) == (3, 0, commits + 1)
    elif call == "autoclaim":
        given = group.autoclaim(b"b", min_idle=0, start="5-0", count=3)
        assert ([each.id.ms for each in given.entries], given.deleted) == ([5, 6], [ids[2]])
        assert given.cursor == (8, 1)
        assert lane_of(store).take_counts()["claims"] == 2
    elif call == "backlog":
        given = group.backlog(b"a", "5-1", count=2)
        assert [(each.id.ms, each.deleted, each.delivery_count) for each in given] == [
            (6, False, 2),
            (7, True, 1),
        ]
        assert lane_of(store).take_counts()["redeliveries"] == 1
    else:  # who looks in vain is seen
        assert group.backlog(b"c") == group.claim(b"c", "9999-1", min_idle=0) == []
        assert group.autoclaim(b"c", min_idle=60).entries == []
        assert lane_of(store).take_counts()["commits"] == commits + 1
        times.ms += 5
        group.backlog(b"c")
        assert lane_of(store).take_counts()["commits"] == 0
    assert group.pending().count == (100 if call not in ("claim", "autoclaim") else 99)


def test_a_claim_wakes_waiters_of_the_group(tmp_path: Path, times: Times) -> None:
    """As by the pipeline: a word is counted up, on which readers sleep."""
    one, two = pair(tmp_path)
    seen: list[list[bool]] = []
    with one, two:
        for store in (one, two):
            group, bucket = store.stream(b"s").group(b"g"), bucket_of(b"s")
            group.read(b"a", count=20)
            times.ms += 10
            waits, steps = engine_of(store).wake.waits, list[bool]()
            calls: list[Callable[[], object]] = [
                partial(group.nack, "3-1", "4-1"),
                partial(group.claim, b"b", "5-1", min_idle=0),
                partial(group.claim, b"b", "6-1", min_idle=0, idle=60),
                partial(group.autoclaim, b"c", min_idle=0, count=2),
                partial(group.backlog, b"a", count=2),
            ]
            for call in calls:
                before = waits.load(bucket)
                call()
                steps.append(waits.load(bucket) != before)
            seen.append(steps)
        assert counts(one)
    assert seen[0][0]
    assert seen[0][2]
    assert [ours for ours, theirs in zip(*seen, strict=True) if theirs] == [True] * sum(seen[1])


@pytest.mark.parametrize(
    "call",
    [
        lambda group: group.nack("1-1", force=True),
        lambda group: group.nack("1-1", sync="always"),
        lambda group: group.nack("1-1", "1-1"),
        lambda group: group.claim(b"b", "1-1", min_idle=0, last_id="9-1"),
        lambda group: group.claim(b"b", "449-1", min_idle=0, force=True),
        lambda group: group.claim(b"new", "1-1", min_idle=0),
        lambda group: group.autoclaim(b"b", min_idle=0, start="0", count=300),
        lambda group: group.backlog(b"a", "18446744073709551615-18446744073709551615"),
    ],
)
def test_other_calls_go_through_the_pipeline(store: Store, call: Any) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"a", count=3)
    counts(store)
    call(group)
    assert counts(store) == {}


@pytest.mark.parametrize("seed", range(3))
def test_processes_that_claim_in_turn_share_a_group(tmp_path: Path, seed: int) -> None:
    """Each takes in what the other one did, or looks it up."""
    print(f"LOGSTORE_SEED={SEED}")
    made(tmp_path / "store")

    def work(path: Path, seed: str, steps: int) -> None:
        other = opened(path)  # not closed, for then the index would follow
        run(Script(other, seed), steps)  # type: ignore[arg-type]

    def run(script: Script, steps: int) -> None:
        for group in script.given:
            rows = script.stream.group(group).pending_entries()
            script.given[group] = [row.id for row in rows]
        script.last = script.stream.last_id.ms
        for _ in range(steps):
            script.step()

    with opened(tmp_path / "store") as store:
        mine, draw = Script(store, SEED + seed), random.Random(SEED + seed)
        lane: dict[str, int] = {}
        for turn in range(8):
            name, steps = f"{SEED} {seed} {turn}", draw.choice([1, 4, 30])
            child = ForkedOnGo(lambda name=name, steps=steps: work(tmp_path / "store", name, steps))
            run(mine, draw.choice([1, 3, 20]))
            child.go()
            run(mine, draw.choice([1, 3, 20]))
            for name, count in counts(store).items():
                lane[name] = lane.get(name, 0) + count
            assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
        assert sum(lane.values()) > 10, lane


def test_an_append_that_fails_hands_nothing_on(store: Store, tmp_path: Path) -> None:
    """The file may not grow, as on a full disk: some bytes of the frames may be there."""
    group, engine = store.stream(b"s").group(b"g"), engine_of(store)
    group.read(b"a", count=20)
    store.stream(b"s").delete("2-1")
    calls = {
        40: lambda: group.nack("1-1", "3-1"),
        60: lambda: group.claim(b"b", "1-1", "2-1", "3-1", min_idle=0),
        80: lambda: group.autoclaim(b"b", min_idle=0),
        20: lambda: group.backlog(b"a"),
    }
    for room, call in calls.items():
        group.claim(b"b", "4-1", min_idle=0)
        before = told_by(store)
        counts(store)
        with room_for(engine, room), pytest.raises(logstore.Error):
            call()
        assert not engine.wake.in_progress
        assert not engine.lock.held
        assert counts(store) == {}
        assert told_by(store) == before
        assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    assert group.nack("1-1", "3-1") == 2
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_neighbours_in_a_node_are_looked_up_together(
    store: Store, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look begins at the start of the node, under LOCK, and a node may have very many."""
    group = store.stream(b"s").group(b"g")
    group.read(b"a", count=100)
    group.backlog(b"a")  # its node is at hand from here on
    looks = list[int]()
    entries = codec().entries

    def noted(*args: Any) -> Any:
        looks.append(1)
        return entries(*args)

    monkeypatch.setattr(codec(), "entries", noted)
    times.ms += 10
    counts(store)
    assert len(group.autoclaim(b"b", min_idle=0, count=100).entries) == 100
    assert counts(store) == {"claims": 100}
    assert 0 < len(looks) < 12
