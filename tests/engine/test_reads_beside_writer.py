"""Prevents reads by ID from telling what was not committed, beside a process that changes it.

One process adds, deletes, trims, compacts and purges; another one keeps what it read, reads all the
time, and after each change compares what it reads with a model: entries by ID, intervals from
either end, counts. What was deleted is told by nobody from then on.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.reading import reader_loading
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from tests.model.store import StoreModel
from tests.seeds import seed
from tests.support.inside import roll
from tests.support.processes import Forked

STEPS = 60
LIMITS: tuple[dict[str, int], ...] = (
    {"node_max_entries": 5}, {}, {"node_max_entries": 0, "node_max_bytes": 0},
)  # fmt: skip
NAMES = ("s", "t")


def value(name: str, id: StreamID) -> bytes:
    """What the entry with this ID holds: nothing else is ever stored under it."""
    return f"{name}/{id}".encode() * 3


class Known:
    """What is known of the streams: the model, and the last IDs that are gone."""

    def __init__(self) -> None:
        self.model = StoreModel(0)
        self.gone: dict[str, list[StreamID]] = {name: [] for name in NAMES}

    def living(self, name: str) -> list[StreamID]:
        """The IDs of a stream's entries."""
        found = self.model.seen(name.encode())
        return [] if found is None else [StreamID(*id) for id in found.entries]

    def add(self, name: str, id: StreamID) -> None:
        """It lives."""
        self.model.add(name.encode(), ((b"v", value(name, id)),), id)

    def remove(self, name: str, ids: list[StreamID]) -> None:
        """These live no more."""
        self.model.delete(name.encode(), ids)
        self.gone[name] = (self.gone[name] + ids)[-200:]


class Writer:
    """Changes a store and the model alike, at random."""

    def __init__(self, store: Store[bytes], draw: random.Random) -> None:
        self.store, self.draw, self.known = store, draw, Known()
        self.last_ms = dict.fromkeys(NAMES, 1)

    def step(self) -> str:
        """Some change; what it was."""
        draw = self.draw
        name = draw.choice(NAMES)
        steps: list[tuple[int, Callable[[str], object]]] = [
            (8, self.add), (4, self.add_many), (6, self.delete), (1, self.delete_range),
            (1, self.trim), (1, self.drop), (1, self.compact), (1, self.purge),
            (1, lambda _: roll(self.store)), (1, lambda _: self.store.checkpoint()),
            (1, self.set_id), (2, self.read_in_group),
        ]  # fmt: skip
        change = draw.choices([f for _, f in steps], [weight for weight, _ in steps])[0]
        change(name)
        return getattr(change, "__name__", "?")

    def next_ids(self, name: str, count: int) -> list[StreamID]:
        """IDs that are above all that were given."""
        gone, found = self.known.gone[name], []
        for _ in range(count):
            self.last_ms[name] += self.draw.choice((0, 1, 1, 5))
            last = found[-1] if found else (self.known.living(name) or [ZERO_ID])[-1]
            seq = last.seq + 1 if last.ms == self.last_ms[name] else 0
            if gone and not found and max(gone) >= (self.last_ms[name], seq):
                self.last_ms[name] = max(gone).ms + 1
                seq = 0
            found.append(StreamID(self.last_ms[name], seq))
        return found

    def add(self, name: str) -> None:
        for _ in range(self.draw.randrange(1, 12)):
            (id,) = self.next_ids(name, 1)
            self.store.stream(name).add({b"v": value(name, id)}, id=id)
            self.known.add(name, id)

    def add_many(self, name: str) -> None:
        ids = self.next_ids(name, self.draw.choice((3, 40, 300)))
        rows = [(id, {b"v": value(name, id)}) for id in ids]
        self.store.stream(name).add_many(rows)
        for id in ids:
            self.known.add(name, id)

    def delete(self, name: str) -> None:
        living = self.known.living(name)
        some = self.draw.sample(living, min(len(living), self.draw.choice((1, 1, 3, 20))))
        if some:
            self.store.stream(name).delete(*some, purge=self.draw.random() < 0.1)
            self.known.remove(name, some)

    def delete_range(self, name: str) -> None:
        living = self.known.living(name)
        if living:
            at = self.draw.randrange(len(living))
            some = living[at : at + self.draw.choice((1, 10, 50))]
            self.store.stream(name).delete_range(some[0], some[-1])
            self.known.remove(name, some)

    def trim(self, name: str) -> None:
        living = self.known.living(name)
        keep = self.draw.randrange(len(living) + 1)
        if self.draw.random() < 0.7:
            keep = max(keep, len(living) - 30)
        self.store.stream(name).trim(max_entries=keep, approximate=False)
        self.known.remove(name, living[: len(living) - keep])

    def drop(self, name: str) -> None:
        if self.draw.random() < 0.5:
            self.store.drop(name)
            self.known.remove(name, self.known.living(name))

    def compact(self, _: str) -> None:
        self.store.compact(full=self.draw.random() < 0.5)

    def purge(self, _: str) -> None:
        self.store.compact(purge=True)

    def set_id(self, name: str) -> None:
        if self.known.living(name):
            self.last_ms[name] += 3
            last = StreamID(self.last_ms[name], 0)
            if last > self.store.stream(name).last_id:
                self.store.stream(name).set_id(last)
                self.known.gone[name].append(last)

    def read_in_group(self, name: str) -> None:
        if self.known.living(name):
            group = self.store.stream(name).group("g", start="0")
            for delivery in group.read("c", count=5):
                delivery.ack()


class Checker:
    """Reads a store at random, and compares with the model."""

    def __init__(self, store: Store[bytes], draw: random.Random) -> None:
        self.store, self.draw, self.known = store, draw, Known()

    def look(self) -> None:
        """While somebody changes it: no entry with a wrong value, none that was deleted before."""
        name = self.draw.choice(NAMES)
        known, stream = self.known, self.store.stream(name)
        id = self.draw.choice(known.living(name) + known.gone[name] + [StreamID(3, 3)])
        entry = stream.get(id)
        assert entry is None or (entry.id == id and entry[b"v"] == value(name, id))
        assert entry is None or id not in known.gone[name], (name, id)
        found = [entry.id for entry in stream.range(id, count=20)]
        assert found == sorted(set(found))
        gone = set(known.gone[name])
        assert not gone.intersection(found)

    def compare(self) -> None:
        """While nobody changes it."""
        for name in NAMES:
            living, stream = self.known.living(name), self.store.stream(name)
            assert len(stream) == len(living)
            for _ in range(6):
                self.compare_some(stream, name, living)
            if self.draw.random() < 0.3:
                assert [entry.id for entry in stream.range()] == living
                assert [entry.id for entry in stream.range(reverse=True)] == living[::-1]

    def compare_some(self, stream: Any, name: str, living: list[StreamID]) -> None:
        """An entry, and an interval from either end."""
        draw = self.draw
        known = living + self.known.gone[name]
        id = draw.choice(known) if known else StreamID(draw.randrange(9), 0)
        if draw.random() < 0.2:
            id = draw.choice(
                (id.next(), id.previous() if id > ZERO_ID else id, ZERO_ID, MAX_ID.previous())
            )
        entry = stream.get(id)
        assert (entry is not None) == (id in set(living)), (name, id)
        assert entry is None or entry[b"v"] == value(name, id)
        other = draw.choice([*known, ZERO_ID, MAX_ID]) if known else MAX_ID
        low, high = min(id, other), max(id, other)
        wanted = living[bisect.bisect_left(living, low) : bisect.bisect_right(living, high)]
        count = draw.choice((1, 10, 10, 100, None))
        found = [(each.id, each[b"v"]) for each in stream.range(low, high, count=count)]
        assert found == [(each, value(name, each)) for each in islice(wanted, count)]
        back = [each.id for each in stream.range(low, high, count=count, reverse=True)]
        assert back == list(islice(reversed(wanted), count))
        assert stream.count(low, high) == len(wanted)
        read = stream.read(low, count=count) if low < MAX_ID else []
        above = living[bisect.bisect_right(living, low) :]
        assert [each.id for each in read] == list(islice(above, count))


def check_all_the_time(
    path: Path, told: Connection, other: Connection, draw: random.Random
) -> None:
    """The process that reads, until it is told None."""
    other.close()  # so that the end of the process that writes is the end here
    with logstore.open(path, encoding=None, background=False) as store:
        checker = Checker(store, draw)
        told.send("ready")
        while True:
            while not told.poll(0):
                checker.look()
            known = told.recv()
            if known is None:
                return
            checker.known = known
            checker.compare()
            told.send("same")


@pytest.fixture(params=["core", "twin"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the read core, and without."""
    if reader_loading.native_or_none is None and request.param == "core":
        pytest.skip("the read core is not built")
    monkeypatch.setattr(reader_loading, "IN_USE", request.param == "core")
    return str(request.param)


@pytest.mark.parametrize("limits", range(len(LIMITS)))
def test_changes_of_one_process_are_read_by_another(tmp_path: Path, core: str, limits: int) -> None:
    given = seed()
    print(f"LOGSTORE_SEED={given}")
    draw = random.Random(f"{given}{core}{limits}")
    path = tmp_path / "store"
    options: dict[str, Any] = {"sync": "os", "background": False, "encoding": None}
    logstore.open(path, **options, **LIMITS[limits], segment_bytes=1 << 16).close()
    ours, theirs = Pipe()
    with Forked(lambda: check_all_the_time(path, theirs, ours, draw)):
        theirs.close()
        with logstore.open(path, **options) as store:
            assert ours.recv() == "ready"
            writer, own = Writer(store, draw), Checker(store, draw)
            done: list[str] = []
            for _ in range(STEPS):
                done.append(writer.step())
                ours.send(writer.known)
                own.known = writer.known
                own.compare()
                if not ours.poll(60) or _received(ours) != "same":
                    print("behind", done[-5:])
                    return  # the other process says what it read
            ours.send(None)


def _received(told: Connection) -> object:
    try:
        return told.recv()
    except (EOFError, ConnectionResetError):
        return None
