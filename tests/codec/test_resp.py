"""Prevents the compiled reader of requests from taking other words, or rows, than the pure one."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.codec import Codec, native_or_none, pure
from tests.wire.lines import request

BULK_MAX_BYTES = 1000
CODECS = [each for each in (pure, native_or_none) if each is not None]
NUMBERS = st.sampled_from(
    [b"0", b"1", b"2", b"3", b"01", b"-1", b"", b"1" * 9, b"1" * 10, b"9" * 30, b"1 ", b"x"]
)
ADDS = st.tuples(
    st.sampled_from([b"XADD", b"xaDd", b"XADE", b"XAD"]), st.sampled_from([b"s", b"t", b""]),
    st.sampled_from([b"*", b"*", b"*", b"1-1", b"NOMKSTREAM"]),
    st.lists(st.sampled_from([b"a", b"b", b"", b"7", b"-12", b"x" * 90]), max_size=7),
).map(lambda parts: request([*parts[:3], *parts[3]]))  # fmt: skip
PIECES = st.one_of(
    ADDS,
    st.lists(st.binary(max_size=8), min_size=1, max_size=4).map(request),
    st.tuples(st.sampled_from([b"*", b"$", b"+", b""]), NUMBERS, st.sampled_from(
        [b"\r\n", b"\n", b"\r", b""]
    )).map(b"".join),
    st.binary(max_size=6),
)  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_whole_requests(codec: Codec) -> None:
    data = bytearray(b"xx" + request([b"XADD", b"s", b"*"]) + request([b""]) + b"*1\r\n$3\r\nab")
    whole = len(data) - len(b"*1\r\n$3\r\nab")
    assert codec.resp_requests(data, 2, BULK_MAX_BYTES) == ([[b"XADD", b"s", b"*"], [b""]], whole)
    assert codec.resp_requests(data, whole, BULK_MAX_BYTES) == ([], whole)
    assert codec.resp_requests(data, len(data), BULK_MAX_BYTES) == ([], len(data))
    assert codec.resp_requests(bytearray(), 0, BULK_MAX_BYTES) == ([], 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "data",
    [b"*0\r\n", b"*-1\r\n", b"*1\r\n$01\r\na\r\n", b"*1\r\n$1\r\nab\n",
     b"*1\r\n$1001\r\n" + b"a" * 1010,
     b"*1048577\r\n$1\r\na\r\n", b"*1\n$1\r\na\r\n", b"PING\r\n", b"*1\r\n+1\r\na\r\n",
     b"*99999999999999999999\r\n$1\r\na\r\n", b"*1\r\n$9223372036854775807\r\na\r\n"],
)  # fmt: skip
def test_the_fast_parser_leaves_malformed_requests(codec: Codec, data: bytes) -> None:
    assert codec.resp_requests(bytearray(data), 0, BULK_MAX_BYTES) == ([], 0)


@pytest.mark.skipif(native_or_none is None, reason="the compiled codec is not built")
@given(st.lists(PIECES, max_size=6).map(b"".join), st.integers(0, 40))
def test_both_take_the_same(data: bytes, at: int) -> None:
    given_ = bytearray(data)
    assert native_or_none is not None
    mine = pure.resp_requests(given_, at, BULK_MAX_BYTES)
    assert native_or_none.resp_requests(given_, at, BULK_MAX_BYTES) == mine
    found, end = mine
    if found:
        assert data[at:end] == b"".join(map(request, found))


@pytest.mark.parametrize("codec", CODECS)
def test_adds_to_one_stream_become_rows(codec: Codec) -> None:
    one = request([b"XADD", b"s", b"*", b"a", b"1", b"b", b""])
    other = request([b"xadd", b"s", b"*", b"7", b"x" * 300])
    data = bytearray(b"?" + one + other + one + request([b"XADD", b"t", b"*", b"a", b"1"]))
    found = codec.resp_adds(data, 1, BULK_MAX_BYTES, 1000)
    assert found is not None
    key, rows, end = found
    flats = [[b"a", b"1", b"b", b""], [b"7", b"x" * 300], [b"a", b"1", b"b", b""]]
    assert (key, end) == (b"s", 1 + len(one + other + one))
    assert [rows.flat(at) for at in range(len(rows))] == flats
    assert [rows.raw_bytes(at) for at in range(len(rows))] == [3, 301, 3]
    found = codec.resp_adds(data, 1, BULK_MAX_BYTES, 2)
    assert found is not None
    assert found[2] == 1 + len(one + other)
    assert codec.resp_adds(data, 1, 10, 1000) is not None  # the longer word is left
    assert codec.resp_requests(data, 1, BULK_MAX_BYTES)[1] == 1 + len(one)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "words",
    [[b"XADD", b"s", b"*"], [b"XADD", b"s", b"*", b"a"], [b"XADD", b"s", b"*", b"a", b"b", b"c"],
     [b"XADD", b"s", b"1-*", b"a", b"b"], [b"XADD", b"s", b"NOMKSTREAM", b"*", b"a", b"b"],
     [b"XLEN", b"s", b"*", b"a", b"b"], [b"XADD", b"s", b"**", b"a", b"b"]],
)  # fmt: skip
def test_the_parser_of_adds_leaves_other_commands(codec: Codec, words: list[bytes]) -> None:
    data = bytearray(request(words))
    assert codec.resp_adds(data, 0, BULK_MAX_BYTES, 1000) is None
    assert codec.resp_add(bytes(data)) is None
    assert codec.resp_requests(data, 0, BULK_MAX_BYTES) == ([words], len(data))
    assert codec.resp_adds(data, len(data), BULK_MAX_BYTES, 1000) is None
    assert codec.resp_adds(data[:-1], 0, BULK_MAX_BYTES, 1000) is None


@pytest.mark.parametrize("codec", CODECS)
def test_one_add_alone_gives_its_key_and_fields(codec: Codec) -> None:
    one = request([b"xAdd", b"s", b"*", b"a", b"1", b"", b"x" * 300])
    assert codec.resp_add(one) == (b"s", {b"a": b"1", b"": b"x" * 300})
    twice = request([b"XADD", b"s", b"*", b"a", b"1", b"a", b"2"])
    for other in (b"", one[:-1], one + b"*", one + one, b"*" + one, twice):
        assert codec.resp_add(other) is None


@pytest.mark.skipif(native_or_none is None, reason="the compiled codec is not built")
@given(st.one_of(ADDS, st.lists(PIECES, max_size=3).map(b"".join)))
def test_both_take_the_same_add(data: bytes) -> None:
    assert native_or_none is not None
    assert native_or_none.resp_add(data) == pure.resp_add(data)


@pytest.mark.parametrize("codec", CODECS)
def test_ids_as_replies(codec: Codec) -> None:
    most = (1 << 64) - 1
    assert codec.resp_ids(1, 9, 2) == b"$3\r\n1-9\r\n$4\r\n1-10\r\n"
    assert codec.resp_ids(5, most, 2) == b"$22\r\n5-%d\r\n$3\r\n6-0\r\n" % most
    assert codec.resp_ids(most, most, 1) == b"$41\r\n%d-%d\r\n" % (most, most)
    assert codec.resp_ids(1, 1, 0) == b""


@pytest.mark.skipif(native_or_none is None, reason="the compiled codec is not built")
@given(st.lists(PIECES, max_size=8).map(b"".join), st.integers(0, 40), st.integers(1, 5))
def test_both_make_the_same_rows(data: bytes, at: int, most: int) -> None:
    assert native_or_none is not None
    found = [each.resp_adds(bytearray(data), at, 50, most) for each in (pure, native_or_none)]
    if found[0] is None or found[1] is None:
        assert found[0] == found[1]
        return
    rows = [
        (key, [(batch.flat(row), batch.raw_bytes(row)) for row in range(len(batch))], end)
        for key, batch, end in (each for each in found if each is not None)
    ]
    assert rows[0] == rows[1]
    nodes = [
        each.pack(batch[1], 0, len(batch[1]), (5, 1), None, 0, 0, 4096, 100).nodes
        for each, batch in zip((pure, native_or_none), found, strict=True)
        if batch is not None
    ]
    assert nodes[0] == nodes[1]


@pytest.mark.parametrize("codec", CODECS)
def test_the_single_request_parser_takes_exactly_one(codec: Codec) -> None:
    one = request([b"XLEN", b"", b"x" * 300])
    assert codec.resp_request(one) == [b"XLEN", b"", b"x" * 300]
    for other in (one + one, one[:-1], one + b"\r\n", b"PING\r\n", b"*0\r\n", b""):
        assert codec.resp_request(other) is None


@pytest.mark.parametrize("codec", CODECS)
def test_adds_to_one_stream_are_left_together(codec: Codec) -> None:
    def add(key: bytes) -> bytes:
        return request([b"XADD", key, b"*", b"n", b"1"])

    data = bytearray(add(b"a") + add(b"b") + add(b"b") + add(b"c"))
    words, at = codec.resp_requests(data, 0, BULK_MAX_BYTES)
    assert [each[1] for each in words] == [b"a"]
    found = codec.resp_adds(data, at, BULK_MAX_BYTES, 10)
    assert found is not None
    assert (found[0], len(found[1])) == (b"b", 2)
    assert codec.resp_requests(data, at, BULK_MAX_BYTES)[1] == at + len(add(b"b"))
    words, at = codec.resp_requests(data, found[2], BULK_MAX_BYTES)
    assert ([each[1] for each in words], at) == ([b"c"], len(data))


@pytest.mark.skipif(native_or_none is None, reason="the compiled codec is not built")
@given(st.one_of(PIECES, st.lists(PIECES, max_size=2).map(b"".join)))
def test_both_take_the_same_request(data: bytes) -> None:
    assert native_or_none is not None
    assert native_or_none.resp_request(data) == pure.resp_request(data)


@pytest.mark.parametrize("codec", CODECS)
def test_entries_as_replies(codec: Codec) -> None:
    most = 2**64 - 1
    node = codec.new_node(7, most, [b"a", b"-12", b"b", b"x" * 200])
    first = b"*2\r\n$22\r\n7-%d\r\n*4\r\n$1\r\na\r\n$3\r\n-12\r\n$1\r\nb\r\n$200\r\n%b\r\n" % (
        most,
        b"x" * 200,
    )
    assert codec.resp_entries(node, 7, most) == [(first, 7, most)]
    more = codec.extend(node, codec.append(node, 7, most, 8, most, [b"c", b"d"])[1], 1, 0)
    second = b"*2\r\n$22\r\n8-%d\r\n*2\r\n$1\r\nc\r\n$1\r\nd\r\n" % most
    assert codec.resp_entries(more, 7, most) == [None, (first + second, 8, most)]
    assert codec.resp_entries(more, 7, most, reverse=True) == [None, (second + first, 7, most)]
    assert codec.resp_entries(more, 7, most, limit=1) == [(first, 7, most)]
    assert codec.resp_entries(more, 7, most, start=(9, 0)) == []


@pytest.mark.parametrize("codec", CODECS)
def test_new_deliveries_as_replies_and_packed_ids(codec: Codec) -> None:
    node = codec.new_node(7, 0, [b"a", b"1"])
    for seq in (1, 2):
        node = codec.append(node, 7, 0, 7, seq, [b"a", b"1"])[0]
    gone = codec.mark_deleted(node, [1])
    for each, vector in ((gone, b""), (node, b"\x02")):
        rows, ids = codec.resp_deliveries(each, 7, 0, vector, (7, 0), -1)
        assert rows == codec.resp_entries(each, 7, 0, vector)
        assert ids == codec.pack_ids([(7, 0), (7, 2)])[0]
    for start, limit, packed in (((7, 1), 1, [(7, 1)]), ((8, 0), -1, []), ((7, 0), 0, [])):
        rows, ids = codec.resp_deliveries(node, 7, 0, b"", start, limit)
        assert (len(rows), ids) == (len(packed), codec.pack_ids(packed)[0])


class _ID(NamedTuple):
    ms: int
    seq: int


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("words", "found", "ascending"),
    [
        ([b"1-2", b"1-3", b"2-0"], [(1, 2), (1, 3), (2, 0)], True),
        ([b"1-2", b"1-2"], [(1, 2), (1, 2)], False),
        ([b"2-0", b"1-9"], [(2, 0), (1, 9)], False),
        ([b"007-00"], [(7, 0)], True),
        ([b"9999999999999999999-0", b"1" * 20 + b"-0"], [(10**19 - 1, 0)], True),
        ([], [], True),
        *(
            ([b"1-1", word, b"3-3"], [(1, 1)], True)
            for word in (b"", b"-", b"1-", b"-1", b"1", b"1-2-3", b"+1-1", b" 1-1", b"1-1\0")
        ),
    ],
)
def test_words_that_are_ids(
    codec: Codec, words: list[bytes], found: list[tuple[int, int]], ascending: bool
) -> None:
    given_, ordered = codec.resp_given_ids(words, _ID)
    assert (given_, ordered) == (found, ascending)
    assert all(type(each) is _ID for each in given_)


@pytest.mark.skipif(native_or_none is None, reason="the compiled codec is not built")
@given(st.lists(st.one_of(
    st.tuples(st.integers(0, 1 << 65), st.integers(0, 12)).map(lambda given_: b"%d-%d" % given_),
    st.text("0123456789-+ ", max_size=5).map(str.encode),
), max_size=6))  # fmt: skip
def test_both_read_the_same_ids(words: list[bytes]) -> None:
    assert native_or_none is not None
    assert native_or_none.resp_given_ids(words, _ID) == pure.resp_given_ids(words, _ID)


@pytest.mark.parametrize("codec", CODECS)
def test_plain_values_as_replies(codec: Codec) -> None:
    value = [b"a", [b"", -7, None], (), 1 << 62]
    told = b"*4\r\n$1\r\na\r\n*3\r\n$0\r\n\r\n:-7\r\n%b*0\r\n:%d\r\n"
    assert codec.resp_value(value, False, 99) == told % (b"$-1\r\n", 1 << 62)
    assert codec.resp_value(value, True, 99) == told % (b"_\r\n", 1 << 62)
    assert codec.resp_value(b"ab", False, 8) == b"$2\r\nab\r\n"
    deep: object = []
    for _ in range(7):
        deep = [deep]
    assert codec.resp_value(deep, False, 99) == b"*1\r\n" * 7 + b"*0\r\n"
    for other in (True, 1.0, "a", 1 << 63, -(1 << 63) - 1, _ID(1, 2), {}, [b"", [set()]], [deep],
                  b"x" * 100, [None] * 100, [b"x" * 90, 10**9]):  # fmt: skip
        assert codec.resp_value(other, False, 99) is None
    assert codec.resp_value(b"ab", False, 7) is None


VALUES: st.SearchStrategy[object] = st.recursive(
    st.one_of(st.none(), st.binary(max_size=9), st.integers(-(1 << 65), 1 << 65), st.booleans()),
    lambda each: st.one_of(st.lists(each, max_size=4), st.lists(each, max_size=4).map(tuple)),
    max_leaves=12,
)


@pytest.mark.skipif(native_or_none is None, reason="the compiled codec is not built")
@given(VALUES, st.booleans(), st.integers(0, 80))
def test_both_tell_the_same_of_values(value: object, new: bool, most: int) -> None:
    assert native_or_none is not None
    assert native_or_none.resp_value(value, new, most) == pure.resp_value(value, new, most)
