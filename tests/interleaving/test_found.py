"""Prevents what forced interleavings have found from coming back."""

from __future__ import annotations

from pathlib import Path

from logstore.log import file_names
from tests.interleaving.actor import WorkResult
from tests.interleaving.two_actors import LAZILY, stopped, two_actors


def test_a_reader_that_opens_the_index_anew_does_not_hang_behind_a_stopped_writer(
    tmp_path: Path,
) -> None:
    """LMDB opens databases under its own lock, for which nobody can wait with a time limit."""
    path = tmp_path / "store"
    with two_actors(path) as (writer, reader):
        before = reader.do("read").answer
        assert stopped(writer, "add", "commit: sync segment").held
        found = reader.do("fork, read")
        assert (found.refused, found.owner) == ("LockTimeoutError", writer.pid)
        writer.go()
        assert writer.hear().answer
        assert reader.do("read").answer != before


def test_a_read_only_opener_sees_no_commit_before_it_is_published(tmp_path: Path) -> None:
    """Complete in the log, and not synced: a power cut could take it back."""
    path = tmp_path / "store"
    with two_actors(path) as (writer, reader):
        before = reader.do("read").answer
        stopped(writer, "add", "commit: sync segment")
        assert reader.do("read-only").answer == before
        writer.go()
        assert writer.hear().answer
        assert reader.do("read-only").answer == reader.do("read").answer != before


def test_a_checkpoint_waits_for_a_commit_that_only_lmdb_knows_of(tmp_path: Path) -> None:
    """It saw the commit, and would name it before it is synced."""
    path = tmp_path / "store"
    with two_actors(path, LAZILY) as (writer, other):
        stopped(other, "checkpoint", "reader: begin a snapshot")
        assert stopped(writer, "add", "commit: publish in WAKE").held
        other.go()
        found = other.hear()
        assert (found.refused, found.owner) == ("LockTimeoutError", writer.pid)
        assert not list((path / file_names.CHECKPOINTS).glob("*.ckpt"))
        writer.go()
        assert writer.hear().answer
        assert other.do("checkpoint") == WorkResult()


def test_sync_covers_a_commit_that_was_seen_and_not_published(tmp_path: Path) -> None:
    """What a reader acted on, or a plan names, could be taken back by a power cut."""
    path = tmp_path / "store"
    with two_actors(path, LAZILY) as (writer, other):
        before = other.do("read").answer
        assert stopped(writer, "add", "commit: publish in WAKE").held
        assert other.do("read").answer != before
        found = other.do("sync")
        assert (found.refused, found.owner) == ("LockTimeoutError", writer.pid)
        writer.go()
        assert writer.hear().answer
        assert other.do("sync") == WorkResult()


def test_an_erasure_takes_away_a_pin_that_is_being_written(tmp_path: Path) -> None:
    """The planner is told to load again, with a typed error."""
    path = tmp_path / "store"
    with two_actors(path) as (planner, eraser):
        stopped(planner, "scan", "plan of a scan: rename to a directory above it")
        assert eraser.do("purge") == WorkResult()
        planner.go()
        assert planner.hear().refused == "SnapshotExpiredError"
        assert planner.do("scan").answer == planner.do("read").answer["a"]["rows"]
