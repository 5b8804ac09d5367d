"""Prevents a producer that is killed and sends again from doubling a row, or from losing one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
import traceback
from pathlib import Path

import logstore
from tests import seeds
from tests.crash import steps
from tests.crash.steps import Step

LIVES = 40
BACK = 5  # rows before the last acknowledged one that are sent again
MAX_ROWS = 6
LIFE_S, LIFE_MAX_S = 0.04, 20.0  # after its first row; if none comes
SEED = seeds.seed()


def acknowledged(journal: Path) -> int:
    """How many rows the producer knows to be added."""
    return int.from_bytes(journal.read_bytes(), "little")


def produce(folder: Path, seed: int, linger_at: Step) -> None:
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
    seed, linger_at = rng.randrange(1 << 32), rng.choice(list(Step))
    pid = os.fork()
    if not pid:
        try:
            produce(folder, seed, linger_at)
        except BaseException:  # noqa: BLE001  a child must not return into pytest
            (folder / "error").write_text(traceback.format_exc())
        finally:
            os._exit(3)
    while acknowledged(journal) == before and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(rng.random() * LIFE_S)
    os.kill(pid, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]), (folder / "error").read_text()


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
