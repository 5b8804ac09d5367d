"""Prevents what forced interleavings have found from coming back."""

from __future__ import annotations

from pathlib import Path

from logstore.log import file_names
from tests.interleaving import works
from tests.interleaving.actor import Actor, Got
from tests.interleaving.found import WORKS, stopped
from tests.interleaving.handle import begin

LAZY = works.nothing("open", lambda at: setattr(at, "store", at.open(sync="os")))


def test_a_reader_that_opens_the_index_anew_does_not_hang_behind_a_stopped_writer(
    tmp_path: Path,
) -> None:
    """LMDB opens databases under its own lock, for which nobody can wait with a time limit."""
    path = tmp_path / "store"
    begin(path)
    with Actor(path, WORKS) as writer, Actor(path, WORKS) as reader:
        assert writer.do("open") == reader.do("open") == Got()
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
    begin(path)
    with Actor(path, WORKS) as writer, Actor(path, WORKS) as reader:
        assert writer.do("open") == reader.do("open") == Got()
        before = reader.do("read").answer
        stopped(writer, "add", "commit: sync segment")
        assert reader.do("read-only").answer == before
        writer.go()
        assert writer.hear().answer
        assert reader.do("read-only").answer == reader.do("read").answer != before


def test_a_checkpoint_waits_for_a_commit_that_only_lmdb_knows_of(tmp_path: Path) -> None:
    """It saw the commit, and would name it before it is synced."""
    path = tmp_path / "store"
    begin(path)
    lazily = WORKS | {"open": LAZY}
    with Actor(path, lazily) as writer, Actor(path, WORKS) as other:
        assert writer.do("open") == other.do("open") == Got()
        stopped(other, "checkpoint", "reader: begin a snapshot")
        assert stopped(writer, "add", "commit: publish in WAKE").held
        other.go()
        found = other.hear()
        assert (found.refused, found.owner) == ("LockTimeoutError", writer.pid)
        assert not list((path / file_names.CHECKPOINTS).glob("*.ckpt"))
        writer.go()
        assert writer.hear().answer
        assert other.do("checkpoint") == Got()


def test_sync_covers_a_commit_that_was_seen_and_not_published(tmp_path: Path) -> None:
    """What a reader acted on, or a plan names, could be taken back by a power cut."""
    path = tmp_path / "store"
    begin(path)
    lazily = WORKS | {"open": LAZY}
    with Actor(path, lazily) as writer, Actor(path, WORKS) as other:
        assert writer.do("open") == other.do("open") == Got()
        before = other.do("read").answer
        assert stopped(writer, "add", "commit: publish in WAKE").held
        assert other.do("read").answer != before
        found = other.do("sync")
        assert (found.refused, found.owner) == ("LockTimeoutError", writer.pid)
        writer.go()
        assert writer.hear().answer
        assert other.do("sync") == Got()


def test_an_erasure_takes_away_a_pin_that_is_being_written(tmp_path: Path) -> None:
    """The planner is told to load again, with a typed error."""
    path = tmp_path / "store"
    begin(path)
    with Actor(path, WORKS) as planner, Actor(path, WORKS) as eraser:
        assert planner.do("open") == eraser.do("open") == Got()
        stopped(planner, "scan", "plan of a scan: rename to a directory above it")
        assert eraser.do("purge") == Got()
        planner.go()
        assert planner.hear().refused == "SnapshotExpiredError"
        assert planner.do("scan").answer == planner.do("read").answer["a"]["rows"]
