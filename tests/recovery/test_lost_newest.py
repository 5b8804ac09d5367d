"""Prevents a log that lost its newest segments from being taken for one whose writer died between a
seal and the next segment: it would go on without a word, and without what was acknowledged there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.fs import LOCAL
from logstore.log import chain, names, segment, storefile
from logstore.recovery.check import check
from logstore.recovery.recover import recover
from logstore.recovery.salvage.run import salvage
from tests.engine.procs import Forked


def add(store: logstore.Store[bytes]) -> None:
    """Some segments."""
    for n in range(20):
        store.stream("s").add({"n": n, "pad": "x" * 10_000})


def fill(path: Path) -> None:
    """A store of some segments, closed cleanly."""
    with opened(path) as store:
        add(store)


def opened(path: Path) -> logstore.Store[bytes]:
    return logstore.open(path, segment_bytes=64 << 10, background=False)


def forget(path: Path) -> None:
    """As a copy of the log has it: without index and marks."""
    (path / names.BOOT).unlink()
    shutil.rmtree(path / names.INDEX)


def lose_newest(path: Path) -> int:
    """Its number."""
    number = names.segments(LOCAL, path)[-1]
    names.segment(path, number).unlink()
    return number


def test_a_seal_with_a_hint_had_a_successor(tmp_path: Path) -> None:
    """A copy of a store, without index and marks, that lacks its newest segment."""
    path = tmp_path / "store"
    fill(path)
    forget(path)
    number = lose_newest(path)
    assert number > 2
    assert [each.segment for each in check(path).damage] == [number]
    for readonly in (False, True):
        with pytest.raises(logstore.DamagedStoreError, match=f"segment {number} is missing"):
            logstore.open(path, readonly=readonly)
    assert number not in names.segments(LOCAL, path)
    taken = salvage(path, tmp_path / "rescued")
    assert [each.segment for each in taken.damage] == [number]
    assert 0 < taken.entries < 20
    assert [each.segment for each in recover(path).damage] == [number]
    with logstore.open(path) as store:
        left = [int(entry.fields[b"n"]) for entry in store.stream("s")]
        assert left == list(range(len(left)))
        assert len(left) == taken.entries
        store.stream("s").add({"n": 20})
    assert check(path).damage == []


def test_without_a_hint_it_was_a_dead_writer(tmp_path: Path) -> None:
    """Who dies between the seal and the next segment loses nothing: the next opener makes it."""
    path = tmp_path / "store"
    fill(path)
    forget(path)
    number = lose_newest(path)
    names.hint(path, number - 1).unlink()
    assert check(path).damage == []
    with logstore.open(path) as store:
        store.stream("s").add({"n": 20})
    assert check(path).damage == []


def test_after_a_clean_close_the_index_does_not_hide_it(tmp_path: Path) -> None:
    """The log ends with a seal that was durable, and the index stands there: a segment that nothing
    was written to yet."""
    path = tmp_path / "store"
    fill(path)
    with opened(path) as store:
        engine = store._engine()
        with store._live().committer.locked() as words:
            log_tail.roll_locked(engine, words)
    number = lose_newest(path)
    assert names.hint(path, number - 1).exists()
    with pytest.raises(logstore.DamagedStoreError, match=rf"segment {number}.* is missing"):
        logstore.open(path)
    assert number not in names.segments(LOCAL, path)
    recover(path)
    with logstore.open(path) as store:
        assert len(store.stream("s")) == 20
    assert check(path).damage == []


@pytest.mark.parametrize("marks", [True, False])
def test_the_number_of_a_lost_segment_is_not_given_again(tmp_path: Path, *, marks: bool) -> None:
    """The hint of a lost one would speak of the one that has its number now; so would a mark."""
    path = tmp_path / "store"
    fill(path)
    if not marks:
        forget(path)
    newest, before = lose_newest(path), lose_newest(path)
    assert names.hint(path, before).exists()
    recover(path)
    assert names.segments(LOCAL, path)[-1] > (newest if marks else before)
    with logstore.open(path) as store:
        assert 0 < len(store.stream("s")) < 20
        store.stream("s").add({"n": 20})
    assert check(path).damage == []


def test_a_checkpoint_in_a_lost_segment_does_not_keep_it_shut(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        add(store)
        store.checkpoint()
    number = lose_newest(path)
    with pytest.raises(logstore.DamagedStoreError, match="ends before the position"):
        logstore.open(path)
    recover(path)
    assert names.segments(LOCAL, path)[-1] > number
    for more in range(2):
        with logstore.open(path) as store:
            left = [int(entry.fields[b"n"]) for entry in store.stream("s")]
            store.stream("s").add({"n": 20 + more})
    assert left[-1] == 20
    assert left[:-1] == list(range(len(left) - 1))
    assert check(path).damage == []
    forget(path)
    with logstore.open(path) as store:
        assert len(store.stream("s")) == len(left) + 1


def test_a_compacted_segment_is_no_successor(tmp_path: Path) -> None:
    """Its number may be above that of the segment that was lost."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 << 10, background=False) as store:
        add(store)
    uuid = storefile.read(LOCAL, path).uuid
    newest = chain.main_links(LOCAL, path, uuid)[-1].number
    head = segment.SegmentHead(fmt.Role.COMPACTED, newest + 1, uuid, 0, 0, 0)
    segment.create(LOCAL, path, head).close()
    names.segment(path, newest).unlink()
    with pytest.raises(logstore.DamagedStoreError, match=r"is missing|ends before"):
        logstore.open(path)


def test_an_index_that_is_still_trusted_knows_better(tmp_path: Path) -> None:
    """The writer was killed: no mark says how far the log must reach, and no hint was written."""
    path = tmp_path / "store"

    with Forked(lambda: add(opened(path))):
        pass
    number = lose_newest(path)
    assert not names.hint(path, number - 1).exists()
    with pytest.raises(logstore.DamagedStoreError, match=f"segment {number} is missing"):
        logstore.open(path)
    assert recover(path).rebuilt
    with logstore.open(path) as store:
        store.stream("s").add({"n": 20})
    assert check(path).damage == []
