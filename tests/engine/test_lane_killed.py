"""Prevents a kill between two steps of an add in the lane that loses, doubles or half publishes it.

A process is killed at each of its calls of the system while it adds in the lane, by a library that
is loaded before the C library. Between the stores of the words that publish a commit there is no
call: there the words are put back by hand, one after the other.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.shm.commit_words import LogWords
from tests.engine.killing import ACKS, ADDS, READS, TRANSACTIONS, run_until_killed
from tests.support.inside import engine_of, follow, lane_commits, let_lag

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)


@pytest.mark.parametrize("sync", ["everysec", "always"])
@pytest.mark.parametrize(
    ("at", "how", "more"),
    [
        ("flock:1", "none", 0),  # before LOCK
        ("flock:1", "all", 0),  # behind it
        ("flock:2", "none", 1),  # all is published, LOCK is held
        ("flock:2", "all", 1),
        ("pwrite:1", "none", 0),  # the word of a commit in progress is set
        ("pwrite:1", "half", 0),  # a torn tail
        ("pwrite:1", "all", 1),  # complete, and not published
        ("fdatasync:1", "none", 1),
        ("fdatasync:1", "all", 1),
    ],
)
@pytest.mark.parametrize("stays_open", [False, True])
def test_a_kill_leaves_all_of_an_add_or_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killer: Path,
    sync: str,
    at: str,
    how: str,
    more: int,
    stays_open: bool,
) -> None:
    """Whether another process has the store open, and finishes the commit, or nobody had."""
    if at.startswith("fdatasync") and sync != "always":
        pytest.skip("nothing is synced")
    let_lag(monkeypatch, 64, lane=True)
    path = tmp_path / "store"
    with logstore.open(path, background=False) as other:
        other.stream("s").add({"n": -1})
        if not stays_open:
            other.close()
        acknowledged = [
            int(line) for line in run_until_killed(killer, ADDS, tmp_path, sync, at, how)
        ]
        with logstore.open(path, background=False) as store:
            stream = store.stream("s")
            id = stream.add({"n": 99})
            follow(store)
            there = [int(entry.fields[b"n"]) for entry in stream.range()]
            assert there == [-1, *range(10 + len(acknowledged) + more), 99]
            assert stream.last_id == id
            assert bool(store.metrics()["torn_tails"]) is (how == "half" and stays_open)
    if stays_open:
        return
    command = "import sys; from logstore.tools.cli import main; sys.exit(main())"
    subprocess.run(
        [sys.executable, "-c", command, "check", str(path)], check=True, stdout=subprocess.DEVNULL
    )


@pytest.mark.parametrize(("how", "more"), [("half", 0), ("all", 1)])
@pytest.mark.parametrize("stays_open", [False, True])
def test_a_kill_leaves_all_of_a_transaction_or_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killer: Path,
    how: str,
    more: int,
    stays_open: bool,
) -> None:
    """In its one write: the first of its frames, all but for its end, or all is there."""
    let_lag(monkeypatch, 64, lane=True)
    path = tmp_path / "store"
    with logstore.open(path, background=False) as other:
        for name in "ab":
            other.stream(name).add({"n": -1})
        if not stays_open:
            other.close()
        run_until_killed(killer, TRANSACTIONS, tmp_path, "everysec", "pwrite:1", how)
        with logstore.open(path, background=False) as store:
            store.stream("a").add({"n": 99})
            follow(store)
            there = {
                name: [int(entry.fields[b"n"]) for entry in store.stream(name).range()]
                for name in "ab"
            }
            assert there["b"] == [-1, *range(10 + more)]
            assert there["a"] == [-1, *[each for n in range(10 + more) for each in (n, n)], 99]


@pytest.mark.parametrize("work", [READS, ACKS], ids=["reads", "acks"])
@pytest.mark.parametrize(
    ("at", "how", "more"),
    [
        ("flock:1", "all", 0),
        ("pwrite:1", "half", 0),
        ("pwrite:1", "all", 1),
        ("flock:2", "none", 1),
    ],
)
@pytest.mark.parametrize("stays_open", [False, True])
def test_a_kill_leaves_all_of_a_read_or_an_ack_or_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killer: Path,
    work: str,
    at: str,
    how: str,
    more: int,
    stays_open: bool,
) -> None:
    let_lag(monkeypatch, 64, lane=True)
    path = tmp_path / "store"
    with logstore.open(path, background=False) as other:
        other.stream("s").add_many({"n": number} for number in range(30))
        group = other.stream("s").group("g", start="0")
        if work is ACKS:
            group.read("c", count=30)
        if not stays_open:
            other.close()
        told = run_until_killed(killer, work, tmp_path, "everysec", at, how)
        happened = 10 + len(told) + more
        with logstore.open(path, background=False) as store:
            group = store.stream("s").group("g")
            store.stream("s").add({"n": 99})  # finishes what was begun
            pending = [int(store.stream("s")[one.id]["n"]) for one in group.pending_entries()]
            if work is ACKS:
                assert pending == list(range(happened, 30))
            else:
                assert pending == list(range(happened))
                assert group.read("c", count=1)[0]["n"] == b"%d" % happened
            assert (
                group.info().pending
                == sum(group.pending().consumers.values())
                == group.pending().count
            )
            follow(store)
            assert [int(store.stream("s")[one.id]["n"]) for one in group.pending_entries()][
                :5
            ] == pending[:5]


@pytest.mark.parametrize("stored", range(6))
def test_a_kill_among_the_words_that_publish_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    """In the order in which the lane stores them; the commit is in progress until the last one."""
    let_lag(monkeypatch, 64, lane=True)
    order = ["commit", "last_frame", "last_crc", "applied", "in_progress"]
    with logstore.open(tmp_path / "store", background=False) as store:
        stream, wake = store.stream("s"), engine_of(store).wake
        ids = [stream.add({"n": number}) for number in range(10)]
        before = wake.log()
        lane_commits(store)
        ids.append(stream.add({"n": 10}))
        assert lane_commits(store) == 1
        after = wake.log()
        words = before._asdict() | {"in_progress": after.commit}
        words |= {name: getattr(after, name) for name in order[:stored]}
        wake.set_log(LogWords(**words))
        ids.append(stream.add({"n": 11}))
        ids.append(stream.add({"n": 12}))
        follow(store)
        assert not wake.in_progress
        assert [entry.id for entry in stream.range()] == ids
        assert wake.log().commit == after.commit + 2
