"""Prevents what a process remembers of keys from telling what is so no more: after adds, deletes,
times to live and compaction of any process, and of IDs that are given again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.runtime import newest
from logstore.engine.streams import latest_entries
from tests.support.inside import engine_of
from tests.support.processes import Program
from tests.support.threads import running

KEYS = [b"k%d" % n for n in range(12)]
OPENED = "store = logstore.open({!r}, sync='os', background=False, node_max_entries=4)"
DO = """
import logstore, sys
{}
s = store['s']
print('done', flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Shared:
    """A stream that this process and another one change; what is in it says what is right."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng, self.last = random.Random(seed), 0
        self.store = logstore.open(path, sync="os", background=False, node_max_entries=4)
        self.stream = self.store["s"]
        self.stream.configure(compact_by="k")
        self.other = Program(DO.format(OPENED.format(str(path))))
        assert self.other.answer() == "done"

    def run(self, line: str) -> None:
        """A line of either process."""
        if self.rng.random() < 0.5:
            assert self.other.ask(line) == "done"
        else:
            exec(line, {"s": self.stream, "store": self.store})

    def add(self) -> None:
        """Entries of keys, and one without."""
        for _ in range(self.rng.randint(1, 12)):
            self.last += 1
            row = {b"k": self.rng.choice(KEYS)} if self.rng.random() < 0.9 else {b"n": b"k1"}
            self.run(f"s.add({row}, '{self.last}-0')")

    def delete(self) -> None:
        """The newest of a key, or any."""
        there = list(self.stream)
        if there:
            last = self.stream.latest(self.rng.choice(KEYS))
            self.run(f"s.delete('{(last or self.rng.choice(there)).id}')")

    def short_lived(self) -> None:
        """The newest entry of a key goes by its time to live."""
        self.last += 1
        self.run(f"s.add({{'k': {self.rng.choice(KEYS)}}}, '{self.last}-0', ttl=0.001)")
        time.sleep(0.002)
        self.run("store.retain()")

    def keep(self) -> None:
        """What is replaced goes."""
        self.run("store.retain()")

    def compact(self) -> None:
        """All nodes are written anew."""
        self.run(self.rng.choice(["store.compact(full=True)", "store.compact(purge=True)"]))

    def again(self) -> None:
        """IDs are given again; the row of any time before would name other entries."""
        self.run("s.trim(max_entries=0)")
        down = self.rng.randint(1, 8)
        if self.last > down:
            self.run(f"s.set_id('{self.last}-0', max_deleted_id='0-1')")
            self.last -= down
            self.run(f"s.set_id('{self.last}-0')")
            for _ in range(self.rng.randint(0, down + 2)):
                self.last += 1
                self.run(f"s.add({{'k': {self.rng.choice(KEYS)}}}, '{self.last}-0')")

    def field(self) -> None:
        """Another field is the key, and then that one again."""
        self.run("s.configure(compact_by='n')")
        if self.rng.random() < 0.5:
            assert self.newest(b"k1", b"n") == self.found(b"k1")
        self.run("s.configure(compact_by='k')")

    def newest(self, key: bytes, field: bytes = b"k") -> int | None:
        """Where the newest entry of a key is."""
        return max((each.id.ms for each in self.stream if each.get(field) == key), default=None)

    def found(self, key: bytes) -> int | None:
        """What is told of it."""
        entry = self.stream.latest(key)
        return None if entry is None else entry.id.ms


@pytest.mark.parametrize("keys_max", [newest.KEYS_MAX, 7])
@pytest.mark.parametrize("seed", range(3))
def test_the_newest_entry_is_what_a_read_of_the_stream_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, keys_max: int
) -> None:
    monkeypatch.setattr(latest_entries, "NODES_A_LOOK", 2)
    for module in (latest_entries, newest):
        monkeypatch.setattr(module, "KEYS_MAX", keys_max)
    shared = Shared(tmp_path / "s", seed)
    steps = [shared.add] * 8 + [shared.delete] * 4
    steps += [shared.short_lived, shared.keep, shared.compact, shared.again, shared.field]
    with shared.store, logstore.open(tmp_path / "s", readonly=True) as reader:
        for number in range(150):
            shared.rng.choice(steps)()
            for key in shared.rng.sample([*KEYS, b"none"], 3 if number % 10 else len(KEYS)):
                told = f"{key!r} after {number} steps"
                assert shared.found(key) == shared.newest(key), told
                if number % 10 == 0:
                    seen = reader["s"].latest(key)
                    assert (None if seen is None else seen.id.ms) == shared.newest(key), told
        shared.other.end()
        assert shared.other.exit_code == 0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[bytes]]:
    with logstore.open(tmp_path / "s", sync="os", background=False) as opened:
        opened["s"].configure(compact_by="k")
        yield opened


def test_the_newest_of_each_key_is_remembered_and_bounded(
    store: Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> list[int]:
        found = (engine_of(store).newest.of(number) for number in range(1, 20))
        return [len(each.keys) for each in found if each is not None]

    for name in "abcde":
        store[name].configure(compact_by="k")
        store[name].add_many({"k": n} for n in range(500))
        assert store[name].latest("none") is None
    assert kept() == [500] * 5
    monkeypatch.setattr(newest, "KEYS_MAX", 1200)
    store["e"].latest(499)
    assert kept() == [500] * 2
    store.retain()
    store["e"].latest(499)
    assert kept() == [500, 0]  # rows have it all: what is remembered of the stream goes


def test_threads_look_while_entries_come(store: Store[bytes]) -> None:
    """What was told to be there is never older than what was seen before."""
    stop = threading.Event()
    failed: list[str] = []

    def look() -> None:
        seen = dict.fromkeys(KEYS, 0)
        while not stop.is_set():
            for key in KEYS:
                entry = store["s"].latest(key)
                now = 0 if entry is None else entry.id.ms
                if now < seen[key]:
                    failed.append(f"{key!r}: {now} after {seen[key]}")
                seen[key] = now

    threads = [threading.Thread(target=look) for _ in range(3)]
    with running(threads):
        for n in range(1, 3001):
            store["s"].add({"k": KEYS[n % len(KEYS)]}, f"{n}-0")
            if n % 1000 == 0:
                store.retain()
        stop.set()
    assert failed == []
    assert [entry and entry.id.ms for entry in map(store["s"].latest, KEYS)] == [
        n for key in range(12) for n in range(3000, 2988, -1) if n % 12 == key
    ]
