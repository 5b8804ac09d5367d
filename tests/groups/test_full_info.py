"""Prevents a full description that leaves something out, takes a long snapshot, or differs
from what is told piece by piece. (The machine compares it with real servers.)"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api import describe
from logstore.engine.snapshots import snapshot
from tests.groups.shop import NOW_MS, numbers, shop
from tests.support.inside import delete_index


def test_all_of_it(tmp_path: Path) -> None:
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


def test_what_is_refused(tmp_path: Path) -> None:
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
    monkeypatch.setattr(describe, "ROWS_A_STEP", 500)
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

        monkeypatch.setattr(describe.snapshot, "read", read)
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
        monkeypatch.setattr(describe.snapshot, "read", meddle)
        found = work.info_full(0)
        assert numbers(found.group_infos[0].pending_entries) == list(
            range(1, len(found.group_infos[0].pending_entries) + 1)
        )
        assert found.length == 5_000
