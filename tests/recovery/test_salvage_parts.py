"""Prevents the parts of recovery that a whole store seldom takes from going wrong: frames,
segments, nodes, reports.
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
from logstore.compaction.segment_rewrite import CompactionReport
from logstore.engine.snapshots import snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptNodeError
from logstore.features.ttl_rows import ExpiryRows
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.log import chain, file_names, frame, log_reader
from logstore.log.segment_writer import CommitBuffer
from logstore.recovery import replay_guard, unsynced
from logstore.recovery.check import CheckReport, _Check
from logstore.recovery.recover import recover
from logstore.recovery.replay_guard import ReplayGuard
from logstore.recovery.report import Damage, LostEntries, RecoveryReport
from logstore.recovery.salvage import lost
from logstore.recovery.salvage import salvaged_nodes as left_nodes
from logstore.recovery.salvage.lost import _DamagedFrame
from logstore.recovery.salvage.salvaged_nodes import WantedNode
from tests.corruption import frames
from tests.recovery import forged, small_store
from tests.support.inside import add_frame
from tests.support.watched_files import DurableOrder


def _store(path: Path, **options: int) -> logstore.Store[bytes]:
    return logstore.open(path, encoding=None, segment_bytes=64 << 10, background=False, **options)  # type: ignore[call-overload,no-any-return]


def test_segments_are_written_anew_from_a_place_on(tmp_path: Path) -> None:
    """The same bytes in new files, each synced before it has the name, and the name after it."""
    with _store(tmp_path / "store") as store:
        for _ in range(5):
            store.stream("s").add({b"f": bytes(60_000)})
        engine = store._engine()
        links = list(chain.main_links(engine.fs, engine.path, engine.uuid))
        assert len(links) >= 4
        files = [file_names.segment(engine.path, link.number) for link in links]
        before = [(path.read_bytes(), path.stat().st_ino) for path in files]
        left = files[1].with_name(files[1].name + file_names.TEMPORARY)
        left.write_bytes(bytes(len(before[1][0]) + 9000))  # of a run that did not end
        fs = engine.fs = DurableOrder()
        assert unsynced.rewrite(engine, fmt.position(links[1].number, 99)) == len(links) - 1
        assert engine.wake.failed_at == 0
        for path, (data, inode) in list(zip(files, before, strict=True))[1:]:
            assert path.read_bytes() == data[: path.stat().st_size]
            assert path.stat().st_size <= len(data)
            assert path.stat().st_ino != inode
            at = fs.done.index(("rename", path.name))
            assert fs.done[at - 1] == ("sync", path.name + file_names.TEMPORARY)
            assert fs.done[at + 1] == ("directory", file_names.LOG)
        assert files[0].stat().st_ino == before[0][1]


@pytest.mark.parametrize("node_max_entries", [8, 100])
def test_entries_at_risk_after_a_failed_sync(tmp_path: Path, node_max_entries: int) -> None:
    """Entries, frames and commits behind any position of a log of several segments; also if nodes
    are sealed there that began before."""
    with _store(tmp_path / "store", node_max_entries=node_max_entries) as store:
        added: list[tuple[int, bytes, StreamID]] = []  # where the log ended, the stream, the entry
        engine = store._engine()

        def add(name: bytes, *rows: int, size: int = 5) -> None:
            at = engine.wake.applied
            made = [StreamID(ms, ms * 7 % 5 + 1) for ms in rows]
            ids = store.stream(name).add_many([(id, {b"f": bytes(size)}) for id in made])
            assert list(ids) == made
            added.extend((at, name, id) for id in made)

        for ms in range(10, 400, 10):
            add(b"one", ms)
            add(b"two", ms, ms + 1, ms + 2)
        add(b"large", *range(1, 8), size=30_000)
        add(b"one", *range(1000, 1300))
        add(b"two", 9000)
        frames = [
            each
            for link in chain.main_links(engine.fs, engine.path, engine.uuid)
            for each in log_reader.scan(
                engine.fs.open(file_names.segment(engine.path, link.number)),
                engine.seed, link.number,
                link.start_offset, link.end_offset,
            )
        ]  # fmt: skip
        assert len({each.segment for each in frames}) > 2
        starts = sorted({at for at, *_ in added if at})
        for start in starts[:: len(starts) // 12] + starts[-5:]:
            found = unsynced.at_risk(engine, start)
            behind = [each for each in frames if each.position >= start]
            assert found.from_position == start
            assert found.to_position == fmt.position(behind[-1].segment, behind[-1].end_offset)
            assert found.commits == sum(each.last for each in behind)
            assert found.frames.total() == len(behind)
            expected = []
            for name in sorted({name for at, name, _ in added if at >= start}):
                ids = [id for at, of, id in added if of == name and at >= start]
                expected.append(unsynced.Endangered(name, ids[0], ids[-1], len(ids)))
            assert found.streams == expected


def test_a_node_put_together_from_what_is_left() -> None:
    """Deletes are carried out only if all entries are there."""
    lp = codec().new_node(5, 0, [b"f", b"0"])
    for ms in range(6, 9):
        lp, _ = codec().append(lp, 5, 0, ms, 0, [b"f", b"1"])
    wanted = WantedNode(1, StreamID(5, 0), 99, lp=lp, deleted={1, 3, 4, 9})
    marked = codec().mark_deleted(lp, [1, 3])
    assert wanted.as_sealed(2) == (marked, True)
    assert wanted.as_sealed(None) == (marked, False)
    assert wanted.as_sealed(3) == (lp, False)


def test_losses_before_a_node_do_not_concern_it() -> None:
    gaps = ReplayGuard(None, RecoveryReport())  # type: ignore[arg-type]
    assert not gaps
    gaps.passed(100, 200)
    assert gaps
    assert [gaps.cross(version) for version in (50, 99, 100, 101, 300)] == [
        True, True, False, False, False,
    ]  # fmt: skip


REPORTS: dict[str, Callable[[], dict[str, Any]]] = {
    "recovery": lambda: RecoveryReport().as_dict(),
    "check": lambda: CheckReport().as_dict(),
    "compaction": lambda: CompactionReport().as_dict(),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_nothing(name: str) -> None:
    """What was not counted is 0, what did not happen is false."""
    told = REPORTS[name]()
    assert told.pop("clean", True) is True
    assert told.pop("index", "not compared") == "not compared"
    assert not any(told.values()), told


def test_a_report_of_damage() -> None:
    damage = Damage(3, 4, 5, "why")
    report = CheckReport(damage=[damage])
    assert report.as_dict()["damage"] == [damage._asdict()]
    assert report.as_dict()["clean"] is False
    assert CheckReport(tail_bytes=1).as_dict()["clean"] is False
    gone = LostEntries(b"s", StreamID(1, 0), StreamID(2, 0), None, 3, 4, "why")
    report_of_open = RecoveryReport()
    report_of_open.torn_bytes, report_of_open.torn_position = 7, fmt.position(3, 70)
    report_of_open.damage, report_of_open.gone = [damage], [gone]
    report_of_open.saved_to, report_of_open.restated_segments = "there", 2
    recovery = report_of_open.as_dict()
    assert recovery["torn_at"] == {"segment": 3, "offset": 70}
    assert (recovery["saved_to"], recovery["restated_segments"]) == ("there", 2)
    assert recovery["damage"] == [damage._asdict()]
    assert recovery["gone"][0] == {
        "stream": "s", "first": "1-0", "last": "2-0", "entries": None, "segment": 3, "offset": 4,
        "why": "why",
    }  # fmt: skip
    assert LostEntries(b"", *gone[1:]).as_dict()["stream"] is None


LP = codec().new_node(5, 6, [b"n", b"v"])
FIRST, LAST = StreamID(5, 6), StreamID(7, 8)
SAID: list[tuple[frame.Body, _DamagedFrame | None]] = [
    (frame.Node(3, *FIRST, *LAST, 4, LP), _DamagedFrame(3, FIRST, LAST, 4)),
    (frame.Open(3, *FIRST, *LAST, 4, LP), _DamagedFrame(3, FIRST, LAST, 4)),
    (frame.Open(3, *FIRST, *LAST, 0, LP), _DamagedFrame(3, FIRST, LAST, 0)),
    (frame.Append(3, *LAST, 2, 9, b"data"), _DamagedFrame(3, LAST, LAST, 2)),
    (frame.Create(3, b"name"), None),
    (frame.Trim(3, *FIRST, *LAST), None),
    (frame.Note(b""), None),
]


@pytest.mark.parametrize(("body", "said"), SAID)
def test_frame_heads_found_in_damaged_bytes(body: frame.Body, said: _DamagedFrame | None) -> None:
    buffer = CommitBuffer(1 << 32 | 64, 1)
    add_frame(buffer, body)
    data = buffer.encode(0, 0)
    size = len(data)
    assert lost._seems(data + b"more", size) == (size, said)
    assert lost._seems(data, size + 100) == (size, said)
    assert lost._seems(data, size - 1) == (0, None)  # longer than what is damaged
    for cut in range(fmt.FRAME_HEAD_BYTES):
        assert lost._seems(data[:cut], size) == (0, None)
    assert lost._seems(bytes(len(data)), size) == (0, None)
    for offset, byte in ((fmt.FRAME_MARK_OFFSET, 1), (28, 255)):
        changed = bytearray(data)
        changed[offset] ^= byte
        found = lost._seems(bytes(changed), size)
        assert found in ((0, None), (size, None), (size, said))
        if offset == fmt.FRAME_MARK_OFFSET:
            assert found == (0, None)
    if said is not None:  # its kind tells, but its body does not reach so far
        assert lost._seems(data[: fmt.FRAME_HEAD_BYTES + 9], size) == (size, None)


def test_the_first_segment_follows_none(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False) as store:
        engine = store._engine()
        head, size = chain.heads(LOCAL, engine.path, engine.uuid)[1]
    assert (head.role, head.number, head.previous_end) == (fmt.Role.MAIN, 1, 0)
    assert head[4] == 0
    assert size == fmt.SEGMENT_HEAD_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Without an index."""
    small_store.make(tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "index")
    return tmp_path / "store"


def test_a_damaged_segment_is_durable_before_another_says_where_it_ends(path: Path) -> None:
    log = frames.everything(path)
    small_store.cut(path, log[5])
    fs = DurableOrder()
    recover(path, fs=fs)
    begun = fs.done.index(("rename", file_names.segment(path, 2).name))
    assert ("sync", file_names.segment(path, 1).name) in fs.done[:begun]
    assert ("directory", file_names.LOG) in fs.done[begun:]
    head = chain.heads(LOCAL, path, frames.uuid(path))[2][0]
    assert head.previous_end == fmt.position(1, log[-1].end_offset)
    assert head[4] == log[-1].commit
    assert head.created_ms > 0
    assert [link.end_offset for link in chain.main_links(LOCAL, path, frames.uuid(path))][:1] == [
        log[-1].end_offset
    ]


def test_a_segment_header_tells_that_none_committed_before_it(tmp_path: Path) -> None:
    """The header of the segment that follows says so: where it ends, and no commit."""
    path = tmp_path / "store"
    with logstore.open(path, encoding=None, background=False) as store:
        store.stream("s").add({b"n": b"1"}, "1-1")
    shutil.rmtree(path / "index")
    for each in frames.everything(path):
        small_store.cut(path, each)
    assert recover(path).damage
    head = chain.heads(LOCAL, path, frames.uuid(path))[2][0]
    assert head.previous_end == fmt.position(1, fmt.SEGMENT_HEAD_BYTES)
    assert head[4] == 0
    with logstore.open(path, encoding=None, background=False) as store:
        assert store.streams() == []
        store.stream("t").add({b"n": b"2"}, "2-2")
    assert [each.commit for each in frames.of(path, 2)] == [1, 1]


def test_a_node_that_was_not_there_is_missing(path: Path) -> None:
    """What stands behind the end that a check saw may have come since."""
    log = frames.everything(path)
    seen = _Check(LOCAL, path, frames.uuid(path), None)
    assert seen.run().damage == []
    for each in log:
        seen._locator(each.position)
    places = [each.offset for each in log if each.kind != Kind.NODE]
    told = [(1, place, place, "a node is missing from the log") for place in places]
    assert seen.report.damage == told
    at = forged.append(path, frame.Note(b"x"), frame.Node(2, 20, 0, 20, 0, 1, LP))
    log = frames.everything(path)[-2:]
    assert [seen._came_since(1, each.offset) for each in log] == [False, True]
    assert not seen._came_since(1, at + 1)
    assert not seen._came_since(1, log[-1].end_offset)
    assert not seen._came_since(9, at)
    assert not seen._came_since(1, next(each.offset for each in frames.everything(path)[:9]))


def test_an_append_belongs_to_the_node_of_its_master_id() -> None:
    """Of the node against whose master ID it was encoded, and only if it is sound."""
    lp = codec().new_node(5, 0, [b"n", b"1"])
    longer, at = codec().append(lp, 5, 0, 9, 3, [b"n", b"2"])
    del at
    assert [id for _, *id in codec().ids(longer, 5, 0)] == [[5, 0], [9, 3]]
    added = longer[len(lp) - 1 : -1]
    elements = int.from_bytes(longer[4:6], "little") - int.from_bytes(lp[4:6], "little")
    skeleton = nodes.skeleton(lp)
    body = frame.Append(1, 9, 3, 1, elements, added)
    assert replay_guard.own_ids(skeleton, StreamID(5, 0), body) == ((9, 3), (9, 3))
    assert replay_guard.own_ids(skeleton, StreamID(5, 1), body) is None
    assert replay_guard.own_ids(skeleton, StreamID(4, 0), body) is None
    assert replay_guard.own_ids(skeleton, StreamID(5, 0), body._replace(last_seq=4)) is None
    assert replay_guard.own_ids(skeleton, StreamID(5, 0), body._replace(last_ms=8)) is None
    broken = 0
    for place in range(len(added)):
        data = added[:place] + bytes([added[place] ^ 0x41]) + added[place + 1 :]
        try:
            found = replay_guard.own_ids(skeleton, StreamID(5, 0), body._replace(data=data))
        except CorruptNodeError:
            broken += 1
            continue
        assert found in (None, ((9, 3), (9, 3)))
        if found is not None:
            codec().validate(codec().extend(skeleton, data, 1, elements), 5, 0)
    assert broken


def test_a_node_is_not_begun_by_bytes_that_are_none(path: Path) -> None:
    lp = bytearray(codec().new_node(20, 0, [b"n", b"1"]))
    lp[-3] ^= 0x41
    forged.append(path, frame.Open(1, 20, 0, 20, 0, 1, bytes(lp)))
    uuid = frames.uuid(path)
    wanted = [WantedNode(1, StreamID(20, 0), 1 << 64), WantedNode(1, StreamID(1, 1), 1 << 64)]
    found = left_nodes.find(LOCAL, path, uuid, frames.crc_seed(uuid), wanted)
    assert list(found) == [(1, StreamID(1, 1))]


def test_a_stream_expires_once(tmp_path: Path) -> None:
    """When its time is set again, the time before is forgotten."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        store.stream("s").add({b"n": b"1"})
        for at in (1 << 42, 1 << 43, (1 << 42) + 7):
            store.stream("s").expire(at=at)
            rows = snapshot.read(
                store._engine(), lambda view: len(list(ExpiryRows(view.index).rows()))
            )
            assert rows == 1
            assert store._engine().wake.next_due_ms == at
