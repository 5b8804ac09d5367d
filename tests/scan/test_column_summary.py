"""Prevents a least, a most or a count that is not that of the live entries, and statistics that are
believed where entries were deleted, cut off, or are not told of."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.api.entry import stored_pairs
from logstore.engine.maintenance import column_statistics
from logstore.errors import CorruptionError, StreamNotFoundError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import file_names
from logstore.scan import column_summary
from logstore.scan.column_summary import ColumnSummary, can_summarize, summary
from logstore.schema.schema_text import parse
from logstore.where.condition_values import comparable
from tests.scan.scanned_stores import flip, make_store, seal_with_statistics
from tests.scan.skipped_nodes import told
from tests.schema.drawn_values import VALUES

KINDS = {f"c{at}": kind for at, kind in enumerate(VALUES)}
COLUMNS = [
    column
    for column in parse(", ".join(f"{name} {kind.name}?" for name, kind in KINDS.items())).columns
    if can_summarize(column)
]


def expected(
    stream: Any, columns: Any, start: StreamID, end: StreamID
) -> tuple[int, list[ColumnSummary]]:
    """By reading all entries."""
    rows = [dict(stored_pairs(entry)) for entry in stream.range(start, end)]
    found = []
    for column in columns:
        values: list[Any] = []
        for row in rows:
            text = row.get(column.field)
            try:
                value = None if text is None else column.type.read(text)
            except ValueError:
                value = None
            if value is not None:
                values.append(value)
        values.sort(key=comparable)
        ends = (values[0], values[-1]) if values else (None, None)
        found.append(ColumnSummary(len(rows) - len(values), *ends))
    return len(rows), found


def check(store: Any, stream: Any, columns: Any, start: StreamID, end: StreamID) -> int:
    """What is summed up is what is there; how many nodes were read for it."""
    found = summary(store._engine(), [stream.name], start, end, columns)
    assert found is not None
    entries, wanted = expected(stream, columns, start, end)
    assert found.entries == entries
    for each, column in zip(found.columns, wanted, strict=True):
        assert each.nulls == column.nulls
        assert comparable(each.least) == comparable(column.least)
        assert comparable(each.most) == comparable(column.most)
    return found.nodes_read


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_it_is_what_a_read_of_all_entries_finds(data: st.DataObject) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        make_store(Path(folder) / "store", background=False) as store,
    ):
        columns = data.draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3, unique=True))
        stream = store.stream("s")
        plain = data.draw(st.booleans())
        stream.configure(schema=", ".join(f"{each.name} {each.type.name}?" for each in columns))
        count = 0
        for _ in range(data.draw(st.integers(1, 5))):
            rows = []
            for _ in range(data.draw(st.integers(1, 30))):
                row = {
                    each.name: data.draw(VALUES[each.type])
                    for each in columns
                    if data.draw(st.booleans())
                }
                rows.append(row or {columns[0].name: data.draw(VALUES[columns[0].type])})
            for row in rows:
                count += 1
                stream.add(row, id=(count, 0))
            step = data.draw(st.sampled_from(["seal", "delete", "compact", "trim", ""]))
            if step == "seal" or plain:
                seal_with_statistics(store)
            if step == "delete":
                gone = data.draw(st.lists(st.integers(1, count), max_size=5))
                stream.delete(*[(each, 0) for each in gone])
            elif step == "trim":
                stream.trim(max_entries=max(1, count // 2), approximate=False)
            elif step == "compact":
                store.compact(purge=data.draw(st.booleans()))
        low, high = sorted(data.draw(st.tuples(*[st.integers(0, count + 1)] * 2)))
        check(store, stream, columns, ZERO_ID, MAX_ID)
        check(store, stream, columns, StreamID(low, 0), StreamID(high, 0))


@pytest.fixture
def filled(tmp_path: Path) -> Any:
    """A store with a stream of 1,000 entries in 250 nodes, all of them sealed but the last ones."""
    with make_store(tmp_path / "store", background=False, segment_bytes=1 << 20) as store:
        stream = store.stream("s")
        stream.configure(schema="n int, temp double?")
        for n in range(1000):
            stream.add({"n": n, **({"temp": n / 10} if n % 2 else {})}, id=(n + 1, 0))
        seal_with_statistics(store)
        yield store


def columns_of(store: Any) -> Any:
    return store.stream("s").schema.columns


def test_few_nodes_are_read(filled: Any) -> None:
    stream, columns = filled.stream("s"), columns_of(filled)
    assert check(filled, stream, columns, ZERO_ID, MAX_ID) <= 1  # the open node
    assert check(filled, stream, columns, StreamID(102, 0), StreamID(603, 0)) == 2
    stream.delete("500-0", "701-0")
    assert check(filled, stream, columns, ZERO_ID, MAX_ID) <= 3
    stream.delete("1-0")
    found = summary(filled._engine(), [b"s"], ZERO_ID, MAX_ID, columns)
    assert found is not None
    assert found.columns[0] == ColumnSummary(0, 1, 999)
    assert found.nodes >= 249


def test_it_is_given_up_where_too_much_had_to_be_read(filled: Any) -> None:
    engine, columns = filled._engine(), columns_of(filled)
    assert summary(engine, [b"s"], ZERO_ID, MAX_ID, columns, read_max=1) is not None
    assert summary(engine, [b"s"], StreamID(102, 0), StreamID(603, 0), columns, read_max=1) is None
    path = file_names.statistics(filled.path, 1)
    path.unlink()
    assert summary(engine, [b"s"], ZERO_ID, MAX_ID, columns, read_max=100) is None
    assert check(filled, filled.stream("s"), columns, ZERO_ID, MAX_ID) >= 250


def test_values_of_which_nothing_is_told_are_read(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", background=False) as store:
        stream = store.stream("s")
        stream.configure(schema="x double, t string")
        for n in range(40):
            odd = {7: float("nan"), 30: float("-inf")}
            stream.add({"x": odd.get(n, n / 2), "t": "y" * 100 if n == 20 else f"t{n:02}"})
        seal_with_statistics(store)
        columns = columns_of(store)
        assert check(store, stream, columns, ZERO_ID, MAX_ID) in {3, 4}
        found = summary(store._engine(), [b"s"], ZERO_ID, MAX_ID, columns)
        assert found is not None
        assert found.columns[0].least == float("-inf")
        assert str(found.columns[0].most) == "nan"
        assert found.columns[1] == ColumnSummary(0, "t00", "y" * 100)


def test_another_schema_and_several_streams(filled: Any) -> None:
    engine = filled._engine()
    other = filled.stream("other")
    other.configure(schema="n int, temp double?")
    other.add({"n": -5})
    columns = columns_of(filled)
    found = summary(engine, [b"s", b"other"], ZERO_ID, MAX_ID, columns)
    assert found is not None
    assert (found.entries, found.columns[0]) == (1001, ColumnSummary(0, -5, 999))
    assert found.columns[1].nulls == 501
    wide = parse("n long, temp string?").columns  # read as texts: statistics of doubles say nothing
    assert check(filled, filled.stream("s"), wide[:1], ZERO_ID, MAX_ID) <= 1
    assert check(filled, filled.stream("s"), wide, ZERO_ID, MAX_ID) >= 250
    assert summary(engine, [b"s"], ZERO_ID, MAX_ID, []) is not None
    with pytest.raises(StreamNotFoundError):
        summary(engine, [b"none"], ZERO_ID, MAX_ID, columns)


def test_a_node_that_could_not_be_read_is_not_made_up_for_by_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_store(tmp_path / "store", background=False, segment_bytes=1 << 20) as store:
        stream = store.stream("s")
        stream.configure(schema="n int")
        stream.add_many([((n + 1, 0), {"n": n}) for n in range(100)])
        real = column_statistics._StreamRanges
        seen: list[int] = []

        class Damaged(real):
            """Finds the first node damaged."""

            def __init__(self, text: str) -> None:
                super().__init__(text)
                found = self.of

                def of(lp: bytes) -> Any:
                    seen.append(1)
                    return found(lp if len(seen) > 1 else lp[:-3] + b"\0\0\xff")

                self.of = of

        monkeypatch.setattr(column_statistics, "_StreamRanges", Damaged)
        seal_with_statistics(store)
        stream.delete(*[f"{n}-0" for n in range(21, 25)])  # the entries of one node
        assert check(store, stream, columns_of(store), ZERO_ID, MAX_ID) <= 2
        assert [entry["n"] for entry in stream.range(where="n = 2")] == [2]


def test_nodes_that_are_moved_meanwhile_are_listed_again(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, columns = filled.stream("s"), columns_of(filled)
    stream.delete(*[f"{n}-0" for n in range(1, 900) if n % 3])
    real = column_summary._listpacks
    moved: list[int] = []

    def late(*args: Any) -> Any:
        if not moved:
            moved.append(1)
            filled.compact()
        return real(*args)

    monkeypatch.setattr(column_summary, "_listpacks", late)
    check(filled, stream, columns, ZERO_ID, MAX_ID)
    assert moved


def test_a_damaged_segment_is_an_error(filled: Any) -> None:
    path = file_names.segment(filled.path, 1)
    offsets = told(filled)[1].streams[1].blocks[0].offsets()
    file_names.statistics(filled.path, 1).unlink()
    for offset in offsets:  # also of what was said again since
        flip(path, offset + 70)
    with pytest.raises(CorruptionError):
        summary(filled._engine(), [b"s"], ZERO_ID, MAX_ID, columns_of(filled))
