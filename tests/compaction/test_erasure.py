"""Prevents an erasure from leaving bytes behind, and readers from taking it for damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.clock import SYSTEM_CLOCK
from logstore.compaction import node_choice, segment_rewrite
from logstore.errors import SnapshotExpiredError
from logstore.fs import LOCAL
from logstore.log import file_names, pinfile
from logstore.scan import split_plan
from logstore.scan import split_reads as read
from logstore.scan.record_batches import Gather, Losses
from logstore.scan.split_plan import Plan
from tests.compaction.dumps import everywhere
from tests.compaction.erased import ERASED, before_name_changes, fill, is_segment
from tests.scan.scanned_stores import Row, batch_rows, make_plan, make_store, split_rows
from tests.support import processes

SECRET = os.urandom(24)


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let others change something once, between the copy of the nodes and its adoption."""
    adopt = segment_rewrite.write_and_adopt
    done: list[object] = []

    def changed(
        engine: Any, committer: Any, groups: Iterable[node_choice.Group], *rest: Any
    ) -> None:
        read = list(groups)
        if not done:
            done.append(change())
        adopt(engine, committer, read, *rest)

    monkeypatch.setattr(segment_rewrite, "write_and_adopt", changed)


def test_a_node_that_others_change_meanwhile_is_erased_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        stream = store.stream("s")
        secret = stream.add({"secret": SECRET})
        assert secret is not None
        ids = list(stream.add_many({"n": n} for n in range(500)))
        meanwhile(monkeypatch, lambda: stream.delete(ids[3]))
        assert stream.delete(secret, purge=True) == 1
        assert everywhere(path, SECRET) == []
        assert [entry.id for entry in stream] == [*ids[:3], *ids[4:]]


def test_a_node_that_becomes_open_again_meanwhile_is_erased_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        stream = store.stream("s")
        stream.add_many({"n": n} for n in range(50))
        secret = stream.add({"secret": SECRET})
        big = stream.add({"pad": "x" * 5000})
        assert secret is not None
        assert big is not None

        def reopen() -> None:
            stream.delete(big)
            stream.add({"n": "behind"})

        meanwhile(monkeypatch, reopen)
        stream.delete(secret, purge=True)
        assert everywhere(path, SECRET) == []
        assert len(stream) == 51


def test_temporary_files_of_a_killed_process_are_erased(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        secret = store.stream("s").add({"secret": SECRET})
        assert secret is not None
        store.sync()
        pin = "0" * 32
        for name in (
            "log/00000000000000000009.log.tmp", "log/00000000000000000009.hint.tmp",
            "log/00000000000000000009.hint", f"checkpoint/{9:020d}.ckpt.tmp",
            "index/99.tmp/data.mdb", "index/0/data.mdb",  # being built, and one from long ago
            f"pins/{pin}", f"pins/{pin}.snap", f"pins/{pin}.{pin}.tmp",
            f"quarantine/{1:020d}-{1:010d}.tail",
        ):  # fmt: skip
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(SECRET)
        store.stream("s").delete(secret, purge=True)
        assert everywhere(path, SECRET) == []


def test_an_erasure_that_never_catches_up_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others change the node in every pass: nothing may claim that the bytes are gone."""
    with logstore.open(tmp_path / "store") as store:
        stream = store.stream("s")
        secret = stream.add({"secret": SECRET})
        assert secret is not None
        ids = list(stream.add_many({"n": n} for n in range(500)))
        adopt = segment_rewrite.write_and_adopt
        left = iter(ids)

        def changed(
            engine: Any, committer: Any, groups: Iterable[node_choice.Group], *rest: Any
        ) -> None:
            read = list(groups)
            stream.delete(next(left))
            adopt(engine, committer, read, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(segment_rewrite, "write_and_adopt", changed)
            with pytest.raises(logstore.ErasureIncompleteError, match="again"):
                stream.delete(secret, purge=True)
        assert secret not in stream
        store.compact(purge=True)
        assert everywhere(tmp_path / "store", SECRET) == []


def plan_holds(made: Plan, whole: list[Row]) -> bool:
    """Whether the plan still holds: then all of it is there, also for who passes over damage."""
    found: list[Row] = []
    losses = Losses(allowed=True)
    try:
        for split in made.splits:
            gather = Gather(["id", "pairs"], binary=["pairs"])
            found += batch_rows(read.batches(split, gather, losses=losses))
    except SnapshotExpiredError:
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
            holds = plan_holds(made, whole)
            steps.append((kind, at.name, holds))
            if kind == "remove" and is_segment(at):
                with suppress(SnapshotExpiredError):
                    assert known[0]() == []

    with before_name_changes(before), make_store(path, background=False) as store:
        made = make_plan(store, b"x", min_partitions=2)
        whole = split_rows(made)
        store["x"].delete(*[(n, 0) for n in range(1, ERASED)])
        known.append(partial(split_plan.lost_segments, store._engine(), made))
        store.compact(purge=True)
        known.clear()
    held = [holds for _, _, holds in steps]
    assert held == sorted(held, reverse=True)  # what is over stays over
    assert True in held
    unlinked = [holds for kind, name, holds in steps if kind == "remove" and name.endswith(".log")]
    assert len(unlinked) > 2
    assert not any(unlinked)
    assert ("sync", file_names.PINS, False) in steps[: held.index(False) + 5]


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
        losses = Losses(allowed=True)
        batches = read.batches(split, Gather(["id"], batch_rows=50), losses=losses)
        rows = next(batches).num_rows
        store["x"].delete(*[(n, 0) for n in range(1, ERASED)])
        store.compact(purge=True)
        pinfile.write(LOCAL, path, pin._replace(expires_ms=SYSTEM_CLOCK.now_ms() + 60_000))
        with pytest.raises(SnapshotExpiredError):
            rows += sum(batch.num_rows for batch in batches)
        assert losses.found == []
        assert rows < len(whole)


def test_the_run_after_a_killed_erasure_revokes_pins_and_unlinks(tmp_path: Path) -> None:
    """Killed when the drop is durable, and no pin is revoked yet: the next run unlinks."""
    path = tmp_path / "store"
    fill(path)
    with make_store(path, background=False) as store:
        made = make_plan(store, b"x")
        whole = split_rows(made)
        store["x"].delete(*[(n, 0) for n in range(1, ERASED)])
    processes.killed(lambda: _erase_and_die(path))
    assert plan_holds(made, whole)
    steps: list[tuple[str, bool]] = []

    def before(kind: str, at: Path) -> None:
        if kind == "remove" and is_segment(at):
            steps.append((at.name, plan_holds(made, whole)))

    with before_name_changes(before), make_store(path, background=False) as store:
        store.compact()
    assert len(steps) > 2
    assert not any(holds for _, holds in steps)
    assert not plan_holds(made, whole)


def _erase_and_die(path: Path) -> None:
    """Erase, up to where the first segment, or its pin before it, is to go."""

    def before(kind: str, at: Path) -> None:
        if kind == "remove" and (is_segment(at) or pinfile.is_id(at.name)):
            processes.die()

    with before_name_changes(before), make_store(path, background=False) as store:
        store.compact(purge=True)
