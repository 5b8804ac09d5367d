"""Prevents a frame from losing a part of its body, from being read past its end, or from being
taken for another.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.engine.commit.committer import Committer
from logstore.errors import CorruptFrameError, TooLargeError, UnreadableError
from logstore.features import schedule_rows
from logstore.features.idempotent_ids import NOTHING, Idempotent
from logstore.features.schema_rows import TEXT_MAX_BYTES, StoredSchema
from logstore.features.setting_rows import SETTINGS_MAX_BYTES, Setting
from logstore.features.ttl_rows import Expire
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.log import chain, file_names, hint, log_reader, storefile
from logstore.log import frame as frames
from logstore.log import frame as groups
from logstore.log.frame import Rename
from logstore.log.segment_writer import CommitBuffer, crc_seed
from logstore.recovery.check import check
from tests.compaction.dumps import dump
from tests.log.heldbytes import Held
from tests.support.inside import add_frame

SEED = crc_seed(bytes(range(16)))
START = fmt.SEGMENT_HEAD_BYTES
ITEM = frames.AdoptItem(1, 2, 3, 4, 5, 6, 7, 8, ((9, 10), (11, 12)))
BODIES = [
    frames.Seal(2),
    frames.Create(1, b"name"),
    frames.Drop(1),
    frames.Open(1, 2, 3, 4, 5, 6, b"data"),
    frames.Append(1, 2, 3, 4, 5, b"data"),
    frames.Node(1, 2, 3, 4, 5, 6, b"data"),
    frames.Tombstone(1, 2, 3, 4, (0, 7, 1 << 31)),
    frames.Trim(1, 2, 3, 4, 5),
    frames.Record(1, 2, 3, 4, 5, 6, 7, 8, 9),
    frames.Adopt(4, (ITEM, ITEM._replace(replaced=()))),
    frames.DropSegment(4),
    frames.Note(b"text"),
    groups.Group(1, 2, 3, 4, -1, b"group"),
    groups.GroupDrop(1, 2),
    groups.Consumer(1, 2, 3, -1, 1, b"consumer"),
    groups.Deliver(1, 2, 3, 4, 5, 6, 1, bytes(range(32))),
    groups.Ack(1, bytes(range(48))),
    groups.Claim(1, 2, 3, 4, ((5, 6, 7, 8), (9, 10, 11, 12))),
    Setting(1, 2, {"a": 1, "b": "text", "c": None}),
    schedule_rows.Scheduled(1, 2, schedule_rows.packed([b"f", b"", b"g", b"value"])),
    schedule_rows.Unscheduled(1, True, ((2, 3), (4, 5))),
    schedule_rows.Unscheduled(1, False, ()),
    Expire(1, 2),
    Rename(1, b"name"),
    StoredSchema(1, "temp double"),
    StoredSchema(1, ""),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_body_comes_back_as_it_was(body: frames.Body) -> None:
    assert frames.decode(frames.KIND_OF[type(body)], frames.encode(body)) == body


def _of(kind: int) -> frames.Body:
    return next(body for body in BODIES if frames.KIND_OF[type(body)] == kind)


def test_a_hint_keeps_the_head_of_a_body_with_data() -> None:
    for kind, size in frames.DATA_HEAD_BYTES.items():
        body = _of(kind)
        assert frames.decode(kind, frames.encode(body)[:size]) == (*body[:-1], None)
        assert frames.data_place(kind, 100, size + 4) == (100 + fmt.FRAME_HEAD_BYTES + size, 4)


ADOPT = frames.encode(frames.Adopt(4, (ITEM,)))
SCHEDULED = frames.encode(_of(Kind.SCHEDULE))
BROKEN = {
    "more items than bytes": (Kind.ADOPT, fmt.ADOPT_BODY.pack(4, 2) + ADOPT[8:]),
    "more replaced nodes than bytes": (Kind.ADOPT, ADOPT[: -fmt.MASTER.size]),
    "half a replaced node": (Kind.ADOPT, ADOPT[:-1]),
    "a list of IDs that are delivered": (Kind.DELIVER, frames.encode(_of(Kind.DELIVER)) + b"."),
    "a list of IDs that are acked": (Kind.ACK, frames.encode(_of(Kind.ACK))[:-1]),
    "claims": (Kind.CLAIM, frames.encode(_of(Kind.CLAIM))[:-1]),
    "a long field": (Kind.SCHEDULE, SCHEDULED[:-1]),
    "no fields": (Kind.SCHEDULE, SCHEDULED[: fmt.SCHEDULE_BODY.size + fmt.SCHEDULE_DUE.size]),
    "a field without a value": (
        Kind.SCHEDULE, frames.encode(schedule_rows.Scheduled(1, 2, schedule_rows.packed([b"f"]))),
    ),
    "another form": (Kind.SCHEDULE, fmt.SCHEDULE_BODY.pack(1, 9)),
    "settings that are no map": (Kind.SETTING, fmt.SETTING_BODY.pack(1, 2) + b"\x01"),
    "a schema that is no text": (Kind.SCHEMA, fmt.SCHEMA_BODY.pack(1) + b"\xff"),
    "a schema that is too long": (
        Kind.SCHEMA, fmt.SCHEMA_BODY.pack(1) + b"a" * (TEXT_MAX_BYTES + 1)
    ),
    "settings that are cut off": (Kind.SETTING, frames.encode(_of(Kind.SETTING))[:-1]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_body_that_does_not_fit_is_refused(name: str) -> None:
    kind, payload = BROKEN[name]
    with pytest.raises(CorruptFrameError, match="does not fit") as caught:
        frames.decode(kind, payload, segment=3, offset=99)
    assert (caught.value.segment, caught.value.offset) == (3, 99)


def test_settings_of_the_largest_size() -> None:
    room = SETTINGS_MAX_BYTES - len(frames.encode(Setting(1, 2, {"a": "x" * 70_000}))) + 70_016
    largest = Setting(1, 2, {"a": "x" * room})
    assert len(frames.encode(largest)) == fmt.SETTING_BODY.size + (1 << 20)
    assert frames.decode(Kind.SETTING, frames.encode(largest)) == largest
    with pytest.raises(CorruptFrameError, match="bytes of settings"):
        frames.decode(Kind.SETTING, frames.encode(Setting(1, 2, {"a": "x" * (room + 1)})))


def _log(*commits: list[frames.Body], first: int = 1, durable: int = 0) -> bytes:
    """Commits behind each other, as they stand in segment 1."""
    data = b""
    for number, bodies in enumerate(commits, first):
        buffer = CommitBuffer(fmt.position(1, START + len(data)), number)
        for body in bodies:
            add_frame(buffer, body)
        data += buffer.encode(SEED, durable)
    return data


def _scan(data: bytes) -> list[log_reader.LogFrame]:
    return list(log_reader.scan(Held(data, START), SEED, 1, START, START + len(data)))


NOTES = [frames.Note(b"one"), frames.Note(b"two"), frames.Note(b"three")]


def test_a_log_of_many_commits_and_large_frames() -> None:
    """Larger than what is read at once, in one frame and in many."""
    large = frames.Note(bytes(range(256)) * 5000)
    many = [frames.Note(b"%d" % number * 9) for number in range(20_000)]
    found = _scan(_log(NOTES, [large], many, [large, *NOTES]))
    assert [each.body() for each in found] == [*NOTES, large, *many, large, *NOTES]
    commits = list(log_reader.commits(iter(found), None))
    assert [(commit.number, len(commit.frames)) for commit in commits] == [
        (1, 3), (2, 1), (3, 20_000), (4, 4),
    ]  # fmt: skip
    assert commits[-1].end == found[-1].position + fmt.FRAME_HEAD_BYTES + len(b"three")


def test_frames_do_not_depend_on_the_size_of_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in a frame, or in its head, the bytes at hand end."""
    sizes = (0, 1, 90, 7, 300, 33, 2, 150)
    data = _log([frames.Note(bytes([at]) * size) for at, size in enumerate(sizes)], NOTES)
    wanted = _scan(data)
    assert len(wanted) == len(sizes) + 3
    broken = bytearray(data)
    broken[wanted[4].offset - START + 40] ^= 1
    for chunk_bytes in (*range(fmt.FRAME_HEAD_BYTES, 120), 1000):
        monkeypatch.setattr(log_reader, "_CHUNK_BYTES", chunk_bytes)
        assert _scan(data) == wanted
        end = START + len(data)
        for held, left in (
            (Held(data, START), wanted), (Held(bytes(broken), START), wanted[:4] + wanted[5:]),
        ):  # fmt: skip
            assert list(log_reader.next_valid(held, SEED, 1, START, end)) == left
        at, behind = wanted[4].offset, wanted[5].offset
        assert log_reader.resume_offset(held, SEED, 1, at, end) == behind
        assert log_reader.resume_offset(held, SEED, 1, wanted[-1].offset, end) == end


@pytest.mark.parametrize("cut", [1, 5, fmt.FRAME_HEAD_BYTES, fmt.FRAME_HEAD_BYTES + 4])
def test_a_log_that_is_cut_off(cut: int) -> None:
    data = _log(NOTES)[:-cut]
    with pytest.raises(CorruptFrameError, match="no valid frame"):
        _scan(data)


def test_a_commit_must_be_whole_and_follow_the_one_before() -> None:
    frames_of = _scan(_log(NOTES, NOTES))
    for wrong in (
        frames_of[:2],  # the end is missing
        [frames_of[0], *frames_of[2:]],  # the middle
        frames_of[1:],  # the beginning
        [*frames_of[:2], frames_of[5]],  # the end is another commit's
        [*frames_of[:3], *frames_of[:3]],  # the same again
    ):
        with pytest.raises(CorruptFrameError):
            list(log_reader.commits(iter(wrong), None))
    with pytest.raises(CorruptFrameError):
        list(log_reader.commits(iter(frames_of), 1))
    for count in (4, 5):  # the place where the one that is not whole begins: there it is cut off
        with pytest.raises(CorruptFrameError, match="not complete") as caught:
            list(log_reader.commits(iter(frames_of[:count]), None))
        assert (caught.value.segment, caught.value.offset) == (1, frames_of[3].offset)
    assert len(list(log_reader.commits(iter(frames_of), 0))) == 2


def test_a_frame_is_of_one_place_and_one_store() -> None:
    data = _log(NOTES)
    held, end = Held(data, START), START + len(data)
    assert log_reader.read_frame(held, SEED, 1, START, end).body() == NOTES[0]
    first = START + fmt.FRAME_HEAD_BYTES + 3
    assert log_reader.read_frame(held, SEED, 1, START, first).body() == NOTES[0]  # ends right there
    with pytest.raises(CorruptFrameError, match="longer"):
        log_reader.read_frame(held, SEED, 1, START, first - 1)
    for seed, segment in ((SEED + 1, 1), (SEED, 2)):
        with pytest.raises(CorruptFrameError, match="checksum"):
            log_reader.read_frame(held, seed, segment, START, end)
    with pytest.raises(CorruptFrameError, match="checksum"):
        log_reader.parse(data, 0, SEED, 1, START + 1)


def test_frames_behind_damage_are_found_once_each() -> None:
    data = bytearray(_log(NOTES, NOTES, durable=fmt.position(1, START + 50)))
    size = fmt.FRAME_HEAD_BYTES + 3
    data[size - 1] ^= 1
    held, end = Held(bytes(data), START), START + len(data)
    found = list(log_reader.next_valid(held, SEED, 1, START, end))
    assert [each.body() for each in found] == [*NOTES[1:], *NOTES]
    assert log_reader.resume_offset(held, SEED, 1, START, end) == START + size
    assert log_reader.resume_offset(held, SEED, 1, end - 5, end) == end
    # A later frame knew 50 bytes to be durable; what is promised counts as well.
    assert log_reader.behind(held, SEED, 1, START + 49, end, 0) == (True, False)
    assert log_reader.behind(held, SEED, 1, START + 50, end, 0) == (False, True)
    promised = fmt.position(1, START + 51)
    assert log_reader.behind(held, SEED, 1, START + 50, end, promised) == (True, False)
    assert not log_reader.behind(
        held, SEED, 1, START + 50, end, fmt.position(1, START + 50)
    ).damaged


def test_a_frame_may_begin_at_the_byte_behind_a_bad_one() -> None:
    buffer = CommitBuffer(fmt.position(1, START + 1), 1)
    for body in NOTES:
        add_frame(buffer, body)
    data = b"\0" + buffer.encode(SEED, 0)
    held, end = Held(data, START), START + len(data)
    found = list(log_reader.next_valid(held, SEED, 1, START, end))
    assert [each.body() for each in found] == NOTES
    assert log_reader.resume_offset(held, SEED, 1, START, end) == START + 1


def test_a_tail_without_the_end_of_a_commit_is_not_complete() -> None:
    """Such a tail is cut off; one with a commit in it is told."""
    size = fmt.FRAME_HEAD_BYTES + 3
    torn, whole = _log(NOTES)[: 2 * size], _log(NOTES, NOTES)
    for data, complete in ((b"", False), (torn, False), (whole, True)):
        held, end = Held(b"\0" + data[1:], START), START + len(data)
        assert log_reader.behind(held, SEED, 1, START, end, 0) == (False, complete)


def test_a_scan_ends_where_it_is_told() -> None:
    """What stands there may be of a commit that is not published, or half written."""
    data = _log(NOTES, NOTES)
    every = _scan(data)
    held = Held(data, START)
    for count, frame in enumerate(every):
        assert list(log_reader.scan(held, SEED, 1, START, frame.offset)) == every[:count]
        for end in range(frame.offset + 1, frame.end_offset):
            found = list[log_reader.LogFrame]()
            with pytest.raises(CorruptFrameError) as caught:
                found.extend(log_reader.scan(held, SEED, 1, START, end))
            assert (caught.value.segment, caught.value.offset) == (1, frame.offset)
            assert found == every[:count]


@pytest.mark.parametrize("size", [(8 << 20) - 1, 8 << 20, (8 << 20) + 1, 9 << 20])
def test_a_large_frame_is_read_whole_or_left_out(size: int) -> None:
    """Above 8 MiB it is checked before memory is taken for it."""
    body = frames.Note(b"x" * size)
    data = _log([body, frames.Note(b"behind")])
    held, end = Held(data, START), START + len(data)
    assert log_reader.read_frame(held, SEED, 1, START, end).body() == body
    first, last = log_reader.scan(held, SEED, 1, START, end, bodies=False)
    assert (first.payload_bytes, first.kind, first.ordinal) == (size, Kind.NOTE, 0)
    assert (first.position, first.end_offset) == (fmt.position(1, START), last.offset)
    assert first.payload == b""
    assert last.body() == frames.Note(b"behind")
    broken = Held(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:], START)
    for bodies in (False, True):
        with pytest.raises(CorruptFrameError, match="checksum"):
            list(log_reader.scan(broken, SEED, 1, START, end, bodies=bodies))
        short = Held(data[: size // 2], START)
        with pytest.raises(CorruptFrameError, match="cut off"):
            list(log_reader.scan(short, SEED, 1, START, end, bodies=bodies))


class Unreadable(Held):
    """Bytes of which the disk does not give back some."""

    def __init__(self, data: bytes, offset: int, lost: range) -> None:
        super().__init__(data, offset)
        self.lost = lost

    def pread(self, size_bytes: int, offset: int) -> bytes:
        if size_bytes and offset < self.lost.stop and offset + size_bytes > self.lost.start:
            raise UnreadableError("lost", offset=max(offset, self.lost.start))
        return super().pread(size_bytes, offset)


@pytest.mark.parametrize("lost", [range(4096, 8192), range(4096, 16384), range(8192, 12288)])
def test_frames_beside_a_sector_that_is_lost_are_read(lost: range) -> None:
    """All before it, and all behind it, once each; the error names the segment."""
    data = _log([frames.Note(b"%d" % number * 50) for number in range(300)], NOTES)
    every = _scan(data)
    held, end = Unreadable(data, START, lost), START + len(data)
    before = [each for each in every if each.end_offset <= lost.start]
    behind = [each for each in every if each.offset >= lost.stop]
    assert before
    assert behind
    found = list[log_reader.LogFrame]()
    with pytest.raises(UnreadableError) as caught:
        found.extend(log_reader.scan(held, SEED, 1, START, end))
    assert found == before
    assert caught.value.segment == 1
    assert list(log_reader.next_valid(held, SEED, 1, START, end)) == before + behind
    assert log_reader.resume_offset(held, SEED, 1, before[-1].end_offset, end) == behind[0].offset
    assert log_reader.readable(held, 100, lost.start) == b""
    assert log_reader.readable(held, 1, lost.start - 1) == held.pread(1, lost.start - 1)
    assert log_reader.readable(held, 100, lost.start - 9) == held.pread(9, lost.start - 9)


def test_a_node_is_read_only_where_its_locator_says() -> None:
    node = frames.Node(1, 2, 3, 4, 5, 6, b"listpack")
    data = _log([frames.Note(b"x" * 60), node])
    held = Held(data, START)
    at = fmt.position(1, START + fmt.FRAME_HEAD_BYTES + 60)
    size = fmt.NODE_BODY.size + 8
    assert log_reader.listpack(held, SEED, at, size, 1, (2, 3)) == b"listpack"
    for position, length, stream, master, why in (
        (at, size, 1, (2, 4), "points at node 2-3"),
        (at, size, 2, (2, 3), "points at node 2-3"),
        (at, size - 1, 1, (2, 3), "no valid frame"),
        (at, size + 1, 1, (2, 3), "length"),
        (fmt.position(1, START), 60, 1, (2, 3), "no node"),
    ):
        longer = Held(data + b"more", START)
        with pytest.raises(CorruptFrameError, match=why):
            log_reader.listpack(longer, SEED, position, length, stream, master)


def test_a_commit_ends_within_its_segments_4_gib() -> None:
    """Of which the last bytes may be used, but not passed."""
    size = fmt.FRAME_HEAD_BYTES + 8
    buffer = CommitBuffer(fmt.position(1, (1 << 32) - size - 1), 1)
    assert add_frame(buffer, frames.Drop(7)) == (fmt.position(1, (1 << 32) - size - 1), 8)
    for room in (size - 1, 1):
        with pytest.raises(TooLargeError, match="4 GiB"):
            add_frame(CommitBuffer(fmt.position(1, (1 << 32) - room), 1), frames.Drop(7))


def test_a_frame_of_a_commit_that_is_not_written_yet() -> None:
    start = fmt.position(1, START)
    buffer = CommitBuffer(start, 1)
    places = [add_frame(buffer, body)[0] for body in NOTES]
    for place, body in zip(places, NOTES, strict=True):
        assert buffer.frame_at(place) == (Kind.NOTE, body.text)
        assert buffer.frame_at(place + 1) is None
    assert buffer.frame_at(start - 1) is None
    assert buffer.frame_at(buffer.end) is None
    found = _scan(buffer.encode(SEED, 0))
    assert (buffer.last_start, buffer.last_crc) == (found[-1].position, found[-1].crc)
    assert [each.ordinal for each in found] == [0, 1, 2]
    assert [each.last for each in found] == [False, False, True]


number = st.integers(0, 2**64 - 1)
id = st.tuples(number, number)
bodies = st.builds(
    Idempotent, number, number, number, id, id, id, st.binary(max_size=40),
    st.lists(st.tuples(id, st.binary(max_size=40)), max_size=5).map(tuple),
)  # fmt: skip


@given(body=bodies)
def test_a_body_of_idempotent_adds_comes_back(body: Idempotent) -> None:
    assert frames.decode(Kind.IDEMPOTENT, frames.encode(body)) == body


@given(body=bodies, data=st.data())
def test_bytes_that_are_cut_off_are_refused_or_end_between_items(
    body: Idempotent, data: st.DataObject
) -> None:
    payload = frames.encode(body)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    try:
        found = frames.decode(Kind.IDEMPOTENT, cut)
    except CorruptFrameError:
        return
    assert isinstance(found, Idempotent)
    assert found[:7] == body[:7]
    assert found.items == body.items[: len(found.items)]


def test_the_bytes_are_those_of_the_format_page() -> None:
    body = Idempotent(1, 2, 3, *NOTHING, (7, 8), b"pid", (((4, 5), b"name"),))
    assert frames.encode(body) == bytes.fromhex(
        "0100000000000000 0200000000000000 0300000000000000"  # stream, added, duplicates
        "ffffffffffffffff ffffffffffffffff"  # forgotten of all: from here
        "0000000000000000 0000000000000000"  # to here, which is nothing
        "0700000000000000 0800000000000000"  # forgotten of this producer: up to here
        "0300 706964"  # the producer
        "0400000000000000 0500000000000000 0400 6e616d65"  # an entry, and the ID that gave it
    )


@pytest.mark.parametrize("size", [0, 73])
def test_a_head_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(CorruptFrameError, match="IDEMPOTENT"):
        frames.decode(Kind.IDEMPOTENT, bytes(size))


def _single_adds(path: Path, seed: int, *, checkpoint: bool) -> None:
    """Streams by single adds, between them all else that changes a stream's record."""
    rng = random.Random(seed)
    with logstore.open(
        path, node_max_entries=8, segment_bytes=1 << 16, background=False, encoding=None, sync="os"
    ) as store:
        for step in range(900):
            stream = store.stream(b"s%d" % rng.randrange(3))
            kind = rng.randrange(40)
            if kind == 0 and (last := stream.last) is not None:
                stream.delete(last.id)
            elif kind == 1:
                stream.trim(max_entries=rng.randrange(30), approximate=False)
            elif kind == 2 and (first := stream.first) is not None:
                stream.delete(first.id)
            elif kind == 3:
                stream.add_many({"n": n} for n in range(rng.randrange(1, 20)))
            elif kind == 4:
                group = stream.group("g", start="0")
                for each in group.read("c", count=3):
                    each.ack()
            elif kind == 5 and step > 200:
                store.drop(stream.name)
            elif kind == 6:
                stream.configure(max_entries=10_000 + step)
            else:
                stream.add({"step": step, "pad": "p" * rng.randrange(200)})
            if checkpoint and step in (300, 600):
                store.checkpoint()
        with Committer(store._engine()).locked() as words:
            log_tail.roll_locked(store._engine(), words)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_index_is_the_same_with_and_without_hints(
    tmp_path: Path, seed: int, checkpoint: bool
) -> None:
    path = tmp_path / "store"
    _single_adds(path, seed, checkpoint=checkpoint)
    with logstore.open(path, background=False, encoding=None) as store:
        wanted = dump(store)
    assert check(path).damage == []
    assert list((path / "log").glob("*.hint"))
    for without in ("index", "hints"):
        shutil.rmtree(path / "index")
        if without == "hints":
            for each in (path / "log").glob("*.hint"):
                each.unlink()
        with logstore.open(path, background=False, encoding=None) as store:
            assert store.recovery["rebuilt"]
            assert dump(store) == wanted, without


def test_a_hint_of_single_adds_is_small(tmp_path: Path) -> None:
    """Beside three frames a node there is next to nothing; who begins in the middle gets none."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, encoding=None, sync="os") as store:
        for number in range(2000):
            store.stream(b"s").add({b"n": b"%d" % number}, f"{number + 1}-0")
        engine = store._engine()
        with Committer(engine).locked() as words:
            log_tail.roll_locked(engine, words)
    uuid = storefile.read(LOCAL, path).uuid
    link = chain.main_links(LOCAL, path, uuid)[0]
    place = file_names.hint(path, 1)
    found = hint.read(LOCAL, path, uuid, link)
    assert found is not None
    appends = [each for each in found if each.kind == Kind.APPEND]
    opens = sum(each.kind == Kind.OPEN for each in found)
    added = sum(fmt.APPEND_BODY.unpack_from(each.payload)[3] for each in appends)
    assert added + opens == 2000
    assert len(appends) < 130  # one for each of the 19 nodes that are sealed, and the last node's
    assert place.stat().st_size < 0.1 * file_names.segment(path, 1).stat().st_size
    assert hint.read(LOCAL, path, uuid, link, joined=False) is None
    assert [each.offset for each in found] == sorted(each.offset for each in found)


@pytest.mark.parametrize("before", range(1, 10))
def test_a_checkpoint_in_the_middle_of_appends_that_are_joined(tmp_path: Path, before: int) -> None:
    """What the checkpoint counted is not counted once more."""
    path = tmp_path / "store"
    with logstore.open(
        path, node_max_entries=8, background=False, encoding=None, sync="os"
    ) as store:
        for number in range(30):
            store.stream(b"s").add({b"n": b"%d" % number}, f"{number + 1}-0")
            if number + 1 == before:
                store.checkpoint()
        with Committer(store._engine()).locked() as words:
            log_tail.roll_locked(store._engine(), words)
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False, encoding=None) as store:
        assert store.recovery["rebuilt"]
        info = store.stream(b"s").info()
        assert (info.length, info.entries_added) == (30, 30)
        assert [entry.id.ms for entry in store.stream(b"s")] == list(range(1, 31))
    assert check(path).damage == []
