"""Prevents what is small in recovery from being wrong unseen: what bytes of a damaged frame say,
where a store may be, in what order a damaged segment is sealed, whose append a frame is.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore import fsinfo
from logstore.codec import codec
from logstore.engine.commit.committer import Committer
from logstore.engine.snapshots import snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptNodeError, FileSystemError
from logstore.features.expiry import ExpiryRows
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.log import chain, frame, names
from logstore.log.writer import CommitBuffer
from logstore.recovery import backup, create, replay_guard
from logstore.recovery.check import _Check, check
from logstore.recovery.recover import recover
from logstore.recovery.salvage import lost
from logstore.recovery.salvage import nodes as left_nodes
from logstore.recovery.salvage.lost import _DamagedFrame
from logstore.recovery.salvage.nodes import Wanted
from tests.corruption import frames
from tests.recovery import forged, little
from tests.recovery.order import Told
from tests.support.inside import add_frame

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
def test_what_the_bytes_of_a_frame_say(body: frame.Body, said: _DamagedFrame | None) -> None:
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


def test_a_network_is_no_place_for_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a directory that is not there yet, the one above it that is."""
    asked: list[Path] = []
    kinds = {tmp_path: "ext4", tmp_path / "far": "nfs4"}
    (tmp_path / "far").mkdir()

    def kind(path: Path) -> str:
        asked.append(path)
        return kinds[path]

    monkeypatch.setattr(fsinfo, "mount_type", kind)
    assert "nfs4" in fsinfo.NETWORK_TYPES
    create.check_place(LOCAL, tmp_path / "a" / "b" / "c")
    create.check_place(LOCAL, tmp_path)
    assert asked == [tmp_path, tmp_path]
    for place in (tmp_path / "far", tmp_path / "far" / "store"):
        with pytest.raises(FileSystemError, match="network file system"):
            create.check_place(LOCAL, place)
    assert asked[2:] == [tmp_path / "far"] * 2


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
    little.make(tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "index")
    return tmp_path / "store"


def test_a_damaged_segment_is_durable_before_another_says_where_it_ends(path: Path) -> None:
    log = frames.everything(path)
    little.cut(path, log[5])
    fs = Told()
    recover(path, fs=fs)
    begun = fs.done.index(("rename", names.segment(path, 2).name))
    assert ("sync", names.segment(path, 1).name) in fs.done[:begun]
    assert ("directory", names.LOG) in fs.done[begun:]
    head = chain.heads(LOCAL, path, frames.uuid(path))[2][0]
    assert head.previous_end == fmt.position(1, log[-1].end_offset)
    assert head[4] == log[-1].commit
    assert head.created_ms > 0
    assert [link.end_offset for link in chain.main_links(LOCAL, path, frames.uuid(path))][:1] == [
        log[-1].end_offset
    ]


def test_behind_a_segment_without_a_commit_none_came_before(tmp_path: Path) -> None:
    """The header of the segment that follows says so: where it ends, and no commit."""
    path = tmp_path / "store"
    with logstore.open(path, encoding=None, background=False) as store:
        store.stream("s").add({b"n": b"1"}, "1-1")
    shutil.rmtree(path / "index")
    for each in frames.everything(path):
        little.cut(path, each)
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


def test_whose_append_a_frame_is() -> None:
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
    wanted = [Wanted(1, StreamID(20, 0), 1 << 64), Wanted(1, StreamID(1, 1), 1 << 64)]
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


def test_a_backup_takes_along_the_hints_that_there_are(tmp_path: Path) -> None:
    path, copy = tmp_path / "store", tmp_path / "copy"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        for _ in range(5):
            store.stream("s").add({"v": b"x" * 60_000})
        store.checkpoint()
    assert names.hint(path, 1).exists()
    names.hint(path, 2).unlink()
    with logstore.open(path, background=False) as store:
        store.backup(copy)
        active = store._engine().wake.log().active_segment
    assert names.hint(copy, 1).read_bytes() == names.hint(path, 1).read_bytes()
    assert not names.hint(copy, 2).exists()
    assert names.segments(LOCAL, copy) == list(range(1, active + 1))
    assert names.checkpoints(LOCAL, copy) == names.checkpoints(LOCAL, path) != []
    assert check(copy).as_dict()["clean"]


def test_a_backup_is_durable_before_it_is_a_store(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("s").add({"n": 1})
        store.checkpoint()
        engine = store._engine()
        fs = engine.fs = Told()
        backup.take(engine, Committer(engine), copy)
        engine.fs = LOCAL
    made = fs.done.index(("rename", names.STORE))
    for done in (
        ("sync", names.segment(copy, 1).name), ("directory", names.LOG),
        ("directory", names.CHECKPOINTS),
    ):  # fmt: skip
        assert done in fs.done[:made]
