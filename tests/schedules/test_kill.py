"""Prevents a scheduled entry that comes twice, never, or early, when its adders are killed."""

from __future__ import annotations

import collections
import os
import random
import select
import time
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.commit import pipeline
from logstore.engine.shm.commit_words import Wake
from logstore.recovery import compare
from logstore.recovery.check import check
from tests import seeds
from tests.support.inside import delete_index
from tests.support.processes import Forked

NAMES = ("a", "b")
WORKERS = 4
ROUNDS = 60
LIMIT_S = 60.0


def linger(chance: random.Random) -> None:
    """Make commits long at their dangerous places, so that kills fall into them."""
    keep, publish = pipeline._keep_promise, Wake.publish

    def slow_keep(*given: Any) -> None:
        time.sleep(chance.uniform(0, 0.004))
        keep(*given)

    def slow_publish(self: Wake, *given: Any) -> Any:
        time.sleep(chance.uniform(0, 0.004))
        return publish(self, *given)

    pipeline._keep_promise = slow_keep
    Wake.publish = slow_publish  # type: ignore[method-assign]


def work(path: Path, number: int, seed: int) -> None:
    """A process that is awake: in the background only, or waiting for a stream, or for a group."""
    chance = random.Random(seed)
    linger(chance)
    with logstore.open(path, encoding="utf-8", background=number % 4 != 3) as store:
        stream = store.stream(chance.choice(NAMES))
        while True:
            if number % 4 == 0:
                time.sleep(1)
            elif number % 4 == 1:
                for each in stream.group("g", start="0").read(f"c{number}", timeout=0.2):
                    assert each.id.ms >= int(each.fields["due"])
                    assert time.time() * 1000 >= int(each.fields["due"])
                    each.ack()
            else:
                for entry in stream.read("$", timeout=0.2):
                    assert time.time() * 1000 >= int(entry.fields["due"])


def start(path: Path, number: int, chance: random.Random) -> Forked:
    """A worker, in a process of its own."""
    seed = chance.randrange(1 << 30)
    return Forked(lambda: work(path, number, seed))


def complain(worker: Forked) -> None:
    """Raise what ended a worker before it was killed."""
    if select.select([worker._read], [], [], 0)[0]:
        raise AssertionError(os.read(worker._read, 65536).decode())


def holds(path: Path, wanted: dict[str, tuple[str, int]]) -> None:
    """Each of them once, in its stream, not before its time, and no other."""
    with logstore.open(path, encoding="utf-8", background=False) as store:
        seen = collections.Counter[str]()
        for name in NAMES:
            for entry in store.stream(name):
                text = entry.fields["n"]
                seen[text] += 1
                assert wanted[text][0] == name
                assert entry.id.ms >= wanted[text][1]
        assert set(seen.values()) == {1}
        assert set(seen) == set(wanted)
        assert store.info().scheduled == 0


def test_each_comes_once_and_not_early_whoever_is_killed(tmp_path: Path) -> None:
    """Processes race to add what is due and are killed about then; the index is lost at the end."""
    seed = seeds.seed()
    print(f"LOGSTORE_SEED={seed}")
    chance = random.Random(seed)
    path = tmp_path / "s"
    expected: dict[str, tuple[str, int]] = {}
    cancelled: set[str] = set()
    inside = 0
    with logstore.open(path, encoding="utf-8", background=False) as store:
        workers = [start(path, number, chance) for number in range(WORKERS)]
        try:
            for _ in range(ROUNDS):
                keys = {}
                for _ in range(chance.randrange(8)):
                    text, name = str(len(expected)), chance.choice(NAMES)
                    due_ms = time.time_ns() // 1_000_000 + chance.randrange(-5, 60)
                    fields = {"n": text, "due": str(due_ms)}
                    keys[text] = name, store.stream(name).schedule(fields, at=due_ms)
                    expected[text] = name, due_ms
                time.sleep(chance.uniform(0, 0.05))
                if keys and chance.random() < 0.5:
                    text, (name, key) = chance.choice(list(keys.items()))
                    assert key is not None
                    if store.stream(name).cancel(key):
                        cancelled.add(text)
                        del expected[text]
                        expected[f"not {text}"] = name, 0  # so that no number is given twice
                place = chance.randrange(WORKERS)
                complain(workers[place])
                workers[place].kill()
                inside += bool(store._engine().wake.log().in_progress)
                if chance.random() < 0.1:
                    store.checkpoint()
                workers[place] = start(path, place, chance)
            wanted = {text: found for text, found in expected.items() if not text.startswith("not")}
            end = time.monotonic() + LIMIT_S
            while store.info().scheduled and time.monotonic() < end:
                time.sleep(0.05)
            for worker in workers:
                complain(worker)
        finally:
            for worker in workers:
                worker.kill()
        print(f"{ROUNDS} kills, {inside} inside a commit, {len(cancelled)} cancelled")
    holds(path, wanted)
    assert check(path).index in (compare.AGREES, compare.NOT_CLEAN)
    delete_index(path)
    holds(path, wanted)
