"""Prevents hostile or cut requests from taking memory, hanging, or being read as something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.wire.resp.requests import (
    BULK_MAX_BYTES,
    INLINE_MAX_BYTES,
    ProtocolError,
    RequestParser,
)
from tests.wire.lines import request

WORDS = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


def parsed(parser: RequestParser) -> list[list[bytes]]:
    """All requests that are whole."""
    found: list[list[bytes]] = []
    while (words := parser.next()) is not None:
        found.append(words)
    return found


@given(st.lists(WORDS, max_size=5), st.data())
def test_requests_cut_anywhere_are_the_same(
    requests: list[list[bytes]], data: st.DataObject
) -> None:
    whole = b"".join(map(request, requests))
    parser, found, at = RequestParser(), [], 0
    while at < len(whole):
        step = data.draw(st.integers(1, max(1, len(whole) - at)))
        parser.feed(whole[at : at + step])
        found += parsed(parser)
        at += step
    assert found == requests
    assert parser.held_bytes == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"PING\r\n", [b"PING"]),
        (b"  XLEN   a \n", [b"XLEN", b"a"]),
        (b"\r\n", []),
        (b"*0\r\n", []),
        (b"*-1\r\n", []),
        (b'ECHO "a b"\r\n', [b"ECHO", b"a b"]),
        (b"ECHO 'it'\r\n", [b"ECHO", b"it"]),
        (b"\xff\xfe x\r\n", [b"\xff\xfe", b"x"]),
    ],
)
def test_inline_and_empty_requests(line: bytes, words: list[bytes]) -> None:
    parser = RequestParser()
    parser.feed(line)
    assert parser.next() == words
    assert parser.next() is None


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n+3\r\n", r"expected '\$', got '\+'"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$%d\r\n" % (BULK_MAX_BYTES + 1), "invalid bulk length"),
        (b"*" + b"1" * (INLINE_MAX_BYTES + 1), "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * (INLINE_MAX_BYTES + 1), "too big bulk count string"),
        (b"x" * (INLINE_MAX_BYTES + 1), "too big inline request"),
        (b"ECHO 'a\r\n", "unbalanced quotes"),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, told: str) -> None:
    parser = RequestParser()
    parser.feed(data)
    with pytest.raises(ProtocolError, match=told):
        parsed(parser)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"*11\r\n", "unauthenticated multibulk length"),
        (b"*2\r\n$16385\r\n", "unauthenticated bulk length"),
        (b"*2\r\n$16000\r\n" + b"x" * 16000 + b"\r\n$385\r\n", "unauthenticated bulk length"),
        (b"a b c d e f g h i j k\r\n", "unauthenticated multibulk length"),
        (b"'a' b c d e f g h i j k 'l\r\n", "unauthenticated multibulk length"),
        (b"x" * 16385, "too big inline request"),
        (b"x" * 16385 + b"\r\n", "too big inline request"),
        (b"*" + b"1" * 16385, "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 16385, "too big bulk count string"),
    ],
)
def test_strangers_may_send_little(data: bytes, told: str) -> None:
    parser = RequestParser()
    parser.trusted = False
    parser.feed(data)
    with pytest.raises(ProtocolError, match=told):
        parser.next()


@pytest.mark.parametrize(
    "data", [b"a b c d e f g h i j\r\n", b"x" * 16384 + b"\n", request([b"AUTH", b"x" * 16380])]
)
def test_what_strangers_need_they_may_send(data: bytes) -> None:
    parser = RequestParser()
    parser.trusted = False
    parser.feed(data)
    assert parser.next()


@given(st.binary(max_size=300))
def test_rubbish_gives_words_or_an_error(data: bytes) -> None:
    parser = RequestParser()
    parser.feed(data)
    try:
        found = parsed(parser)
    except ProtocolError:
        return
    assert sum(map(len, found)) + parser.held_bytes <= len(data) + 1000


def test_a_promised_word_takes_no_memory_before_it_comes() -> None:
    parser = RequestParser()
    parser.feed(b"*1048576\r\n$536870912\r\nabc")
    assert parser.next() is None
    assert parser.held_bytes < 20
