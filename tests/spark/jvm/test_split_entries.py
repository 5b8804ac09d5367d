"""Prevents entries that the JVM reads otherwise than Python, and any damage that it takes for
sound, or meets with anything but an error of ours.
"""

from __future__ import annotations

import itertools
import logging
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import format as fmt
from logstore.api.store import Store
from logstore.fs import LOCAL
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import file_names, pinfile
from logstore.scan import split_reads
from logstore.scan.record_batches import Gather, Losses
from logstore.scan.snapshot_file import Split
from logstore.scan.split_plan import Plan
from logstore.spark_io import planning, spark_options, split_tasks
from tests import seeds
from tests.corruption import frames
from tests.recovery.shipped import ship
from tests.scan.scanned_stores import make_plan, make_store
from tests.scan.shapes import REPEATED, SHAPES, random_ids
from tests.spark.jvm import oracle, resealed
from tests.spark.jvm.split_dump import Entry, SplitDump

NUMBERS = itertools.count()
NAMES = [b"a", b"b", b"7", b"-12", b"07", b"", b"\xff\x00", "\u00e9".encode(), b"n" * 70]
VALUES = st.one_of(
    st.sampled_from(
        [b"", b"0", b"127", b"128", b"-1", b"4095", b"4096", b"-4097", b"8388607", b"-8388609"]
        + [b"%d" % (sign * 2**bits) for bits in (15, 23, 31, 62) for sign in (1, -1)]
        + [b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"01", b"1.5"]
        + [b"v" * size for size in (63, 64, 126, 127, 128, 4095, 4096, 16378, 16379, 20000)]
    ),
    st.binary(max_size=20),
)
FLAT = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), min_size=1, max_size=5)
MUTATIONS = 200


def entries_of(jvm: SplitDump, splits: list[Split], **options: Any) -> list[Entry]:
    """The entries of some splits, none of which has an error."""
    found: list[Entry] = []
    for split in splits:
        answer = jvm.read(split, **options)
        assert not answer.kind, answer.error
        found += answer.entries
    return found


# -- sound stores -----------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(
    st.lists(FLAT, max_size=60),
    st.sampled_from(sorted(SHAPES)),
    st.integers(1, 9),
    st.integers(1, 70),
    st.data(),
)
def test_entries_are_those_of_the_range(
    tmp_path_factory: pytest.TempPathFactory,
    jvm: SplitDump,
    entries: list[list[tuple[bytes, bytes]]],
    shape: str,
    node_max: int,
    batch_rows: int,
    data: st.DataObject,
) -> None:
    """Whatever is deleted, compacted, repeated or in an open node, of any part of the streams."""
    path = tmp_path_factory.mktemp("store")
    ids = random_ids(shape, data.draw(st.integers(0, 99)), len(entries))
    entries = [*entries, *REPEATED][: len(ids)]
    with make_store(path / "s", node_max_entries=node_max) as store:
        names = [b"x", b"\xff\xe9"]
        for number, (id, flat) in enumerate(zip(ids, entries, strict=False)):
            store.stream(names[number % 3 == 2]).add(flat, id=id)
        gone = data.draw(st.sets(st.sampled_from(ids), max_size=20)) if ids else set()
        for late in (False, True):
            for id in sorted(gone)[late::2]:
                for name in names:
                    store.stream(name).delete(id)
            if not late and data.draw(st.booleans()):
                store.compact(full=True)
        edges = st.sampled_from([ZERO_ID, MAX_ID, *ids])
        start, end = sorted((data.draw(edges), data.draw(edges)))
        there = [name for name in names if name in store]
        made = make_plan(store, *there, start=start, end=end, min_partitions=3)
        want = [
            (name, str(entry.id), tuple(itertools.chain(*entry.pairs)))
            for name in there
            for entry in store.stream(name).range(start, end)
        ]
        found = entries_of(jvm, made.splits, batch_rows=batch_rows, fields=NAMES)
        assert [(each.stream, each.id, each.flat) for each in found] == want
        for each in found:
            last = dict(zip(each.flat[::2], each.flat[1::2], strict=True))
            assert list(each.values) == [last.get(name) for name in NAMES]
        alone = entries_of(jvm, made.splits, batch_rows=batch_rows, fields=NAMES, pairs=False)
        assert [each._replace(flat=()) for each in found] == alone
        counts = [jvm.read(split, counts=True, pairs=False) for split in made.splits]
        assert sum(each.count for each in counts) == len(want)
        assert {each.kind for each in counts} <= {""}
    shutil.rmtree(path)


def test_a_count_reads_the_nodes_at_the_ends_alone(tmp_path: Path, jvm: SplitDump) -> None:
    with make_store(tmp_path / "s") as store:
        for n in range(1, 100):
            store["x"].add({"n": n}, id=f"{n}-0")
        store["x"].delete("50-0")
        (split,) = make_plan(store, b"x", start=StreamID(3, 0), end=StreamID(98, 0)).splits
        answer = jvm.read(split, counts=True, pairs=False, batch_rows=7)
        assert (answer.count, answer.nodes) == (95, 2)
        assert jvm.read(split, pairs=False).count == 95


def test_where_an_entry_is(tmp_path: Path, jvm: SplitDump) -> None:
    """Segment and offset of its node; of one that no segment has as a whole, 0."""
    with make_store(tmp_path / "s") as store:
        for n in range(1, 11):
            store["x"].add({"n": n}, id=f"{n}-0")
        found = entries_of(jvm, make_plan(store, b"x").splits)
    nodes = [each for each in frames.of(tmp_path / "s", 1) if each.kind == fmt.Kind.NODE]
    assert {(each.segment, each.offset) for each in found[:8]} == {
        (1, node.offset) for node in nodes
    }
    assert {(each.segment, each.offset) for each in found[8:]} == {(0, 0)}


@pytest.mark.parametrize(("count", "size"), [(60, 1_000_000), (60_000, 1)])
def test_a_node_that_is_much_larger_than_a_batch(
    tmp_path: Path, jvm: SplitDump, count: int, size: int
) -> None:
    """It comes a batch at a time; broken at its end, nothing of it does."""
    options = {"node_max_bytes": 64 << 20, "segment_bytes": 256 << 20}
    with make_store(tmp_path / "s", node_max_entries=count, **options) as store:
        rows = (((n, 0), {"v": b"v" * size}) for n in range(1, count + 1))
        store["x"].add_many(rows, batch=count)
        store["x"].delete(f"{count}-0")
        store["x"].add({"v": "of another node"}, id=f"{count + 1}-0")
        made = make_plan(store, b"x")
        (split,) = made.splits
        for batch_rows in (7, 100):
            answer = jvm.read(split, pairs=False, batch_rows=batch_rows)
            assert (answer.kind, answer.count) == ("", count)
            assert answer.most == min(batch_rows, count)
        assert [each.id for each in answer.entries[-2:]] == [f"{count - 1}-0", f"{count + 1}-0"]
        assert answer.nodes == 2
        segment = answer.entries[0].segment
        node = next(each for each in frames.of(tmp_path / "s", segment) if each.kind == 6)
        resealed.frame(tmp_path / "s", node, node.payload[:-2] + b"\x09\xff")
        answer = jvm.read(split, lossy=True)
        assert (answer.count, answer.lost) == (1, count - 1)
        oracle.check(jvm, split)


# -- damage -----------------------------------------------------------------------------------
STREAM = b"a'b\n\xff\xe2\x82\xac\xc2\xa0\\"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments, with sealed nodes, open ones, and deleted entries."""
    path = tmp_path_factory.mktemp("whole") / "s"
    with make_store(path) as store:
        for n in range(1, 900):
            store.stream(STREAM).add({"n": n, "text": "t" * 60}, id=f"{n}-0")
            if n < 30:
                store["y"].add({"n": n, "m": "\u20ac"})
        store.stream(STREAM).delete(*[f"{n}-0" for n in range(3, 800, 10)])
    return path


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Iterator[Store[bytes]]:
    with make_store(Path(shutil.copytree(whole, tmp_path / "s"))) as store:
        yield store


@pytest.fixture
def plan(store: Store[bytes]) -> Plan:
    return make_plan(store, STREAM, b"y", min_partitions=2)


def root(plan: Plan) -> Path:
    return Path(plan.splits[0].store)


def change(data: bytes, rng: random.Random) -> bytes:
    """The bytes of a file after an accident."""
    at, other = rng.randrange(len(data)), rng.randrange(len(data))
    size = min(rng.choice([1, 4, 512, 4096]), len(data) - max(at, other))
    match rng.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 2:
            return data[:at] + data[other : other + size] + data[at + size :]
        case 3:
            return data[:at] + rng.randbytes(size) + data[at + size :]
        case _:
            return data[:at] + rng.randbytes(size) + data[at:]


def test_mutated_files(store: Store[bytes], plan: Plan, jvm: SplitDump) -> None:
    """Segments, snapshot and pin, changed anywhere: rows and errors are those of Python."""
    seed = seeds.seed()
    rng = random.Random(seed)
    files = [frames.file(root(plan), number) for number in frames.segments(root(plan))]
    files += [pinfile.snapshot_path(root(plan), plan.pin_id), pinfile.path(root(plan), plan.pin_id)]
    for number in range(MUTATIONS):
        path = files[number % len(files)]
        before = path.read_bytes()
        path.write_bytes(change(before, rng))
        for split in plan.splits:
            try:
                oracle.check(jvm, split, lossy=bool(number % 2))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {number} of {path.name}") from error
        path.write_bytes(before)
    for split in plan.splits:
        assert not oracle.check(jvm, split).kind


def test_mutated_nodes_whose_checksums_fit(
    store: Store[bytes], plan: Plan, jvm: SplitDump
) -> None:
    """Only the rules of their encoding tell that they are broken."""
    seed = seeds.seed()
    rng = random.Random(seed)
    path = root(plan)
    nodes = [
        each
        for number in frames.segments(path)
        for each in frames.of(path, number)
        if each.kind == fmt.Kind.NODE
    ]
    files = {each.segment: frames.file(path, each.segment).read_bytes() for each in nodes}
    seen: set[str] = set()
    for number in range(MUTATIONS // 4):
        for node in rng.sample(nodes, 8):
            payload = bytearray(node.payload)
            at = rng.randrange(24, len(payload)) if number % 8 else rng.randrange(24)
            payload[at] = rng.choice([0, 0xFF, 0xF0, 0xF4, payload[at] ^ 1 << rng.randrange(8)])
            kind = rng.choice([*fmt.Kind]) if not number % 16 else None
            resealed.frame(path, node, bytes(payload), kind=kind)
        for split in plan.splits:
            try:
                seen.add(oracle.check(jvm, split, lossy=bool(number % 3)).kind)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {number}") from error
        for segment, data in files.items():
            frames.file(path, segment).write_bytes(data)
    assert {"", "CorruptNodeError"} <= seen


def test_mutated_blocks_whose_checksums_fit(
    store: Store[bytes], plan: Plan, jvm: SplitDump
) -> None:
    """Lengths in it may be anything: no memory is taken, and nothing outside of it is read."""
    seed = seeds.seed()
    rng = random.Random(seed)
    path = pinfile.snapshot_path(root(plan), plan.pin_id)
    before = path.read_bytes()
    split = plan.splits[-1]
    body = fmt.SNAPSHOT_BLOCK.size
    size = int.from_bytes(before[split.offset + 4 : split.offset + 8], "little")
    items = body + int.from_bytes(before[split.offset + 8 : split.offset + 12], "little")
    for number in range(MUTATIONS):
        at = rng.choice([8, items + rng.randrange(60), rng.randrange(12, body + size - 8)])
        data = rng.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4), rng.randbytes(8)])
        resealed.block(path, split, at, data)
        answer = jvm.read(split, lossy=bool(number % 2))
        assert answer.kind != "crash", f"seed {seed}: {number}: {answer.error}"
        path.write_bytes(before)
    assert not oracle.check(jvm, split).kind


def test_lost_segments_and_what_is_logged(
    store: Store[bytes], plan: Plan, jvm: SplitDump, caplog: pytest.LogCaptureFixture
) -> None:
    """One is gone, one is cut, nodes of one are damaged: neighbours are one loss."""
    path = root(plan)
    frames.file(path, 1).unlink()
    with frames.file(path, 2).open("r+b") as file:
        file.truncate(30_000)
    nodes = [each for each in frames.of(path, 3) if each.kind == fmt.Kind.NODE]
    for node in (*nodes[3:6], nodes[10]):
        frames.spoil(path, node)
    logged: list[str] = []
    for split in plan.splits:
        oracle.check(jvm, split)
        answer = oracle.check(jvm, split, lossy=True)
        losses = Losses(allowed=True)
        list(split_reads.batches(split, Gather(["id"]), losses=losses))
        caplog.clear()
        with caplog.at_level(logging.WARNING, "logstore.spark"):
            split_tasks.log_losses(split.store, losses.found, "a task left out")
        assert answer.logged == "\n".join(caplog.messages)
        logged.append(answer.logged)
    assert " in 3 nodes" in "".join(logged)
    assert "places more" in "".join(logged)


# -- pins -------------------------------------------------------------------------------------
def test_what_the_pin_says(store: Store[bytes], plan: Plan, jvm: SplitDump) -> None:
    """It is gone, it ran out, it is another store's, its snapshot or its directory is gone."""
    split = plan.splits[0]
    path = pinfile.path(root(plan), plan.pin_id)
    snapshot = pinfile.snapshot_path(root(plan), plan.pin_id)
    kinds: list[str] = []
    for deed in ("unread", "gone", "ran out", "no snapshot", "no segment", "link", "no directory"):
        before, blocks = path.read_bytes(), snapshot.read_bytes()
        segment = frames.file(root(plan), 1)
        pin = pinfile.read(LOCAL, root(plan), plan.pin_id)
        assert pin is not None
        match deed:
            case "gone":
                path.unlink()
            case "ran out":
                pinfile.write(LOCAL, root(plan), pin._replace(expires_ms=1))
            case "no snapshot":
                snapshot.unlink()
            case "no segment":
                segment.rename(segment.with_suffix(".away"))
            case "link":
                segment.rename(segment.with_suffix(".away"))
                segment.symlink_to(segment.with_suffix(".away"))
            case "no directory":
                path.parent.rename(path.parent.with_name("away"))
        kinds.append(oracle.check(jvm, split).kind)
        other = split._replace(home=str(root(plan).parent / "other"))
        assert oracle.check(jvm, other).kind == "NotAStoreError"
        match deed:
            case "no directory":
                path.parent.with_name("away").rename(path.parent)
            case "no segment" | "link":
                segment.with_suffix(".away").rename(segment)
        path.write_bytes(before)
        snapshot.write_bytes(blocks)
    assert kinds == [
        "",
        "SnapshotExpiredError",
        "SnapshotExpiredError",
        "SnapshotExpiredError",
        "CorruptionError",
        "FileSystemError",
        "NotAStoreError",
    ]


def test_a_segment_that_no_pin_holds(whole: Path, tmp_path: Path, jvm: SplitDump) -> None:
    """A store that may not be written to: its pin is elsewhere, where compaction does not look."""
    home = tmp_path / "home"
    (home / file_names.PINS).mkdir(parents=True)
    with make_store(Path(shutil.copytree(whole, tmp_path / "s"))) as store:
        made = make_plan(store, STREAM, home=home)
        frames.file(tmp_path / "s", 1).unlink()
        (split,) = made.splits
        assert oracle.check(jvm, split, lossy=True).kind == "SnapshotExpiredError"


@pytest.mark.parametrize("left", [0.4, 0.6])
def test_a_pin_is_renewed_when_half_of_it_is_over(
    store: Store[bytes], plan: Plan, jvm: SplitDump, left: float
) -> None:
    """Nothing else of it changes, and no other file stays."""
    now_ms = time.time_ns() // 1_000_000
    pin = pinfile.read(LOCAL, root(plan), plan.pin_id)
    assert pin is not None
    pin = pin._replace(expires_ms=now_ms + int(left * pin.ttl_ms))
    pinfile.write(LOCAL, root(plan), pin)
    names = sorted(each.name for each in (root(plan) / file_names.PINS).iterdir())
    assert not jvm.read(plan.splits[0]).kind
    after = pinfile.read(LOCAL, root(plan), plan.pin_id)
    assert after is not None
    assert after._replace(expires_ms=0) == pin._replace(expires_ms=0)
    assert (after.expires_ms > pin.expires_ms) == (left < 0.5)
    assert sorted(each.name for each in (root(plan) / file_names.PINS).iterdir()) == names


def test_older_and_newer_snapshots(store: Store[bytes], plan: Plan, jvm: SplitDump) -> None:
    """A head of another version, whose checksum fits."""
    from logstore.crc import crc32c

    path = pinfile.snapshot_path(root(plan), plan.pin_id)
    head = path.read_bytes()[:54]
    for version, kind in ((0, "CorruptionError"), (fmt.FORMAT_VERSION + 1, "FormatVersionError")):
        other = head[:8] + version.to_bytes(2, "little") + head[10:]
        frames.patch(path, 0, other + int(crc32c(other)).to_bytes(4, "little"))
        assert oracle.check(jvm, plan.splits[0]).kind == kind


# -- shipped stores ---------------------------------------------------------------------------
def shipped_splits(place: Path) -> list[Split]:
    options = spark_options.parse_read({"path": str(place), "streams": "*", "minPartitions": "2"})
    return planning.splits(options, 2, ())


def test_a_shipped_store(store: Store[bytes], tmp_path: Path, jvm: SplitDump) -> None:
    """It is read where it is, also after a newer state replaced an object that is still there."""
    place = tmp_path / "shipped %20a"
    ship(store, place)
    splits = shipped_splits(place)
    assert splits
    assert all(each.blocks for each in splits)
    want = {
        (name, str(entry.id)) for name in (STREAM, b"y") for entry in store.stream(name).range()
    }
    for split in splits:
        assert not oracle.check(jvm, split).kind
    found = entries_of(jvm, splits)
    assert {(each.stream, each.id) for each in found} == want
    for n in range(2000):
        store["y"].add({"n": n})
    ship(store, place)  # the object of the segment that grew is another now
    assert {(each.stream, each.id) for each in entries_of(jvm, splits)} == want
    for each in splits:
        oracle.check(jvm, each)
    for each in (place / "objects").iterdir():
        each.unlink()
    assert oracle.check(jvm, splits[0]).kind == "SnapshotExpiredError"
    (place / "MANIFEST.json").unlink()
    assert oracle.check(jvm, splits[0]).kind == "SnapshotExpiredError"
    flipped = bytearray(splits[0].blocks)
    flipped[100] ^= 1
    assert oracle.check(jvm, splits[0]._replace(blocks=bytes(flipped))).kind == "CorruptionError"


@pytest.mark.parametrize(
    ("uri", "kind"),
    [("nowhere://bucket/s", "OptionError"), ("s3://a:secret@bucket/s?region=x", "OptionError")],
)
def test_a_place_that_hadoop_does_not_know(
    store: Store[bytes], tmp_path: Path, jvm: SplitDump, uri: str, kind: str
) -> None:
    ship(store, tmp_path / "shipped")
    split = shipped_splits(tmp_path / "shipped")[0]
    answer = jvm.read(split._replace(store=uri))
    assert answer.kind == kind
    assert "reader=python" in answer.error
    assert "secret" not in answer.error
