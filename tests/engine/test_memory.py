"""Prevents a walk, open nodes, or hours of work that take more and more memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.txn.nodes import OPEN_INLINE_MAX_BYTES
from logstore.index import keys
from logstore.index.keys import RUN, NodeFrame, OpenNode
from logstore.recovery import compare
from logstore.recovery.check import check
from tests.store.whole_store import everything, stream_nodes
from tests.support.inside import delete_index, engine_of

ROWS, PAD_BYTES = 90_000, 4000
MOST_MIB = 100  # of 343 that are read


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "store"
    with logstore.open(path, background=False, sync="os", segment_bytes=16 << 20) as store:
        pad = "x" * PAD_BYTES
        rows = ({"n": str(n % 7), "pad": pad} for n in range(ROWS))
        store.stream("s").add_many(rows, batch=1000)
    return path


def resident_mib() -> int:
    """What is in this process's memory, maps of files included."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def ranged(stream: logstore.Stream[str]) -> int:
    return sum(1 for _ in stream.range())


def scanned(stream: logstore.Stream[str]) -> int:
    pytest.importorskip("pyarrow", reason="a scan needs the extra arrow")
    return sum(batch.num_rows for batch in stream.scan())


def searched(stream: logstore.Stream[str]) -> int:
    return sum(7 for _ in stream.range(where={"n": "3"}))


@pytest.mark.parametrize("walk", [ranged, scanned, searched])
def test_a_walk_leaves_little_in_memory(
    path: Path, walk: Callable[[logstore.Stream[str]], int]
) -> None:
    with logstore.open(path, background=False) as store:
        before = resident_mib()
        assert abs(walk(store.stream("s")) - ROWS) < 7
        assert resident_mib() - before < MOST_MIB


WORK = """
import gc, sys
from pathlib import Path
import logstore

def private_mib():
    gc.collect()
    told = Path("/proc/self/smaps_rollup").read_text()
    rows = (row.split() for row in told.splitlines())
    return sum(int(row[1]) for row in rows if row[0] == "Anonymous:") >> 10

with logstore.open(sys.argv[1], sync="os", segment_bytes=4 << 20) as store:
    stream = store.stream("s")
    group = stream.group("g", start="0")
    for some in (1, 3):
        for _ in range(some * 1000):
            stream.add_many([{"pad": "x" * 300}] * 100)
            given = group.read("c", count=100)
            group.ack(*(each.id for each in given))
            stream.delete(*(each.id for each in given[::7]))
            stream.trim(max_entries=5000)
        print(private_mib(), flush=True)
"""
# What glibc keeps of buffers that were freed, up to 32 MiB by itself, is not the store's.
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
GROWS_MIB = 16  # more than batches of compactions that come and go; 90 MiB were added


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads /proc")
def test_work_that_goes_on_takes_no_more_memory(tmp_path: Path) -> None:
    """Adds, reads, acks, deletes and trims beside background work: first the reads fill what they
    keep (16 MiB of nodes), then nothing grows."""
    command = [sys.executable, "-c", WORK, str(tmp_path / "store")]
    env = os.environ | GIVES_BACK
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    first, last = map(int, done.stdout.split())
    assert last - first < GROWS_MIB, done.stdout


NO_LIMITS: dict[str, Any] = {
    "node_max_bytes": 0, "node_max_entries": 0, "sync": "os", "background": False,
}  # fmt: skip
PAD = "x" * OPEN_INLINE_MAX_BYTES


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[Any]]:
    """A store without node limits."""
    with logstore.open(tmp_path / "store", **NO_LIMITS) as opened:
        yield opened


def rows(store: Store[Any]) -> tuple[int, list[int]]:
    """Bytes of the first stream's open node in the index: its row, and its rows of runs."""
    own = engine_of(store).index()
    with own.env.begin() as txn, txn.cursor(db=own.main) as cursor:
        first = keys.RUNS_KEY.pack(keys.RUNS_PREFIX, 1, 0)
        found = []
        if cursor.set_range(first):
            for key, value in cursor:
                if key[0] != keys.RUNS_PREFIX:
                    break
                found.append(len(value))
        row = txn.get(keys.open_key(1), db=own.main)
        return 0 if row is None else len(row), found


def test_an_add_writes_what_it_adds(store: Store[Any]) -> None:
    stream = store.stream("s")
    stream.add({"pad": PAD}, id="1-0")
    most = 0
    for n in range(2, 1_002):
        stream.add({"n": n}, id=f"{n}-0")
        if n % 50 == 0:
            most = max(most, rows(store)[0])
    full = 1_001 // keys.RUNS_A_ROW
    assert most < (keys.RUNS_A_ROW + 10) * RUN.size
    assert rows(store)[1] == [keys.RUNS_A_ROW * RUN.size + 4] * full
    assert [entry.id.ms for entry in stream] == [*range(1, 1_002)]
    assert len(stream_nodes(store, b"s")) == 1


def test_a_stream_without_node_limits_is_the_same_after_everything(
    store: Store[Any], tmp_path: Path
) -> None:
    """Another process, a lost index, deletes, and a node that is dropped and grows again."""
    stream = store.stream("s")
    for lap in range(2):
        first = stream.last_id.ms + 1
        stream.add({"pad": PAD}, id=(first, 0))
        stream.add_many([((first + n, 0), {"n": n}) for n in range(1, 700)], batch=1)
        assert stream.delete(*((first + n, 0) for n in range(1, 700, 9))) == 78
        assert len(stream) == 700 - 78
        wanted = stream_nodes(store, b"s")
        store.close()
        if lap:
            delete_index(tmp_path / "store")
        store = logstore.open(tmp_path / "store", **NO_LIMITS)
        stream = store.stream("s")
        stream.add({"n": "more"}, id=(first + 800, 0))
        assert len(stream_nodes(store, b"s")) == len(wanted) == 1
        assert len(stream) == 701 - 78
        everything(store)
        assert rows(store)[1]
        if lap:
            store.drop("s")
        else:
            stream.trim(max_entries=0, approximate=False)
        assert rows(store) == (0, [])
    store.close()
    assert check(tmp_path / "store").index in (compare.AGREES, compare.NOT_CLEAN)


def test_an_add_that_is_taken_back_takes_its_rows_back(store: Store[Any]) -> None:
    stream = store.stream("s")
    stream.add({"pad": PAD}, id="1-0")
    stream.add_many([((n, 0), {"n": n}) for n in range(2, keys.RUNS_A_ROW)], batch=1)
    tx = store.transaction()
    tx.__enter__()
    tx.stream("s").add({"n": "taken back"}, id="900-0")
    tx.stream("s").add({"n": "taken back"}, id="901-0")
    tx.stream("s").add({"n": "refused"}, id="5-0")
    with pytest.raises(logstore.IDOrderError):
        tx.__exit__(None, None, None)
    assert rows(store)[1] == []
    stream.add_many([((n, 0), {"n": n}) for n in range(1_000, 1_000 + keys.RUNS_A_ROW)], batch=1)
    assert len(rows(store)[1]) == 1
    assert len(list(stream)) == 2 * keys.RUNS_A_ROW - 1
    everything(store)


def test_an_index_of_before_is_read(store: Store[Any]) -> None:
    """There all runs stand in the row."""
    node = OpenNode(b"skeleton", [NodeFrame(n, n, 1, 5) for n in range(300)], 0b101)
    packed = keys._RUNS_HEAD.pack(1, 8, 1) + b"skeleton\x05" + node.pack_runs(0, 300)
    assert OpenNode.unpack(packed) == node
    assert OpenNode.unpack(packed).totals() == (300, sum(range(300)))


def test_a_lost_row_is_damage(store: Store[Any]) -> None:
    stream = store.stream("s")
    stream.add({"pad": PAD}, id="1-0")
    stream.add_many([((n, 0), {"n": n}) for n in range(2, 300)], batch=1)
    engine = engine_of(store)
    own = engine.index()
    with store._live().committer.locked(), own.env.begin(write=True) as txn:
        assert txn.delete(keys.RUNS_KEY.pack(keys.RUNS_PREFIX, 1, 1), db=own.main)
    with pytest.raises(logstore.CorruptionError):
        list(stream)
