"""Prevents that what runs inside a collection changes what the call around it stores or tells.

Each call is made again and again, and each time the collector runs work of ours at the next object
that the call makes, until it makes no more: so each place is tried. The work gives the stream's
open node other names; in the thread of the call it may be refused (``ReentryError``), in another
thread it waits for what the call has locked. Every entry carries its seal.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from tests.collections import sealed
from tests.collections.collector import Collector
from tests.support.inside import committer_of, delete_index, engine_of

Store = logstore.Store[Any]
NODE_MAX_ENTRIES = 8  # of which a case has four at first
EVERY = 12  # places that are tried one by one; behind these some
NO_LONGER_S = 120


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """A deadlock ends the process, and says where each thread stands."""
    faulthandler.dump_traceback_later(NO_LONGER_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def climate(number: int) -> dict[Any, Any]:
    return sealed.entry(("temp", "hum"), [str(number), number])


def place(number: int) -> dict[Any, Any]:
    return sealed.entry(("lat", "lon"), [str(number), number])


class TriedStream:
    """One stream, the call that is tried on it, and what its entries must be."""

    def __init__(self, store: Store, number: int) -> None:
        self.store, self.number = store, number
        self.stream = store.stream(f"s{number}")
        self.group = self.stream.group("g", start="0")
        self.there: dict[Any, dict[bytes, bytes]] = {}
        self.refused = 0
        self.same = climate(7)  # added again and again: the same objects are its names
        for _ in range(3):
            self.add(self.same)
        self.ids = list(self.there)
        self.group.read("c", count=1)
        self.other = store.stream(f"t{number}")  # of which the lane has no handle yet
        self.other.add_many([place(5)])
        self.add(self.same)  # the lane has taken over, and knows stream and group
        self.group.read("c", count=1)
        if number % 2:  # the read core keeps the stream, and in every second case loads it
            assert self.stream.get(self.ids[0]) is not None

    def add(self, fields: dict[Any, Any]) -> None:
        """An add, and what it means."""
        self.there[self.stream.add(fields)] = sealed.as_read(fields)

    def intrude(self) -> None:
        """Other names for the open node: it is full, and the next one begins with them."""
        try:
            for number in range(NODE_MAX_ENTRIES + 3):
                self.add(place(number))
        except logstore.ReentryError:
            self.refused += 1

    def check(self) -> None:
        found = {entry.id: dict(entry.fields) for entry in self.stream.range()}
        for fields in found.values():
            sealed.check(fields)
        assert found == self.there
        for entry in self.other.range():
            sealed.check(entry.fields)


def adds(case: TriedStream) -> None:
    case.add(climate(11))


def adds_again(case: TriedStream) -> None:
    case.add(case.same)


def transacts(case: TriedStream) -> None:
    rows = [climate(1), place(2), climate(3)]
    with case.store.transaction() as opened:
        stream = opened.stream(f"s{case.number}")
        made = [stream.add(row) for row in rows]
    for one, row in zip(made, rows, strict=True):
        case.there[one.id] = sealed.as_read(row)


def transacts_over_streams(case: TriedStream) -> None:
    """An entry is encoded, and then a handle is made: others encode theirs in its place."""
    row = climate(1)
    with case.store.transaction() as opened:
        made = opened.stream(f"s{case.number}").add(row)
        opened.stream(f"t{case.number}").add(place(2))
    case.there[made.id] = sealed.as_read(row)


def adds_many(case: TriedStream) -> None:
    rows = [climate(1), place(2), case.same, case.same]
    for id, row in zip(case.stream.add_many(rows), rows, strict=True):
        case.there[id] = sealed.as_read(row)


def gets(case: TriedStream) -> None:
    entry = case.stream.get(case.ids[1])
    assert entry is not None
    assert dict(entry.fields) == case.there[case.ids[1]]


def ranges(case: TriedStream) -> None:
    for entry in case.stream.range(case.ids[1], count=2):
        assert dict(entry.fields) == case.there[entry.id]
    for entry in case.stream.range(where={"hum": "7"}):
        assert dict(entry.fields) == case.there[entry.id]
    for entry in case.stream.range(reverse=True):
        sealed.check(entry.fields)


def scans(case: TriedStream) -> None:
    table = case.stream.scan(columns=["id", "pairs", "temp", "lat"]).to_arrow()
    for row in table.to_pylist():
        sealed.check({pair["field"]: pair["value"] for pair in row["pairs"]})


def reads(case: TriedStream) -> None:
    for delivery in case.group.read("c", count=2):
        assert dict(delivery.fields) == case.there[delivery.id]


def acks(case: TriedStream) -> None:
    case.group.ack(case.ids[0])


def nacks(case: TriedStream) -> None:
    case.group.nack(case.ids[0])
    case.group.claim("d", case.ids[0], min_idle=0)


def deletes(case: TriedStream) -> None:
    if case.stream.delete(case.ids[0]):
        del case.there[case.ids[0]]


def in_this_thread(case: TriedStream) -> tuple[Callable[[], None], Callable[[], None]]:
    """What runs in the collection, and what waits for its end."""
    return case.intrude, lambda: None


def in_another_thread(case: TriedStream) -> tuple[Callable[[], None], Callable[[], None]]:
    thread = threading.Thread(target=case.intrude)

    def begin() -> None:
        thread.start()
        # It waits for this one if that is in the midst of a commit.
        thread.join(0.002 if committer_of(case.store).busy else 20)

    def end() -> None:
        if thread.ident is not None:
            thread.join(20)
            assert not thread.is_alive()

    return begin, end


def moments() -> Iterator[int]:
    """The first collection, the second, ..; later ones more rarely."""
    moment = 1
    while True:
        yield moment
        moment += 1 + max(0, moment - EVERY) // 3


@pytest.mark.parametrize("intruder", [in_this_thread, in_another_thread])
@pytest.mark.parametrize(
    "call",
    [
        adds,
        adds_again,
        transacts,
        transacts_over_streams,
        adds_many,
        gets,
        ranges,
        scans,
        reads,
        acks,
        nacks,
        deletes,
    ],
)
def test_entries_keep_their_own_fields(
    tmp_path: Path,
    call: Callable[[TriedStream], None],
    intruder: Callable[[TriedStream], tuple[Callable[[], None], Callable[[], None]]],
    tell: Callable[[str], None],
) -> None:
    """Names that were kept over a collection, and were of another node by then, were stored."""
    path = tmp_path / "store"
    told: dict[str, dict[Any, dict[bytes, bytes]]] = {}
    refused = 0
    with logstore.open(path, background=False, node_max_entries=NODE_MAX_ENTRIES) as store:
        for moment in moments():
            case = TriedStream(store, moment)
            begin, end = intruder(case)
            with Collector(begin) as collector:
                collector.after(moment)
                try:
                    call(case)
                finally:
                    missed = collector.waits
                    collector.after(0)
                    end()
            case.add(case.same)  # who was misled once is so again
            case.check()
            told[f"s{moment}"] = case.there
            refused += case.refused
            if missed:
                break
        assert not engine_of(store).lock.held
    tell(f"{call.__name__} {intruder.__name__}: {moment} places, {refused} refused")
    assert moment > 1
    delete_index(path)
    with logstore.open(path, background=False) as store:  # what the frames alone say
        for name, there in told.items():
            found = {entry.id: dict(entry.fields) for entry in store.stream(name).range()}
            assert found == there


@pytest.mark.parametrize("call", [adds, transacts, reads, acks])
def test_a_close_inside_of_a_call_is_refused_or_done(
    tmp_path: Path, call: Callable[[TriedStream], None]
) -> None:
    """A finaliser that closed the store under a read beside the pipeline ended the process."""
    closed = refused = moment = 0
    missed = False
    while not missed and moment < 2 * EVERY:
        moment += 1
        path = tmp_path / str(moment)
        with logstore.open(path, background=False, node_max_entries=NODE_MAX_ENTRIES) as store:
            case, seen = TriedStream(store, moment), list[type[BaseException]]()
            mutex: Any = committer_of(store).mutex

            def close(
                case: TriedStream = case, seen: list[type[BaseException]] = seen, mutex: Any = mutex
            ) -> None:
                inside = mutex._is_owned()
                try:
                    case.store.close()
                    seen.append(logstore.ClosedError)
                    assert not inside, "closed in the midst of a commit"
                except logstore.ReentryError:
                    seen.append(logstore.ReentryError)

            with Collector(close) as collector:
                collector.after(moment)
                try:
                    call(case)
                except logstore.ClosedError:
                    assert seen == [logstore.ClosedError]
                missed = collector.waits
                collector.after(0)
            closed += seen == [logstore.ClosedError]
            refused += seen == [logstore.ReentryError]
        with logstore.open(path, background=False) as store:
            case.stream = store.stream(f"s{moment}")
            found = {entry.id: dict(entry.fields) for entry in case.stream.range()}
            for fields in found.values():
                sealed.check(fields)
            assert found.items() >= case.there.items()
    assert closed
    assert closed + refused == moment - missed
