"""What the crash states found, each by itself: prevents that it comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.fs import LOCAL
from logstore.log import chain, file_names, log_reader, segment, storefile
from logstore.log.segment_writer import crc_seed
from logstore.recovery.check import check
from tests.support.watched_files import FileOperation, OperationLog, WatchedFileSystem, in_place


def test_the_name_of_a_new_store_is_durable(tmp_path: Path) -> None:
    """A power cut took the directory, and all that was acknowledged in it."""
    undone: set[Path] = set()

    class NotDurable(WatchedFileSystem):
        def after(self, operation: FileOperation) -> None:
            path = operation.path
            if operation.kind == "make_directory":
                undone.add(path)
            elif operation.kind == "sync_directory":
                undone.difference_update([each for each in undone if each.parent == path])

    path = tmp_path / "a" / "b" / "store"
    with in_place(NotDurable()), logstore.open(path, background=False, sync="always") as store:
        store.stream("s").add({"v": 1})
        assert {each.parent for each in undone} <= {path / file_names.INDEX}


def test_a_store_in_a_directory_that_is_there_is_made_durable(tmp_path: Path) -> None:
    """Whoever made the directory may have been killed before it synced the name."""
    path = tmp_path / "store"
    path.mkdir()
    with in_place(OperationLog()) as files:
        logstore.open(path, background=False).close()
    assert tmp_path in [each.path for each in files.of("sync_directory")]


def test_a_segment_that_is_void_from_its_start(tmp_path: Path) -> None:
    """The first commit of a segment lost a block: ``check`` took the sound store for damaged, for a
    replay and the opener that had made the commit void stood at two names of one place."""
    path, left = tmp_path / "store", tmp_path / "left"
    limits = {"segment_bytes": 64 * 1024, "node_max_entries": 4}
    with logstore.open(path, background=False, sync="always", **limits) as store:
        for n in range(1, 3):
            store.stream("s").add({"v": b"x" * 30_000}, id=f"{n}-0")
        store.stream("t").add_many([(f"{n}-0", {"v": b"y" * 2000}) for n in range(1, 9)])
        shutil.copytree(path, left, ignore=shutil.ignore_patterns("index", "BOOT"))
    uuid = storefile.read(LOCAL, left).uuid
    *_, last = chain.main_links(LOCAL, left, uuid)
    file = LOCAL.open(file_names.segment(left, last.number), write=True)
    scanned = log_reader.scan(file, crc_seed(uuid), last.number, last.start_offset, last.end_offset)
    assert len({found.commit for found in scanned}) == 1
    file.pwrite(bytes(512), 1024)
    file.close()
    with logstore.open(left, background=False) as store:
        assert store.recovery["torn_bytes"]
        assert store.streams() == [b"s"]
    numbers = [link.number for link in chain.main_links(LOCAL, left, uuid)]
    assert numbers == [1, last.number, last.number + 1]
    report = check(left)
    assert report.as_dict()["clean"], report.damage


@pytest.mark.parametrize("adopted", [False, True])
def test_a_torn_segment_of_compaction_is_no_damage_unless_adopted(
    tmp_path: Path, adopted: bool
) -> None:
    """Nobody names it, so that it is no damage; in what was adopted it is."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, node_max_entries=4) as store:
        store.stream("s").add_many([{"v": b"x" * 500}] * 40)
        if adopted:
            store.compact(purge=True)
        number = file_names.segments(LOCAL, path)[-1] + 1
    uuid = storefile.read(LOCAL, path).uuid
    if not adopted:
        head = segment.SegmentHead(fmt.Role.COMPACTED, number, uuid, 0, 0, 0)
        file = segment.create(LOCAL, path, head)
        file.pwrite(b"not whole", fmt.SEGMENT_HEAD_BYTES)
        file.close()
    else:
        heads = chain.heads(LOCAL, path, uuid)
        (number,) = [n for n, (head, _) in heads.items() if head.role == fmt.Role.COMPACTED]
        file = LOCAL.open(file_names.segment(path, number), write=True)
        file.pwrite(b"!", 500)
        file.close()
    report = check(path)
    assert {each.segment for each in report.damage} == ({number} if adopted else set())
    if not adopted:
        with logstore.open(path, background=False) as store:
            store.compact()
        found = chain.heads(LOCAL, path, uuid).get(number)
        assert found is None or found[0].role == fmt.Role.MAIN
