"""Prevents compaction from losing, doubling or reviving entries, or giving no space back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import logstore
from logstore.engine.runtime import disk_space
from logstore.log import file_names
from logstore.recovery.check import check
from tests.compaction.dumps import dump, everywhere, tree_bytes
from tests.compaction.filling import SEGMENT, delete_at_random, filled, logical
from tests.support.inside import engine_of, roll


@pytest.mark.parametrize("share", [0.1, 0.6, 0.9, 1.0])
def test_answers_are_the_same_before_and_after_and_after_a_rebuild(
    tmp_path: Path, share: float
) -> None:
    path = tmp_path / "store"
    with filled(path) as store:
        delete_at_random(store, share)
        before = dump(store)
        report = store.compact()
        after = dump(store)
        assert logical(after) == logical(before)
        if share >= 0.6:
            assert report.segments_dropped > 0
            assert report.disk_bytes_after < report.disk_bytes_before
    assert check(path).damage == []
    shutil.rmtree(path / "index")
    with logstore.open(path) as store:
        assert store.recovery["rebuilt"]
        assert dump(store) == after


def test_after_deleting_most_the_directory_is_nearly_that_of_a_store_of_the_rest(
    tmp_path: Path,
) -> None:
    path, other = tmp_path / "store", tmp_path / "rest"
    with filled(path, entries=120_000) as store:
        delete_at_random(store, 0.9)
        store.compact()
        rest = dump(store)
    with logstore.open(other, segment_bytes=SEGMENT) as store:
        for name, entries in rest.entries.items():
            store.stream(name).add_many(entries)
    ratio = tree_bytes(path) / tree_bytes(other)
    print(f"compacted {tree_bytes(path)} bytes, only the rest {tree_bytes(other)}: {ratio:.2f}")
    assert ratio <= 1.35


def test_changes_during_a_compaction_are_kept(tmp_path: Path) -> None:
    """Adds, deletes and trims from another handle between the steps of a compaction."""
    from logstore.compaction import node_choice, segment_rewrite
    from logstore.compaction.segment_rewrite import CompactionReport

    path = tmp_path / "store"
    with filled(path) as store:
        delete_at_random(store, 0.7)
        shared = store._live()
        segment_rewrite.seal(shared.engine, shared.committer)
        chooser = node_choice.NodeChooser(set(range(1, 99)), 0.5)
        groups = list(node_choice.groups(shared.engine, chooser))
        victim = store.stream("s1").first
        assert victim is not None
        store.stream("s1").delete(victim.id)
        store.stream("s2").trim(max_entries=300, approximate=False)
        store.stream("s0").add({"late": "1"})
        store.drop("s0")
        now = dump(store)
        report = CompactionReport()
        segment_rewrite.write_and_adopt(shared.engine, shared.committer, groups, report)
        assert report.nodes_skipped > 0
        assert logical(dump(store)) == logical(now)
        store.compact()
        assert logical(dump(store)) == logical(now)
    shutil.rmtree(path / "index")
    with logstore.open(path) as store:
        assert logical(dump(store)) == logical(now)


def test_info_tells_how_much_deleted_is_still_there(tmp_path: Path) -> None:
    with filled(tmp_path / "store") as store:
        before = store.info().deleted_bytes
        delete_at_random(store, 0.3)
        assert store.info().deleted_bytes > before + 50_000
        assert store.info().oldest_deleted_segment_ms
        store.compact(purge=True)
        assert store.info().deleted_bytes < 1000


def test_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    with filled(tmp_path / "store") as store:
        delete_at_random(store, 0.8)
        store.compact()
        again = store.compact()
        assert again.nodes_written == 0
        assert store.compact().disk_bytes_after <= again.disk_bytes_after


def test_an_erased_value_is_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    secrets = [os.urandom(32) for _ in range(4)]
    with filled(path) as store:
        sealed = store.stream("s0").add({"secret": secrets[0]})
        assert sealed is not None
        store.stream("s0").add_many({"n": n} for n in range(3000))
        opened = store.stream("s1").add({"secret": secrets[1]})
        assert opened is not None
        store.stream("s3").add({"secret": secrets[2]})
        batch = store.stream("s2").add_many([{"n": 1}, {"secret": secrets[3]}, {"n": 2}])
        store.stream("s2").add_many({"n": n} for n in range(3000))
        assert all(everywhere(path, secret) for secret in secrets), "must be there to be erased"
        before = dump(store)
        store.stream("s0").delete(sealed)
        store.stream("s1").delete(opened)
        store.drop("s3")
        store.stream("s2").delete(batch[1], purge=True)
        assert [everywhere(path, secret) for secret in secrets] == [[]] * 4
        del before.entries[b"s3"]
        for name, gone in ((b"s0", sealed), (b"s1", opened), (b"s2", batch[1])):
            before.entries[name] = [row for row in before.entries[name] if row[0] != gone]
        assert dump(store).entries == before.entries
    assert [everywhere(path, secret) for secret in secrets] == [[]] * 4
    shutil.rmtree(path / "index")
    with logstore.open(path) as store:
        assert dump(store).entries == before.entries


def test_an_erased_name_of_a_field_is_in_no_file(tmp_path: Path) -> None:
    """Also where the entry began its node, whose names are then those of the node."""
    path, names = tmp_path / "store", [os.urandom(12).hex() for _ in range(3)]
    with filled(path) as store:
        gone = []
        for number, name in enumerate(names):
            stream = store.stream(f"t{number}")
            gone.append((stream, stream.add({name: 1})))
            stream.add_many({"n": n} for n in (5, 500, 5000)[number] * [0])
        assert all(everywhere(path, name.encode()) for name in names), "must be there to be erased"
        for stream, id in gone:
            stream.delete(id)
        store.compact(purge=True)
        assert [everywhere(path, name.encode()) for name in names] == [[]] * 3


def test_trimmed_entries_are_erased_too(tmp_path: Path) -> None:
    path = tmp_path / "store"
    secret = os.urandom(32)
    with filled(path) as store:
        store.stream("t").add({"secret": secret})
        store.stream("t").add_many({"n": n} for n in range(500))
        store.stream("t").trim(max_entries=100, approximate=False)
        store.compact(purge=True)
        assert everywhere(path, secret) == []


def test_space_of_a_dropped_stream_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with filled(path, entries=30_000) as store:
        for name in store.streams():
            store.drop(name)
        store.compact()
        assert store.info().log_bytes < 4096


@pytest.mark.parametrize("threshold", [-0.1, 1.5])
def test_a_bad_threshold_is_refused(tmp_path: Path, threshold: float) -> None:
    with logstore.open(tmp_path / "store") as store, pytest.raises(logstore.OptionError):
        store.compact(threshold=threshold)


def test_a_segment_in_which_an_open_node_begins_is_kept(tmp_path: Path) -> None:
    """No sealed node lives in it, and with this threshold none of its entries are moved."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("gone").add_many({"n": n} for n in range(300))
        store.drop("gone")
        roll(store)
        for n in range(3):
            store.stream("s").add({"n": n})
        roll(store)
        store.stream("s").add({"n": 3})
        report = store.compact(threshold=1.0)
        assert report.segments_dropped == 1
        assert report.open_nodes_restated == 0
        assert [entry["n"] for entry in store.stream("s")] == [b"0", b"1", b"2", b"3"]
    assert check(path).damage == []
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False) as store:
        assert store.recovery["rebuilt"]
        assert [entry["n"] for entry in store.stream("s")] == [b"0", b"1", b"2", b"3"]


def test_a_run_sets_space_aside_again(tmp_path: Path) -> None:
    """It was given up for a delete on a full disk: adds are refused until it is there."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("s").add_many({"n": n} for n in range(300))
        disk_space.release(engine_of(store))
        assert not (path / file_names.RESERVE).exists()
        store.compact()
        assert (path / file_names.RESERVE).stat().st_size == disk_space.RESERVE_BYTES
        assert len(store.stream("s").add_many([{"n": 1}])) == 1
