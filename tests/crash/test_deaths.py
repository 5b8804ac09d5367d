"""Prevents a death at one step of a commit or a roll from being finished wrongly by the next."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.fs import LOCAL
from logstore.log import file_names
from tests.crash import script, steps
from tests.crash.steps import CommitStep
from tests.support.processes import killed

# Whether the commit is complete in the log at that step, and so must be finished by the next.
COMMIT = {
    CommitStep.LOCKED: False,
    CommitStep.DECIDING: False,
    CommitStep.ENCODED: False,
    CommitStep.ANNOUNCED: False,
    CommitStep.HALF_APPENDED: False,
    CommitStep.APPENDED: True,
    CommitStep.SYNCING: True,
    CommitStep.SYNCED: True,
    CommitStep.INDEXING: True,
    CommitStep.INDEXED: True,
    CommitStep.PUBLISHED: True,
}
ROLL = (
    CommitStep.ROLLING,
    CommitStep.ROLL_SEALED,
    CommitStep.ROLL_SYNCED,
    CommitStep.ROLL_SEGMENT_MADE,
    CommitStep.ROLL_SEGMENT_NAMED,
)


def die_at(path: Path, target: CommitStep, size: int) -> None:
    """Another process adds an entry, and is killed when it reaches a step."""

    def add() -> None:
        watch = steps.watch(path.with_name("step"), 0, CommitStep.OUTSIDE)
        store = logstore.open(path, sync="always", background=False)
        watch.die_at(target)
        store.stream("a").add({"v": b"x" * size}, id="2-1")

    killed(add)


def rows(store: logstore.Store[bytes]) -> list[str]:
    """IDs of the stream."""
    return [str(entry.id) for entry in store.stream("a").range()]


@pytest.mark.parametrize("opener", ["living", "next"])
@pytest.mark.parametrize("step", COMMIT)
def test_at_each_step_of_a_commit(tmp_path: Path, step: CommitStep, opener: str) -> None:
    """Finished if it was complete in the log, gone if not; once, under its own ID."""
    path = tmp_path / "store"
    expected = ["1-1", "2-1"] if COMMIT[step] else ["1-1"]
    with logstore.open(path, background=False) as store:
        store.stream("a").add({"v": b"1"}, id="1-1")
        if opener == "living":
            die_at(path, step, 100)
            # An ID that the dead commit would refuse tells whether it was finished first.
            if COMMIT[step]:
                with pytest.raises(logstore.IDOrderError):
                    store.stream("a").add({"v": b"3"}, id="2-1")
            else:
                store.stream("a").add({"v": b"3"}, id="2-1")
                expected = ["1-1", "2-1"]
            assert rows(store) == expected
    if opener == "next":
        die_at(path, step, 100)
    with logstore.open(path, background=False) as store:
        assert rows(store) == expected
        store.stream("a").add({"v": b"4"}, id="3-1")
        assert rows(store) == [*expected, "3-1"]
        assert store.recovery["torn_bytes"] == 0 or step == CommitStep.HALF_APPENDED
    (path / "index").rename(tmp_path / "index")
    with logstore.open(path, background=False) as store:
        assert rows(store) == [*expected, "3-1"]


@pytest.mark.parametrize("opener", ["living", "next", "without an index"])
@pytest.mark.parametrize("step", ROLL)
def test_at_each_step_of_a_roll(tmp_path: Path, step: CommitStep, opener: str) -> None:
    """The next takes the new segment, or makes it; a commit is never written behind the seal."""
    path = tmp_path / "store"
    with script.open_store(path, "always") as store:
        store.stream("a").add({"v": b"1" * 40_000}, id="1-1")
        if opener == "living":
            die_at(path, step, 40_000)
            store.stream("a").add({"v": b"3"}, id="3-1")
            assert rows(store) == ["1-1", "3-1"]
    if opener != "living":
        die_at(path, step, 40_000)
        if opener == "without an index":
            (path / "index").rename(tmp_path / "aside")
        with script.open_store(path, "always") as store:
            assert rows(store) == ["1-1"]
            store.stream("a").add({"v": b"3"}, id="3-1")
    assert len(file_names.segments(LOCAL, path)) == (1 if step == CommitStep.ROLLING else 2)
    (path / "index").rename(tmp_path / "index")
    with script.open_store(path, "always") as store:
        assert rows(store) == ["1-1", "3-1"]
        assert store.recovery["torn_bytes"] == 0
