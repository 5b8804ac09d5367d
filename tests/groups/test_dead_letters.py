"""Prevents an entry that is delivered for ever, dies twice or unheard, or is lost on its way."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore.api import coded
from logstore.api import group as group_api
from logstore.engine.groups import ack, dead_letter
from logstore.errors import EntryNotFoundError, OptionError, StreamNotFoundError
from logstore.ids import StreamID
from logstore.wire.command_runner import Runner
from logstore.wire.steps import Change
from tests.groups.shop import numbers, shop
from tests.store.whole_store import stream_nodes
from tests.support.inside import delete_index, log_bytes
from tests.support.processes import Forked
from tests.support.threads import run_all


def delivered(group: Any, times: int, name: str = "a") -> None:
    """Entry 1 is delivered so often, without an outcome."""
    group.read(name, count=1)
    for _ in range(times - 1):
        group.claim(name, "1-0", min_idle=0)


def origin(store: Any) -> dict[str, str]:
    """What the one dead entry tells of where it came from."""
    (dead_lettered,) = store.stream("dead")
    assert dead_lettered.pairs[0] == ("n", "1")
    names = [name for name, _ in dead_lettered.pairs[1:]]
    assert names == [
        "origin_stream", "origin_id", "origin_group", "origin_consumer", "origin_delivery_count",
        "origin_error",
    ]  # fmt: skip
    return dict(dead_lettered.pairs[1:])


AGAIN: dict[str, Callable[[Any], Any]] = {
    "redelivery": lambda group: group.read("b"),
    "redelivery, waiting": lambda group: group.read("b", timeout=0.05),
    "min_idle": lambda group: group.read("b", min_idle=1),
    "autoclaim": lambda group: group.autoclaim("b", min_idle=1).entries,
    "autoclaim by ID": lambda group: group.autoclaim("b", min_idle=1, start="-").entries,
    "its own backlog": lambda group: group.backlog("a"),
}


@pytest.mark.parametrize("how", AGAIN)
def test_instead_of_one_delivery_more(tmp_path: Path, how: str) -> None:
    """At the limit the entry goes; below it, it is delivered once more."""
    with shop(tmp_path, 2) as (store, group, clock):
        group.configure(max_deliveries=3, dead_letter="dead", min_idle=30)
        delivered(group, 2)
        clock.ms += 60_000
        again = AGAIN[how](group)
        assert 1 in numbers(again)
        assert "dead" not in store
        clock.ms += 60_000
        rest = AGAIN[how](group)
        assert 1 not in numbers(rest)
        assert origin(store) == {
            "origin_stream": "work", "origin_id": "1-0", "origin_group": "g",
            "origin_consumer": again[0].consumer, "origin_delivery_count": "3",
            "origin_error": "deliveries without an ack: 3",
        }  # fmt: skip
        assert 1 not in numbers(group.pending_entries())
        assert group.info().pending == group.pending().count == len(list(group.pending_entries()))
        assert sum(each.pending for each in group.consumers()) == group.info().pending
        assert numbers(store.stream("work")) == [1, 2]  # acked, not deleted


@pytest.mark.parametrize("mode", ["fail", "fatal", "silent"])
def test_the_last_nack_makes_a_dead_letter(tmp_path: Path, mode: Any) -> None:
    with shop(tmp_path, 1) as (store, group, _):
        group.configure(max_deliveries=2, dead_letter="dead")
        delivered(group, 2)
        assert group.nack("1-0", mode=mode, error="no such rider") == 1
        if mode == "silent":  # takes the delivery back
            assert next(group.pending_entries()).delivery_count == 1
            assert "dead" not in store
            return
        found = origin(store)
        assert (found["origin_consumer"], found["origin_delivery_count"]) == ("a", "2")
        assert found["origin_error"] == "no such rider"
        assert group.pending().count == 0


def test_a_fatal_nack_dead_letters_at_the_first_delivery(tmp_path: Path) -> None:
    """A fatal nack dead-letters at the first delivery; another one waits for its turn."""
    with shop(tmp_path, 2) as (store, group, _):
        group.configure(max_deliveries=2, dead_letter="dead", min_idle=1000)
        one, two = group.read("a")
        assert two.nack()
        assert one.nack("fatal", error="not a lap")
        assert origin(store)["origin_error"] == "not a lap"
        assert [(each.id.ms, each.delivery_count) for each in group.read("b")] == [(2, 2)]


def test_in_a_transaction_all_or_nothing(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        told: list[Any] = []
        store.on_dead_letter(told.append)
        one, two = group.read("a")
        two.ack()
        tx = store.transaction()
        tx.nack(one)
        tx.ack(two)
        with pytest.raises(logstore.NotOwnerError):
            tx.commit()
        assert ("dead" in store, told) == (False, [])
        with store.transaction() as tx:
            tx.nack(one, error="no such rider")
            tx.stream("out").add({"n": "1"})
        assert numbers(told) == [1]
        assert origin(store)["origin_error"] == "no such rider"


def test_a_claim_by_id_asks_nothing(tmp_path: Path) -> None:
    """Nor does what counts as no delivery: both are how an operator looks at it."""
    with shop(tmp_path, 1) as (store, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        delivered(group, 3)
        assert numbers(group.claim("b", "1-0", min_idle=0)) == [1]
        assert numbers(group.autoclaim("b", min_idle=0, just_id=True).entries) == [1]
        assert "dead" not in store


def test_groups_without_settings_deliver_for_ever(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, clock):
        delivered(group, 50)
        group.nack("1-0", mode="fatal")
        assert numbers(group.read("b", min_idle=1)) == [1]
        clock.ms += 10**6
        assert group.read("c") == []
        assert store.streams() == ["work"]


def test_deleted_entries_leave_the_pending_list(tmp_path: Path) -> None:
    with shop(tmp_path, 4) as (store, group, clock):
        group.configure(max_deliveries=1, dead_letter="dead", min_idle=30)
        group.read("a")
        store.stream("work").delete("1-0", "3-0")
        assert group.nack("3-0") == 1
        clock.ms += 60_000
        assert group.read("b") == []
        assert group.pending().count == 0
        assert [each.fields["origin_id"] for each in store.stream("dead")] == ["2-0", "4-0"]
        before = store.metrics()["commits"]
        assert group.read("b", timeout=0.3) == []
        assert store.metrics()["commits"] - before <= 1


def test_a_waiting_reader_clears_deleted_entries_once(tmp_path: Path) -> None:
    """Once: against a reader that finds it due again and again, and commits each time."""
    with shop(tmp_path, 2) as (store, group, clock):
        group.configure(min_idle=30)
        group.read("a")
        store.stream("work").delete("1-0", "2-0")
        clock.ms += 60_000
        before = store.metrics()["commits"]
        assert group.read("b", timeout=0.4) == []
        assert group.pending().count == 0
        assert store.metrics()["commits"] - before <= 3


@pytest.mark.parametrize("handed_over", [True, False])
def test_an_entry_that_ends_its_worker_counts_against_no_other(
    tmp_path: Path, handed_over: bool
) -> None:
    """Of what was delivered before, a worker takes one at a time where entries may die of it."""
    with shop(tmp_path, 4) as (store, group, clock):
        group.configure(max_deliveries=3, dead_letter="dead", min_idle=30)
        group.read("a", count=3)
        clock.ms += 60_000

        def handler(delivery: Any) -> None:
            if delivery.id.ms == 1:
                raise KeyboardInterrupt  # as far as it got when it was killed

        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                group.consume("b" if handed_over else "a", handler, batch=10)
            clock.ms += 60_000
        counts = [each.delivery_count for each in group.pending_entries()]
        assert counts == [3, 1, 1]
        assert group.consume("c" if handed_over else "a", handler, timeout=0) == 3
        assert [each.fields["n"] for each in store.stream("dead")] == ["1"]


@pytest.mark.parametrize("at_once", [True, False])
def test_the_dead_stand_as_if_added_one_by_one(tmp_path: Path, at_once: bool) -> None:
    """The bytes of their nodes, whether one commit dead-lettered many or each its own."""
    with shop(tmp_path, 300) as (store, group, clock):
        group.configure(max_deliveries=1, dead_letter="dead", min_idle=1)
        found = group.read("a")
        clock.ms += 60_000
        if at_once:
            group.read("b")
        else:
            for each in found:
                each.nack()
                clock.ms += 1
        dead, by_hand = store.stream("dead"), store.stream("hand")
        for each in dead:
            by_hand.add(each.pairs, id=each.id)
        assert [each.fields["n"] for each in dead] == [str(number) for number in range(1, 301)]
        assert stream_nodes(store, b"dead") == stream_nodes(store, b"hand")


def test_an_entry_that_has_no_room_for_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not stop its group for ever."""
    monkeypatch.setattr(dead_letter, "ROW_MAX_BYTES", 2000)
    with shop(tmp_path, 2) as (store, group, clock):
        store.stream("work").add({"n": "x" * 1500}, id="3-0")
        group.configure(max_deliveries=1, dead_letter="dead", min_idle=1)
        group.read("a")
        clock.ms += 60_000
        assert group.read("b") == []
        *others, big = store.stream("dead")
        assert [each.fields["n"] for each in others] == ["1", "2"]
        assert "n" not in big.fields
        assert big.fields["origin_id"] == "3-0"
        assert big.fields["origin_error"].startswith("too large")


def test_a_dead_letter_stream_without_ids_left(tmp_path: Path) -> None:
    """Nothing can be moved there: the group delivers on."""
    last = (1 << 64) - 1
    with shop(tmp_path, 1) as (store, group, clock):
        store.stream("dead").add({"a": "b"}, id=(last, last))
        group.configure(max_deliveries=1, dead_letter="dead", min_idle=1)
        group.read("a")
        clock.ms += 60_000
        assert [each.delivery_count for each in group.read("b")] == [2]
        assert group.nack("1-0") == 1
        assert group.pending().count == 1


def test_a_dead_letter_stream_with_a_damaged_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last node is sealed and has room, and cannot be read: the group delivers on."""
    with shop(tmp_path, 2, node_max_entries=3) as (store, group, _):
        dead = store.stream("dead")
        ids = list(dead.add_many({"n": f"value {number}"} for number in range(4)))
        dead.delete(ids[3])
        group.configure(max_deliveries=1, dead_letter="dead", min_idle=1)
        group.read("a", count=1)
    (log,) = (tmp_path / "store" / "log").glob("*.log")
    data = bytearray(log.read_bytes())
    data[data.rindex(b"value 2")] ^= 1
    log.write_bytes(data)
    with shop(tmp_path) as (_, group, clock):
        clock.ms += 60_000
        assert [each.delivery_count for each in group.read("b")] == [2, 1]
        assert group.nack("1-0") == 1
        assert group.pending().count == 2
    assert "nothing is moved to the dead letter stream" in caplog.text


def test_a_stream_that_got_the_name_of_its_dead_letters(tmp_path: Path) -> None:
    """The dead would come back, for ever."""
    with shop(tmp_path, 1) as (store, group, clock):
        group.configure(max_deliveries=1, dead_letter="dead", min_idle=1)
        store.rename("work", "dead")
        renamed = store.stream("dead").group("g")
        renamed.read("a")
        clock.ms += 60_000
        assert [each.delivery_count for each in renamed.read("b")] == [2]
        assert renamed.nack("1-0") == 1
        assert renamed.pending().count == 1
        assert len(store.stream("dead")) == 1
        store.rename("dead", "work")
        assert group.read("c") == []
        assert len(store.stream("dead")) == 1


def test_many_dead_letters_take_several_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letter, "MOST_ENTRIES", 20)
    caplog.set_level(logging.WARNING, logger="logstore")
    with shop(tmp_path, 50) as (store, group, clock):
        group.configure(max_deliveries=1, dead_letter="dead", min_idle=1)
        group.read("a", count=45)
        clock.ms += 60_000
        assert numbers(group.read("b", count=2)) == [46, 47]
        assert group.pending().count == 45 - 20 + 2
        moved = [each for each in caplog.messages if "moved to 'dead'" in each]
        assert len(moved) == group_api.WARNINGS_MAX
        assert "and 10 more in the same commit" in caplog.messages
        assert store.metrics()["dead_letters"] == 20
        assert numbers(group.autoclaim("b", min_idle=10, start="-", count=100).entries) == []
        assert group.backlog("a") == []
        assert numbers(group.pending_entries()) == [46, 47]
        assert len(store.stream("dead")) == 45
        group.read("c")
        assert group.nack(*[f"{number}-0" for number in range(46, 51)]) == 5
        assert len(store.stream("dead")) == 50


def test_the_log_shows_names_of_bytes_as_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store without an encoding has names of bytes, as commands have."""
    with logstore.open(tmp_path / "store", background=False) as store:
        stream = store.stream("jobs")
        stream.add({"n": "1"})
        group = stream.group("g", start="0")
        group.configure(max_deliveries=1, dead_letter="dead")
        group.read("anna")[0].nack(error="no")
    (told,) = (each for each in caplog.messages if "moved to" in each)
    assert "of 'jobs' moved to 'dead' after 1 delivery (group 'g', consumer 'anna')" in told


def test_on_dead_letter_is_called(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="logstore")
    with shop(tmp_path, 3) as (store, group, clock):
        told: list[Any] = []

        @store.on_dead_letter
        def failing(_dead: Any) -> None:
            raise ValueError("nobody listens")

        @store.on_dead_letter
        def note(dead: logstore.DeadLetter[str]) -> None:
            told.append(dead)
            store.stream("seen").add({"n": dead.fields["n"]})  # no lock is held

        assert failing is not None
        group.configure(max_deliveries=1, dead_letter="dead", min_idle=1)
        group.read("a")
        group.ack("2-0")
        clock.ms += 60_000
        assert group.read("b") == []
        first, second = told
        assert (first.id.ms, first.fields, first.pairs) == (1, {"n": "1"}, [("n", "1")])
        assert (first.group.name, first.consumer, first.delivery_count) == ("g", "a", 1)
        assert first.error == "deliveries without an ack: 1"
        assert (first.dead_letter, first.dead_id) == ("dead", store.stream("dead").first.id)
        assert second.dead_id == store.stream("dead").last.id
        assert "now" in repr(first)
        assert [each.fields["n"] for each in store.stream("seen")] == ["1", "3"]
        assert store.metrics()["dead_letters"] == 2
        assert len([each for each in caplog.messages if "moved to 'dead'" in each]) == 2
        assert len([each for each in caplog.messages if "callback" in each]) == 2


def test_each_thread_tells_of_its_own(tmp_path: Path) -> None:
    """Threads whose operations share a commit."""
    with shop(tmp_path, 3) as (store, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        told: list[tuple[int, int]] = []
        store.on_dead_letter(lambda dead: told.append((dead.id.ms, threading.get_ident())))
        found = group.read("a")
        committer = store._live().committer
        threads = [threading.Thread(target=each.nack) for each in found]
        with committer.locked():
            for number, each in enumerate(threads):
                each.start()
                while len(committer.queue.queue) < number:  # the first one leads, and is not in it
                    time.sleep(0.001)
        before = store.metrics()["commits"]
        for each in threads:
            each.join()
        assert store.metrics()["commits"] - before < len(threads)
        assert sorted(number for number, _ in told) == [1, 2, 3]
        assert len({thread for _, thread in told}) == 3


@pytest.mark.parametrize("together", [False, True])
def test_on_dead_letter_hears_of_dead_letters_by_a_server(tmp_path: Path, together: bool) -> None:
    with shop(tmp_path, 1, encoding=None) as (store, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        told: list[Any] = []
        store.on_dead_letter(told.append)
        group.read("a")
        give_back = Change(
            lambda state: ack.nack(state, b"work", b"g", [StreamID(1, 0)]), lambda done: done
        )
        runner = Runner(store)
        assert (runner.transaction if together else runner.run)([give_back]) == [1]
        assert [(each.consumer, each.fields[b"n"]) for each in told] == [(b"a", b"1")]


def test_a_limit_of_the_worker_goes_before_the_groups(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, _):
        group.configure(max_deliveries=5, dead_letter="dead")
        tried: list[int] = []
        heard: list[Any] = []

        def handler(delivery: Any) -> None:
            tried.append(delivery.id.ms)
            raise ValueError("never")

        group.consume(
            "a", handler, timeout=0, max_deliveries=2, dead_letter="mine", on_dead=heard.append
        )
        assert (sorted(tried), numbers(heard)) == ([1, 1, 2, 2], [1, 2])
        assert store.streams() == ["mine", "work"]
        assert store.stream("mine").last.fields["origin_error"] == "ValueError('never')"


def test_a_worker_takes_the_groups_limit(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, _):
        group.configure(max_deliveries=3, dead_letter="dead")
        tried: list[int] = []

        def handler(delivery: Any) -> None:
            tried.append(delivery.id.ms)
            if delivery.id.ms == 1:
                raise ValueError("never")

        heard: list[Any] = []
        assert group.consume("a", handler, timeout=0, on_dead=heard.append) == 1
        assert sorted(tried) == [1, 1, 1, 2]
        assert [(each.id.ms, each.error) for each in heard] == [(1, "ValueError('never')")]
        assert origin(store)["origin_delivery_count"] == "3"


def test_a_dead_lettering_that_is_cut_off_leaves_the_entry_in_one_place(tmp_path: Path) -> None:
    """Wherever a crash cuts the commit: pending, or dead."""
    with shop(tmp_path, 1) as (store, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        group.read("a")
        before = log_bytes(store.path)
        group.nack("1-0")
        after = log_bytes(store.path)
        path = shutil.copytree(store.path, tmp_path / "crashed")
    places: set[tuple[bool, int]] = set()
    (segment,) = (path / "log").glob("*.log")
    for cut in [*range(before + 1, after, 9), after]:
        clone = tmp_path / "clone"
        shutil.copytree(path, clone)
        delete_index(clone)
        os.truncate(clone / "log" / segment.name, cut)
        with logstore.open(clone, background=False) as found:
            pending = found.stream("work").group("g").info().pending
            dead = len(found.stream("dead")) if "dead" in found else 0
            assert pending + dead == 1
            places.add((cut == after, pending))
        shutil.rmtree(clone)
    assert places == {(False, 1), (True, 0)}


def test_the_settings_and_the_dead_outlive_the_index(tmp_path: Path) -> None:
    """Reopened, rebuilt from the log, and from a checkpoint."""
    with shop(tmp_path, 5) as (store, group, _):
        group.configure(max_deliveries=2, dead_letter="dead", min_idle=30)
        delivered(group, 2)
        group.nack("1-0")
        group.read("b", count=2)
        path = store.path

    def look() -> list[Any]:
        with logstore.open(path, encoding="utf-8", background=False) as found:
            there = found.stream("work").group("g")
            return [
                there.settings, there.info(), numbers(there.pending_entries()),
                [(each.id, each.pairs) for each in found.stream("dead")], found.streams(),
            ]  # fmt: skip

    before = look()
    assert before[1].pending == 2
    shutil.rmtree(path / "index")
    assert look() == before
    with logstore.open(path, background=False) as store:
        store.checkpoint()
    shutil.rmtree(path / "index")
    assert look() == before


def test_an_unreadable_index_behind_the_commit_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The index cannot be read behind the commit: an error would say that nothing happened."""

    def unreadable(*_: Any) -> None:
        raise logstore.FileSystemError("the index cannot be read")

    with shop(tmp_path, 1) as (store, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        delivered(group, 1)
        monkeypatch.setattr(coded, "as_kept", unreadable)
        with caplog.at_level(logging.ERROR):
            assert group.nack("1-0") == 1
        monkeypatch.undo()
        assert origin(store)["origin_id"] == "1-0"
    assert "of 1 dead-lettered entries nobody could be told" in caplog.text


def die(store: Any, count: int, stream: str = "jobs") -> list[str]:
    """So many entries of a stream become dead letters; their IDs there."""
    jobs = store.stream(stream)
    jobs.add_many({"n": str(n), "origin_error": "the user's own"} for n in range(count))
    group = jobs.group("workers", start="0")
    group.configure(max_deliveries=1, dead_letter="dead")
    for delivery in group.read("anna", count=count):
        delivery.nack(error="no")
    return [str(entry.id) for entry in store.stream("dead")]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store of text."""
    with logstore.open(tmp_path / "store", encoding="utf-8") as opened:
        yield opened


def test_dead_letters_come_back_as_they_were(store: Any) -> None:
    dead = die(store, 5)
    new = store.requeue("dead", dead[3], dead[1], dead[3])
    assert [store.stream("jobs").get(id).pairs for id in new] == [
        [("n", str(n)), ("origin_error", "the user's own")] for n in (3, 1)
    ]
    assert [str(entry.id) for entry in store.stream("dead")] == [dead[0], dead[2], dead[4]]
    # Each is delivered again, and dies again if it fails again.
    (first, second) = store.stream("jobs").group("workers").read("bob")
    assert [first.id, second.id] == new
    first.nack(error="again")
    assert store.stream("dead").last["origin_id"] == str(first.id)


def test_requeue_of_all_takes_several_commits_and_streams(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.api.group.REQUEUED_MAX", 3)
    die(store, 4, "a")
    die(store, 4, "b")
    assert len(store.requeue("dead")) == 8
    assert len(store.stream("dead")) == 0
    assert [len(store.stream(name)) for name in ("a", "b")] == [8, 8]
    assert store.requeue("dead") == []


def test_to_a_stream_of_ones_own(store: Any) -> None:
    dead = die(store, 2)
    store.requeue("dead", dead[1], to="")  # a name as any other
    assert len(store.stream("")) == 1
    store.requeue("dead", dead[0], to="looked at")
    (entry,) = store.stream("looked at")
    assert entry["n"] == "0"
    other = store.stream("dead").add({"a": "1"})  # no dead letter at all
    store.requeue("dead", other, to="looked at")
    assert store.stream("looked at").last.pairs == [("a", "1")]


def test_a_refused_requeue_changes_nothing(store: Any) -> None:
    dead = die(store, 2)
    stranger = store.stream("dead").add({"a": "1"})
    before = store.stream("dead").info(), store.stream("jobs").info()
    for ids, error in (
        ((dead[0], "1-1"), EntryNotFoundError),
        ((dead[0], stranger), OptionError),
        ((), OptionError),
        ((dead[0], "x"), logstore.InvalidIDError),
    ):
        with pytest.raises(error):
            store.requeue("dead", *ids)
        assert (store.stream("dead").info(), store.stream("jobs").info()) == before
    with pytest.raises(OptionError, match=r"no dead letter: .*stream 'dead'"):
        store.requeue("dead", stranger)
    with pytest.raises(StreamNotFoundError):
        store.requeue("absent")
    with pytest.raises(StreamNotFoundError):
        store.requeue("absent", "1-1")


def test_two_concurrent_requeues_give_one_entry(store: Any) -> None:
    dead = die(store, 20)
    outcomes: list[str] = []

    def ask() -> None:
        for id in dead:
            try:
                store.requeue("dead", id)
                outcomes.append("moved")
            except EntryNotFoundError:
                outcomes.append("gone")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    run_all(threads)
    assert (outcomes.count("moved"), outcomes.count("gone")) == (20, 40)
    assert len(store.stream("jobs")) == 40


def test_a_requeue_survives_a_kill_and_the_loss_of_the_index(tmp_path: Path) -> None:
    path = tmp_path / "store"

    def work() -> None:
        store = logstore.open(path, encoding="utf-8", background=False)
        store.requeue("dead", *die(store, 10)[:4])

    with Forked(work):
        pass  # it ends without closing
    delete_index(path)
    with logstore.open(path, encoding="utf-8") as store:
        assert [len(store.stream(name)) for name in ("jobs", "dead")] == [14, 6]


def test_the_asyncio_face(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", encoding="utf-8") as plain:
        dead = die(plain, 3)

    async def work() -> int:
        async with logstore.aio.open(tmp_path / "store", encoding="utf-8") as store:
            assert len(await store.requeue("dead", dead[0])) == 1
            assert len(await store.requeue("dead")) == 2
            return await store.stream("jobs").len()

    assert asyncio.run(work()) == 6


def test_a_dead_letter_stream_that_was_renamed_to_its_origin(tmp_path: Path) -> None:
    """What goes back to the stream where it is stands behind itself, once."""
    with shop(tmp_path, 1) as (store, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        (delivery,) = group.read("a")
        name = group.stream.name
        delivery.nack(error="no")
        store.drop(name)
        store.rename("dead", name)
        (old,) = store.stream(name)
        (new,) = store.requeue(name, old.id)
        assert [entry.id for entry in store.stream(name)] == [new]
