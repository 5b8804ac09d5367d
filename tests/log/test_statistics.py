"""Prevents statistics that speak of other nodes than theirs, outlive their segment, or are believed
when they are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import logstore
from logstore.compaction import segment_rewrite
from logstore.engine.maintenance import column_statistics
from logstore.engine.maintenance.background_work import MaintenanceThread
from logstore.engine.runtime.background import StoppedError
from logstore.errors import SchemaError
from logstore.log import file_names, statsfile
from logstore.log.statsfile import NamedColumn
from logstore.scan.node_skipping import SEGMENTS_MAX, NodeSkipping
from tests.scan.scanned_stores import flip, make_store, seal_with_statistics
from tests.scan.skipped_nodes import read_by_scan, told

SCHEMA = "n int, note string?"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[logstore.Store[bytes]]:
    with make_store(tmp_path / "store", background=False) as opened:
        yield opened


def fill(store: logstore.Store[bytes], name: str = "s", count: int = 100) -> Any:
    """A stream with a schema, whose ``n`` goes up by one an entry."""
    stream = store.stream(name)
    stream.configure(schema=SCHEMA)
    for n in range(count):
        stream.add({"n": n, **({"note": f"note {n:03}"} if n % 2 else {})}, id=f"{n + 1}-0")
    return stream


def files(store: Any) -> list[str]:
    return sorted(path.name for path in (store.path / "log").glob("*.stats"))


def test_nodes_are_left_out(store: logstore.Store[bytes]) -> None:
    stream = fill(store)
    assert read_by_scan(store, stream, "n >= 40 and n < 44") == (4, 25, 0)
    seal_with_statistics(store)
    assert read_by_scan(store, stream, "n >= 40 and n < 44") == (4, 25, 23)
    assert read_by_scan(store, stream, "note = 'note 041'") == (1, 25, 23)
    assert read_by_scan(store, stream, "n >= 0") == (100, 25, 0)
    assert read_by_scan(store, stream, "n > 1000") == (0, 25, 24)
    assert [entry["n"] for entry in stream.range(where="n in (7, 90)")] == [7, 90]


AT = datetime(2020, 1, 1, tzinfo=UTC)
ROWS: dict[str, list[Any]] = {
    "long": [n * 10**9 - 5 for n in range(40)],
    "int": list(range(-20, 20)),
    "timestamp": [AT + timedelta(days=n * 9000, microseconds=n * 7 + 1) for n in range(40)],
    "double": [n / 10 + 1e-12 for n in range(40)],
}


@pytest.mark.parametrize("pushed", [False, True])
@pytest.mark.parametrize(
    ("stored", "kind", "asked"),
    [
        ("long", pa.int32(), 10**9 - 5),
        ("long", pa.uint64(), 10**9 - 5),
        ("long", pa.int64(), 10**9 - 5),
        ("int", pa.uint8(), 7),
        ("int", pa.int32(), 7),
        ("timestamp", pa.timestamp("us"), AT),
        ("timestamp", pa.timestamp("s", "UTC"), AT),
        ("timestamp", pa.timestamp("ns", "UTC"), AT),
        ("timestamp", pa.timestamp("us", "Europe/Paris"), AT),
        ("double", pa.float32(), 2.0),
    ],
)
def test_columns_that_are_read_as_another_type(
    store: logstore.Store[bytes], stored: str, kind: Any, asked: Any, *, pushed: bool
) -> None:
    stream = store.stream("s")
    stream.configure(schema=f"v {stored}")
    for at, value in enumerate(ROWS[stored]):
        stream.add({"v": value}, id=f"{at + 1}-0")
    values = pa.scalar(asked, kind)
    field = pc.field("v")
    conditions = [
        (("v", "==", None), field.is_null()),
        (("v", "==", asked), field == values),
        (("v", "<=", asked), field <= values),
        (("v", ">", asked), field > values),
    ]

    def found() -> list[list[str]]:
        scans = []
        for condition, expression in conditions:
            scan = stream.scan(
                columns=["id"], schema={"v": kind}, where=None if pushed else [condition]
            )
            read = scan._query.reader(filter=expression if pushed else None).read_all()
            scans.append(read.column("id").to_pylist())
        return scans

    before = found()
    seal_with_statistics(store)
    assert found() == before


def test_a_schema_of_the_reader_that_has_fewer_values(store: logstore.Store[bytes]) -> None:
    stream = store.stream("s")
    stream.configure(schema="v long")
    for n in range(40):
        stream.add({"v": n * 10**9}, id=f"{n + 1}-0")
    seal_with_statistics(store)
    for where, count in (("v is null", 37), ("v = 3", 0), ("v >= 1000000000", 2)):
        scan = stream.scan(columns=["id"], schema="v int", where=where)
        assert scan._query.reader().read_all().num_rows == count, where


def test_a_reading_holds_the_statistics_of_a_few_segments(
    store: logstore.Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = fill(store)
    for n in range(100, 300):
        stream.add({"n": n}, id=f"{n + 1}-0")
        if n % 8 == 0:
            segment_rewrite.seal(store._live().engine, store._live().committer)
    seal_with_statistics(store)
    assert len(files(store)) > SEGMENTS_MAX
    held: list[int] = []
    left = NodeSkipping.left

    def counted(self: Any, *args: Any) -> bytes:
        found = left(self, *args)
        held.append(len(self._known))
        return found

    monkeypatch.setattr(NodeSkipping, "left", counted)
    assert read_by_scan(store, stream, "n < 4")[0] == 4
    assert max(held) == SEGMENTS_MAX


def test_statistics_name_columns_and_nodes(store: logstore.Store[bytes]) -> None:
    fill(store)
    store.stream("plain").add({"n": "5"})
    seal_with_statistics(store)
    (found,) = told(store).values()
    assert list(found.streams) == [1]
    stream = next(iter(found.streams.values()))
    assert stream.columns == (NamedColumn(b"n", "int"), NamedColumn(b"note", "string"))
    assert sum(len(block.nodes()) for block in stream.blocks) >= 24
    assert all(len(block.nodes()) <= statsfile.BLOCK_NODES for block in stream.blocks)


def test_a_store_without_schemas_has_none(store: logstore.Store[bytes]) -> None:
    stream = store.stream("plain")
    for n in range(100):
        stream.add({"n": n})
    seal_with_statistics(store)
    assert files(store) == []


def test_a_damaged_segment_is_read_once_by_a_process(
    store: logstore.Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    engine, committer = store._live().engine, store._live().committer
    segment_rewrite.seal(engine, committer)
    path = file_names.segment(store.path, 1)
    whole = path.read_bytes()
    flip(path, len(whole) // 2)
    tried: list[int] = []
    real = column_statistics._content

    def counted(*args: Any) -> bytes:
        tried.append(args[1].number)
        return real(*args)

    monkeypatch.setattr(column_statistics, "_content", counted)
    for _ in range(3):
        assert column_statistics.write_missing(engine) == 0
    assert tried == [1]
    path.write_bytes(whole)  # restored: another time of change
    assert column_statistics.write_missing(engine) == 1
    assert tried == [1, 1]


def test_they_are_made_between_rests_and_go_on_where_somebody_was_waiting(
    store: logstore.Store[bytes],
) -> None:
    fill(store)
    engine, committer = store._live().engine, store._live().committer
    segment_rewrite.seal(engine, committer)
    spent: list[int] = []
    column_statistics.write_missing(engine, pause=spent.append)
    assert sum(spent) >= path_bytes(store) - 200
    file_names.statistics(store.path, 1).unlink()
    thread = MaintenanceThread(engine, committer)
    thread._stop.set()  # the first rest finds that it shall end
    with pytest.raises(StoppedError):
        thread.tick()
    assert files(store) == []
    thread._stop.clear()
    thread.tick()
    assert files(store) == [file_names.statistics(store.path, 1).name]


def path_bytes(store: Any) -> int:
    """Bytes of the first segment."""
    return file_names.segment(store.path, 1).stat().st_size


def test_another_schema_makes_them_anew(store: logstore.Store[bytes]) -> None:
    stream = fill(store)
    seal_with_statistics(store)
    stream.configure(schema="n long, note string?")
    assert files(store) == []
    column_statistics.write_missing(store._engine())
    assert read_by_scan(store, stream, "n < 4") == (4, 25, 23)
    (found,) = told(store).values()
    assert next(iter(found.streams.values())).columns[0] == NamedColumn(b"n", "long")


def test_kept_statistics_are_not_those_of_the_next_file(
    store: logstore.Store[bytes],
) -> None:
    stream = fill(store)
    seal_with_statistics(store)
    path = file_names.statistics(store.path, 1)
    was = path.stat().st_ino
    assert told(store)[1].streams[1].columns[0].type == "int"
    for _ in range(8):  # until it has the number of the one before, where it ever has
        stream.configure(schema="n long, note string?")
        column_statistics.write_missing(store._engine())
        assert told(store)[1].streams[1].columns[0].type == "long"
        if path.stat().st_ino == was:
            break
        stream.configure(schema=SCHEMA)
        column_statistics.write_missing(store._engine())
        was = path.stat().st_ino
        assert told(store)[1].streams[1].columns[0].type == "int"


def test_one_that_is_written_while_a_schema_comes_does_not_stay(
    store: logstore.Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = fill(store)
    real = statsfile.write

    def late(*args: Any) -> None:
        monkeypatch.setattr(statsfile, "write", real)
        stream.configure(schema="n long, note string?")
        real(*args)

    monkeypatch.setattr(statsfile, "write", late)
    seal_with_statistics(store)
    assert files(store) == []
    column_statistics.write_missing(store._engine())
    assert told(store)[1].streams[1].columns[0].type == "long"


def test_a_schema_that_comes_late_has_them_made(store: logstore.Store[bytes]) -> None:
    fill(store, "typed", 8)
    late = store.stream("late")
    for n in range(100):
        late.add({"n": n})
    seal_with_statistics(store)
    with pytest.raises(SchemaError):
        late.configure(schema="m int")
    late.configure(schema="n int")
    column_statistics.write_missing(store._engine())
    assert read_by_scan(store, late, "n = 50")[:1] == (1,)
    assert read_by_scan(store, late, "n = 50")[2] >= 23


def test_they_follow_their_nodes_through_a_compaction(store: logstore.Store[bytes]) -> None:
    stream = fill(store)
    seal_with_statistics(store)
    stream.delete(*[f"{n + 1}-0" for n in range(100) if n % 3])
    store.compact(purge=True)
    numbers = set(file_names.segments(store._engine().fs, store._engine().path))
    assert {int(name.partition(".")[0]) for name in files(store)} <= numbers
    rows, asked, skipped = read_by_scan(store, stream, "n >= 40 and n < 44")
    assert (rows, asked - skipped) in {(1, 1), (1, 2)}
    assert [entry["n"] for entry in stream.range(where="n >= 40 and n < 44")] == [42]


def test_an_erasure_leaves_no_value_in_them(store: logstore.Store[bytes]) -> None:
    stream = store.stream("s")
    stream.configure(schema="name string")
    for n in range(40):
        stream.add({"name": "secret of one" if n == 17 else f"name {n}"}, id=f"{n + 1}-0")
    seal_with_statistics(store)
    packed = b"".join(
        block.packed for each in told(store).values() for s in each.streams.values()
        for block in s.blocks
    )  # fmt: skip
    assert b"secret of one" in packed
    stream.delete("18-0")
    store.compact(purge=True)
    left = [
        block.packed for each in told(store).values() for s in each.streams.values()
        for block in s.blocks
    ]  # fmt: skip
    assert left
    assert not any(b"secret of one" in each for each in left)


def test_damaged_ones_are_as_good_as_none(store: logstore.Store[bytes]) -> None:
    stream = fill(store)
    seal_with_statistics(store)
    engine = store._engine()
    path = file_names.statistics(engine.path, 1)
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        assert statsfile.read(engine.fs, engine.path, engine.uuid, 1) is None, at
        path.write_bytes(whole[:at])
        assert statsfile.read(engine.fs, engine.path, engine.uuid, 1) is None, at
    engine.statistics.clear()
    assert read_by_scan(store, stream, "n < 4") == (4, 25, 0)
    path.write_bytes(whole)
    assert statsfile.read(engine.fs, engine.path, bytes(16), 1) is None
    file_names.statistics(engine.path, 2).write_bytes(whole)
    assert statsfile.read(engine.fs, engine.path, engine.uuid, 2) is None
    path.unlink()
    path.mkdir()
    assert statsfile.read(engine.fs, engine.path, engine.uuid, 1) is None


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xc0", b"\x91\xc0", msgpack.packb([[1, [], [], [None]]]), b"\x93\x01\x02\x03",
        msgpack.packb([[1, [[b"n", "int"]], [None], [[5, 1, [], b"", b"", [None]]]]]),
        msgpack.packb([[1, [[b"n", "int"]], [], [[5, 1, [None], b"", b"", [None]]]]]),
        msgpack.packb([[1, [[b"n", "int"]], [None], [[5, 1, [[0, 7, 7]], b"", b"", [None]]]]]),
        msgpack.packb([[1, [[b"n", "int"]], [None], [[5, 1, [None], b""]]]]),
        msgpack.packb([[1, [[b"n", "int"]], [None], [[5, 1, [None], b"", b"", []]]]]),
        msgpack.packb([[1, [[b"n", "int"]], [None], [[5, 1, [None], b"", b"", [1 << 24]]]]]),
        msgpack.packb([[1, [[b"n", "int"]], [None], [[5, 1, [None], b"", b"123", [None]]]]]),
        msgpack.packb([[1, [[b"n", "int"]], [None], [[5, 1, [None], b"", bytes(260), [None]]]]]),
        msgpack.packb([[1, [[b"n", "int"]], [None], [[5, 1, [None], b"", 1 << 24, [None]]]]]),
        msgpack.packb([["x", [], [], []]]), msgpack.packb([[1, [[5, 6]], [None], []]]),
        msgpack.packb([[1, [[b"n", "int"]], [], []]]),
    ],
)  # fmt: skip
def test_content_that_somebody_made_is_refused(
    store: logstore.Store[bytes], content: bytes
) -> None:
    fill(store, count=5)
    engine = store._engine()
    statsfile.write(engine.fs, engine.path, engine.uuid, 7, 100, content)
    found = statsfile.read(engine.fs, engine.path, engine.uuid, 7)
    assert found is None or not any(each.blocks for each in found.streams.values())


@pytest.mark.parametrize(
    ("ranges", "nodes"),
    [
        ([0, b"x", b"y"], b""),
        ([0, b"0", b"9"], b"\xc1"),
        ([0, b"0", b"9"], msgpack.packb([[4, []], [4, [[0, b"0", b"1"]]]])),
        ([0, b"0", b"9"], msgpack.packb([["x", [[0, b"0", b"1"]]]])),
        ([0, b"0", b"9"], msgpack.packb(7)),
    ],
)
def test_ranges_that_somebody_made_leave_nothing_out(
    store: logstore.Store[bytes], ranges: list[Any], nodes: bytes
) -> None:
    stream = fill(store, count=40)
    seal_with_statistics(store)
    engine = store._engine()
    file_names.statistics(engine.path, 1).unlink()
    columns = [[b"n", "int"], [b"note", "string"]]
    both = [ranges, None]
    content = msgpack.packb(
        [[1, columns, both, [[1 << 30, 40, both, nodes, bytes(8), [bytes(9), None]]]]]
    )
    statsfile.write(engine.fs, engine.path, engine.uuid, 1, 100, content)
    assert statsfile.read(engine.fs, engine.path, engine.uuid, 1) is not None
    found = [(entry["n"]) for entry in stream.range(where="n = 5")]
    assert found == [5]
    assert stream.scan(where="n = 5").to_arrow().num_rows == 1
    pushed = stream.scan(where="n = 5")._query._condition
    assert pushed is not None
    assert sum(each.num_rows for each in stream.scan().pushed(None, pushed.filter, None)) == 1


WHOLE = [[0, b"0", b"99"], None]


@pytest.mark.parametrize(
    ("whole", "of_node", "lacking"),
    [
        (WHOLE, [], 0),
        (WHOLE, [None], 0),
        (WHOLE, [*WHOLE, None], 0),
        (WHOLE, [[0, b"abc", b"z"], None], 0),
        (WHOLE, [[0, b"1", None], None], 0),
        (WHOLE, [["x", b"0", b"99"], None], 0),
        (WHOLE, [5, None], 0),
        (WHOLE, WHOLE, 1),
        ([[0, b"abc", b"z"], None], WHOLE, 0),
        ([[0, b"1", None], None], WHOLE, 0),
        ([None], WHOLE, 0),
    ],
)
def test_ranges_that_somebody_made_are_as_good_as_none(
    store: logstore.Store[bytes], whole: Any, of_node: Any, lacking: int
) -> None:
    stream = fill(store)
    seal_with_statistics(store)
    engine = store._engine()
    (block,) = told(store)[1].streams[1].blocks
    nodes = [[4, of_node] for _ in block.offsets()][lacking:]
    columns = [[b"n", "int"], [b"note", "string"]]
    blocks = [[block.last, 100, whole, msgpack.packb(nodes), block.places, [b"", None]]]
    content = msgpack.packb([[1, columns, whole, blocks]])
    file_names.statistics(engine.path, 1).unlink()
    statsfile.write(engine.fs, engine.path, engine.uuid, 1, 1, content)
    engine.statistics.clear()
    assert [each["n"] for each in stream.range(where="n = 50")] == [50]
    scan = stream.scan(columns=["id"])._query
    assert scan.reader(filter=pc.field("n") == 50).read_all().num_rows == 1


@pytest.mark.parametrize("place", ["field", "packed"])
def test_a_number_where_bytes_belong_takes_no_memory(
    store: logstore.Store[bytes], place: str
) -> None:
    fill(store, count=5)
    engine = store._engine()
    field, packed = (1 << 24, b"") if place == "field" else (b"n", 1 << 24)
    content = msgpack.packb([[1, [[field, "int"]], [None], [[5, 1, [None], packed, b"", [None]]]]])
    statsfile.write(engine.fs, engine.path, engine.uuid, 7, 100, content)
    assert statsfile.read(engine.fs, engine.path, engine.uuid, 7) is None


def test_content_that_is_too_large_is_not_unpacked(store: logstore.Store[bytes]) -> None:
    fill(store, count=5)
    engine = store._engine()
    size = statsfile.MAX_BYTES
    content = msgpack.packb(
        [[1, [[b"n", "int"]], [None], [[5, 1, [None], bytes(size), b"", [None]]]]]
    )
    statsfile.write(engine.fs, engine.path, engine.uuid, 7, 100, content)
    assert file_names.statistics(engine.path, 7).stat().st_size < size // 100
    assert statsfile.read(engine.fs, engine.path, engine.uuid, 7) is None


def test_a_full_disk_takes_them(store: logstore.Store[bytes]) -> None:
    from logstore.engine.runtime import disk_space

    fill(store)
    seal_with_statistics(store)
    engine = store._engine()
    assert files(store)
    assert disk_space.give_up_hints(engine.fs, engine.path)
    assert files(store) == []
    column_statistics.write_missing(engine)
    assert files(store)


def test_a_schema_is_set_though_old_statistics_stay(
    store: logstore.Store[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    stream = fill(store)
    seal_with_statistics(store)
    path = file_names.statistics(store._engine().path, 1)
    path.unlink()
    path.mkdir()
    stream.configure(schema="n long, note string?")
    assert str(stream.schema) == "n long, note string?"
    assert "old statistics were not removed" in caplog.text


def test_no_more_are_made_at_once_than_was_said(store: logstore.Store[bytes]) -> None:
    stream = fill(store)
    for n in range(100, 104):
        stream.add({"n": n}, id=f"{n + 1}-0")
        segment_rewrite.seal(store._live().engine, store._live().committer)
    engine = store._engine()
    assert column_statistics.write_missing(engine, most_bytes=1) == 1
    assert len(files(store)) == 1
    column_statistics.write_missing(engine)
    assert len(files(store)) == 4


def test_they_are_made_at_the_end(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", background=False) as store:
        fill(store, count=3000)
    names = {path.name for path in (tmp_path / "store" / "log").iterdir()}
    stems = {name.partition(".")[0] for name in names if name.endswith(".log")}
    assert len(stems) > 2
    for stem in sorted(stems)[:-1]:
        assert f"{stem}.stats" in names


def test_a_backup_leaves_them_out(tmp_path: Path, store: logstore.Store[bytes]) -> None:
    stream = fill(store)
    seal_with_statistics(store)
    store.backup(tmp_path / "backup")
    assert not list((tmp_path / "backup").rglob("*.stats"))
    with logstore.open(tmp_path / "backup", background=False) as copy:
        again = copy.stream("s")
        found = [entry["n"] for entry in again.range(where="n < 4")]
    assert found == [entry["n"] for entry in stream.range(where="n < 4")] == [0, 1, 2, 3]
