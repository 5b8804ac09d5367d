"""Prevents nodes from being put together of frames that are not their own, or from coming back
where others are.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.snapshots import snapshot
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.index.keys import Locator, StreamRecord
from logstore.log import chain
from logstore.log.log_reader import LogFrame
from logstore.recovery import checkpoint_load
from logstore.recovery.recover import recover
from logstore.recovery.report import RecoveryReport
from logstore.recovery.salvage import salvaged_nodes as nodes
from logstore.recovery.salvage.salvaged_nodes import WantedNode
from tests.corruption import frames
from tests.recovery import small_store


def test_a_node_is_found_by_its_frames(tmp_path: Path) -> None:
    """As it stands at any place of the log, among frames of other streams and other nodes."""
    limits = {"node_max_entries": 6, "background": False}
    with logstore.open(tmp_path / "store", encoding=None, **limits) as store:  # type: ignore[call-overload]
        engine = store._engine()
        places: list[tuple[int, int, bytes]] = []  # where the log ended, the open node, its bytes
        number = 0

        def took() -> None:
            nonlocal number

            def look(view: snapshot.Snapshot) -> tuple[int, bytes]:
                nonlocal number
                record = view.index.record_by_name(b"s")
                assert record is not None
                number = record.number
                node = view.index.open_node(number)
                assert node is not None
                assert node.lp is not None
                return record.open_master.ms, node.lp

            places.append((engine.wake.applied, *snapshot.read(engine, look)))

        for ms in range(1, 15):
            store.stream("s").add({b"f": b"%d" % ms}, f"{ms}-0")
            took()
            store.stream("t").add({b"g": b"%d" % ms}, f"{ms}-0")
            if ms in (3, 9):
                store.stream("s").delete(f"{ms - 1}-0", f"{ms}-0")
                took()

        def find(stream: int, master: int, before: int) -> WantedNode | None:
            wanted = WantedNode(stream, StreamID(master, 0), before)
            found = nodes.find(engine.fs, engine.path, engine.uuid, engine.seed, [wanted])
            return found.get((stream, StreamID(master, 0)))

        for before, master, lp in places:
            live = codec().counts(lp)[0]
            found = find(number, master, before)
            assert found is not None
            assert found.as_sealed(live) == (lp, True)
            assert found.as_sealed(live + 1) == (found.lp, False)
        end = engine.wake.applied
        assert find(number, 2, end) is None
        assert find(number + 9, 1, end) is None
        assert find(number, 1, places[0][0] - 1000) is None
        assert nodes.find(engine.fs, engine.path, engine.uuid, engine.seed, []) == {}


ROWS = [(f"{ms}-{ms}", {b"n": b"%d" % ms}) for ms in range(1, 17)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four nodes of four entries, in a compacted segment; opened as copies only."""
    path = tmp_path_factory.mktemp("unsure") / "store"
    with logstore.open(
        path, encoding=None, background=False, node_max_entries=4, segment_bytes=64 << 10
    ) as store:
        store.stream("s").add_many(ROWS)
        store.stream("s").add({b"n": b"20"}, "20-20")
        store.compact(threshold=0.0)
    return path


def _compacted(path: Path) -> tuple[int, int]:
    """Its number and its size."""
    heads = chain.heads(LOCAL, path, frames.uuid(path))
    return next((n, size) for n, (h, size) in heads.items() if h.role == fmt.Role.COMPACTED)


Change = Callable[[WriteTxn, StreamRecord], object]


def _node(state: WriteTxn, first: int, last: int) -> None:
    locator = Locator(9 << 32, 10, 1, StreamID(last, last))
    state.index.put_node(1, StreamID(first, 0), locator)


# What the stream is like; the master IDs of the nodes that come back, the last one first.
LIKE: dict[str, tuple[Change, list[int]]] = {
    "empty of nodes": (lambda state, record: None, [13, 9, 5, 1]),
    "trimmed": (lambda state, record: setattr(record, "first", StreamID(8, 9)), [13, 9]),
    "trimmed in a node": (
        lambda state, record: setattr(record, "first", StreamID(8, 8)), [13, 9, 5],
    ),
    "all of it gone": (lambda state, record: setattr(record, "length", 0), []),
    "never counted": (
        lambda state, record: [setattr(record, each, 0) for each in ("length", "entries_added")],
        [13, 9, 5, 1],
    ),
    "with an open node": (
        lambda state, record: setattr(record, "open_master", StreamID(12, 12)), [5, 1],
    ),
    "without an open node": (
        lambda state, record: [
            setattr(record, "open_master", StreamID(12, 12)), setattr(record, "open_version", 0),
        ],
        [13, 9, 5, 1],
    ),
    "with a node in between": (lambda state, record: _node(state, 6, 7), [13, 9, 1]),
    "with a node at an end": (lambda state, record: _node(state, 9, 9), [13, 5, 1]),
    "with a node over two": (lambda state, record: _node(state, 3, 6), [13, 9]),
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE)
def test_nodes_that_salvage_takes(name: str, made: Path, tmp_path: Path) -> None:
    change, masters = LIKE[name]
    path = shutil.copytree(made, tmp_path / "store")
    with logstore.open(path, encoding=None, background=False) as store:
        number, _ = _compacted(path)
        nodes = [each for each in frames.of(path, number) if each.kind == Kind.NODE]
        other = nodes[0]._replace(payload=b"\x09" + nodes[0].payload[1:])  # of no stream

        def step(state: WriteTxn) -> None:
            record = state.record(1)
            assert record is not None
            assert record.open_version
            for master, _ in list(state.index.nodes(1)):
                state.index.delete_node(1, master)
            change(state, record)
            there = {master for master, _ in state.index.nodes(1)}
            report = RecoveryReport()
            given = [other._replace(offset=1 << 20), *nodes, other]
            checkpoint_load._load_unsure(state, given, {}, report)
            found = {master.ms: at for master, at in state.index.nodes(1) if master not in there}
            assert sorted(found, reverse=True) == masters
            assert [
                int(each.split("-")[0].removeprefix("node ")) for each in report.unsure
            ] == masters
            by_master = {each.body().master_ms: each for each in nodes}  # type: ignore[union-attr]
            for ms, locator in found.items():
                assert locator.position == by_master[ms].position
                assert (locator.entries, locator.vector) == (4, b"")
            raise StopIteration

        with pytest.raises(StopIteration):
            Committer(store._engine()).run(step)


def test_a_vector_counts_for_its_version_alone(made: Path, tmp_path: Path) -> None:
    path = shutil.copytree(made, tmp_path / "store")
    with logstore.open(path, encoding=None, background=False) as store:
        number, _ = _compacted(path)
        node = next(each for each in frames.of(path, number) if each.kind == Kind.NODE)

        def step(state: WriteTxn) -> None:
            for version, kept in ((node.position, b"\x05"), (node.position + 1, b"")):
                checkpoint_load._put(state, node, {(1, 1, 1): (version, b"\x05")})
                locator = state.index.node(1, StreamID(1, 1))
                assert locator is not None
                assert locator.vector == kept
                assert locator[:3] == (node.position, node.payload_bytes, 4)
                assert locator.last == StreamID(4, 4)
            raise StopIteration

        with pytest.raises(StopIteration):
            Committer(store._engine()).run(step)


@pytest.mark.parametrize("role", [fmt.Role.MAIN, fmt.Role.COMPACTED])
def test_live_bits_count_the_nodes_of_a_segment(role: int, made: Path, tmp_path: Path) -> None:
    """Of a main one only up to the checkpoint; behind damage none is known to live."""
    path = shutil.copytree(made, tmp_path / "store")
    with logstore.open(path, encoding=None, background=False) as store:
        engine = store._engine()
        engine.accept_loss = True
        number, size = _compacted(path)
        nodes = [each for each in frames.of(path, number) if each.kind == Kind.NODE]

        def loaded(bits: int, position: int) -> tuple[list[int], list[LogFrame]]:
            found: list[Any] = []

            def step(state: WriteTxn) -> None:
                for master, _ in list(state.index.nodes(1)):
                    state.index.delete_node(1, master)
                unsure = checkpoint_load._load_segment(
                    engine, state, (number, role, size), bits.to_bytes(2, "little"), {}, position,
                    RecoveryReport(),
                )  # fmt: skip
                found.extend(([master.ms for master, _ in state.index.nodes(1)], unsure))
                row = state.segment(number)
                assert row is not None
                assert (row.role, row.total_bytes) == (role, size)
                raise StopIteration

            with pytest.raises(StopIteration):
                Committer(engine).run(step)
            return found[0], found[1]

        behind = (number + 1) << 32
        assert loaded(0b1111, behind) == ([1, 5, 9, 13], [])
        assert loaded(0b0101, behind) == ([1, 9], [])
        assert loaded(0, behind) == ([], [])
        main = role == fmt.Role.MAIN
        assert loaded(0b1111, nodes[2].position)[0] == ([1, 5] if main else [1, 5, 9, 13])
        for hint in (path / "log").glob("*.hint"):
            hint.unlink()
        small_store.cut(path, nodes[1])
        masters, unsure = loaded(0b1111, nodes[3].position)
        assert masters == [1]
        assert [each.position for each in unsure] == [
            each.position for each in nodes[2 : 3 if main else 4]
        ]


def test_a_stream_of_which_only_nodes_are_left_gets_a_name(tmp_path: Path) -> None:
    """No frame that is left says that there was such a stream."""
    path = tmp_path / "store"
    with logstore.open(
        path, encoding=None, background=False, node_max_entries=4, segment_bytes=64 << 10
    ) as store:
        store.stream("s").add_many([*ROWS, ("17-17", {b"n": b"17"})])
        store.stream("s").delete("17-17")
        store.compact(threshold=0.0)
    for each in [*(path / "checkpoint").iterdir(), *(path / "log").glob("*.hint")]:
        each.unlink()
    shutil.rmtree(path / "index")
    for link in chain.main_links(LOCAL, path, frames.uuid(path))[:-1]:
        frames.file(path, link.number).unlink()
    report = recover(path)
    assert small_store.held(path) == {b"stream-1-whose-name-was-lost": list(range(1, 17))}
    assert len([each for each in report.unsure if each.startswith("node ")]) == 4
    with logstore.open(path, encoding=None, background=False) as store:
        store.stream("fresh").add({b"n": b"1"}, "1-1")
        assert store.stream("stream-1-whose-name-was-lost").last_id == StreamID(16, 16)
    assert small_store.held(path) == {
        b"fresh": [1], b"stream-1-whose-name-was-lost": list(range(1, 17)),
    }  # fmt: skip


CREATE, OPEN, A2, A3, A4, A5, A67, A8, T25, R1, A9, T69, R2 = range(13)
KINDS = [
    Kind.CREATE, Kind.OPEN, *[Kind.APPEND] * 6, Kind.TOMBSTONE, Kind.RECORD, Kind.APPEND,
    Kind.TOMBSTONE, Kind.RECORD,
]  # fmt: skip
ALL = [1, 3, 4, 7, 8]
Cut = tuple[int, ...]
# With the hint: what is left, and between which two entries something is gone, and of which frame.
HINTED: dict[Cut, tuple[list[int], list[tuple[int, int, int]]]] = {
    (): (ALL, []),
    (CREATE,): (ALL, []),
    (OPEN,): ([], [(1, 9, OPEN)]),
    (A2,): (ALL, [(1, 3, A2)]),
    (A3,): ([1, 4, 7, 8], [(2, 4, A3)]),
    (A4,): ([1, 3, 7, 8], [(3, 5, A4)]),
    (A5,): (ALL, [(4, 6, A5)]),
    (A67,): ([1, 3, 4, 8], [(5, 8, A67)]),
    (A8,): ([1, 3, 4, 7], [(7, 9, A8)]),
    (A9,): (ALL, [(8, 9, A9)]),
    (T25,): (ALL, []),
    (R1, T69, R2): (ALL, []),
    (A2, A3): ([1, 4, 7, 8], [(1, 4, A2)]),
    (A3, A5): ([1, 4, 7, 8], [(2, 4, A3), (4, 6, A5)]),
    (A2, A3, A4): ([1, 7, 8], [(1, 5, A2)]),
    (A67, A8): ([1, 3, 4], [(5, 9, A67)]),
    (A8, A9): ([1, 3, 4, 7], [(7, 9, A8)]),
    (OPEN, A2, A3, A4, A5, A67, A8): ([], [(1, 9, OPEN)]),
}
# Without it: a delete counts up to where the node was whole.
READ: dict[Cut, list[int]] = {
    (): ALL,
    (OPEN,): [],
    (A2,): [1, 3, 4, 5, 6, 7, 8, 9],
    (A3,): [1, 4, 5, 6, 7, 8, 9],
    (A4,): [1, 3, 5, 6, 7, 8, 9],
    (A5,): [1, 3, 4, 6, 7, 8, 9],
    (A67,): [1, 3, 4, 8, 9],
    (A8,): [1, 3, 4, 7, 9],
    (A9,): ALL,
    (T25,): [1, 2, 3, 4, 5, 7, 8, 9],
    (R1,): [1, 3, 4, 7, 8, 9],
    (T69,): [1, 3, 4, 6, 7, 8, 9],
    (R2,): ALL,
    (A2, A3): [1, 4, 5, 6, 7, 8, 9],
    (A3, A5): [1, 4, 6, 7, 8, 9],
    (A67, A8): [1, 3, 4, 9],
    (OPEN, A2, A3): [],
}


@pytest.fixture(scope="module")
def with_open_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opened as copies only; without an index."""
    path = tmp_path_factory.mktemp("open") / "store"
    with logstore.open(
        path, segment_bytes=1 << 16, node_max_entries=20, background=False, encoding=None
    ) as store:
        stream = store.stream("x")
        rows = [(f"{ms}-{ms}", {b"n": b"%d" % ms}) for ms in range(1, 10)]
        for id, fields in rows[:5]:
            stream.add(fields, id)
        stream.add_many(rows[5:7])
        stream.add(rows[7][1], rows[7][0])
        stream.delete("2-2", "5-5")
        stream.add(rows[8][1], rows[8][0])
        stream.delete("9-9", "6-6")
        while len(frames.segments(path)) < 2:
            store.stream("f").add({b"pad": bytes(40_000)})
    shutil.rmtree(path / "index")
    assert [each.kind for each in _log(path)] == KINDS
    assert list((path / "log").glob("*.hint"))
    return path


def _log(path: Path) -> list[LogFrame]:
    """The frames of the stream."""
    return [each for each in frames.of(path, 1) if each.payload[:4] == b"\x01\0\0\0"]


def _left(path: Path, name: bytes = b"x") -> list[int]:
    """What is left; the stream counts it right, and takes more."""
    with logstore.open(path, background=False, encoding=None) as store:
        stream = store.stream(name)
        found = list(stream)
        assert all(each.pairs == [(b"n", b"%d" % each.id.ms)] for each in found)
        info = stream.info()
        assert info.length == len(found)
        assert stream.last_id.ms >= max((each.id.ms for each in found), default=0)
        assert info.entries_added >= len(found)
        if found:
            assert stream.first is not None
            assert stream.first.id == found[0].id

        def look(view: snapshot.Snapshot) -> bool:
            record = view.index.record_by_name(name)
            assert record is not None
            return bool(record.open_version) == (view.index.open_node(record.number) is not None)

        assert snapshot.read(store._engine(), look)
        stream.add({b"n": b"99"}, "99-99")
        assert [each.id.ms for each in stream] == [each.id.ms for each in found] + [99]
        return [each.id.ms for each in found]


@pytest.mark.parametrize("cut", HINTED, ids=lambda each: "-".join(map(str, each)) or "none")
def test_with_a_hint_only_what_cannot_be_read_is_gone(
    cut: Cut, with_open_node: Path, tmp_path: Path
) -> None:
    left, gone = HINTED[cut]
    path = shutil.copytree(with_open_node, tmp_path / "store")
    log = _log(path)
    for nth in cut:
        small_store.cut(path, log[nth])
    report = recover(path)
    assert report.hints_used == 1
    assert report.segments_scanned == 0
    assert [
        (each.stream, each.first.ms, each.last.ms, each.entries, each.segment, each.offset)
        for each in report.gone
    ] == [(b"x", first, last, None, 1, log[nth].offset) for first, last, nth in gone]
    assert all("the open node" in each.why for each in report.gone)
    assert _left(path) == left


@pytest.mark.parametrize("cut", READ, ids=lambda each: "-".join(map(str, each)) or "none")
def test_without_one_no_delete_hits_another_entry(
    cut: Cut, with_open_node: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(with_open_node, tmp_path / "store")
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    log = _log(path)
    for nth in cut:
        small_store.cut(path, log[nth])
    report = recover(path)
    assert report.hints_used == 0
    assert report.segments_scanned == 1
    told = {at for each in report.damage for at in range(*each[1:3])}
    assert told == {at for nth in cut for at in range(log[nth].offset, log[nth].end_offset)}
    assert _left(path) == READ[cut]


def test_a_delete_behind_damage_counts_up_to_what_cannot_be_read(
    with_open_node: Path, tmp_path: Path
) -> None:
    """The hint knows where that stood, but the node is not whole behind it."""
    path = shutil.copytree(with_open_node, tmp_path / "store")
    with logstore.open(path, background=False, encoding=None) as store:
        store.stream("f").add({b"pad": b"1"})
        store.stream("x").delete("3-3", "8-8")
    shutil.rmtree(path / "index")
    small_store.cut(path, _log(path)[A4])
    *_, before, delete, _ = frames.of(path, 2)
    assert (before.payload[:4], delete.kind) == (b"\x02\0\0\0", Kind.TOMBSTONE)
    small_store.cut(path, before)
    report = recover(path)
    assert (report.hints_used, report.segments_scanned) == (1, 1)
    assert _left(path) == [1, 7, 8]


@pytest.mark.parametrize("hinted", [True, False])
def test_a_stream_without_its_name_has_all_else(
    hinted: bool, with_open_node: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(with_open_node, tmp_path / "store")
    if not hinted:
        for hint in (path / "log").glob("*.hint"):
            hint.unlink()
    small_store.cut(path, _log(path)[CREATE])
    recover(path)
    assert _left(path, b"x" if hinted else b"stream-1-whose-name-was-lost") == ALL


@pytest.mark.parametrize("checkpoints", [1, 2])
def test_a_checkpoint_knows_of_an_open_node_that_is_lost(
    checkpoints: int, with_open_node: Path, tmp_path: Path
) -> None:
    """Its frames stand before the checkpoint, and are looked for."""
    path = shutil.copytree(with_open_node, tmp_path / "store")
    with logstore.open(path, background=False, encoding=None) as store:
        for _ in range(checkpoints):
            store.checkpoint()
            store.stream("f").add({b"pad": b"1"})
    shutil.rmtree(path / "index")
    whole = shutil.copytree(path, tmp_path / "whole")
    assert _left(whole) == ALL
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    small_store.cut(path, _log(path)[OPEN])
    report = recover(path)
    assert [(each.first.ms, each.last.ms, each.segment) for each in report.gone] == [(1, 9, 1)]
    assert _left(path) == []


def test_a_segment_with_an_open_node_is_missing(with_open_node: Path, tmp_path: Path) -> None:
    """The newest checkpoint stands behind it: nothing else says that it must be there."""
    path = shutil.copytree(with_open_node, tmp_path / "store")
    with logstore.open(path, background=False, encoding=None) as store:
        for _ in range(2):
            store.checkpoint()
            store.stream("f").add({b"pad": b"1"})
    shutil.rmtree(path / "index")
    frames.file(path, 1).unlink()
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    why = "segment 1 is missing, where the open node of b'x' stands"
    with pytest.raises(logstore.DamagedStoreError, match="is missing") as caught:
        logstore.open(path, background=False)
    assert caught.value.segment == 1
    report = recover(path)
    assert any(each[:3] == (1, 0, 0) and why in each.why for each in report.damage)
    (gone,) = [each for each in report.gone if each.stream == b"x"]
    assert (gone.first.ms, gone.last.ms, gone.entries, gone.segment) == (1, 9, None, 1)
    assert _left(path) == []
