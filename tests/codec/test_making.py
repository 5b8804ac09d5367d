"""Prevents entries and deliveries that are made in one call from being others than one by one."""

from __future__ import annotations

import gc
import pickle
import struct
import sys
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from logstore.api.entry import Entry, Fields, make_entry
from logstore.api.group import DeletedDelivery, Delivery
from logstore.codec import Codec, pure
from logstore.engine.groups.deliver import Delivered
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID

MASTER = (1526919030474, 55)
FLATS = [
    [b"rider", b"Castilla", b"speed", b"30"],
    [b"rider", b"Norem", b"speed", b"-7"],
    [b"other", b"", b"raw", bytes([0xFF, 0x00, 0xC3, 0x28])],
    [b"rider", "Ju\u0308rgen \U0001f6b2".encode(), b"rider", b"twice"],
]


def node_of(flats: list[list[bytes]]) -> bytes:
    """A node with an entry each a millisecond."""
    made = pure.new_node(*MASTER, flats[0])
    for at, flat in enumerate(flats[1:], start=1):
        made = pure.append(made, *MASTER, MASTER[0] + at, at, flat)[0]
    return made


@pytest.fixture(scope="module")
def lp() -> bytes:
    return node_of(FLATS)


def _types_and_values(entries: list[Any]) -> list[Any]:
    return [
        (type(e), type(e.id), e.id, type(e._flat), e._flat, e._encoding, e.pairs, dict(e.fields))
        for e in entries
    ]


@pytest.mark.parametrize("encoding", [None, "utf-8", "UTF8", "latin-1", "cp1252", "ascii"])
@pytest.mark.parametrize("vector", [b"", b"\x05", b"\x0f"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [-1, 0, 2])
def test_entries_are_as_made_one_by_one(
    codec: Codec, lp: bytes, encoding: str | None, vector: bytes, reverse: bool, limit: int
) -> None:
    ends = (MASTER[0] + 1, 0), (MASTER[0] + 3, 3)
    for start, end in (((0, 0), (2**64 - 1, 2**64 - 1)), ends):
        rest = (lp, *MASTER, vector, start, end, limit, reverse)
        made = codec.EntryMaker(Entry, StreamID, encoding).entries(*rest)
        expected: list[Any] = [make_entry(row, encoding) for row in pure.entries(*rest)]
        for entry in expected:
            entry._flat = tuple(entry._flat)
        assert _types_and_values(made) == _types_and_values(expected)
        assert made == expected
        assert [hash(entry) for entry in made] == [hash(entry) for entry in expected]
        assert _types_and_values(pickle.loads(pickle.dumps(made))) == _types_and_values(expected)


@pytest.mark.parametrize("flat", [["a", "1", "b", "2", "a", "3"], ("a", "1"), [], [b"a", b"1"]])
def test_fields_are_as_made_one_by_one(codec: Codec, flat: Any) -> None:
    encoding = None if flat and isinstance(flat[0], bytes) else "utf-8"
    made, expected = codec.FieldsMaker(Fields).make(flat, encoding), Fields(flat, encoding)
    assert type(made) is Fields
    assert list(made.items()) == list(expected.items())
    assert made._encoding == encoding


def test_the_fields_of_an_entry(codec: Codec) -> None:
    maker = codec.FieldsMaker(Fields, entry_class=Entry, other=lambda *given: given)
    found = maker.of(Entry(StreamID(1, 1), ("a", "1", "a", "2"), "utf-8"))
    assert (type(found), dict(found), found._encoding) == (Fields, {"a": "2"}, "utf-8")
    assert dict(maker.of(Entry(StreamID(1, 1), [b"a", b"1"], None))) == {b"a": b"1"}
    reading: Any = object()
    assert maker.of(Entry(StreamID(1, 1), ["a", "1"], reading)) == (["a", "1"], reading)
    with pytest.raises(AttributeError):
        maker.of(object.__new__(Entry))
    for other in (maker, codec.FieldsMaker(Fields)):
        with pytest.raises(TypeError, match="no entry"):
            other.of(StreamID(1, 1))
    with pytest.raises(AttributeError, match="_flat"):
        codec.FieldsMaker(Fields, entry_class=Fields)


def test_an_entry_of_many_fields(codec: Codec) -> None:
    for width in (63, 64, 65, 200):
        flat = [b"%d" % at for at in range(2 * width)]
        lp = pure.new_node(*MASTER, flat)
        lp = pure.append(lp, *MASTER, MASTER[0] + 1, 0, [*flat, b"one", b"more"])[0]
        made = codec.EntryMaker(Entry, StreamID, None).entries(lp, *MASTER)
        assert [each._flat for each in made] == [tuple(flat), (*flat, b"one", b"more")]


def test_a_field_without_a_value_is_refused(codec: Codec) -> None:
    with pytest.raises(ValueError, match="no value"):
        codec.FieldsMaker(Fields).make(["a", "1", "b"], None)


def test_classes_without_the_slots_are_refused(codec: Codec) -> None:
    class Plain:
        id = _flat = _encoding = _items = None

    with pytest.raises(TypeError, match="no slot"):
        codec.EntryMaker(Plain, StreamID, None)
    with pytest.raises(TypeError, match="no slot"):
        codec.FieldsMaker(Plain)

    class OfAnother:  # stands in the object where this class has nothing
        _encoding, _items = Entry._encoding, Entry._flat

    with pytest.raises(TypeError, match="no slot"):
        codec.FieldsMaker(OfAnother)
    with pytest.raises(TypeError, match="tuple"):
        codec.EntryMaker(Entry, str, None)


def frees_what_it_makes(work: Callable[[], None], objects: tuple[Any, ...]) -> None:
    """Some calls leave neither memory nor references to these behind."""
    work()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(200):
        work()
    assert sys.getallocatedblocks() - before < 100
    counts = [sys.getrefcount(each) for each in objects]
    work()
    assert [sys.getrefcount(each) for each in objects] == counts


def test_made_entries_are_freed(native: Codec, lp: bytes) -> None:
    maker, fields = native.EntryMaker(Entry, StreamID, None), native.FieldsMaker(Fields)

    def work() -> None:
        for entry in maker.entries(lp, *MASTER):
            fields.make(entry._flat, None)

    frees_what_it_makes(work, (Entry, StreamID, Fields))


def test_the_collector_walks_no_entry_without_a_codec(native: Codec, lp: bytes) -> None:
    rest = (lp, *MASTER)
    for encoding in None, "utf-8":
        for entry in native.EntryMaker(Entry, StreamID, encoding).entries(*rest):
            held = (entry, entry.id, entry._flat, entry.fields, entry.fields._items)
            assert [gc.is_tracked(each) for each in held] == [False] * 5
    # What reads the values is anything, and may come back to the entry.
    (entry, *_) = native.EntryMaker(Entry, StreamID, None, [native]).entries(*rest)
    assert gc.is_tracked(entry)


@pytest.mark.parametrize("encoding", [None, "utf-8"])
@pytest.mark.parametrize("vector", [b"", b"\x05", b"\x0f"])
def test_a_finder_finds_what_a_walk_does(
    codec: Codec, lp: bytes, encoding: str | None, vector: bytes
) -> None:
    again = pure.append(lp, *MASTER, MASTER[0] + 1, 1, FLATS[2])[0]  # not above: only once found
    maker = codec.EntryMaker(Entry, StreamID, encoding)
    for node in (lp, again):
        finder = codec.NodeFinder(node, *MASTER, vector)
        for ms in range(MASTER[0] - 1, MASTER[0] + 6):
            for seq in (0, 1, 2, 3, MASTER[1]):
                walked = maker.entries(node, *MASTER, vector, (ms, seq), (ms, seq), 1)
                found = finder.find(ms, seq, maker)
                assert _types_and_values([] if found is None else [found]) == _types_and_values(
                    walked
                )


DELIVERED = FLATS[:3]
NO_TIME = timedelta(0)


@pytest.fixture(scope="module")
def delivered_lp() -> bytes:
    return node_of(DELIVERED)


def _group(encoding: str | None, values: Any = None) -> Any:
    return SimpleNamespace(
        _opened=SimpleNamespace(encoding=encoding), _handle=SimpleNamespace(_values=values)
    )


def _told_of(made: Any) -> list[Any]:
    names = ("id", "_flat", "_encoding", "group", "deleted", "delivery_count", "idle")
    names += ("_consumer", "_delivered_ms", "_settled")
    return [type(made), type(made.id), *(getattr(made, name) for name in names)]


@pytest.mark.parametrize("vector", [b"", b"\x05", b"\x07"])
@pytest.mark.parametrize("limit", [-1, 0, 1, 2])
@pytest.mark.parametrize("start", [ZERO_ID, (MASTER[0] + 1, 1), (MASTER[0] + 1, 2), MAX_ID])
def test_rows_are_those_of_a_walk(
    codec: Codec, delivered_lp: bytes, vector: bytes, limit: int, start: Any
) -> None:
    walked = pure.entries(delivered_lp, *MASTER, vector, start, MAX_ID, limit)
    rows = codec.first_deliveries(
        delivered_lp, *MASTER, vector, start, limit, Delivered, StreamID, 99
    )
    assert rows == [Delivered(StreamID(ms, seq), flat, 0, 1, 99) for _, ms, seq, flat in walked]
    assert {type(row) for row in rows} <= {Delivered}
    assert {type(row.id) for row in rows} <= {StreamID}


@pytest.mark.parametrize("encoding", [None, "utf-8", "cp1252"])
@pytest.mark.parametrize("values", [None, "a codec"])
def test_deliveries_are_as_made_one_by_one(
    codec: Codec, delivered_lp: bytes, encoding: str | None, values: Any
) -> None:
    rows = codec.first_deliveries(delivered_lp, *MASTER, b"", ZERO_ID, -1, Delivered, StreamID, 99)
    rows.insert(1, Delivered(StreamID(7, 7), [b"a", b"b"], 1500, 3, 99))
    rows.insert(3, Delivered(StreamID(8, 8), None, 0, 1, 98))
    if encoding == "cp1252":
        encoding = "latin-1"  # every byte is text of it
    group = _group(encoding, values)
    reading = encoding if values is None else values

    def other(group: Any, consumer: bytes, row: Any) -> Any:
        return (DeletedDelivery if row.items is None else Delivery)(group, consumer, row)

    made = codec.DeliveryMaker(Delivery, encoding).made(rows, group, b"c", reading, NO_TIME, other)
    expected: list[Any] = [other(group, b"c", row) for row in rows]
    assert [_told_of(each) for each in made] == [_told_of(each) for each in expected]
    made[0]._settled = True
    assert not made[2]._settled


def test_a_class_without_the_slots_is_refused(codec: Codec) -> None:
    class Plain:
        id = _flat = _encoding = None

    with pytest.raises(TypeError, match="no slot"):
        codec.DeliveryMaker(Plain, None)


PACKED: list[tuple[list[tuple[int, int]], bool]] = [
    ([], True),
    ([(5, 1)], True),
    ([(5, 1), (5, 2), (6, 0)], True),
    ([(5, 1), (5, 1)], False),
    ([(6, 0), (5, 9)], False),
    ([(5, 1), (4, 9), (7, 0)], False),
    ([(0, 0), (U64_MAX, U64_MAX)], True),
]


@pytest.mark.parametrize(("ids", "ascending"), PACKED)
def test_ids_are_packed(codec: Codec, ids: list[tuple[int, int]], ascending: bool) -> None:
    expected = b"".join([struct.pack(">QQ", *id) for id in ids])
    for given in (ids, tuple(ids), [StreamID(*id) for id in ids]):
        assert codec.pack_ids(given) == (expected, ascending)


@pytest.mark.parametrize("id", [(1,), (1, 2, 3), (-1, 0), (0, U64_MAX + 1)])
def test_packing_an_invalid_id_is_refused(codec: Codec, id: Any) -> None:
    with pytest.raises(ValueError, match="two numbers"):
        codec.pack_ids([(0, 0), id])


class _Other(StreamID):
    pass


def test_stream_id_of_an_id_is_that_id(codec: Codec) -> None:
    good = StreamID(0, U64_MAX)
    bad: list[Any] = [
        "5-1", (5, 1), 5, None, _Other(5, 1), StreamID(-1, 0), StreamID(0, U64_MAX + 1),
        tuple.__new__(StreamID, (1,)), StreamID(True, 1), StreamID("1", 1),  # type: ignore[arg-type]  # on purpose
    ]  # fmt: skip
    assert codec.are_ids([], StreamID)
    assert codec.are_ids((good, ZERO_ID), StreamID)
    for each in bad:
        assert not codec.are_ids([good, each], StreamID)


def test_deliveries_are_freed(native: Codec, delivered_lp: bytes) -> None:
    maker, text = native.DeliveryMaker(Delivery, None), native.DeliveryMaker(Delivery, "latin-1")
    group = _group(None)

    def work() -> None:
        rows = native.first_deliveries(
            delivered_lp, *MASTER, b"", ZERO_ID, -1, Delivered, StreamID, 2**40
        )
        for each in (maker, text):
            each.made(rows, group, b"c", None, NO_TIME, Delivery)
        ids = [row.id for row in rows]
        native.pack_ids(ids)
        native.are_ids(ids, StreamID)

    frees_what_it_makes(work, (Delivery, Delivered, StreamID, group, NO_TIME))


@pytest.mark.parametrize("encoding", [None, "utf-8", "latin-1"])
@pytest.mark.parametrize("vector", [b"", b"\x05", b"\x07"])
@pytest.mark.parametrize("limit", [-1, 0, 1, 2])
@pytest.mark.parametrize("start", [ZERO_ID, (MASTER[0] + 1, 1), MAX_ID])
def test_new_ones_are_made_without_rows(
    codec: Codec, delivered_lp: bytes, encoding: str | None, vector: bytes, limit: int, start: Any
) -> None:
    group = _group(encoding)
    maker = codec.DeliveryMaker(Delivery, encoding)
    context = (group, encoding, NO_TIME)
    made, ids = maker.first(
        delivered_lp, *MASTER, vector, start, limit, StreamID, 99, b"c", context
    )
    rows = codec.first_deliveries(
        delivered_lp, *MASTER, vector, start, limit, Delivered, StreamID, 99
    )
    expected = [Delivery(group, b"c", row) for row in rows]
    for each in expected:
        each._flat = tuple(each._flat)
    assert [_told_of(each) for each in made] == [_told_of(each) for each in expected]
    assert ids == codec.pack_ids([row.id for row in rows])[0]


def test_the_ids_of_many(codec: Codec) -> None:
    lp = pure.new_node(*MASTER, DELIVERED[0])
    for at in range(1, 100):
        lp = pure.append(lp, *MASTER, MASTER[0], MASTER[1] + at, DELIVERED[0])[0]
    maker = codec.DeliveryMaker(Delivery, None)
    for limit in (-1, 15, 16, 17, 32, 33):
        made, ids = maker.first(
            lp, *MASTER, b"", ZERO_ID, limit, StreamID, 1, b"c", (None, None, None)
        )
        assert ids == codec.pack_ids([each.id for each in made])[0]
        assert len(made) == (100 if limit < 0 else limit)
