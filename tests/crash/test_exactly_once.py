"""Prevents an entry that is handled or added twice, or never, when somebody is killed or stalls."""

from __future__ import annotations

import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import logstore
from logstore.ids import MAX_ID, ZERO_ID
from tests import seeds
from tests.crash import group_worker, steps
from tests.crash.steps import CommitStep
from tests.support.processes import Forked

ENTRIES = 1500
WORKERS = 3
LIMIT_S = 60.0


def start(path: Path, number: int, seed: int) -> subprocess.Popen[bytes]:
    """One worker in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", group_worker.__name__, str(path), f"w{number}", str(seed)],
        cwd=Path(__file__).parents[2],
    )


def test_each_entry_has_one_output_whoever_is_killed(tmp_path: Path) -> None:
    """Reads from one stream, adds to another, acks: kills at any moment and stalls included."""
    seed = seeds.seed()
    print("seed", seed)
    chance = random.Random(seed)
    path = tmp_path / "s"
    kills = stops = 0
    with logstore.open(path, encoding="utf-8") as store:
        group = store.stream("in").group("g", start="0")
        workers = [start(path, number, chance.randrange(1 << 30)) for number in range(WORKERS)]
        try:
            end = time.monotonic() + LIMIT_S
            added = 0
            while time.monotonic() < end:
                if added < ENTRIES:
                    rows = [{"n": str(added + row)} for row in range(50)]
                    store.stream("in").add_many(rows)
                    added += 50
                elif group.info().lag == 0 and group.pending().count == 0:
                    break
                time.sleep(chance.uniform(0.05, 0.2))
                place = chance.randrange(WORKERS)
                if added < ENTRIES and chance.random() < 0.5:
                    workers[place].kill()
                    workers[place].wait()
                    kills += 1
                    workers[place] = start(path, place, chance.randrange(1 << 30))
                elif added < ENTRIES and chance.random() < 0.3:
                    workers[place].send_signal(signal.SIGSTOP)
                    stops += 1
                    time.sleep(1.5 * group_worker.IDLE_S)
                    workers[place].send_signal(signal.SIGCONT)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        print(f"{kills} kills, {stops} stops")
        assert kills > 3
        seen = collections.Counter(entry.fields["n"] for entry in store.stream("out"))
        assert sorted(seen, key=int) == [str(number) for number in range(ENTRIES)]
        assert set(seen.values()) == {1}
        assert group.pending().count == 0
        assert len(list(store.stream("in").range(ZERO_ID, MAX_ID))) == ENTRIES


LIVES = 40
BACK = 5  # rows before the last acknowledged one that are sent again
MAX_ROWS = 6
LIFE_S, LIFE_MAX_S = 0.04, 20.0  # after its first row; if none comes
SEED = seeds.seed()


def acknowledged(journal: Path) -> int:
    """How many rows the producer knows to be added."""
    return int.from_bytes(journal.read_bytes(), "little")


def produce(folder: Path, seed: int, linger_at: CommitStep) -> None:
    """Add numbered rows until killed; begin before the first that is not known to be added."""
    rng = random.Random(seed)
    watch = steps.watch(folder / "step", seed, linger_at)
    store = logstore.open(folder / "store", sync=rng.choice(["os", "always"]), lock_timeout=30)
    watch.opening = False
    stream = store.stream("rows")
    journal = os.open(folder / "journal", os.O_RDWR)
    number = max(0, acknowledged(folder / "journal") - BACK)
    while True:
        count = rng.randint(1, MAX_ROWS)
        rows = [{"n": str(number + each)} for each in range(count)]
        how = rng.randrange(3)
        if how == 0:
            stream.add_many(rows, producer="killed")  # the idempotent ID is computed
        elif how == 1:
            with store.transaction() as tx:
                for row in rows:
                    tx.stream("rows").add(row, producer="killed")
                tx.stream("other").add({"n": str(number)})
        else:
            count = 1
            stream.add(rows[0], producer="killed")
        number += count
        os.pwrite(journal, number.to_bytes(8, "little"), 0)


def live(folder: Path, rng: random.Random) -> None:
    """A producer's life: started, killed; nearly always after it added something."""
    journal = folder / "journal"
    before, deadline = acknowledged(journal), time.monotonic() + LIFE_MAX_S * (rng.random() < 0.9)
    seed, linger_at = rng.randrange(1 << 32), rng.choice(list(CommitStep))
    child = Forked(lambda: produce(folder, seed, linger_at))
    while acknowledged(journal) == before and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(rng.random() * LIFE_S)
    os.kill(child.pid, signal.SIGKILL)
    assert child.exit_code() == -signal.SIGKILL


def numbers(store: logstore.Store[bytes]) -> list[int]:
    """The rows that are there."""
    return [int(entry.fields["n"]) for entry in store.stream("rows")]


def test_each_row_is_there_once_however_often_its_producer_is_killed(tmp_path: Path) -> None:
    print(f"LOGSTORE_SEED={SEED}")
    rng = random.Random(SEED)
    journal = tmp_path / "journal"
    journal.write_bytes(bytes(8))
    duplicates = 0
    for life in range(1, LIVES + 1):
        live(tmp_path, rng)
        if life % 4:
            continue
        with logstore.open(tmp_path / "store", sync="os") as store:
            found = numbers(store)
            assert found == list(range(len(found)))
            assert len(found) >= acknowledged(journal)
            if "rows" in store:
                info = store["rows"].info()
                assert info.iids_added == len(found)
                assert info.iids_duplicates >= duplicates
                duplicates = info.iids_duplicates
            if life % 8:
                store.checkpoint()
        if life % 12 == 0:
            shutil.rmtree(tmp_path / "store" / "index")
    assert duplicates
    assert acknowledged(journal) > LIVES
