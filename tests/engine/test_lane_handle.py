"""Prevents a plain add in compiled code that writes, or remembers, other bytes than the pipeline.

Frames are compared with those of the codec and the log's writer, the record and the open node with
what applying those frames makes of them, for random histories.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import format as fmt
from logstore.codec import Codec, pure
from logstore.codec import codec as codec_in_use
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.txn.nodes import OPEN_INLINE_MAX_BYTES
from logstore.format import Kind
from logstore.ids import U64_MAX, StreamID
from logstore.index.keys import OpenNode, StreamRecord
from logstore.log import frame as frames
from logstore.log.segment_writer import CommitBuffer, crc_seed
from tests.codec.strategies import next_id, steps, texts
from tests.house.repo import ROOT
from tests.support.processes import Forked

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)
lane: Any = native_or_none
SEED, AT, COMMIT, DURABLE = crc_seed(b"u" * 16), fmt.position(3, 4096), 77, fmt.position(3, 64)
CODECS = [pure, codec_in_use()]
STREAM = 9

unicode_texts = st.text(max_size=12)
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-5, 130), st.sampled_from([-4097, 4095, 32768])
)
values: st.SearchStrategy[Any] = st.one_of(texts, unicode_texts, numbers, st.floats())
names: st.SearchStrategy[Any] = st.sampled_from(
    ["temp", b"temp", "hum", 7, "7", b"\xff", "007", "größe", 1.5]
)
rows: st.SearchStrategy[dict[Any, Any]] = st.one_of(
    st.fixed_dictionaries({"temp": values, "hum": values}),
    st.dictionaries(names, values, min_size=1, max_size=6),
    st.lists(values, min_size=100, max_size=140).map(lambda many: dict(enumerate(many))),
    st.sampled_from([4000, 30_000, 65_000]).map(lambda size: {"temp": b"x" * size, "hum": 1}),
)
limits = st.sampled_from([(4096, 100), (200, 5), (1 << 30, 0), (1 << 30, 3)])


class Twin:
    """A stream as the pipeline has it: what its frames are, and what they make of it."""

    def __init__(self, codec: Codec, id: StreamID, fields: dict[Any, Any]) -> None:
        self.codec = codec
        node = codec.pack(codec.rows([fields]), 0, 1, id, None, 0, 0, 1 << 30, 0).nodes[0]
        self.record = StreamRecord(
            STREAM, b"s", 1, 1, id, id, position=AT, open_version=AT, open_master=id
        )
        self.node = OpenNode(node.lp)

    def add(
        self, id: StreamID, fields: dict[Any, Any], most: tuple[int, int], at: int
    ) -> bytes | None:
        """The commit of one more entry, applied; None if it does not go into the open node."""
        batch, lp = self.codec.rows([fields]), self.node.lp
        assert lp is not None
        packed = self.codec.pack(batch, 0, 1, id, lp, *self.record.open_master, *most)
        if packed.nodes or packed.open_lp is None or len(packed.open_lp) > OPEN_INLINE_MAX_BYTES:
            return None
        buffer = CommitBuffer(at, COMMIT)
        body = frames.Append(STREAM, *id, 1, packed.added_elements, packed.added)
        buffer.add_payload(Kind.APPEND, frames.encode(body))
        record = self.record
        record.length += 1
        record.entries_added = (record.entries_added + 1) & U64_MAX
        record.last, record.position, self.node.lp = id, at, packed.open_lp
        return buffer.encode(SEED, DURABLE)

    def is_as(self, handle: Any) -> bool:
        """Whether a handle, given back, is the same."""
        record = StreamRecord.unpack(STREAM, self.record.pack())
        record.length, record.entries_added, record.last = 0, 0, StreamID(0, 0)
        record.position, node = 0, OpenNode(b"")
        handle.give_back(record, node)
        return record == self.record and node == self.node and type(record.last) is StreamID


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: str(codec.__name__))
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(steps, rows), min_size=2, max_size=30), limits)
def test_frames_and_state_are_those_of_the_pipeline(
    codec: Codec, history: list[tuple[tuple[int, int], dict[Any, Any]]], most: tuple[int, int]
) -> None:
    id, first = StreamID(5, 1), history[0][1]
    twin = Twin(codec, id, first)
    ours, others = lane.Handle(), lane.Handle()
    small = twin.node.lp is not None and len(twin.node.lp) <= OPEN_INLINE_MAX_BYTES
    assert ours.learn(twin.record, twin.node) is small
    if not small:
        return
    others.learn(twin.record, twin.node)
    at = AT + 500
    for step, fields in history[1:]:
        id = StreamID(*next_id(id, step))
        said = ours.frame(fields, *id, at, COMMIT, DURABLE, SEED, *most)
        # Near the limit of what is kept whole the lane may give up a little early.
        expected = twin.add(id, fields, most, at)
        assert twin.node.lp is not None
        if said is None and expected is not None:
            assert len(twin.node.lp) + 64 > OPEN_INLINE_MAX_BYTES
        else:
            assert said == expected
        if said is None:
            return
        for handle in (ours, others):
            assert handle.apply(said, at, SEED)
            assert twin.is_as(handle)
        at += len(said)


def handle(fields: dict[Any, Any] | None = None) -> tuple[Any, Twin]:
    """A handle that learned a stream of one entry."""
    twin = Twin(codec_in_use(), StreamID(1, 0), fields or {"temp": "1", "hum": "2"})
    made = lane.Handle()
    assert made.learn(twin.record, twin.node)
    return made, twin


def framed(made: Any, fields: dict[Any, Any]) -> bytes | None:
    """The frame of an entry in a store of the usual limits."""
    found: bytes | None = made.frame(fields, 2, 0, AT, COMMIT, DURABLE, SEED, 4096, 100)
    return found


class Text(str):
    """Not exactly a str: reading it may run code."""


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temp": "\ud800", "hum": "2"},
        {"\udcff": "1"},
        {"temp": True},
        {"temp": None},
        {"temp": 1 << 63},
        {"temp": Text("1")},
        {Text("temp"): "1"},
        {"temp": bytearray(b"1")},
        {"temp": b"x" * 70_000},
        {"temp": "1", "hum": b"x" * 4096},
    ],
)
def test_the_lane_leaves_other_adds_to_the_pipeline(fields: dict[Any, Any]) -> None:
    made, twin = handle()
    assert framed(made, fields) is None
    assert twin.is_as(made)
    assert framed(made, {"temp": "1", "hum": "2"})


def test_more_than_a_dict_is_refused() -> None:
    made, _ = handle()
    with pytest.raises(TypeError):
        framed(made, [("temp", "1")])  # type: ignore[arg-type]


def test_names_are_compared_by_what_they_say() -> None:
    """The objects of the entry before are compared by address, and that is only the fast way."""
    made, _ = handle({"temp": "1", "7": "2"})
    same = framed(made, {"temp": "1", "7": "2"})
    for fields in ({b"temp": "1", 7: "2"}, {"te" + "mp": "1", b"7": 2}, {"temp": "1", "7": "2"}):
        assert framed(made, fields) == same
    assert framed(made, {"temp": "1", "007": "2"}) != same
    assert framed(made, {"7": "2", "temp": "1"}) != same


def test_names_that_are_stored_otherwise_are_the_same_names() -> None:
    """A node that a server wrote may keep the text "7" where the codec keeps a number."""
    made, twin = handle({"7": "1"})
    lp = twin.node.lp
    assert lp is not None
    stored_as_text = lp.replace(b"\x07\x01\x00\x01", b"\x81\x37\x02\x00\x01")
    assert len(stored_as_text) == len(lp) + 1
    twin.node.lp = len(stored_as_text).to_bytes(4, "little") + stored_as_text[4:]
    assert made.learn(twin.record, twin.node)
    said = framed(made, {"7": "5"})
    assert said == twin.add(StreamID(2, 0), {"7": "5"}, (4096, 100), AT)


@pytest.mark.parametrize("at", range(32 + 32 + 11))
def test_a_frame_with_a_wrong_bit_changes_nothing(at: int) -> None:
    made, twin = handle()
    said = framed(made, {"temp": "1", "hum": "2"})
    assert said is not None
    bad = bytearray(said)
    bad[at] ^= 1 << at % 8
    assert not made.apply(bytes(bad), AT, SEED)
    assert not made.apply(said, AT + 8, SEED)
    assert not made.apply(said[:at], AT, SEED)
    assert twin.is_as(made)
    assert made.apply(said, AT, SEED)


def test_a_frame_of_another_stream_changes_nothing() -> None:
    made, twin = handle()
    said = framed(made, {"temp": "1", "hum": "2"})
    twin.record.number += 1
    other = lane.Handle()
    other.learn(twin.record, twin.node)
    assert not other.apply(said, AT, SEED)


@pytest.mark.parametrize(
    ("change", "value"), [("expires_ms", 5), ("open_version", 0), ("length", 0)]
)
def test_streams_that_plain_adds_cannot_decide_have_no_handle(change: str, value: int) -> None:
    made, twin = handle()
    setattr(twin.record, change, value)
    assert not made.learn(twin.record, twin.node)
    assert not made.usable
    assert framed(made, {"temp": "1", "hum": "2"}) is None


@pytest.mark.parametrize("lp", [b"", b"\x00" * 7, b"\x07\x00\x00\x00\x00\x00\xff", None])
def test_a_damaged_node_is_left_to_the_pipeline_which_says_so(lp: bytes | None) -> None:
    made, twin = handle()
    assert not made.learn(twin.record, OpenNode(lp))
    assert not made.learn(twin.record, None)


def starve() -> None:
    """Encode until the C library refuses memory, which it does four times."""
    made, twin = handle()
    big = {f"name {n}": b"x" * 100 for n in range(500)}
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
    failed, kept = 0, []
    while failed < 4:
        try:
            other = lane.Handle()
            kept.append(other)
            other.learn(twin.record, twin.node)
            made.frame(big, 2, 0, AT, COMMIT, DURABLE, SEED, 1 << 30, 0)
        except MemoryError:
            failed += 1
            del kept[-10:]
            assert twin.is_as(made)
    kept.clear()
    assert framed(made, {"temp": "1", "hum": "2"}) == twin.add(
        StreamID(2, 0), {"temp": "1", "hum": "2"}, (4096, 100), AT
    )


def test_without_memory_nothing_changes() -> None:
    Forked(starve).join()


def test_layouts_are_those_of_the_format() -> None:
    told = lane.layout()
    for name in ("FRAME_HEAD_BYTES", "FRAME_FLAG_LAST", "FRAME_MARK"):
        assert told.pop(name) == getattr(fmt, name)
    for name in (
        "FRAME_HEAD_AFTER_CRC", "APPEND_BODY", "DELIVER_BODY", "ACK_BODY", "TOMBSTONE_BODY",
        "RECORD_BODY", "CREATE_BODY", "OPEN_BODY", "NODE_BODY", "CONSUMER_BODY", "CLAIM_BODY",
        "CLAIM_ITEM",
    ):  # fmt: skip
        assert told.pop(name) == getattr(fmt, name).size
    for kind in (
        Kind.CREATE, Kind.OPEN, Kind.NODE, Kind.APPEND, Kind.CONSUMER, Kind.DELIVER, Kind.ACK,
        Kind.CLAIM,
    ):  # fmt: skip
        assert told.pop(kind.name) == kind
    assert told == {}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("fields", [{"temp": "1", "hum": ""}, {"temp": -12, "other": ""}])
def test_a_node_is_full_at_the_same_byte(fields: dict[str, Any], known: bool) -> None:
    """By the lengths of names and values, as servers count them: not by those of the elements."""
    for size in range(40, 75):
        made, twin = handle()
        asked = dict(fields)
        if known:
            framed(made, asked)  # it knows the objects that are the names from here on
        asked[list(asked)[1]] = "x" * size
        said = made.frame(asked, 2, 0, AT, COMMIT, DURABLE, SEED, 100, 0)
        assert said == twin.add(StreamID(2, 0), asked, (100, 0), AT)
        assert (size == 74) <= (said is None) <= (size > 40)


def test_the_counter_of_entries_grows_in_place() -> None:
    made, twin = handle()
    for seq in range(1, 300):
        said = made.frame({"temp": seq}, 1, seq, AT + seq, COMMIT, DURABLE, SEED, 1 << 30, 0)
        assert said == twin.add(StreamID(1, seq), {"temp": seq}, (1 << 30, 0), AT + seq)
        assert made.apply(said, AT + seq, SEED)
        assert twin.is_as(made)


def other_tree(tmp_path: Path, module: str, old: str, new: str) -> Path:
    """The package beside its compiled modules, which were built before a number changed."""
    shutil.copytree(ROOT / "logstore", tmp_path / "logstore", ignore=shutil.ignore_patterns("*.c"))
    changed = tmp_path / "logstore" / module
    text = changed.read_text()
    assert text.count(old) == 1
    changed.write_text(text.replace(old, new))
    return tmp_path


@pytest.mark.parametrize(
    ("module", "old", "new", "told"),
    [
        ("engine/shm/commit_words.py", "_WAITING_OFFSET: Final = 192", "_WAITING_OFFSET = 200",
         "_WAITING_OFFSET"),
        ("format.py", "FRAME_MARK = 0xF5A9", "FRAME_MARK = 0xF5AA", "FRAME_MARK"),
        ("format.py", 'TOMBSTONE_BODY = struct.Struct("<QQQQ")',
         'TOMBSTONE_BODY = struct.Struct("<QQQQQ")', "TOMBSTONE_BODY"),
        ("mapped/__init__.py", "REVISION = 1 ", "REVISION = 2 ", "REVISION"),
        ("mapped/__init__.py", "HALF_BYTES = 8, 4", "HALF_BYTES = 8, 2", "HALF_BYTES"),
    ],
)  # fmt: skip
def test_compiled_modules_of_other_sources_are_refused(
    tmp_path: Path, module: str, old: str, new: str, told: str
) -> None:
    """It would write frames, and words that processes share, that are others than Python's."""
    tree = other_tree(tmp_path, module, old, new)
    code = "import logstore; logstore.open('s').close()"
    environment = {**os.environ, "PYTHONPATH": str(tree), "LOGSTORE_CODEC": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "UsageError" in done.stderr
    assert f"({told} is not the same): build it again" in done.stderr
    assert not (tree / "s").exists()
