"""Prevents readers of a plan that take segments which an erasure unlinks for damage.

The erasure is stopped before each step on the file system, and the plan is read there, by a reader
that passes over damage. It must find every row, or be told to load again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from logstore.api import opening
from logstore.clock import SYSTEM_CLOCK
from logstore.errors import SnapshotExpired
from logstore.fs import LOCAL
from logstore.log import names, pinfile
from logstore.scan import absent, read
from logstore.scan.arrow import Gather
from logstore.scan.losses import Losses
from logstore.scan.plan import Plan
from tests.compaction.erased import ERASED, Stepping, fill, is_segment, stepping
from tests.scan.look import Row, batch_rows, make_plan, make_store, split_rows


def look(made: Plan, whole: list[Row]) -> bool:
    """Whether the plan still holds: then all of it is there, also for who passes over damage."""
    found: list[Row] = []
    losses = Losses(passed_over=True)
    try:
        for split in made.splits:
            gather = Gather(["id", "pairs"], binary=["pairs"])
            found += batch_rows(read.batches(split, gather, losses=losses))
    except SnapshotExpired:
        return False
    assert losses.found == []
    assert found == whole
    return True


def test_a_reader_beside_each_step_has_all_rows_or_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill(path)
    steps: list[tuple[str, str, bool]] = []
    known: list[Callable[[], object]] = []

    def before(kind: str, at: Path) -> None:
        if known:
            holds = look(made, whole)
            steps.append((kind, at.name, holds))
            if kind == "remove" and is_segment(at):
                with suppress(SnapshotExpired):
                    assert known[0]() == []

    with stepping(before), make_store(path, background=False) as store:
        made = make_plan(store, b"x", min_partitions=2)
        whole = split_rows(made)
        store["x"].delete(*[(n, 0) for n in range(1, ERASED)])
        known.append(partial(absent.known, store._engine(), made))
        store.compact(purge=True)
        known.clear()
    held = [holds for _, _, holds in steps]
    assert held == sorted(held, reverse=True)  # what is over stays over
    assert True in held
    unlinked = [holds for kind, name, holds in steps if kind == "remove" and name.endswith(".log")]
    assert len(unlinked) > 2
    assert not any(unlinked)
    assert ("sync", names.PINS, False) in steps[: held.index(False) + 5]


def test_a_pin_that_is_put_back_does_not_make_damage_of_an_erasure(tmp_path: Path) -> None:
    """A reader reads its pin, the erasure runs, and the reader writes the longer pin."""
    path = tmp_path / "store"
    fill(path)
    with make_store(path, background=False) as store:
        made = make_plan(store, b"x")
        whole = split_rows(made)
        split = made.splits[0]
        pin = pinfile.read(LOCAL, path, made.pin_id)
        assert pin is not None
        losses = Losses(passed_over=True)
        batches = read.batches(split, Gather(["id"], batch_rows=50), losses=losses)
        rows = next(batches).num_rows
        store["x"].delete(*[(n, 0) for n in range(1, ERASED)])
        store.compact(purge=True)
        pinfile.write(LOCAL, path, pin._replace(expires_ms=SYSTEM_CLOCK.now_ms() + 60_000))
        with pytest.raises(SnapshotExpired):
            rows += sum(batch.num_rows for batch in batches)
        assert losses.found == []
        assert rows < len(whole)


def test_what_a_killed_erasure_dropped_goes_behind_its_pins(tmp_path: Path) -> None:
    """Killed when the drop is durable, and no pin is revoked yet: the next run unlinks."""
    path = tmp_path / "store"
    fill(path)
    with make_store(path, background=False) as store:
        made = make_plan(store, b"x")
        whole = split_rows(made)
        store["x"].delete(*[(n, 0) for n in range(1, ERASED)])
    child = os.fork()
    if not child:
        _erase_and_die(path)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert look(made, whole)
    steps: list[tuple[str, bool]] = []

    def before(kind: str, at: Path) -> None:
        if kind == "remove" and is_segment(at):
            steps.append((at.name, look(made, whole)))

    with stepping(before), make_store(path, background=False) as store:
        store.compact()
    assert len(steps) > 2
    assert not any(holds for _, holds in steps)
    assert not look(made, whole)


def _erase_and_die(path: Path) -> None:
    """Erase, up to where the first segment, or its pin before it, is to go."""

    def before(kind: str, at: Path) -> None:
        if kind == "remove" and (is_segment(at) or pinfile.is_id(at.name)):
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        opening.FILES[0] = Stepping(before)
        with make_store(path, background=False) as store:
            store.compact(purge=True)
    finally:
        os._exit(1)
