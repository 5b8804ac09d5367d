"""Records of CSV as others write them, good ones and odd ones, and files that give them slowly."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import strategies as st


class Slow(io.RawIOBase):
    """A file that gives few bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data, self._most = io.BytesIO(data), most

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, into: Any) -> int:
        """Some bytes."""
        data = self._data.read(min(self._most, len(into)))
        into[: len(data)] = data
        return len(data)


def slow(data: bytes, most: int) -> io.BufferedReader:
    """The same with a buffer, as importing reads it."""
    return io.BufferedReader(Slow(data, most))


CELL = st.sampled_from(
    [b"", b"a", b"1-1", b"2-0", b"7", "ü".encode(), b'"x, y"', b'"a""b"', b'"x\ny"', b'"\r\n"',
     b'a"b', "\x85\x1c\u2028".encode(), b" "]
)  # fmt: skip
ODD_CELL = st.sampled_from([b"3-*", b"x", b"\xff", b'"x', b'"x"y', b"1;2", b"\0", b"\xef\xbb\xbf"])
NUMBERED = st.tuples(st.just(b"5"), st.sampled_from([b"1", b"2"]), CELL).map(list)
RECORD = st.tuples(CELL, CELL).map(list) | NUMBERED | st.lists(CELL | ODD_CELL, max_size=4)
RECORDS = st.lists(
    st.tuples(RECORD.map(b",".join), st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])).map(b"".join),
    max_size=12,
).map(b"".join)
HEADERS = st.sampled_from(
    [b"", b"id,a\n", b"a,b\r\n", b"a,id,b\r", b"ms,seq,a\n", b"t,a\n", b"a,a\n", b"id\n",
     b'"a\nb",id\n', b"a\xff,id\n", b"\xef\xbb\xbfid,a,id\n"]
)  # fmt: skip
