"""Prevents rows that are passed over and not told, and IDs that are told and were not lost.

Segments of a plan are damaged behind it; what is read, and what is told, are held against the rows
that there were.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import (
    CorruptionError,
    CorruptNodeError,
    DamagedStoreError,
    StoreGoneError,
)
from logstore.format import Kind
from logstore.ids import StreamID
from logstore.log.log_reader import LogFrame
from logstore.scan import split_plan, split_reads
from logstore.scan.record_batches import Gather, Losses
from logstore.scan.split_plan import Plan
from tests import seeds
from tests.corruption import frames
from tests.corruption.injections import INJECTIONS
from tests.scan.scanned_stores import Row, batch_rows, make_plan, make_store, rows_of

ROUNDS = 2
OF_SEGMENTS = 12  # of the injections: the others are of what no task reads
LAST = 800


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Row]]:
    """A store of two streams in several segments, another one like it, and the rows of one."""
    root = tmp_path_factory.mktemp("losses")
    for name in ("store", "other"):
        with make_store(root / name) as store:
            for n in range(1, LAST + 1):
                store["x"].add({"n": n, "text": "t" * 60}, id=f"{n}-0")
                if n < 20:
                    store["y"].add({"n": n})
            store["x"].delete(*[f"{n}-0" for n in range(3, LAST, 10)])
            rows = rows_of(store["x"])
    return root / "store", root / "other", rows


@pytest.fixture
def path(made: tuple[Path, Path, list[Row]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "store"))


@pytest.fixture
def planned(path: Path) -> Iterator[tuple[logstore.Store[bytes], Plan]]:
    """The open store, and a plan of all of the stream in several splits."""
    with make_store(path) as store:
        yield store, make_plan(store, b"x", min_partitions=3)


def read_rest(plan: Plan) -> tuple[list[Row], Losses]:
    """The rows that can be read, and what is told of the others."""
    losses = Losses(allowed=True)
    rows: list[Row] = []
    for split in plan.splits:
        gather = Gather(["id", "pairs"], batch_rows=50, binary=["pairs"])
        rows += batch_rows(split_reads.batches(split, gather, losses=losses))
    return rows, losses


def sealed(path: Path, segment: int) -> list[LogFrame]:
    """The nodes in a segment in which there is no other stream's."""
    return [frame for frame in frames.of(path, segment) if frame.kind == Kind.NODE]


def check(rows: list[Row], losses: Losses, truth: list[Row]) -> None:
    """What was read is true; what was not is told, and all that is told was not read."""
    there = {id for id, _ in rows}
    assert rows == [row for row in truth if row[0] in there]
    lost = [StreamID(*map(int, id.split("-"))) for id, _ in truth if id not in there]
    for id in lost:
        assert any(each.first <= id <= each.last for each in losses.found)
    for each in losses.found:
        inside = [id for id in lost if each.first <= id <= each.last]
        assert len(inside) == each.entries
        assert each.stream == b"x"
    assert losses.entries == len(lost)


def test_neighbours_are_one_loss(
    made: tuple[Path, Path, list[Row]], path: Path, planned: tuple[logstore.Store[bytes], Plan]
) -> None:
    nodes = sealed(path, 2)
    for frame in (*nodes[3:6], nodes[10]):
        frames.spoil(path, frame)
    rows, losses = read_rest(planned[1])
    check(rows, losses, made[2])
    assert [each.nodes for each in losses.found] == [3, 1]
    assert [each.offset for each in losses.found] == [nodes[3].offset, nodes[10].offset]
    first = losses.found[0]
    words = f"from {first.first} to {first.last}, {first.entries} at most in 3 nodes, cannot be"
    with pytest.raises(CorruptionError, match=words) as raised:
        [list(split_reads.batches(split, Gather())) for split in planned[1].splits]
    assert (raised.value.stream, raised.value.segment) == (b"x", 2)
    assert raised.value.offset == nodes[3].offset


def test_reported_losses_lie_in_the_range(path: Path) -> None:
    frame = sealed(path, 2)[3]
    with make_store(path) as store:
        (whole,) = make_plan(store, b"x").splits
        frames.spoil(path, frame)
        losses = Losses(allowed=True)
        list(split_reads.batches(whole, Gather(["ms"]), losses=losses))
        (found,) = losses.found
        inner = StreamID(found.first.ms + 1, 0), StreamID(found.last.ms - 1, 0)
        for split in make_plan(store, b"x", start=inner[0], end=inner[1]).splits:
            losses = Losses(allowed=True)
            list(split_reads.batches(split, Gather(["ms"]), losses=losses))
            assert (losses.found[0].first, losses.found[0].last) == inner


def test_a_segment_that_is_gone_is_known_before(
    made: tuple[Path, Path, list[Row]], path: Path, planned: tuple[logstore.Store[bytes], Plan]
) -> None:
    """And one that ends early; both are one line for all of their nodes in a split."""
    store, plan = planned
    assert split_plan.lost_segments(store._engine(), plan) == []
    frames.file(path, 2).unlink()
    with frames.file(path, 3).open("r+b") as file:
        file.truncate(30_000)
    rows, losses = read_rest(plan)
    check(rows, losses, made[2])
    known = split_plan.lost_segments(store._engine(), plan)
    assert [each[:6] for each in known] == [each[:6] for each in losses.found]
    assert {each.segment for each in known} == {2, 3}
    assert len(known) <= 2 + len(plan.splits)


def test_an_open_node_that_is_damaged(tmp_path: Path) -> None:
    """The plan itself must read a large one: an error, or a loss that its tasks meet."""
    options = {"node_max_bytes": 1 << 20, "node_max_entries": 10, "segment_bytes": 1 << 20}
    with make_store(tmp_path / "s", **options) as store:
        for n in range(1, 15):
            store["x"].add({"n": n, "text": "t" * 30_000}, id=f"{n}-0")
        store["x"].delete("12-0")
        truth = rows_of(store["x"])
        (segment,) = frames.segments(tmp_path / "s")
        frame = [each for each in frames.of(tmp_path / "s", segment) if each.kind == Kind.APPEND][
            -1
        ]
        frames.spoil(tmp_path / "s", frame)
        words = "from 11-0 to 14-0, 3 at most, cannot be read"
        with pytest.raises(CorruptionError, match=words) as raised:
            make_plan(store, b"x")
        where = raised.value.stream, raised.value.segment, raised.value.offset
        assert where == (b"x", segment, frame.offset)
        rows, losses = read_rest(make_plan(store, b"x", lossy=True))
        assert len(rows) == 10
        check(rows, losses, truth)
        assert isinstance(losses.found[-1].error, CorruptNodeError)


def test_any_damage_is_told(made: tuple[Path, Path, list[Row]], tmp_path: Path) -> None:
    seed = seeds.seed()
    rng = random.Random(seed)
    for number in range(ROUNDS):
        for place, inject in enumerate(INJECTIONS[:OF_SEGMENTS]):
            path = Path(shutil.copytree(made[0], tmp_path / f"{number}-{place}"))
            newest = frames.file(path, frames.segments(path)[-1])
            before = newest.read_bytes()
            store = make_store(path)
            plan = make_plan(store, b"x", min_partitions=2)
            done = inject(path, made[1], rng)
            rows, losses = read_rest(plan)
            try:
                check(rows, losses, made[2])
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {done}") from error
            try:
                store.close()
            except (DamagedStoreError, StoreGoneError):  # a close looks at where the log ends
                assert not newest.exists() or newest.read_bytes() != before, f"seed {seed}: {done}"
            shutil.rmtree(path)
