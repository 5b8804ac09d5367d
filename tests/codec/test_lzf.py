"""Prevents compressed strings that unpack otherwise than servers packed them, or past their end."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore.codec import Codec, pure
from logstore.errors import CorruptNodeError
from tests.peers.dump import lzf_decompress as judge


def compress(text: bytes) -> bytes:
    """LZF of some text; any place before is copied from, if it gives three bytes or more."""
    out = bytearray()
    at = 0
    while at < len(text):
        count, back = 0, 0
        for start in range(max(0, at - 8191), at):
            same = 0
            while same < 264 and at + same < len(text) and text[start + same] == text[at + same]:
                same += 1
            if same > count:
                count, back = same, at - start - 1
        if count < 3:
            out += bytes((0, text[at]))
            at += 1
            continue
        code = count - 2
        head = (code << 5,) if code < 7 else (7 << 5, code - 7)
        out += bytes((head[0] | back >> 8, *head[1:], back & 255))
        at += count
    return bytes(out)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 700))
def test_it_gives_back_what_was_compressed(codec: Codec, seed: int, size: int) -> None:
    rng = random.Random(seed)
    text = bytes(rng.choices(b"ab\x00", weights=(9, 3, 1), k=size))
    packed = compress(text)
    assert judge(packed, size) == text
    assert codec.lzf_decompress(packed, size) == text
    for wrong in (size - 1, size + 1):
        with pytest.raises(CorruptNodeError):
            codec.lzf_decompress(packed, wrong)


@settings(max_examples=1500, deadline=None)
@given(packed=st.binary(max_size=40), size=st.integers(0, 600))
@example(packed=b"\x00a" + b"\xe0\xff\x00" * 20, size=5281)
@example(packed=b"\x00a\x20\x00", size=4)
@example(packed=b"\x20\x00", size=3)
def test_any_bytes_do_the_same_in_both_codecs(native: Codec, packed: bytes, size: int) -> None:
    answers: list[bytes | None] = []
    for each in (pure, native):
        try:
            answers.append(each.lzf_decompress(packed, size))
        except CorruptNodeError:
            answers.append(None)
    assert answers[0] == answers[1]
    assert answers[0] is None or len(answers[0]) == size


@pytest.mark.parametrize("size", [-1, -(1 << 40), 89, 1 << 62])
def test_a_size_that_cannot_be_takes_no_memory(codec: Codec, size: int) -> None:
    with pytest.raises(CorruptNodeError):
        codec.lzf_decompress(b"\x00", size)
