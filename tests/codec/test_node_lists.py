"""Prevents nodes that a list or the bulk loop loses, doubles, takes unproven, or reads past."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import format as fmt
from logstore.codec import ARROW_COLUMNS, MAX_ID, ZERO_ID, Codec, node_list, pure
from logstore.crc import crc32c
from logstore.errors import UsageError
from logstore.row_seal import seal
from tests.codec.strategies import entries, next_id, steps
from tests.support.threads import run_all

SEED = 77
SEGMENT = 3
STREAM = 9
MANY = 1 << 40
SECTION = (b"s", STREAM, ZERO_ID, MAX_ID)
COLUMNS = ([], ["id"], ["fields"], ["id", "pairs", "fields"], list(ARROW_COLUMNS))


class Log:
    """Node frames side by side, and the list of what they hold."""

    def __init__(self, codec: Codec) -> None:
        self.start = fmt.position(SEGMENT, 64)
        self.data = bytearray()
        self.nodes: Any = codec.NodeList()

    def add(
        self, lp: bytes, master: tuple[int, int], last: tuple[int, int], live: int,
        vector: bytes = b"", kind: int = fmt.Kind.NODE, *, inline: bool = False,
    ) -> None:  # fmt: skip
        """One more node."""
        if inline:
            self.nodes.add(0, len(lp), live, master, last, vector, lp)
            return
        at = self.start + len(self.data)
        payload = fmt.NODE_BODY.pack(STREAM, *master, *last, live) + lp
        head = fmt.FRAME_HEAD_AFTER_CRC.pack(at, len(payload), 1, 0, 0, kind, 1, fmt.FRAME_MARK)
        crc = crc32c(payload, crc32c(head, SEED))
        self.data += crc.to_bytes(4, "little") + head[8:] + payload
        self.nodes.add(at, len(payload), live, master, last, vector)


def node_of(
    codec: Codec, drawn: list[Any], first: tuple[int, int]
) -> tuple[bytes, tuple[int, int], tuple[int, int]]:
    """A node of drawn entries from an ID on: its listpack, master ID and last ID."""
    id = first
    lp = codec.new_node(*first, drawn[0][1])
    for step, flat in drawn[1:]:
        id = next_id(id, step)
        lp, _ = codec.append(lp, *first, *id, flat)
    return lp, first, id


def log_of(codec: Codec, nodes: int = 6) -> Log:
    """A log of plain nodes of three entries each, from ID 1-0 on; the last one stands inline."""
    log = Log(codec)
    for ms in range(1, nodes + 1):
        flat = [b"a", b"%d" % ms, b"b", b"text"]
        lp, master, last = node_of(pure, [((0, 0), flat)] * 3, (ms, 0))
        log.add(lp, master, last, 3, inline=ms == nodes)
    return log


def added(builder: Any, log: Log, data: bytes | None = None, at: int = 0, **limits: int) -> int:
    """Add all nodes of a log; where it ends."""
    rows, size = limits.get("rows_max", MANY), limits.get("bytes_max", MANY)
    items = log.nodes.items()
    found: int = builder.add_located(
        SECTION, items, at, bytes(log.data) if data is None else data, log.start, SEED, rows, size
    )
    return found


@settings(max_examples=60)
@given(
    drawn=st.lists(
        st.tuples(
            st.lists(st.tuples(steps, entries), min_size=1, max_size=6), st.binary(max_size=1)
        ),
        min_size=1,
        max_size=4,
    ),
    columns=st.sampled_from(COLUMNS),
    low=st.integers(0, 5),
    high=st.integers(0, 5),
)
def test_both_codecs_add_the_same(
    native: Codec, drawn: list[Any], columns: list[str], low: int, high: int
) -> None:
    batches, ends = [], []
    for codec in (pure, native):
        log = Log(codec)
        for ms, (rows, vector) in enumerate(drawn, 1):
            lp, master, last = node_of(pure, rows, (ms * 2**62 // 8, 0))
            live = len(pure.ids(lp, *master, vector))
            log.add(lp, master, last, live, vector, inline=ms == 3)
        builder = codec.ArrowBuilder(columns, ("a", "7"))
        section = (b"s\xff", STREAM, (low * 2**62 // 8, 0), (high * 2**62 // 8, 5))
        items = log.nodes.items()
        ends.append(
            builder.add_located(section, items, 0, bytes(log.data), log.start, SEED, MANY, MANY)
        )
        assert ends[-1] == len(items)
        batches.append(builder.finish())
        batches[-1].validate(full=True)
    assert batches[0].equals(batches[1])


def test_a_count_reads_nothing(codec: Codec) -> None:
    log = log_of(codec)
    builder = codec.ArrowBuilder([])
    assert added(builder, log, data=b"") == log.nodes.nbytes
    assert builder.rows == 18
    assert builder.finish().num_rows == 18
    section = (b"s", STREAM, (1, 1), (6, 1))  # of the nodes at the ends only a part
    items = log.nodes.items()
    assert builder.add_located(section, items, 0, b"", log.start, SEED, MANY, MANY) == 0
    data = bytes(log.data)
    end = builder.add_located(section, items, 0, data, log.start, SEED, MANY, MANY)
    assert (end, builder.rows) == (len(items), 16)


def test_a_list_of_nodes_stops_where_the_batch_is_full_or_the_bytes_end(codec: Codec) -> None:
    log = log_of(codec)
    item = fmt.SNAPSHOT_ITEM.size
    builder = codec.ArrowBuilder(["id"])
    assert added(builder, log, rows_max=7) == 2 * item
    assert builder.rows == 6
    assert added(builder, log, at=2 * item, rows_max=8) == 2 * item, "it was full already"
    builder.finish()
    assert added(builder, log, rows_max=1) == item, "an empty builder takes any node"
    builder.finish()
    assert added(builder, log, bytes_max=1) == item
    builder.finish()
    assert added(builder, log, data=bytes(log.data[:-1])) == 4 * item
    assert added(builder, log, data=b"", at=5 * item) == log.nodes.nbytes, "the last stands inline"
    with pytest.raises(ValueError, match="inside"):
        added(builder, log, at=log.nodes.nbytes + 1)


def test_only_the_frame_that_is_meant_is_taken(codec: Codec) -> None:
    log = log_of(codec, 2)
    items, data = log.nodes.items(), bytes(log.data)
    builder = codec.ArrowBuilder(["id", "fields"])

    def end(
        data: bytes = data, start: int = log.start, stream: int = STREAM, seed: int = SEED
    ) -> int:
        section = (b"s", stream, ZERO_ID, MAX_ID)
        found: int = builder.add_located(section, items, 0, data, start, seed, MANY, MANY)
        return found

    for wrong in ({"stream": STREAM + 1}, {"seed": SEED + 1}, {"start": log.start - 1}):
        assert end(**wrong) == 0
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        assert end(data=bytes(changed)) == 0
    assert (builder.rows, builder.nbytes) == (0, 0)
    assert end() == len(items)


def test_a_frame_of_another_kind_is_not_taken(codec: Codec) -> None:
    for kind in (fmt.Kind.NODE, fmt.Kind.OPEN, fmt.Kind.APPEND):
        log = Log(codec)
        lp, master, last = node_of(pure, [((0, 0), [b"a", b"1"])], (1, 1))
        log.add(lp, master, last, 1, kind=kind)
        taken = added(codec.ArrowBuilder(["id"]), log) > 0
        assert taken == (kind != fmt.Kind.APPEND)


def test_hostile_nodes_add_nothing_and_are_left(codec: Codec) -> None:
    """Their frames are sound, so the bytes of the nodes are all that there is to refuse."""
    draw = random.Random(5)
    lp, master, last = node_of(
        pure, [((0, 0), [b"a", b"1", b"b", b"x" * 70])] * 3 + [((0, 0), [b"c", b"2"])], (1, 1)
    )
    for columns in (["id"], ["fields"], list(ARROW_COLUMNS)):
        builder = codec.ArrowBuilder(columns, ["a", "b"])
        for _ in range(300):
            changed = bytearray(lp)
            for _ in range(draw.randint(1, 3)):
                changed[draw.randrange(len(lp))] = draw.choice([0, 1, 0x7F, 0x80, 0xF4, 0xFF])
            log = Log(codec)
            log.add(bytes(changed[: draw.randint(1, len(lp))]), master, last, 4)
            log.add(lp, master, last, 4)
            before = builder.rows
            end = added(builder, log)
            if end == 0:
                assert builder.rows == before
        batch = builder.finish()
        batch.validate(full=True)


def test_a_list_of_items_that_is_cut_off_is_left(codec: Codec) -> None:
    log = log_of(codec, 3)
    items = log.nodes.items()
    builder = codec.ArrowBuilder(["id"])
    for size in range(len(items)):
        end = builder.add_located(
            SECTION, items[:size], 0, bytes(log.data), log.start, SEED, MANY, MANY
        )
        assert end <= size
        assert builder.finish().num_rows == 3 * (end // fmt.SNAPSHOT_ITEM.size)


def test_as_much_is_read_at_once_as_the_nodes_need(codec: Codec) -> None:
    """Prevents reads of more than is asked for, and one read for each node."""
    nodes = codec.NodeList()
    for at, size in (
        (1000, 68),
        (1100, 68),
        (1250, 68),
        (1380, 68),
        (0, 3),
        (900, 68),
        (2 << 32, 9),
    ):
        nodes.add(at, size, 1, (at, 0), (at, 9), b"", b"" if at else b"abc")
    items = nodes.items()
    one = fmt.SNAPSHOT_ITEM.size
    assert codec.stretch_bytes(items, 0, 0, 1 << 20) == 200  # the third is away from the second
    assert codec.stretch_bytes(items, 0, 50, 1 << 20) == 480  # the one behind lies before it
    assert codec.stretch_bytes(items, 0, 50, 350) == 350
    assert codec.stretch_bytes(items, 0, 50, 349) == 200
    assert codec.stretch_bytes(items, 0, 50, 10) == 100
    assert codec.stretch_bytes(items, 3 * one, 0, 1 << 20) == 100
    assert codec.stretch_bytes(items, 5 * one + 3, 1 << 40, 200) == 100
    assert codec.stretch_bytes(items, len(items), 0, 1 << 20) == 0
    assert codec.stretch_bytes(items[4 * one : 5 * one + 3], 0, 0, 1 << 20) == 0
    assert codec.stretch_bytes(items[:-1], 6 * one + 3, 0, 1 << 20) == 0  # cut off


def test_a_second_thread_is_refused_or_waits_its_turn(native: Codec) -> None:
    """Without the interpreter's lock two threads would write to the same buffers."""
    log = Log(native)
    lp, master, last = node_of(pure, [((0, 0), [b"a", b"1"])] * 100, (1, 0))
    for _ in range(2000):
        log.add(lp, master, last, 100)
    builder = native.ArrowBuilder()
    done: list[int] = []

    def work() -> None:
        try:
            added(builder, log)
            done.append(200_000)
        except UsageError:
            done.append(0)

    threads = [threading.Thread(target=work) for _ in range(3)]
    run_all(threads)
    assert len(done) == 3
    batch = builder.finish()
    batch.validate(full=True)
    assert batch.num_rows == sum(done) > 0


# -- lists ------------------------------------------------------------------------------------
def row(
    ms: int, last: int, entries: int, vector: bytes = b"", stream: int = STREAM
) -> tuple[bytes, bytes]:
    """Key and value of a node's row in the index."""
    key = fmt.NODE_KEY.pack(stream, ms, 0)
    value = fmt.LOCATOR.pack(fmt.position(ms % 3 + 1, 64), 100 + ms, entries, last, 7) + vector
    return key, seal(key, value)


def test_rows_become_items(codec: Codec) -> None:
    nodes = codec.NodeList()
    rows = [row(1, 5, 10), row(6, 9, 3, b"\x07"), row(10, 20, 4, b"\x05"), row(21, 30, 1)]
    assert nodes.add_rows(rows, 0, STREAM, (5, 7), (20, 0), 100) == 3
    found = [node_list.read_item(nodes.items(), at) for at in (0, fmt.SNAPSHOT_ITEM.size)]
    assert [each[0] for each in found if each] == [
        node_list.Item(fmt.position(2, 64), 101, 10, (1, 0), (5, 7), b"", b""),
        node_list.Item(fmt.position(2, 64), 110, 2, (10, 0), (20, 7), b"\x05", b""),
    ], "the second has no live entry, the last begins behind the end"
    assert (len(nodes), nodes.live, nodes.size_bytes) == (2, 12, 211)
    assert nodes.last() == (20, 7)
    assert nodes.segments() == {2}
    mark = nodes.mark()
    assert nodes.add_rows(rows, 3, STREAM, ZERO_ID, MAX_ID, 100) == 4
    assert (len(nodes), nodes.last(), nodes.segments()) == (3, (30, 7), {1, 2})
    nodes.cut(mark)
    assert (len(nodes), nodes.live, nodes.size_bytes, nodes.last()) == (2, 12, 211, (20, 7))
    assert nodes.add_rows(rows, 0, STREAM, (6, 0), MAX_ID, 1) == 3, "it takes one, and stops"


def test_items_become_items_again(codec: Codec) -> None:
    """Of a range, from a list that was made before; a list that is cut off is told."""
    nodes = codec.NodeList()
    for ms in (1, 11, 21, 31):
        nodes.add(0, 3, 2, (ms, 0), (ms + 8, 5), b"\x01", b"lp!")
    items = nodes.items()
    for start, end, count in (
        (ZERO_ID, MAX_ID, 4), ((9, 5), (21, 0), 3), ((9, 6), (20, 9), 1), ((40, 0), MAX_ID, 0),
    ):  # fmt: skip
        found = codec.NodeList()
        assert found.add_items(items, start, end) == len(items)
        assert (len(found), found.live, found.size_bytes) == (count, 2 * count, 3 * count)
        assert found.items() in items
    for cut in range(len(items)):
        found = codec.NodeList()
        assert found.add_items(items[:cut], ZERO_ID, MAX_ID) == found.nbytes <= cut


def test_rows_that_are_not_right_are_left(codec: Codec) -> None:
    key, data = row(1, 5, 10, b"\x01")
    nodes = codec.NodeList()
    for at in range(len(key) + len(data)):
        both = bytearray(key + data)
        both[at] ^= 1 << at % 8
        changed = [(bytes(both[: len(key)]), bytes(both[len(key) :]))]
        assert nodes.add_rows(changed, 0, STREAM, ZERO_ID, MAX_ID, 9) == 0
    for cut in range(len(data)):
        assert nodes.add_rows([(key, data[:cut])], 0, STREAM, ZERO_ID, MAX_ID, 9) == 0
    assert nodes.add_rows([(key[:-1], data)], 0, STREAM, ZERO_ID, MAX_ID, 9) == 0
    assert nodes.add_rows([(key, data)], 0, STREAM + 1, ZERO_ID, MAX_ID, 9) == 0
    assert not len(nodes)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 500), max_size=40),
    vectors=st.lists(st.binary(max_size=5), min_size=40, max_size=40),
    ends=st.lists(st.integers(0, 45), max_size=6).map(sorted),
    sums=st.lists(st.integers(0, 9000), max_size=6).map(sorted),
    most=st.integers(1, 500),
)
def test_both_codecs_cut_lists_alike(
    native: Codec,
    sizes: list[int],
    vectors: list[bytes],
    ends: list[int],
    sums: list[int],
    most: int,
) -> None:
    found = []
    for codec in (pure, native):
        nodes = codec.NodeList()
        for number, (size, vector) in enumerate(zip(sizes, vectors, strict=False)):
            inline = bytes(size) if number % 7 == 3 else b""
            at = 0 if inline else fmt.position(number // 5 + 1, 64)
            nodes.add(at, size, number, (number, 1), (number, 2), vector, inline)
        pieces = nodes.pieces(ends, most)
        assert sum(piece.nodes for piece in pieces) == len(nodes)
        assert sum(piece.live for piece in pieces) == nodes.live
        found.append((nodes.items(), nodes.places(sums), pieces, nodes.segments(), nodes.mark()))
    assert found[0] == found[1]
