"""Prevents nodes behind damage from coming back where others are, or where they were trimmed, and
one that may not come back from keeping others away.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.index.keys import Locator, StreamRecord
from logstore.log import chain
from logstore.log.reader import LogFrame
from logstore.recovery import restore
from logstore.recovery.recover import recover
from logstore.recovery.report import RecoveryReport
from tests.corruption import frames
from tests.recovery import little

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
def test_which_nodes_come_back(name: str, made: Path, tmp_path: Path) -> None:
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
            restore._load_unsure(state, given, {}, report)
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
                restore._put(state, node, {(1, 1, 1): (version, b"\x05")})
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
                unsure = restore._load_segment(
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
        little.cut(path, nodes[1])
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
    assert little.held(path) == {b"stream-1-whose-name-was-lost": list(range(1, 17))}
    assert len([each for each in report.unsure if each.startswith("node ")]) == 4
    with logstore.open(path, encoding=None, background=False) as store:
        store.stream("fresh").add({b"n": b"1"}, "1-1")
        assert store.stream("stream-1-whose-name-was-lost").last_id == StreamID(16, 16)
    assert little.held(path) == {
        b"fresh": [1], b"stream-1-whose-name-was-lost": list(range(1, 17)),
    }  # fmt: skip
