"""Prevents the compiled reader of requests from taking other words than the pure one."""

from __future__ import annotations

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
PIECES = st.one_of(
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
def test_what_is_not_plain_is_left(codec: Codec, data: bytes) -> None:
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
