"""Prevents a scan that differs from `range`, counts otherwise, holds a snapshot or fills the
memory.
"""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore import format as fmt
from logstore.api.store import Store
from logstore.codec import codec_name
from logstore.crc import crc32c
from logstore.engine.runtime.segments import SegmentGone, Segments
from logstore.errors import ClosedError, CorruptNodeError, DamagedStoreError, OptionError
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.log import storefile
from logstore.log.segment_writer import crc_seed
from logstore.scan import listing, live, record_batches
from tests.scan.scanned_stores import batch_rows, make_plan, make_store, rows_of, split_rows
from tests.support.processes import run_program

NUMBERS = itertools.count()
ROOT = Path(__file__).parent.parent.parent
TEXT = st.text(alphabet="ab\u00e9", max_size=20).map(str.encode)
# The pure codec holds a batch as Python objects: bounded too, but by more.
ANON_MAX_KB = (100 if codec_name() == "native" else 200) * 1024
SCAN_A_LOT = """
import sys, logstore
value = "v" * 100
path, count = sys.argv[1], int(sys.argv[2])
with logstore.open(path, sync="os") as store:
    rows = ({"text": value, "n": n} for n in range(count))
    store.stream("x").add_many(rows, batch=2000)
def anon():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
with logstore.open(path, sync="os") as store:
    rows = most = 0
    for batch in store.stream("x").scan():
        rows += batch.num_rows
        most = max(most, anon())
print(rows, most)
"""


@settings(max_examples=40)
@given(st.lists(st.tuples(TEXT, st.booleans()), max_size=80), st.integers(1, 50), st.data())
def test_a_scan_equals_the_range(
    store: Store[bytes], entries: list[tuple[bytes, bool]], batch_rows_max: int, data: st.DataObject
) -> None:
    stream = store.stream(f"scan-{next(NUMBERS)}")
    ids = [StreamID(n + 1, 7 * n) for n in range(len(entries))]
    for id, (value, _) in zip(ids, entries, strict=True):
        stream.add([(b"a", value), (b"a", value * 2)], id=id)
    for id, (_, deleted) in zip(ids, entries, strict=True):
        if deleted:
            stream.delete(id)
    edges = st.sampled_from([StreamID(0, 0), StreamID(99, 0), *ids])
    start, end = sorted((data.draw(edges), data.draw(edges)))
    batches = list(stream.scan(start, end, batch_rows=batch_rows_max))
    assert batch_rows(batches) == rows_of(stream, start, end)
    assert all(1 <= batch.num_rows <= batch_rows_max for batch in batches)


def test_columns_and_fields_in_the_order_asked_for(store: Store[bytes]) -> None:
    stream = store["columns"]
    stream.add({"speed": 30, "rider": "Castilla"}, id="1-1")
    stream.add({"rider": "Norem"}, id="1-2")
    table = stream.scan(columns=["speed", "id", "rider"]).read_all()
    assert table.to_pydict() == {
        "speed": ["30", None],
        "id": ["1-1", "1-2"],
        "rider": ["Castilla", "Norem"],
    }
    assert table.column_names == ["speed", "id", "rider"]


@pytest.mark.parametrize(
    "options", [{"batch_rows": 0}, {"batch_rows": 2**40}, {"columns": ["id", "id"]}]
)
def test_refused_options(store: Store[bytes], options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        store["refused"].scan(**options)  # type: ignore[arg-type]


def test_a_stream_that_is_not_there_has_no_rows(store: Store[bytes]) -> None:
    assert store["nobody"].scan().read_all().num_rows == 0


def test_a_scan_goes_on_by_id_while_a_writer_changes_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of odd numbers live throughout: each comes once, in order."""
    monkeypatch.setattr(live, "NODES_MAX", 2)
    count = 3000
    with make_store(tmp_path / "s") as store:
        stream = store["x"]
        stream.add_many((((n, 0), {"n": n}) for n in range(1, count + 1)), batch=100)
        stop = threading.Event()

        def write() -> None:
            at = count
            for gone in range(2, count + 1, 2):
                if stop.is_set():
                    return
                at += 1
                stream.delete((gone, 0))
                stream.add({"n": at}, id=(at, 0))

        writer = threading.Thread(target=write)
        scans: list[list[str]] = []
        try:
            for _ in range(4):
                scans.append([])
                for batch in stream.scan(batch_rows=17):
                    scans[-1] += [row[0] for row in batch_rows([batch])]
                    if writer.ident is None:  # amid the first scan, however fast it is
                        writer.start()
        finally:
            stop.set()
            writer.join()
    beside = 0
    for ids in scans:
        found = [int(id.partition("-")[0]) for id in ids]
        beside += 0 < sum(n <= count and not n % 2 for n in found) < count // 2
        assert found == sorted(set(found))
        assert set(range(1, count + 1, 2)) <= set(found)
    assert beside, "the writer did not run beside the scans"


def test_no_snapshot_is_held_between_batches(tmp_path: Path) -> None:
    """A held one would make the index grow with every commit."""
    with make_store(tmp_path / "s") as store:
        stream = store["x"]
        stream.add_many((((n, 0), {"n": n}) for n in range(1, 4000)), batch=100)
        generation = store._engine().index()
        reader = stream.scan(batch_rows=10).reader()
        first = reader.read_next_batch()
        before = generation.used_bytes()
        for _ in range(400):
            store["y"].add({"n": 1})
            store["y"].trim(max_entries=0, approximate=False)
        assert generation.used_bytes() < before + 40 * 4096
        assert first.num_rows + sum(batch.num_rows for batch in reader) == 3999


def test_a_scan_of_a_closed_store_says_so(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s")
    store["x"].add_many(({"n": n} for n in range(1000)), batch=100)
    reader = store["x"].scan(batch_rows=10).reader()
    reader.read_next_batch()
    store.close()
    with pytest.raises(ClosedError):
        reader.read_all()


def test_batches_are_bounded_by_bytes(store: Store[bytes]) -> None:
    stream = store["wide"]
    stream.add_many(({"v": b"x" * 500_000} for _ in range(50)), batch=10)
    sizes = [batch.get_total_buffer_size() for batch in stream.scan()]
    assert len(sizes) > 1
    assert max(sizes) < record_batches.BATCH_BYTES + 4 * 600_000


def test_the_memory_of_a_scan_is_bounded(tmp_path: Path) -> None:
    count = 1_500_000  # about 170 MB of segments
    done = run_program(SCAN_A_LOT, tmp_path / "s", count, cwd=ROOT)
    rows, most = map(int, done.stdout.split())
    assert rows == count
    assert most < ANON_MAX_KB, f"{most} kB of anonymous memory"


def test_rows_read_before_an_error_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that goes between two nodes of one snapshot: the rest is looked up again."""
    with make_store(tmp_path / "s") as store:
        stream = store["x"]
        stream.add_many((((n, 0), {"n": n, "text": "t" * 900}) for n in range(1, 500)), batch=10)
        whole = Segments.around
        looks = []

        def around(self: Segments, *place: Any) -> Any:
            looks.append(place)
            if len(looks) in (2, 4):
                raise SegmentGone(1)
            return whole(self, *place)

        monkeypatch.setattr(Segments, "around", around)
        found = [row[0] for row in batch_rows(stream.scan())]
        assert found == [f"{n}-0" for n in range(1, 500)]
        assert len(looks) > 4


def test_a_last_id_that_was_lowered_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a node may begin below the last ID of the one before it."""
    monkeypatch.setattr(live, "NODES_MAX", 1)
    monkeypatch.setattr(listing, "PIECE_NODES", 1)
    with make_store(tmp_path / "s") as store:
        stream = store["x"]
        stream.add_many((((n, 0), {"n": n}) for n in range(1, 25)), batch=4)
        stream.trim(min_id=(25, 0), approximate=False)  # the last node stays, without live entries
        stream.set_id((18, 0))
        wanted: list[int] = []
        for last in range(19, 40):
            stream.add({"n": last}, id=(last, 0))
            wanted.append(last)
            found = [int(row[0].partition("-")[0]) for row in batch_rows(stream.scan())]
            assert found == wanted
            rows = split_rows(make_plan(store, b"x", min_partitions=3))
            assert [int(row[0].partition("-")[0]) for row in rows] == wanted


def test_a_node_that_breaks_its_rules_in_a_sound_frame_is_named(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add_many(({"n": n} for n in range(40)), batch=40)
        store["x"].delete(next(iter(store["x"])).id)
    path = tmp_path / "s" / "log" / f"{1:020d}.log"
    data = bytearray(path.read_bytes())
    seed = crc_seed(storefile.read(LOCAL, tmp_path / "s").uuid)
    at = fmt.SEGMENT_HEAD_BYTES
    while data[at + fmt.FRAME_MARK_OFFSET - 2] != fmt.Kind.NODE:
        at += fmt.FRAME_HEAD_BYTES + int.from_bytes(data[at + 4 : at + 8], "little")
    end = at + fmt.FRAME_HEAD_BYTES + int.from_bytes(data[at + 4 : at + 8], "little")
    data[end - 3] ^= 0xFF  # an element of the last entry, and then the checksum that goes with it
    place = fmt.position(1, at).to_bytes(8, "little")
    data[at : at + 4] = crc32c(bytes(data[at + 4 : end]), crc32c(place, seed)).to_bytes(4, "little")
    path.write_bytes(data)
    with logstore.open(tmp_path / "s", readonly=True) as store:
        with pytest.raises(CorruptNodeError) as raised:
            store["x"].scan().read_all()
        assert (raised.value.stream, raised.value.segment, raised.value.offset) == (b"x", 1, at)
        assert store["x"].scan(columns=[]).read_all().num_rows == 39, "a count reads no node"


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=40),
    st.integers(0, 90),
    st.integers(0, 90),
)
def test_a_count_is_that_of_range(
    store: Store[bytes], entries: list[tuple[int, bool]], low: int, high: int
) -> None:
    stream = store.stream(f"counted-{next(NUMBERS)}")
    assert stream.count() == 0
    at, gone = 0, []
    for step, deleted in entries:
        at += step
        stream.add({"n": at}, id=(at, 0))
        if deleted:
            gone.append((at, 0))
    if gone:
        stream.delete(*gone)
    low, high = sorted((low, high))
    for start, end in ((low, high), (0, high), (low, 100), (0, 100)):
        ends = (StreamID(start, 0), StreamID(end, 0))
        assert stream.count(*ends) == len(list(stream.range(*ends)))
    assert stream.count() == len(stream)
    with pytest.raises(OptionError):
        stream.count((5, 0), (4, 0))


def test_a_count_looks_again_where_a_node_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_store(tmp_path / "s") as store:
        stream = store["x"]
        stream.add_many((((n, 0), {"n": n}) for n in range(1, 101)), batch=10)
        whole = Segments.around
        looks = []

        def around(self: Segments, *place: Any) -> Any:
            looks.append(place)
            if len(looks) == 1:
                raise SegmentGone(1)
            return whole(self, *place)

        monkeypatch.setattr(Segments, "around", around)
        assert stream.count((3, 0), (50, 0)) == 48
        assert len(looks) > 1
        monkeypatch.setattr(Segments, "around", lambda *_: (_ for _ in ()).throw(SegmentGone(1)))
        with pytest.raises(DamagedStoreError, match="logstore check"):
            stream.count((3, 0), (50, 0))


def test_a_stream_is_an_arrow_stream_again_and_again(store: Store[bytes]) -> None:
    stream = store["arrow"]
    for count in (2, 3):
        stream.add_many({"n": n} for n in range(count))
        table = pa.table(stream)
        assert table.equals(stream.scan().read_all())
        assert table.num_rows == len(stream)
    assert pa.RecordBatchReader.from_stream(stream).read_all().equals(table)


def test_a_count_needs_no_pyarrow(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["pyarrow"] = None
import logstore
with logstore.open({str(tmp_path / "s")!r}) as store:
    store["x"].add_many(((n, 0), {{"n": n}}) for n in range(1, 1001))
    print(store["x"].count((3, 0), (900, 0)))
"""
    done = run_program(code, cwd=ROOT)
    assert done.stdout.strip() == "898"


NODES = live.AT_ONCE_NODES + 300


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_the_entries(tmp_path: Path, seed: int) -> None:
    """Small nodes, so that sums are kept; what changes the stream comes in between."""
    chance = random.Random(seed)
    with make_store(tmp_path / "s", background=False, segment_bytes=1 << 20) as store:
        stream = store["s"]
        stream.add_many(((n + 1, 0), {"n": "1"}) for n in range(2 * NODES * 4) if n % 2)
        top = 4 * NODES * 2
        alive = [entry.id.ms for entry in stream.range()]

        def check() -> None:
            for _ in range(6):
                low, high = sorted(chance.randrange(-5, top + 50) for _ in range(2))
                want = sum(low <= ms <= high for ms in alive)
                assert stream.count(f"{max(low, 0)}", f"{max(high, 0)}") == want - (
                    0 if high >= 0 else want
                )
            assert stream.count(f"{alive[3]}", f"{alive[-3]}") == len(alive) - 5
            assert stream.count(f"({alive[3]}", f"{top * 9}") == len(alive) - 4

        def delete() -> None:
            some = chance.sample(alive, 20)
            stream.delete(*((ms, 0) for ms in some))
            alive[:] = [ms for ms in alive if ms not in set(some)]

        def add() -> None:
            nonlocal top
            count = chance.choice([3, 900, 4 * (live.BEHIND_MAX_NODES + 9)])
            more = [top + n for n in range(1, count + 1)]
            stream.add_many(((ms, 0), {"n": "2"}) for ms in more)
            alive.extend(more)
            top = more[-1]

        def trim() -> None:
            stream.trim(max_entries=len(alive) - 40, approximate=False)
            del alive[:40]

        def end_again() -> None:
            """All go, and as many come again, of which the first third is at other places."""
            if stream.info().max_deleted_entry_id.ms:
                return  # as Redis, no last ID is below what was deleted
            stream.trim(max_entries=0, approximate=False)
            stream.set_id("1-0")
            third = len(alive) // 3
            kept = [*range(2, third + 2), *alive[third:]]
            stream.add_many(((ms, 0), {"n": "3"}) for ms in kept)
            alive[:] = kept

        check()
        deeds = [delete, add, trim, store.compact, end_again, add]
        chance.shuffle(deeds)
        for deed in deeds:
            deed()
            check()
        store.drop("s")
        assert stream.count("5", "500") == 0
