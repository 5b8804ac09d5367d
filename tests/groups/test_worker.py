"""Prevents workers that lose, repeat or hoard entries, or that do not end when they are told to."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import logstore
from tests.conftest import ROOT
from tests.groups.shop import numbers, shop


def test_a_worker_handles_acks_and_counts(tmp_path: Path) -> None:
    with shop(tmp_path, 25) as (_, group, _):
        seen: list[int] = []
        assert group.consume("alice", lambda each: seen.append(each.id.ms), timeout=0) == 25
        assert seen == list(range(1, 26))
        assert group.pending().count == 0


def test_a_worker_takes_its_backlog_before_idle_entries(tmp_path: Path) -> None:
    with shop(tmp_path, 9) as (_, group, clock):
        group.read("bob", count=2)
        group.read("alice", count=2)
        clock.ms += 60_000
        group.read("carol", count=2)
        seen: list[int] = []
        group.consume("alice", lambda each: seen.append(each.id.ms), timeout=0, min_idle=30)
        assert seen == [3, 4, 1, 2, 7, 8, 9]
        assert numbers(group.pending_entries()) == [5, 6]


def test_without_claim_idle_only_what_was_given_back_is_taken(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (_, group, clock):
        group.read("bob")
        group.nack("2-0")
        clock.ms += 10**9
        seen: list[int] = []
        group.consume("alice", lambda each: seen.append(each.id.ms), timeout=0)
        assert seen == [2]


def test_a_deleted_entry_of_the_backlog_is_acked_unhandled(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, _):
        group.read("alice")
        store.stream("work").delete("1-0")
        seen: list[int] = []
        assert group.consume("alice", lambda each: seen.append(each.id.ms), timeout=0) == 1
        assert seen == [2]
        assert group.pending().count == 0


def test_the_hopeless_go_to_the_dead_letter_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="logstore")
    with shop(tmp_path, 5) as (store, group, _):
        tried: Counter[int] = Counter()
        dead: list[int] = []

        def handler(delivery: Any) -> None:
            tried[delivery.id.ms] += 1
            if delivery.id.ms == 3:
                raise ValueError("not a lap")

        done = group.consume(
            "alice", handler, batch=2, timeout=0, max_deliveries=3, dead_letter="dead",
            on_dead=lambda delivery: dead.append(delivery.id.ms),
        )  # fmt: skip
        assert done == 4
        assert tried == {1: 1, 2: 1, 3: 3, 4: 1, 5: 1}
        assert dead == [3]
        (dead_lettered,) = store.stream("dead")
        assert dead_lettered.pairs == [
            ("n", "3"), ("origin_stream", "work"), ("origin_id", "3-0"), ("origin_group", "g"),
            ("origin_consumer", "alice"), ("origin_delivery_count", "3"),
            ("origin_error", "ValueError('not a lap')"),
        ]  # fmt: skip
        assert group.pending().count == 0
        assert any("moved to 'dead' after 3 deliveries" in each for each in caplog.messages)


def test_an_entry_that_kills_workers_is_dead_lettered_by_its_count(tmp_path: Path) -> None:
    """No exception is ever raised by what ends the process; the count tells."""
    with shop(tmp_path, 1) as (store, group, clock):
        for name in ("a", "b"):
            group.claim(name, "1-0", min_idle=0) or group.read(name)
        clock.ms += 60_000
        handled = group.consume(
            "c", lambda _: 1 / 0, timeout=0, min_idle=30, max_deliveries=2, dead_letter="dead"
        )
        assert handled == 0
        found = store.stream("dead").last.fields
        assert (found["origin_delivery_count"], found["origin_consumer"]) == ("2", "b")
        assert found["origin_error"] == "deliveries without an ack: 2"


def test_without_a_limit_a_failure_is_given_back_and_ends_the_round(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (_, group, _):

        def handler(delivery: Any) -> None:
            if delivery.id.ms == 2:
                raise ValueError

        assert group.consume("alice", handler, timeout=0) == 2
        (left,) = group.pending_entries()
        assert (left.id.ms, left.consumer) == (2, None)
        assert left.delivery_count >= 1


def test_a_handler_with_a_transaction_of_its_own(tmp_path: Path) -> None:
    with shop(tmp_path, 5) as (store, group, _):

        def handler(delivery: Any) -> None:
            with store.transaction() as tx:
                tx.stream("out").add({"n": delivery.fields["n"]})
                tx.ack(delivery)

        before = store.metrics()["commits"]
        assert group.consume("alice", handler, timeout=0) == 5
        assert [entry.fields["n"] for entry in store.stream("out")] == list("12345")
        assert store.metrics()["commits"] - before <= 5 + 3  # no second ack


def test_a_worker_takes_nothing_back(tmp_path: Path) -> None:
    """What was claimed while the handler ran is another's, whatever the handler did."""
    with shop(tmp_path, 3) as (store, group, clock):

        def handler(delivery: Any) -> None:
            clock.ms += 60_000
            group.claim("thief", delivery.id, min_idle=1)
            if delivery.id.ms == 1:
                raise ValueError
            with store.transaction() as tx:
                tx.stream("out").add({"n": "1"})
                tx.ack(delivery)

        group.consume("alice", handler, timeout=0, max_deliveries=1, dead_letter="dead")
        assert numbers(group.pending_entries(consumer="thief")) == [1, 2, 3]
        assert store.streams() == ["work"]


def test_an_event_stops_it_after_the_running_handler(tmp_path: Path) -> None:
    with shop(tmp_path, 6) as (_, group, _):
        stop = threading.Event()

        def handler(delivery: Any) -> None:
            if delivery.id.ms == 2:
                stop.set()

        assert group.consume("alice", handler, batch=4, stop=stop) == 2
        left = list(group.pending_entries())
        assert [(each.id.ms, each.consumer, each.delivery_count) for each in left] == [
            (3, None, 0), (4, None, 0),
        ]  # fmt: skip
        seen: list[int] = []
        group.consume("bob", lambda each: seen.append(each.id.ms), timeout=0)
        assert seen == [3, 4, 5, 6]


def test_an_event_ends_waiting(tmp_path: Path) -> None:
    with shop(tmp_path) as (_, group, _):
        stop = threading.Event()
        threading.Timer(0.2, stop.set).start()
        begun = time.monotonic()
        assert group.consume("alice", print, stop=stop) == 0
        assert time.monotonic() - begun < 60


def test_sigterm_ends_it_and_the_handler_before_is_restored(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with shop(tmp_path, 3) as (_, group, _):

            def handler(delivery: Any) -> None:
                if delivery.id.ms == 2:
                    os.kill(os.getpid(), signal.SIGTERM)

            assert group.consume("alice", handler) == 2
            assert heard == []
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


WAITS = """
import sys, logstore

with logstore.open(sys.argv[1], sync="os") as store:
    group = store.stream("work").group("g", start="0")

    def handler(delivery):
        print("begun", flush=True)

    print("handled", group.consume("alice", handler), flush=True)
"""


def test_sigterm_ends_a_process_that_waits(tmp_path: Path) -> None:
    """Against a worker that sleeps on, or dies of it without closing its store."""
    path = tmp_path / "store"
    with logstore.open(path, sync="os") as store:
        store.stream("work").add({"n": "1"})
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, str(path)], stdout=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        time.sleep(0.3)
        process.terminate()
        assert process.stdout.readline() == b"handled 1\n"
        assert process.wait(60) == 0


def test_in_a_thread_signals_are_left_alone(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (_, group, _):
        before = signal.getsignal(signal.SIGTERM)
        during: list[object] = []
        work = threading.Thread(
            target=group.consume,
            args=("alice", lambda _: during.append(signal.getsignal(signal.SIGTERM))),
            kwargs={"timeout": 0},
        )
        work.start()
        work.join()
        assert during == [before] * 3


def test_an_interrupt_leaves_the_entry_pending(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (_, group, _):

        def handler(delivery: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            group.consume("alice", handler)
        assert numbers(group.pending_entries(consumer="alice")) == [1, 2]


def test_concurrency_runs_handlers_in_threads(tmp_path: Path) -> None:
    """Four meet in their handlers, also where one fails; each is acked or dead, and counted."""
    with shop(tmp_path, 8) as (_, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        meeting, seen = threading.Barrier(4), set[int]()

        def handle(each: logstore.Delivery[Any]) -> None:
            meeting.wait(30)
            seen.add(each.id.ms)
            if each.id.ms == 3:
                raise ValueError("not this one")

        assert group.consume("alice", handle, timeout=0, batch=4, concurrency=4) == 7
        assert seen == set(range(1, 9))
        assert group.pending().count == 0


def test_a_stop_waits_for_the_handlers_that_run_and_gives_the_others_back(tmp_path: Path) -> None:
    """One that does not return keeps consume from returning, and nothing else."""
    with shop(tmp_path, 6) as (_, group, _):
        stop, begun, go_on = threading.Event(), threading.Barrier(3), threading.Event()

        def handle(_each: logstore.Delivery[Any]) -> None:
            begun.wait(30)
            assert go_on.wait(30)

        done: list[int] = []
        worker = threading.Thread(
            target=lambda: done.append(
                group.consume("alice", handle, batch=6, concurrency=2, stop=stop)
            )
        )
        worker.start()
        begun.wait(30)
        stop.set()
        worker.join(0.1)
        assert worker.is_alive()
        go_on.set()
        worker.join(30)
        assert done == [2]
        left = list(group.pending_entries())
        assert [each.delivery_count for each in left] == [0] * 4


def test_an_interrupt_in_a_thread_ends_all_of_them(tmp_path: Path) -> None:
    """What was not begun stays pending; the interrupt is raised where consume was called."""
    with shop(tmp_path, 9) as (_, group, _):

        def handle(each: logstore.Delivery[Any]) -> None:
            if each.id.ms == 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            group.consume("alice", handle, batch=9, concurrency=2)
        assert 1 in numbers(group.pending_entries())


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"batch": "5"},
        {"max_deliveries": 3},
        {"dead_letter": "dead"},
        {"max_deliveries": 0, "dead_letter": "dead"},
        {"max_deliveries": 3, "dead_letter": "work"},
        {"min_idle": -1},
        {"timeout": -1},
    ],
)
def test_options_that_contradict_each_other(tmp_path: Path, options: dict[str, Any]) -> None:
    with shop(tmp_path, 1) as (_, group, _):
        with pytest.raises(logstore.OptionError):
            group.consume("alice", print, **options)
        assert group.pending().count == 0


def test_idle_entries_are_handed_to_who_looks_alive(tmp_path: Path) -> None:
    with shop(tmp_path, 12) as (store, group, clock):
        group.read("dead", count=7)
        store.stream("work").delete("7-0")
        clock.ms += 60_000
        group.read("busy", count=3)
        group.read("free", count=1)
        group.nack("8-0")
        assert group.reassign(30, 10, count=8) == {"busy": 3, "free": 4}
        counts = {each.id.ms: each for each in group.pending_entries()}
        assert sorted(counts) == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
        assert counts[8].consumer in {"busy", "free"}  # was given back: first of all
        assert {each.delivery_count for each in counts.values()} == {1}
        assert group.pending().consumers == {"busy": 5, "free": 5}
        idle = {each.name: each.idle.total_seconds() for each in group.consumers()}
        assert idle == {"busy": 0, "free": 0, "dead": 60}
        seen: list[int] = []
        group.consume("free", lambda each: seen.append(each.id.ms), batch=20, timeout=0)
        assert len(seen) == 5 + 1  # and a new one


def test_handed_entries_do_not_count_as_a_sign_of_life(tmp_path: Path) -> None:
    with shop(tmp_path, 4) as (_, group, clock):
        group.read("a", count=2)
        clock.ms += 60_000
        group.read("b", count=1)
        clock.ms += 5_000
        assert group.reassign(30, 10) == {"b": 2}
        clock.ms += 8_000
        assert group.reassign(1, 10) == {}
        assert numbers(group.pending_entries(consumer="b")) == [1, 2, 3]


def test_a_waiting_worker_finds_what_it_was_handed(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (_, group, clock):
        group.read("dead")
        clock.ms += 60_000
        done: list[int] = []
        stop = threading.Event()

        def handler(delivery: Any) -> None:
            done.append(delivery.delivery_count)
            stop.set()

        work = threading.Thread(
            target=group.consume, args=("alice", handler), kwargs={"stop": stop, "timeout": 20}
        )
        work.start()
        while not any(each.name == "alice" for each in group.consumers()):
            time.sleep(0.01)
        assert group.reassign(30, 10) == {"alice": 1}
        work.join(60)
        assert done == [2]


WORKER = """
import os, sys, time
import logstore

with logstore.open(sys.argv[1], encoding="utf-8", sync="os") as store:
    group = store.stream("work").group("g")

    def handler(delivery):
        global done
        if sys.argv[2] == "w0" and done == 17:  # amid a batch
            print("holds some", flush=True)
            time.sleep(600)
        done += 1
        time.sleep(0.002)
        with store.transaction() as tx:
            tx.stream("out").add({"n": delivery.fields["n"], "by": sys.argv[2]})
            tx.ack(delivery)

    done = 0
    group.consume(sys.argv[2], handler, batch=7, min_idle=1, timeout=5)
"""


def worker(path: Path, name: str) -> subprocess.Popen[bytes]:
    """A process that works until there was nothing to do for a while."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), name], stdout=subprocess.PIPE, env=env
    )


def test_processes_of_which_one_is_killed(tmp_path: Path) -> None:
    """Every entry has exactly one output, whoever read it first."""
    path, total = tmp_path / "store", 600
    with logstore.open(path, encoding="utf-8", sync="os") as store:
        work, out = store.stream("work"), store.stream("out")
        group = work.group("g", start="0")
        work.add_many({"n": str(number)} for number in range(total))
        workers = [worker(path, "w0")]  # alone, until it holds some
        assert workers[0].stdout is not None
        assert workers[0].stdout.readline() == b"holds some\n"
        assert group.pending().consumers["w0"] == 4
        workers += [worker(path, f"w{number}") for number in range(1, 4)]
        workers[0].kill()
        for each in workers:
            each.wait(120)
            assert each.stdout is not None
            each.stdout.close()
        found = Counter(entry.fields["n"] for entry in out)
        assert len(found) == total
        assert set(found.values()) == {1}
        assert group.pending().count == 0
        assert group.info().lag == 0
    assert [each.returncode for each in workers] == [-signal.SIGKILL, 0, 0, 0]
