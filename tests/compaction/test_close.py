"""Prevents a store that was closed from keeping in its log what it holds twice, and a close that
compacts from losing anything, or from being done where nobody asked for it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.compaction import closing, measure, runner
from logstore.compaction.node_choice import NodeChooser
from logstore.compaction.segment_rewrite import CompactionReport
from logstore.engine.snapshots import snapshot
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.recovery.check import check
from tests.compaction.dumps import dump
from tests.compaction.filling import delete_at_random
from tests.support.inside import committer_of, engine_of, roll
from tests.support.processes import Program, run_program

PAD = {"pad": "x" * 100}


def log_bytes(path: Path) -> int:
    return LOCAL.tree_bytes(path / file_names.LOG)


def single_adds(path: Path, count: int = 6000, **options: Any) -> logstore.Store[bytes]:
    """A store, open, in which most of the log is frames of entries that lie in a node, too."""
    store = logstore.open(path, sync="os", **options)
    for number in range(count):
        store.stream(f"s{number % 3}").add({"n": number} | PAD)
    return store


def test_single_adds_lie_in_the_log_once_behind_a_close(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = single_adds(path)
    before, open_bytes = dump(store), log_bytes(path)
    nodes = sum(store.stream(name).info().node_bytes for name in store.streams())
    store.close()
    assert log_bytes(path) < 1.15 * nodes < open_bytes / 2
    assert check(path).damage == []
    with logstore.open(path, background=False) as store:
        assert not store.recovery["rebuilt"]
        assert dump(store) == before
    shutil.rmtree(path / file_names.INDEX)
    with logstore.open(path) as store:
        assert dump(store) == before


def test_a_segment_of_which_most_lives_is_left_as_it_is(tmp_path: Path) -> None:
    """Moving it would take longer than what it gives back is worth to who closes a store."""
    path = tmp_path / "store"
    store = logstore.open(path, sync="os")
    store.stream("many").add_many({"n": number} | PAD for number in range(40_000))
    for number in range(6000):
        store.stream("single").add({"n": number} | PAD)
    store.stream("many").trim(max_entries=36_000, approximate=False)
    rows, active = measure.rows_and_active(opened_of(store).engine())
    size = measure.size_bytes(opened_of(store).engine(), active)
    assert closing.DEAD_MIN_BYTES < size - rows[active].live_bytes < size / 2
    segments = file_names.segments(LOCAL, path)
    store.close()
    assert file_names.segments(LOCAL, path) == segments


def closed(store: logstore.Store[bytes]) -> CompactionReport:
    """Do what a close does, while nothing else runs; what it did."""
    report = closing.run(engine_of(store), committer_of(store))
    assert report is not None
    return report


def test_a_close_moves_nothing_out_of_segments_of_which_most_lives(tmp_path: Path) -> None:
    """Also where others are worth it: what is moved is bounded by what is given back."""
    path = tmp_path / "store"
    with single_adds(path, segment_bytes=256 << 10, background=False) as store:
        roll(store)
        dead = file_names.segments(LOCAL, path)[:-1]
        store.stream("many").add_many({"n": number} | PAD for number in range(8000))
        roll(store)
        alive = set(file_names.segments(LOCAL, path)[:-1]) - set(dead)
        assert len(alive) > 2
        before = dump(store)
        closed(store)
        left = set(file_names.segments(LOCAL, path))
        assert left >= alive
        assert not left & set(dead)
        assert dump(store) == before
    assert check(path).damage == []


def test_a_close_moves_those_first_in_which_least_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no more in all than is done in a moment: the others stay for a compaction."""
    path = tmp_path / "store"
    with logstore.open(
        path, sync="os", segment_bytes=128 << 10, node_max_entries=10, background=False
    ) as store:
        for name, share in (("half", 6), ("most", 9), ("none", 0), ("all", 10)):
            ids = store.stream(name).add_many({"n": number} | PAD for number in range(4000))
            roll(store)
            gone = [id for n, id in enumerate(ids) if n // 10 % 10 < share]
            for first in range(0, len(gone), 1000):
                store.stream(name).delete(*gone[first : first + 1000])
        roll(store)
        staying, _ = measure.stays(engine_of(store), NodeChooser(set(), 1.0))
        sealed = file_names.segments(LOCAL, path)[:-1]
        most, half = (
            [number for number in sealed if low < staying.get(number, 0) <= high]
            for low, high in ((0, 20_000), (35_000, 70_000))
        )
        assert len(most) > 2
        assert len(half) > 2
        most_bytes = sum(staying[number] for number in most)
        monkeypatch.setattr(closing, "MOVE_MAX_BYTES", most_bytes)
        before = dump(store)
        closed(store)
        left = set(file_names.segments(LOCAL, path))
        assert not left & set(most)
        assert left >= set(half)
        assert dump(store) == before
    assert check(path).damage == []


@pytest.mark.parametrize("free", ["many", "few", "of a large index"])
def test_a_close_gives_back_the_free_pages_of_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: str
) -> None:
    """Once they are many; an index that is large is not copied while somebody waits."""
    path = tmp_path / "store"
    store = single_adds(path, background=False)
    for number in range(12):
        store.stream("s0").group(f"g{number}", start="0").read("c", count=2000)
    for number in range(11):
        store.stream("s0").group(f"g{number}").destroy()
    engine = engine_of(store)
    used, live = snapshot.read(engine, runner.index_bytes)
    assert used > live + closing.INDEX_FREE_BYTES
    if free == "few":
        monkeypatch.setattr(closing, "INDEX_FREE_BYTES", used)
    if free == "of a large index":
        monkeypatch.setattr(closing, "INDEX_MAX_BYTES", live // 2)
    number, before = engine.index().number, dump(store)
    copied = free == "many"
    assert closed(store).index_rebuilt == copied
    assert file_names.generations(LOCAL, path) == [number + copied]
    size_bytes = LOCAL.tree_bytes(path / file_names.INDEX)
    assert (size_bytes < used - closing.INDEX_FREE_BYTES / 2) == copied
    store.stream("s0").add({"n": "behind it"})
    store.close()
    with logstore.open(path, background=False) as store:
        assert not store.recovery["rebuilt"]
        assert len(store.stream("s0")) == before.infos[b"s0"]["length"] + 1
        assert store.stream("s0").group("g11").info().pending == 2000
        assert dump(store).entries[b"s1"] == before.entries[b"s1"]
    assert check(path).damage == []


@pytest.mark.parametrize("options", [{"background": False}, {"compact_rate": 0}], ids=str)
def test_a_close_does_not_compact_where_it_is_switched_off(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    store = single_adds(tmp_path / "store", **options)
    segments = file_names.segments(LOCAL, tmp_path / "store")
    store.close()
    assert file_names.segments(LOCAL, tmp_path / "store") == segments


def test_a_store_that_another_process_has_open_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = single_adds(path)
    code = "import logstore, sys; s = logstore.open(sys.argv[1]); print(1, flush=True); input()"
    with Program(code, path) as other:
        assert other.answer()
        segments = file_names.segments(LOCAL, path)
        store.close()
        assert file_names.segments(LOCAL, path) == segments
        other.end("\n")
    assert other.exit_code == 0


def test_the_last_handle_compacts_and_not_those_before(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = single_adds(path)
    segments = file_names.segments(LOCAL, path)
    logstore.open(path, sync="os").close()
    assert file_names.segments(LOCAL, path) == segments
    store.close()
    assert file_names.segments(LOCAL, path) != segments


def test_many_small_streams_do_not_grow_by_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, sync="os") as store:
        for number in range(4500):
            store.stream(f"sensor {'x' * 120} {number}").add({"n": number})
    assert not list((path / file_names.CHECKPOINTS).glob("*"))


def test_a_close_that_cannot_compact_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    store = single_adds(path)
    before = dump(store)

    def refuse(*_: object) -> None:
        raise logstore.LockTimeoutError("as if somebody held it")

    monkeypatch.setattr(closing, "_victims", refuse)
    store.close()
    with logstore.open(path, background=False) as store:
        assert not store.recovery["rebuilt"]
        assert dump(store) == before


KILLED = """
import logstore, os, signal, sys
from logstore.compaction import segment_rewrite as segments
from logstore.engine.maintenance import checkpoint
point, calls = sys.argv[2], 0
def dying(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)
store = logstore.open(sys.argv[1], sync="os")
for number in range(6000):
    store.stream(f"s{number % 3}").add({"n": number, "pad": "x" * 100})
setattr(checkpoint if point == "take_alone" else segments, point, dying)
store.close()
"""


@pytest.mark.parametrize("point", ["adopt", "rewrite_open_nodes", "take_alone", "drop_dead"])
def test_a_close_that_is_killed_in_the_midst_loses_nothing(tmp_path: Path, point: str) -> None:
    path = tmp_path / "store"
    run_program(KILLED, path, point, exits=-signal.SIGKILL)
    assert check(path).damage == []
    with logstore.open(path) as store:
        found = [
            int(entry.fields[b"n"]) for name in store.streams() for entry in store.stream(name)
        ]
        assert sorted(found) == list(range(6000))
        store.compact(full=True)
        left = dump(store)
    shutil.rmtree(path / file_names.INDEX)
    with logstore.open(path, background=False) as store:
        assert dump(store) == left


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_full_gives_back_all_but_a_little(tmp_path: Path, share: float) -> None:
    path = tmp_path / "store"
    store = single_adds(path, background=False)
    delete_at_random(store, share)
    before = {name: [e.pairs for e in store.stream(name)] for name in store.streams()}
    report = store.compact(full=True)
    assert report.index_rebuilt
    nodes = sum(store.stream(name).info().node_bytes for name in store.streams())
    assert log_bytes(path) < 1.05 * nodes + 24_576  # three open nodes, ends of files as blocks
    assert {name: [e.pairs for e in store.stream(name)] for name in store.streams()} == before
    store.close()
    assert check(path).damage == []


def test_two_full_runs_leave_the_same_bytes(tmp_path: Path) -> None:
    with single_adds(tmp_path / "store", background=False) as store:
        store.compact(full=True)
        first = log_bytes(tmp_path / "store")
        store.compact(full=True)
        assert abs(log_bytes(tmp_path / "store") - first) <= os.sysconf("SC_PAGESIZE")
