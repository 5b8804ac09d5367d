"""Prevents a transaction of plain adds beside the pipeline that does otherwise than one through it.

Which transactions the lane takes, what their frames are, and that a failed one leaves nothing.
Histories, threads, finalisers and kills of them: test_lane.py and test_lane_killed.py.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.engine.lane.loading import native_or_none
from logstore.log import reader
from tests.engine.procs import Forked
from tests.support.inside import committer_of, engine_of, follow, lane_commits

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane")

ROW = {"temp": "12.5", "hum": 51}
STEPS_MAX = 64
Store = logstore.Store[bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with two streams, of which the lane knows."""
    with logstore.open(tmp_path / "store", background=False) as opened:
        for name in "ab":
            for _ in range(2):
                opened.stream(name).add(ROW)
        assert lane_commits(opened)
        yield opened


def all_of(store: Store) -> dict[str, list[Any]]:
    """All entries, once the index has them."""
    follow(store)
    return {
        name: [(entry.id, dict(entry.fields)) for entry in store.stream(name).range()]
        for name in "ab"
    }


def pair(store: Store) -> tuple[Any, ...]:
    """A transaction of two adds to one stream and one to the other."""
    with store.transaction() as transaction:
        return tuple(transaction.stream(name).add({"n": name}) for name in "aba")


def test_plain_adds_of_a_transaction_are_one_commit_of_the_lane(store: Store) -> None:
    before, engine = all_of(store), engine_of(store)
    store.stream("a").add(ROW)  # the lane takes over
    store.stream("b").add(ROW)
    lane_commits(store)
    log = engine.wake.log()
    added = pair(store)
    assert lane_commits(store) == 1
    assert engine.wake.log().commit == log.commit + 1
    assert [type(one.id) for one in added] == [logstore.StreamID] * 3
    assert added[0].id < added[2].id
    assert added[0].result == added[0].id
    after = all_of(store)
    assert after["a"][len(before["a"]) + 1 :] == [(added[at].id, {b"n": b"a"}) for at in (0, 2)]
    assert after["b"][len(before["b"]) + 1 :] == [(added[1].id, {b"n": b"b"})]
    # Its frames, as the pipeline lays them out.
    end, at = engine.wake.log(), log.applied
    for ordinal in range(3):
        segment, offset = fmt.position_parts(at)
        frame = reader.read_frame(
            engine.active_file(segment), engine.seed, segment, offset, end.applied & fmt.OFFSET_MAX
        )
        assert (frame.kind, frame.ordinal) == (fmt.Kind.APPEND, ordinal)
        assert frame.last is (ordinal == 2)
        assert frame.commit == log.commit + 1
        assert (end.last_frame == at) is frame.last
        at = fmt.position(segment, frame.end_offset)
    assert end.last_crc == frame.crc
    assert at == end.applied


@pytest.mark.parametrize(
    "more",
    [
        lambda transaction: transaction.stream("a").add(ROW, maxlen=1000, references="acked"),
        lambda transaction: transaction.stream("a").add(ROW, ttl=60),
        lambda transaction: transaction.stream("a").add(ROW, producer="p", idempotent_id="1"),
        lambda transaction: transaction.stream("a").add(list(ROW.items())),
        lambda transaction: transaction.stream("a").add({"temp": "x" * 5000}),
        lambda transaction: transaction.stream("a").add_many([ROW]),
        lambda transaction: [transaction.stream("a").add(ROW) for _ in range(STEPS_MAX)][-1],
        lambda transaction: transaction.stream("a").set_id("99999999999999-9"),
        lambda transaction: transaction.create("other"),
    ],
)
def test_other_transactions_go_through_the_pipeline(
    store: Store, more: Callable[[Any], Any]
) -> None:
    """Each step in its place, whichever of them is not plain."""
    lane_commits(store)
    with store.transaction() as transaction:
        first = transaction.stream("a").add({"at": "first"})
        outcome = more(transaction)
        last = transaction.stream("b").add({"at": "last"})
    assert lane_commits(store) == 0
    assert outcome._done
    there = all_of(store)
    assert (first.id, {b"at": b"first"}) in there["a"]
    assert there["b"][-1] == (last.id, {b"at": b"last"})
    assert [id for id, _ in there["a"]] == sorted({id for id, _ in there["a"]})


def test_what_is_asked_for_a_transaction_is_kept(store: Store) -> None:
    lane_commits(store)
    with store.transaction(sync="always") as transaction:
        transaction.stream("a").add(ROW)
    assert lane_commits(store) == 0
    assert engine_of(store).wake.durable_upto == engine_of(store).wake.applied


def test_arguments_are_taken_at_the_call(store: Store) -> None:
    store.stream("a").add(ROW)
    fields: dict[str, Any] = {"n": "as it was"}
    with store.transaction() as transaction:
        one = transaction.stream("a").add(fields)
        fields["n"] = "changed"
        with pytest.raises(logstore.EntryTypeError):
            transaction.stream("a").add({"n": object()})  # type: ignore[dict-item]
        with pytest.raises(logstore.UsageError):
            one.id  # noqa: B018
    assert all_of(store)["a"][-1] == (one.id, {b"n": b"as it was"})
    with pytest.raises(logstore.UsageError):
        transaction.stream("a").add(ROW)


def test_an_exception_in_the_block_commits_nothing(store: Store) -> None:
    before = all_of(store)
    with suppress(ZeroDivisionError), store.transaction() as transaction:
        transaction.stream("a").add(ROW)
        raise ZeroDivisionError
    assert all_of(store) == before


def test_nodes_roll_where_the_pipeline_rolls_them(tmp_path: Path) -> None:
    """Entries that one commit adds to a node count for whether the next one has room in it."""
    told = []
    for laned in (True, False):
        path = tmp_path / str(laned)
        with logstore.open(path, background=False, node_max_entries=7) as store:
            if not laned:
                engine_of(store)._close_lane()
            for _ in range(12):
                with store.transaction() as transaction:
                    for number in range(4):
                        transaction.stream("s").add({"n": number})
            assert bool(lane_commits(store) if laned else 0) is laned
            follow(store)
            told.append(store.stream("s").info().radix_tree_keys)
    assert told[0] == told[1]


def test_an_append_that_fails_leaves_nothing_of_a_transaction(store: Store) -> None:
    """Also where the first of its frames is there as a whole."""
    engine = engine_of(store)
    for room in (0, 40, 90, 150):
        pair(store)
        assert lane_commits(store) >= 1
        before = all_of(store)
        store.stream("a").add(ROW)
        store.stream("b").add(ROW)
        end = engine.wake.applied & 0xFFFFFFFF
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (end + room, old[1]))
        try:
            with pytest.raises(logstore.Error):
                pair(store)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert not engine.wake.in_progress
        assert not engine.lock.held
        assert [len(rows) for rows in all_of(store).values()] == [
            len(rows) + 1 for rows in before.values()
        ]


def test_a_sync_that_fails_is_told_of_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "END_LOOK_NS", 1 << 60)  # or it is seen that this is no segment
    with logstore.open(tmp_path / "store", background=False, sync="always") as store:
        for name in "abab":
            store.stream(name).add(ROW)
        pair(store)
        engine, active = engine_of(store), engine_of(store).active
        assert active is not None
        applied, kept, null = (
            engine.wake.applied,
            os.dup(active.fd),
            os.open("/dev/null", os.O_RDWR),
        )
        os.dup2(null, active.fd)
        try:
            with pytest.raises(logstore.CommittedError, match="making it durable failed"):
                pair(store)
        finally:
            os.dup2(kept, active.fd)
            os.close(kept)
            os.close(null)
        assert engine.wake.applied == applied
        with pytest.raises(logstore.StoreFailedError):
            pair(store)


def test_a_transaction_inside_of_a_call_is_refused(store: Store) -> None:
    calls = committer_of(store).calls
    calls.now = True
    try:
        with pytest.raises(logstore.ReentryError):
            pair(store)
    finally:
        calls.now = False


def test_processes_take_in_each_others_transactions(tmp_path: Path, store: Store) -> None:
    """Each goes on in its lane behind a commit of the other one that has some frames."""
    there, here = os.pipe(), os.pipe()

    def play() -> None:
        os.close(there[1])  # who dies lets the other one go
        os.close(here[0])
        with logstore.open(tmp_path / "store", background=False) as theirs:
            laned = 0
            while os.read(there[0], 1) == b"a":
                pair(theirs)
                laned += lane_commits(theirs)
                os.write(here[1], b"b")
            assert laned > 60

    child = Forked(play)
    os.close(there[0])
    os.close(here[1])
    before, laned = all_of(store), 0
    for _ in range(100):
        pair(store)
        laned += lane_commits(store)
        os.write(there[1], b"a")
        assert os.read(here[0], 1) == b"b"
    os.write(there[1], b"z")
    child.join()
    assert laned > 60
    after = all_of(store)
    assert len(after["a"]) == len(before["a"]) + 400
    assert len(after["b"]) == len(before["b"]) + 200
