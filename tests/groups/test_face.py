"""Prevents a face, or a full description, of consumer groups that says other than the engine."""

from __future__ import annotations

import json
import pickle
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api import info as described
from logstore.engine.shm.waiters import PACE
from logstore.engine.snapshots import snapshot
from tests.groups.shop import NOW_MS, numbers, shop
from tests.support.inside import delete_index


def test_a_group_is_made_only_where_a_start_is_given(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (store, group, _):
        other = store.stream("work").group("other")
        assert not other.exists()
        with pytest.raises(logstore.GroupNotFoundError):
            other.read("alice")
        assert store.stream("work").group("other", start="2-0").exists()
        assert numbers(other.read("alice")) == [3]
        again = store.stream("work").group("other", start="0")  # there already: as it was
        assert again.read("alice") == []
        with pytest.raises(logstore.GroupExistsError):
            again.create("0")
        assert [each.name for each in store.stream("work").groups()] == ["g", "other"]
        assert store.stream("work").info().groups == 2
        assert other.destroy()
        assert not other.destroy()
        assert group.exists()


def test_a_group_makes_its_stream(tmp_path: Path) -> None:
    with shop(tmp_path) as (store, _, _):
        late = store.stream("late").group("g")
        with pytest.raises(logstore.StreamNotFoundError):
            late.create(make_stream=False)
        late.create()
        assert "late" in store
        store.stream("late").add({"a": "1"}, id="5-0")
        assert numbers(late.read("alice")) == [5]


def test_each_entry_goes_to_one_consumer(tmp_path: Path) -> None:
    with shop(tmp_path, 5) as (_, group, _):
        first, second = group.read("alice", count=2), group.read("bob", count=2)
        assert (numbers(first), numbers(second)) == ([1, 2], [3, 4])
        assert first[0].fields == {"n": "1"}
        assert first[0].pairs == [("n", "1")]
        assert (first[0].consumer, first[0].delivery_count) == ("alice", 1)
        assert first[0].idle == timedelta(0)
        assert first[0].ack()
        assert not first[0].ack()
        assert group.ack("2-0", "3-0", "9-0") == 2
        assert numbers(group.pending_entries()) == [4]
        assert numbers(group.read("carol", noack=True)) == [5]
        assert numbers(group.pending_entries()) == [4]


def test_a_backlog_is_delivered_once_more(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (store, group, clock):
        group.read("alice")
        store.stream("work").delete("2-0")
        clock.ms += 5_000
        again = group.backlog("alice", after="1-0")
        assert numbers(again) == [2, 3]
        assert (again[0].fields, again[0].pairs, again[0].deleted) == (None, [], True)
        assert (again[1].delivery_count, again[1].idle) == (2, timedelta(seconds=5))
        assert isinstance(again[0], logstore.DeletedDelivery)
        assert type(again[1]) is logstore.Delivery
        assert "deleted" in repr(again[0])
        assert group.backlog("bob") == []
        assert numbers(group.backlog("alice", count=1)) == [1]


def test_nacked_entries_come_first(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (_, group, _):
        one, two, _three = group.read("alice")
        assert two.nack()
        assert one.nack("silent")
        found = {each.id.ms: each for each in group.pending_entries()}
        assert (found[1].consumer, found[1].idle, found[1].delivery_count) == (None, None, 0)
        assert (found[3].consumer, found[3].delivery_count) == ("alice", 1)
        assert group.pending().consumers == {"alice": 1}
        again = group.read("bob", min_idle=60)
        assert numbers(again) == [2, 1]
        assert [each.delivery_count for each in again] == [2, 1]
        with pytest.raises(logstore.OptionError, match="silent"):
            group.nack("1-0", mode="loud")  # type: ignore[arg-type]


def test_claims_look_at_idle_times(tmp_path: Path) -> None:
    with shop(tmp_path, 4) as (_, group, clock):
        group.read("alice", count=2)
        clock.ms += 60_000
        group.read("alice", count=2)
        assert group.claim("bob", "3-0", "4-0", min_idle=30) == []
        taken = group.claim("bob", "1-0", min_idle=timedelta(seconds=30))
        assert (numbers(taken), taken[0].idle) == ([1], timedelta(seconds=60))
        assert (taken[0].consumer, taken[0].delivery_count) == ("bob", 2)
        found = group.autoclaim("carol", min_idle=30)
        assert (numbers(found.entries), found.deleted, str(found.cursor)) == ([2], [], "0-0")
        assert numbers(group.pending_entries(consumer="alice")) == [3, 4]
        at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
        group.claim("dave", "4-0", min_idle=0, time=at, retry_count=7, just_id=True)
        late = list(group.pending_entries(min_idle=60))
        assert (numbers(late), late[0].delivery_count) == ([4], 7)


def test_a_walk_of_autoclaim_by_id_goes_on_at_its_cursor(tmp_path: Path) -> None:
    with shop(tmp_path, 5) as (store, group, _):
        group.read("alice")
        store.stream("work").delete("2-0")
        found = group.autoclaim("bob", min_idle=0, start="-", count=3)
        assert (numbers(found.entries), [str(each) for each in found.deleted]) == ([1, 3], ["2-0"])
        rest = group.autoclaim("bob", min_idle=0, start=found.cursor, count=3)
        assert (numbers(rest.entries), str(rest.cursor)) == ([4, 5], "0-0")


def test_an_entry_is_acked_and_deleted(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, _):
        other = store.stream("work").group("other", start="0")
        group.read("alice")
        other.read("bob")
        assert group.ack_delete("1-0", "9-0", references="acked") == [2, -1]
        assert group.ack_delete("2-0", references="delete") == [1]
        assert numbers(store.stream("work")) == [1]
        assert numbers(other.pending_entries()) == [1]


def test_infos(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (_, group, clock):
        group.read("alice", count=1)
        assert group.add_consumer("bob")
        assert not group.add_consumer("bob")
        clock.ms += 2_000
        info = group.info()
        assert (info.name, info.consumers, info.pending, info.lag) == ("g", 2, 1, 2)
        told = info.as_dict()
        assert set(told.pop("settings").values()) == {None, 3_600_000}
        assert told == {
            "name": "g", "consumers": 2, "pending": 1, "last-delivered-id": "1-0",
            "entries-read": 1, "lag": 2,
        }  # fmt: skip
        alice, bob = group.consumers()
        assert (alice.name, alice.pending, alice.idle) == ("alice", 1, timedelta(seconds=2))
        assert bob.inactive is None
        assert bob.as_dict() == {"name": "bob", "pending": 0, "idle": 2000, "inactive": -1}
        assert group.pending().as_dict() == {
            "count": 1, "first": "1-0", "last": "1-0", "consumers": {"alice": 1},
        }  # fmt: skip
        assert next(group.pending_entries()).as_dict() == {
            "id": "1-0", "consumer": "alice", "idle": 2000, "delivery-count": 1,
        }  # fmt: skip
        group.set_id("0", entries_read=0)
        assert group.info().lag == 3
        assert group.remove_consumer("alice") == 1
        assert group.pending().count == 0
        group.destroy()
        for ask in (group.info, group.consumers, group.pending):
            with pytest.raises(logstore.GroupNotFoundError):
                ask()


def test_pages_of_pending_entries_leave_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.api.group.PAGE_ENTRIES", 3)
    with shop(tmp_path, 10) as (_, group, _):
        group.read("alice")
        assert numbers(group.pending_entries()) == list(range(1, 11))
        assert numbers(group.pending_entries("(2-0", "9-0", count=6)) == [3, 4, 5, 6, 7, 8]
        assert numbers(group.pending_entries(count=3)) == [1, 2, 3]
        assert list(group.pending_entries(consumer="nobody")) == []


@pytest.mark.parametrize("encoding", [None, "latin-1"])
def test_names_come_back_as_the_store_spells_them(tmp_path: Path, encoding: str | None) -> None:
    with shop(tmp_path, 1, encoding=encoding) as (store, _, _):
        raw = b"caf\xe9"
        group = store.stream("work").group(raw, start="0")
        found = group.read(raw)[0]
        wanted = raw if encoding is None else raw.decode(encoding)
        assert (group.name, found.consumer) == (wanted, wanted)
        assert [each.name for each in group.consumers()] == [wanted]
        assert group.pending().consumers == {wanted: 1}
        assert next(group.pending_entries()).consumer == wanted
        copy = pickle.loads(pickle.dumps(found))
        assert (copy.id, copy.fields, copy.consumer) == (found.id, found.fields, wanted)
        assert copy.ack()
        copy.group._opened.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda group: group.read(""),
        lambda group: group.read(5),
        lambda group: group.read("a", count=-1),
        lambda group: group.read("a", count="1"),
        lambda group: group.read("a", timeout=-1),
        lambda group: group.read("a", min_idle="soon"),
        lambda group: group.claim("a", "1-0", min_idle=-1),
        lambda group: group.claim("a", "x", min_idle=0),
        lambda group: group.autoclaim("a", min_idle=0, count=0),
        lambda group: group.nack("1-0", retry_count=-1),
        lambda group: group.ack_delete("1-0", references="all"),
        lambda group: group.set_id("x"),
        lambda group: group.create("+"),
    ],
)
def test_invalid_arguments_change_nothing(tmp_path: Path, call: object) -> None:
    with shop(tmp_path, 1) as (_, group, _):
        before = group.info()
        with pytest.raises(logstore.UsageError):
            call(group)  # type: ignore[operator]
        assert group.info() == before


def test_a_read_waits_for_what_comes(tmp_path: Path) -> None:
    with shop(tmp_path) as (store, group, _):
        begun = time.monotonic()
        assert group.read("alice", timeout=0.1) == []
        assert 0.1 <= time.monotonic() - begun < 60
        timer = threading.Timer(0.2, lambda: store.stream("work").add({"n": "1"}, id="1-0"))
        timer.start()
        assert numbers(group.read("alice", timeout=300)) == [1]
        timer.join()


def test_waiting_writes_nothing(tmp_path: Path) -> None:
    """Against a reader that marks itself as seen, over and over, in the log."""
    with shop(tmp_path) as (store, group, _):
        group.read("alice")
        before = store.metrics()["commits"]
        group.read("alice", timeout=0.6)
        assert store.metrics()["commits"] - before <= 2


def test_a_waiting_read_takes_what_was_given_back(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (_, group, _):
        found = group.read("alice")[0]
        timer = threading.Timer(0.2, found.nack)
        timer.start()
        again = group.read("bob", timeout=300, min_idle=3600)
        timer.join()
        assert (numbers(again), again[0].delivery_count) == ([1], 2)


@pytest.mark.parametrize("timeout", [3, 300])
def test_a_waiting_read_takes_what_becomes_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    """No commit tells of it: against a reader that sleeps until one does, or past its last look."""
    if timeout == 3:
        monkeypatch.setattr(PACE, "slice_s", 900.0)
    with shop(tmp_path, 1) as (_, group, clock):
        group.read("alice")

        def later() -> None:
            clock.ms += 60_000

        timer = threading.Timer(0.1, later)
        timer.start()
        begun = time.monotonic()
        assert numbers(group.read("bob", timeout=timeout, min_idle=30)) == [1]
        assert time.monotonic() - begun < 60
        timer.join()


def test_a_waiting_read_ends_with_its_group(tmp_path: Path) -> None:
    with shop(tmp_path) as (_, group, _):
        timer = threading.Timer(0.2, group.destroy)
        timer.start()
        with pytest.raises(logstore.GroupNotFoundError):
            group.read("alice", timeout=300)
        timer.join()


def test_groups_survive_a_reopening(tmp_path: Path) -> None:
    with shop(tmp_path, 4) as (_, group, _):
        group.read("alice", count=3)
        group.ack("2-0")
        group.nack("3-0")
        told = (group.info(), group.consumers(), list(group.pending_entries()))
    with shop(tmp_path) as (_, group, _):
        assert (group.info(), group.consumers(), list(group.pending_entries())) == told


def test_reading_in_vain_again_and_again_writes_next_to_nothing(tmp_path: Path) -> None:
    """That it was seen is written down at most every ten milliseconds."""
    with shop(tmp_path) as (store, group, clock):
        assert group.read("alice") == []
        before = store.metrics()["commit_bytes"]
        for _ in range(100):
            assert group.read("alice") == []
        assert store.metrics()["commit_bytes"] == before
        clock.ms += 10
        assert group.read("alice") == []
        (alice,) = group.consumers()
        assert alice.idle == timedelta(0)
        assert 0 < store.metrics()["commit_bytes"] - before < 500


def test_info_full_of_a_group(tmp_path: Path) -> None:
    with shop(tmp_path, 5) as (store, group, clock):
        group.read("alice", count=2)
        clock.ms += 1_000
        group.read("bob", count=2)
        group.nack("1-0")
        group.add_consumer("carol")
        group.stream.group("empty", start="$")
        clock.ms += 2_000
        found = store.stream("work").info_full()
        head = store.stream("work").info()
        assert (found.length, found.groups, found.first_entry) == (5, 2, head.first_entry)
        assert found.node_bytes == head.node_bytes
        assert list(found.entries) == list(store.stream("work"))
        empty, full = found.group_infos
        assert (empty.name, empty.pending_entries, empty.consumer_infos) == ("empty", (), ())
        assert (full.name, full.pending, full.nacked, full.lag) == ("g", 4, 1, 1)
        assert [(each.id.ms, each.consumer, each.delivery_count, each.delivered_ms)
                for each in full.pending_entries] == [
            (1, None, 1, None), (2, "alice", 1, NOW_MS), (3, "bob", 1, NOW_MS + 1_000),
            (4, "bob", 1, NOW_MS + 1_000),
        ]  # fmt: skip
        alice, bob, carol = full.consumer_infos
        assert (alice.name, alice.pending, numbers(alice.pending_entries)) == ("alice", 1, [2])
        assert (bob.seen_ms, bob.active_ms, bob.idle) == (
            NOW_MS + 1_000, NOW_MS + 1_000, timedelta(seconds=2),
        )  # fmt: skip
        assert (carol.active_ms, carol.inactive, carol.pending_entries) == (None, None, ())
        assert bob.pending_entries == full.pending_entries[2:]
        told = json.loads(json.dumps(found.as_dict()))
        assert told["groups"][1]["nacked-count"] == 1
        assert told["groups"][1]["pending"][0] == {
            "id": "1-0", "consumer": None, "delivery-time": 0, "delivery-count": 1,
        }  # fmt: skip
        assert told["groups"][1]["consumers"][2]["active-time"] == -1
        short = store.stream("work").info_full(1)
        assert numbers(short.entries) == [1]
        assert numbers(short.group_infos[1].pending_entries) == [1]
        assert [numbers(each.pending_entries) for each in short.group_infos[1].consumer_infos] == [
            [2], [3], [],
        ]  # fmt: skip
        everything = store.stream("work").info_full(0)
        assert everything == found
    delete_index(tmp_path / "store")
    with shop(tmp_path) as (store, _, clock):
        clock.ms += 3_000
        assert store.stream("work").info_full().group_infos == found.group_infos


def test_info_full_refuses_an_invalid_count_or_stream(tmp_path: Path) -> None:
    bad: Any = True
    with shop(tmp_path, 1) as (store, _, _):
        for count in (-1, bad, "3"):
            with pytest.raises(logstore.OptionError):
                store.stream("work").info_full(count)
        with pytest.raises(logstore.StreamNotFoundError):
            store.stream("none").info_full()


def test_a_large_group_is_looked_at_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No snapshot sees more than a step; what others do between the steps does no harm."""
    monkeypatch.setattr(described, "ROWS_A_STEP", 500)
    steps: list[int] = []
    real = snapshot.read
    with shop(tmp_path) as (store, group, clock):
        work = store.stream("work")
        work.add_many([((n, 1), {"n": n}) for n in range(1, 5_001)])
        for n in range(10):
            group.read(f"c{n}", count=500)
        whole = work.info_full(0)

        def read(engine: Any, batch: Any) -> Any:
            found = real(engine, batch)
            steps.append(1)
            return found

        monkeypatch.setattr(snapshot, "read", read)
        found = work.info_full(0)
        assert found == whole
        assert len(steps) >= 10
        pending = found.group_infos[0].pending_entries
        assert numbers(pending) == list(range(1, 5_001))
        assert [numbers(each.pending_entries) for each in found.group_infos[0].consumer_infos] == [
            list(range(n * 500 + 1, n * 500 + 501)) for n in range(10)
        ]
        clock.ms += 1
        steps.clear()
        few = work.info_full(2)  # the last consumer's entries stand at the end
        assert numbers(few.group_infos[0].consumer_infos[9].pending_entries) == [4501, 4502]
        assert numbers(few.group_infos[0].pending_entries) == [1, 2]

        def meddle(engine: Any, batch: Any) -> Any:
            found = real(engine, batch)
            steps.append(1)
            if len(steps) == 3:
                group.ack(*[f"{n}-1" for n in range(4_000, 5_001)])
            if len(steps) == 5:
                store.drop("work")
            return found

        steps.clear()
        monkeypatch.setattr(snapshot, "read", meddle)
        found = work.info_full(0)
        assert numbers(found.group_infos[0].pending_entries) == list(
            range(1, len(found.group_infos[0].pending_entries) + 1)
        )
        assert found.length == 5_000


@pytest.mark.parametrize("how", ["autoclaim", "read", "reassign", "claim"])
@pytest.mark.parametrize("lane", [True, False])
def test_no_time_at_all_is_had_by_what_was_delivered_while_the_clock_was_ahead(
    tmp_path: Path, how: str, *, lane: bool
) -> None:
    with shop(tmp_path, 3) as (store, group, clock):
        clock.ms += 60_000
        ids = [entry.id for entry in group.read("ahead")]
        clock.ms -= 60_000
        group.read("b", timeout=0)
        if not lane:
            store._engine().lane = None
        if how == "autoclaim":
            found = [entry.id for entry in group.autoclaim("b", min_idle=0).entries]
        elif how == "read":
            found = [entry.id for entry in group.read("b", min_idle=0, timeout=5)]
        elif how == "claim":
            found = [entry.id for entry in group.claim("b", *ids, min_idle=0)]
        else:
            given = group.reassign(0, alive_within=30)
            assert sum(given.values()) == 3
            found = sorted(entry.id for who in given for entry in group.backlog(who))
        assert found == ids
