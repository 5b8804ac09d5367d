"""Prevents fewer or other rows than were planned: every loss and every flipped bit is an error."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from logstore.api.store import Store
from logstore.engine.runtime import pins
from logstore.errors import CorruptFrameError, CorruptionError, NotAStoreError, SnapshotExpiredError
from logstore.fs import LOCAL
from logstore.log import pinfile
from logstore.scan import split_reads
from logstore.scan.record_batches import Gather, Losses
from logstore.scan.split_plan import Plan
from tests.scan.scanned_stores import flip, make_plan, make_store, rows_of, split_rows

WITHOUT_INDEX = """
import sys
sys.modules["lmdb"] = None
import pickle
from logstore.scan import split_reads as read
rows = sum(batch.num_rows for split in pickle.load(sys.stdin.buffer)
           for batch in read.read_split(split))
named = [name for name in sys.modules if name.startswith(("logstore.engine", "logstore.index"))]
print(rows, named)
"""


def filled(path: Path) -> Store[bytes]:
    """A store with sealed nodes in several segments, tombstones and an open node."""
    store = make_store(path)
    stream = store["x"]
    stream.add_many((((n, n), {"n": n, "text": "t" * 90}) for n in range(1, 2003)), batch=50)
    stream.delete(*[(n, n) for n in range(1, 2003, 3)])
    return store


def test_rows_stay_while_writers_change_everything(tmp_path: Path) -> None:
    store = filled(tmp_path / "s")
    wanted = rows_of(store["x"])
    made = make_plan(store, b"x", min_partitions=5)
    store["x"].add_many(({"n": n} for n in range(500)), batch=100)
    store["x"].delete_range((500, 0), (900, 0))
    assert split_rows(made) == wanted
    store["x"].trim(max_entries=10, approximate=False)
    store.drop("x")
    store.close()
    shutil.rmtree(tmp_path / "s" / "index")
    assert split_rows(made) == wanted


def test_compaction_leaves_what_a_plan_names(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        wanted = rows_of(store["x"])
        made = make_plan(store, b"x", min_partitions=3)
        pin = pinfile.read(LOCAL, tmp_path / "s", made.pin_id)
        assert pin is not None
        assert pin.segments is not None
        store["x"].delete(*[(n, n) for n in range(1, 2003) if n % 10])
        store.compact()
        assert split_rows(made) == wanted
        pins.release(LOCAL, tmp_path / "s", made.pin_id)
        store.compact()
        store.sync()
        store.compact()
        left = {int(path.stem) for path in (tmp_path / "s" / "log").glob("*.log")}
        assert not pin.segments <= left, "nothing was dropped once the pin was gone"
        with pytest.raises(SnapshotExpiredError):
            split_rows(made)
        assert split_rows(make_plan(store, b"x")) == rows_of(store["x"])


def test_a_scan_goes_on_over_a_compaction(tmp_path: Path) -> None:
    """Nodes are merged and moved, segments dropped, between two batches."""
    with filled(tmp_path / "s") as store:
        store["x"].delete(*[(n, n) for n in range(1, 2003) if n % 5])
        wanted = [id for id, _ in rows_of(store["x"])]
        found = []
        for number, batch in enumerate(store["x"].scan(batch_rows=40)):
            found += batch["id"].to_pylist()
            if number == 2:
                store.compact()
        assert found == wanted


def test_erasure_ends_a_plan(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        made = make_plan(store, b"x", min_partitions=3)
        store["x"].delete((2, 2), purge=True)
        with pytest.raises(SnapshotExpiredError):
            split_rows(made)


def test_reading_needs_neither_lmdb_nor_the_index(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        made = make_plan(store, b"x", min_partitions=3)
        count = len(store["x"])
    shutil.rmtree(tmp_path / "s" / "index")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_INDEX], input=pickle.dumps(made.splits), check=False,
        capture_output=True, cwd=Path(__file__).parent.parent.parent,
    )  # fmt: skip
    assert done.stdout.decode().strip() == f"{count} []", done.stderr.decode()


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    with filled(tmp_path / "s") as store:
        return make_plan(store, b"x", min_partitions=2)


def test_a_missing_pin_snapshot_or_segment_is_an_error(planned: Plan, tmp_path: Path) -> None:
    store, split = tmp_path / "s", planned.splits[0]
    snapshot = pinfile.snapshot_path(store, planned.pin_id)
    pin, segment = pinfile.path(store, planned.pin_id), store / "log" / f"{1:020d}.log"
    for path in (snapshot, pin):
        aside = path.rename(tmp_path / "aside")
        with pytest.raises(SnapshotExpiredError, match="load again"):
            list(split_reads.batches(split, Gather()))
        aside.rename(path)
    segment.rename(tmp_path / "aside")  # by hand: what a pin holds is not removed by logstore
    with pytest.raises(CorruptionError, match=r"from 1-1 to .*logstore did not remove it"):
        list(split_reads.batches(split, Gather()))
    reading = split_reads.batches(split, Gather(batch_rows=1), losses=Losses(allowed=True))
    (tmp_path / "aside").rename(segment)
    assert next(reading).num_rows
    for other in (store / "log").glob("*.log"):
        other.unlink()
    pin.unlink()  # as an erasure does: the rest is not lost, but elsewhere
    with pytest.raises(SnapshotExpiredError, match="load again"):
        list(reading)


def test_a_host_without_the_mount_is_told_so(planned: Plan, tmp_path: Path) -> None:
    """Not that a snapshot is over, after which people load again; also where a folder is empty."""
    (tmp_path / "s").rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(NotAStoreError, match="as by a mount"):
            list(split_reads.batches(planned.splits[0], Gather()))
        (tmp_path / "s").mkdir(exist_ok=True)


def test_a_pin_that_ran_out_is_said(planned: Plan) -> None:
    pin = pinfile.read(LOCAL, Path(planned.splits[0].store), planned.pin_id)
    assert pin is not None
    with pytest.raises(SnapshotExpiredError, match="ran out"):
        list(split_reads.batches(planned.splits[0], Gather(), now_ms=lambda: pin.expires_ms))


def test_every_flipped_byte_of_a_snapshot_is_found(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add_many((((n, 0), {"n": n}) for n in range(1, 11)), batch=10)
        store["x"].delete((2, 0))
        made = make_plan(store, b"x")
    path = pinfile.snapshot_path(tmp_path / "s", made.pin_id)
    assert len(made.splits) == 1
    whole = path.read_bytes()
    end = made.splits[0].offset + made.splits[0].size_bytes  # behind it only plans look
    for offset in range(end):
        flip(path, offset, 1 << offset % 8)
        with pytest.raises(CorruptionError, match="load again"):
            list(split_reads.batches(made.splits[0], Gather()))
        path.write_bytes(whole)
    for size in range(0, end, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptionError, match="load again"):
            list(split_reads.batches(made.splits[0], Gather()))


def test_a_snapshot_of_another_plan_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        one, two = make_plan(store, b"x"), make_plan(store, b"x", end=(50, 0))
    shutil.copy(
        pinfile.snapshot_path(tmp_path / "s", two.pin_id),
        pinfile.snapshot_path(tmp_path / "s", one.pin_id),
    )
    with pytest.raises(CorruptionError, match="another store or pin"):
        list(split_reads.batches(one.splits[0], Gather()))


def test_damage_in_a_segment_is_found(planned: Plan, tmp_path: Path) -> None:
    path = tmp_path / "s" / "log" / f"{1:020d}.log"
    whole = path.read_bytes()
    rows = len(split_rows(planned))
    at = whole.index(b"t" * 90)
    flip(path, at)
    with pytest.raises(CorruptFrameError) as raised:
        list(split_reads.batches(planned.splits[0], Gather()))
    assert raised.value.segment == 1
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptFrameError):
        list(split_reads.batches(planned.splits[0], Gather()))
    path.write_bytes(whole)
    assert len(split_rows(planned)) == rows


def test_ids_past_two_to_the_63(store: Store[bytes]) -> None:
    stream = store["big"]
    ids = ["1-1", f"{2**63 - 1}-{2**63 - 1}", f"{2**63}-{2**63}", f"{2**64 - 1}-{2**64 - 1}"]
    for id in ids:
        stream.add({"a": "b"}, id=id)
    made = make_plan(store, b"big")
    for batches in (split_reads.read_split(made.splits[0]), stream.scan()):
        found = batches.read_all().to_pydict()
        assert found["id"] == ids
        assert found["ms"] == [1, 2**63 - 1, None, None]
        assert found["seq"] == [1, 2**63 - 1, None, None]
        assert [ts is not None for ts in found["ts"]] == [True, False, False, False]


def test_bytes_that_are_no_text(store: Store[bytes]) -> None:
    stream = store[b"\xff\xfename"]
    stream.add([(b"k\xff", b"v\xfe"), (b"k\xff", b"again")])
    made = make_plan(store, b"\xff\xfename")
    row = split_reads.read_split(made.splits[0]).read_all().to_pylist()[0]
    assert row["stream"] == "\ufffd\ufffdname"
    assert row["fields"] == [("k\ufffd", "again")]
    assert [tuple(pair.values()) for pair in row["pairs"]] == [
        ("k\ufffd", "v\ufffd"), ("k\ufffd", "again"),
    ]  # fmt: skip
    gather = Gather(["pairs", "fields", "id"], binary=["pairs", "fields"])
    batch = next(split_reads.batches(made.splits[0], gather))
    assert batch.schema.names == ["pairs", "fields", "id"]
    assert batch.to_pylist()[0]["fields"] == [("k\ufffd", b"again")]
    assert [pair["value"] for pair in batch.to_pylist()[0]["pairs"]] == [b"v\xfe", b"again"]


def test_the_schema_is_exactly_this(store: Store[bytes]) -> None:
    store["schema"].add({"a": "1"}, id="5-0")
    made = make_plan(store, b"schema")
    wanted = pa.schema([
        ("stream", pa.string()), ("id", pa.string()), ("ms", pa.int64()), ("seq", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")), ("fields", pa.map_(pa.string(), pa.string())),
        ("id_key", pa.binary()),
        ("pairs", pa.list_(pa.struct([("field", pa.string()), ("value", pa.string())]))),
    ])  # fmt: skip
    for reader in (split_reads.read_split(made.splits[0]), store["schema"].scan()):
        assert reader.schema == wanted
        assert reader.read_all().schema == wanted
