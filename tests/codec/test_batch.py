"""Prevents nodes of an RDB file that one codec takes and the other refuses, or that are damaged."""

from __future__ import annotations

import importlib
import random

import pytest
from crc32c import crc32c

from logstore.codec import Codec
from logstore.codec import pure as pure_codec
from logstore.format import NODE_BODY, Kind
from logstore.ids import StreamID
from logstore.index import keys
from logstore.log.frame import Create, Record
from logstore.log.segment_writer import CommitBuffer
from logstore.rdb.rdb_writer import string
from logstore.row_seal import seal
from tests.codec.batches import COVERED, batch_facts, stored
from tests.support.inside import add_frame


@pytest.mark.parametrize("seed", range(8))
def test_facts_of_a_batch_of_sound_nodes(codec: Codec, seed: int) -> None:
    data, ends = stored(seed)
    count, end, live, nbytes, first, top, last, master, payloads, places, *_ = batch_facts(
        codec, data
    )
    position = 100
    assert (count, end) == (len(ends), len(data))
    found = 0
    ids: list[tuple[int, int]] = []
    for payload, (at, node, size, entries, its_last) in zip(payloads, places, strict=True):
        stream, ms, seq, last_ms, last_seq, here = NODE_BODY.unpack_from(payload)
        lp = payload[NODE_BODY.size :]
        assert (stream, (ms, seq), (last_ms, last_seq), here) == (7, node, its_last, entries)
        assert (at, size) == (position, len(payload))
        position += 32 + size
        assert its_last == codec.last_id(lp, ms, seq)
        assert entries == codec.counts(lp)[0]
        ids += [(each[1], each[2]) for each in codec.ids(lp, ms, seq)]
        found += len(lp)
    assert (live, nbytes) == (len(ids), found)
    assert (first, top) == (ids[0], ids[-1])
    assert master == places[-1][1]
    assert last == max(each[4] for each in places)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_ends_where_the_bytes_do(codec: Codec, native: Codec, seed: int) -> None:
    data, ends = stored(seed, 4)
    for size in range(0, len(data), 1 if codec is native else 37):
        batch = codec.NodeBatch(data[:size], 0, 99, None, (0, 0))
        assert batch.end == max([0, *(end for end in ends if end <= size)])
    for most in range(5):
        assert codec.NodeBatch(data, 0, most, None, (0, 0)).end == ([0, *ends])[most]


@pytest.mark.parametrize("seed", range(40))
def test_both_take_the_same_of_what_is_damaged(native: Codec, seed: int) -> None:
    data, _ = stored(seed, 5)
    rng = random.Random(seed)
    for _ in range(60):
        forged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(forged))
            forged[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        assert batch_facts(native, bytes(forged)) == batch_facts(pure_codec, bytes(forged))


def test_a_batch_must_ascend_from_the_ids_before_it(codec: Codec) -> None:
    data, _ = stored(1)
    _, _, _, _, first, _, _, _, _, places, *_ = batch_facts(codec, data)
    master = places[0][1]
    assert batch_facts(codec, data, master=master)[0] == 0
    assert batch_facts(codec, data, top=first)[0] == 0
    assert batch_facts(codec, data, master=(master[0] - 1, 9), top=(first[0] - 1, 9))[0] == 12
    for wrong in (-1, len(data) + 1):
        with pytest.raises(ValueError, match="inside"):
            codec.NodeBatch(data, wrong, 1, None, (0, 0))


@pytest.mark.parametrize("seed", range(3))
def test_the_frames_are_those_of_a_commit(codec: Codec, seed: int) -> None:
    batch = codec.NodeBatch(stored(seed)[0], 0, 99, None, (0, 0))
    one_by_one, together = (CommitBuffer(3 << 32 | 4096, 12) for _ in range(2))
    for buffer in (one_by_one, together):
        add_frame(buffer, Create(7, b"s"))
    places = batch.places(together.add_nodes(batch, 7), 32)
    assert [each[0] for each in places] == one_by_one.add_payloads(Kind.NODE, batch.payloads(7))
    for buffer in (one_by_one, together):
        add_frame(buffer, Record(7, *range(8)))
    for at, *_ in places:
        assert together.frame_at(at) == one_by_one.frame_at(at)
        assert together.frame_at(at + 1) is None
    assert together.encode(99, 5 << 32) == one_by_one.encode(99, 5 << 32)
    assert (together.end, together.last_start, together.last_crc) == (
        one_by_one.end, one_by_one.last_start, one_by_one.last_crc
    )  # fmt: skip


def test_the_rows_are_those_of_the_index(codec: Codec) -> None:
    batch = codec.NodeBatch(stored(4)[0], 0, 99, None, (0, 0))
    rows, last = batch.rows(7, 100, 32)
    wanted: list[tuple[bytes, bytes]] = []
    for at, master, size, live, end in batch.places(100, 32):
        key = keys.NODE_KEY.pack(7, *master)
        wanted.append((key, seal(key, keys.Locator(at, size, live, StreamID(*end)).pack())))
    assert rows == wanted
    assert last == batch.places(100, 32)[-1]


@pytest.mark.parametrize("size", [*range(20), 1000, 4099])
def test_the_checksum_is_that_of_the_log(native: Codec, size: int) -> None:
    data = random.Random(size).randbytes(size)
    compiled = importlib.import_module("logstore.codec.native")
    for before in (0, 1, 0xFFFFFFFF):
        for soft in (True, False):
            assert compiled.crc32c(data, before, soft) == crc32c(data, before)


def test_nodes_that_were_just_packed(codec: Codec) -> None:
    rows = codec.rows([{"f": "x" * (at % 90), "g": at} for at in range(700)])
    nodes = codec.pack(rows, 0, 700, (5, 3), None, 0, 0, 4096, 100).nodes
    assert len(nodes) > 5
    data = b"".join(
        string(node.master_ms.to_bytes(8, "big") + node.master_seq.to_bytes(8, "big"))
        + string(node.lp)
        for node in nodes
    )
    batch, looked = codec.NodeBatch.of(nodes), codec.NodeBatch(data, 0, 99, None, (0, 0))
    assert len(batch) == len(looked) == len(nodes)
    for name in ("live", "nbytes", "first", "top", "last", "master"):
        assert getattr(batch, name) == getattr(looked, name)
    assert batch.payloads(7) == looked.payloads(7)
    assert batch.places(100, 32) == looked.places(100, 32)
    assert batch.rows(7, 100, 32) == looked.rows(7, 100, 32)
    assert batch.frames(7, COVERED, 99) == looked.frames(7, COVERED, 99)
    at = 0
    for payload in batch.payloads(7):
        assert batch.payload_at(7, at, 32) == payload
        assert batch.payload_at(7, at + 1, 32) is None
        at += 32 + len(payload)
    assert batch.payload_at(7, at, 32) is None
    assert len(codec.NodeBatch.of([])) == 0


def test_a_batch_of_malformed_nodes_is_refused(native: Codec) -> None:
    for bad in ([None], [(1, 2, 3)], [(1, 2, 3, 4, 5, None)], [(1, 2, 3, 4, 5, "text")],
                [(-1, 2, 3, 4, 5, b"")], [(2**64, 2, 3, 4, 5, b"")]):  # fmt: skip
        with pytest.raises((TypeError, ValueError, OverflowError)):
            native.NodeBatch.of(bad)
