"""Requests of the Redis protocol that are there whole and plain: arrays of bulk strings.

Adds to one stream that follow each other (``XADD key * field value ...``) become rows at once,
without an object for each word, and their IDs become replies at once. One add by itself becomes the
arguments of ``add``. Entries of a node become replies without an object for each. Words that are
IDs become IDs, and plain values replies.

Invariants: a request is taken if it is complete and written as clients write it; at any other one
it stops, and the caller's parser goes on. Nothing is read behind the bytes there are.

It may not know another command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from logstore.codec.edit import ENTRY_BYTES_MAX, ids_from
from logstore.codec.entry_objects import pack_ids
from logstore.codec.node import entries
from logstore.codec.node_types import ID, MAX_ID, ZERO_ID
from logstore.codec.row_batch import RowBatch

T = TypeVar("T")
REQUEST_MAX_WORDS: Final = 1024 * 1024
_COUNT = re.compile(rb"\*([1-9][0-9]{0,8})\r\n")
_SIZE = re.compile(rb"\$(0|[1-9][0-9]{0,8})\r\n")
_ID = re.compile(rb"([0-9]{1,19})-([0-9]{1,19})")  # numbers that have 64 bits, whatever they are
_ADD_MIN_WORDS = 5
_DEPTH_MAX = 8


def resp_requests(data: bytearray, at: int, bulk_max_bytes: int) -> tuple[list[list[bytes]], int]:
    """Requests from byte ``at`` on, and the byte behind the last of them that is taken.

    It stops where no more is whole, and before two or more adds to one stream, which are for
    ``resp_adds``, unless the first of them comes first: it is taken then, and no more.
    """
    found: list[list[bytes]] = []
    key: bytes | None = None  # of the request before, if it is an add
    before = at
    while True:
        words, end = _request(data, at, bulk_max_bytes)
        if not words:
            return found, at
        add = _looks_like_an_add(words)
        if add and words[1] == key:
            return (found[:-1], before) if len(found) > 1 else (found, at)
        key = words[1] if add else None
        found.append(words)
        before, at = at, end


def resp_request(data: bytes) -> list[bytes] | None:
    """The words of one request, if the bytes are one that is whole and plain, and nothing else."""
    words, end = _request(data, 0, len(data))
    return words if words and end == len(data) else None


def resp_add(data: bytes) -> tuple[bytes, dict[bytes, bytes]] | None:
    """The key and the fields of one add, if the bytes are one, and nothing else; None too if a
    name comes twice."""
    words, end = _request(data, 0, len(data))
    if end != len(data) or not _looks_like_an_add(words) or not len(words) & 1:
        return None
    fields = dict(zip(words[3::2], words[4::2], strict=True))
    return (words[1], fields) if 2 * len(fields) + 3 == len(words) else None


def resp_adds(
    data: bytearray, at: int, bulk_max_bytes: int, most: int
) -> tuple[bytes, RowBatch, int] | None:
    """Adds to one stream that follow each other, ``most`` of them: its key, the rows, and the byte
    behind them. None if there is none at ``at``."""
    key = b""
    flats: list[list[bytes]] = []
    while len(flats) < most:
        words, end = _request(data, at, bulk_max_bytes)
        if not _looks_like_an_add(words) or not len(words) & 1 or (flats and words[1] != key):
            break
        if sum(map(len, words[3:])) > ENTRY_BYTES_MAX:
            break
        key, at = words[1], end
        flats.append(words[3:])
    return (key, RowBatch(flats), at) if flats else None


def resp_ids(ms: int, seq: int, count: int) -> bytes:
    """Consecutive IDs from this one on (the sequence carries into ms) as replies, bulk strings."""
    return b"".join([_bulk(b"%d-%d" % id) for id in ids_from((ms, seq), count)])


def resp_entries(
    lp: bytes,
    master_ms: int,
    master_seq: int,
    vector: bytes = b"",
    start: ID = ZERO_ID,
    end: ID = MAX_ID,
    limit: int = -1,
    reverse: bool = False,
) -> list[tuple[bytes, int, int] | None]:
    """What ``entries`` finds, for each None; but the last is the replies of all, one behind the
    other, and the two numbers of its ID. A reply: an array of the ID and of fields and values."""
    found = entries(lp, master_ms, master_seq, vector, start, end, limit, reverse)
    if not found:
        return []
    made = b"".join([_entry(ms, seq, flat) for _, ms, seq, flat in found])
    return [None] * (len(found) - 1) + [(made, *found[-1][1:3])]


def resp_deliveries(
    lp: bytes, master_ms: int, master_seq: int, vector: bytes, start: ID, limit: int
) -> tuple[list[tuple[bytes, int, int] | None], bytes]:
    """The first live entries from an ID on, as ``resp_entries`` gives them, and their IDs as
    ``pack_ids`` has them."""
    node = lp, master_ms, master_seq, vector, start, MAX_ID, limit
    return resp_entries(*node), pack_ids([row[1:3] for row in entries(*node)])[0]


def resp_value(value: object, new: bool, most: int) -> bytes | None:
    """The reply of a value that is plain: bytes, a number of 64 bits, nothing, or a list or tuple
    of such, a few levels deep; None if it is not, or has more bytes than ``most``. ``new``: in
    RESP3."""
    parts: list[bytes] = []
    size = 0
    left: list[tuple[object, int]] = [(value, 0)]
    while left:
        each, depth = left.pop()
        if type(each) is bytes:
            if len(each) > most:
                return None
            parts.append(_bulk(each))
        elif type(each) is int and -(1 << 63) <= each < 1 << 63:
            parts.append(b":%d\r\n" % each)
        elif each is None:
            parts.append(b"_\r\n" if new else b"$-1\r\n")
        elif (type(each) is list or type(each) is tuple) and depth < _DEPTH_MAX:
            items: Sequence[object] = each
            if len(items) > most:  # each has some bytes
                return None
            parts.append(b"*%d\r\n" % len(items))
            left += [(item, depth + 1) for item in reversed(items)]
        else:
            return None
        size += len(parts[-1])
        if size > most:
            return None
    return b"".join(parts)


def resp_given_ids(words: list[bytes], id_type: type[T]) -> tuple[list[T], bool]:
    """The IDs that words begin with, in digits alone, and whether each is above the one before. It
    stops at the first word that is written in another way."""
    found: list[Any] = []
    for word in words:
        parts = _ID.fullmatch(word)
        if parts is None:
            break
        found.append(id_type(*map(int, parts.groups())))
    return found, all(found[at] < found[at + 1] for at in range(len(found) - 1))


def _bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def _entry(ms: int, seq: int, flat: list[bytes]) -> bytes:
    id = _bulk(b"%d-%d" % (ms, seq))
    return b"*2\r\n%b*%d\r\n%b" % (id, len(flat), b"".join(map(_bulk, flat)))


def _looks_like_an_add(words: list[bytes]) -> bool:
    return len(words) >= _ADD_MIN_WORDS and words[2] == b"*" and words[0].lower() == b"xadd"


def _request(data: bytes | bytearray, at: int, bulk_max_bytes: int) -> tuple[list[bytes], int]:
    """One request, and the byte behind it; no words if it is not there whole and plain."""
    head = _COUNT.match(data, at)
    if head is None or int(head[1]) > REQUEST_MAX_WORDS:
        return [], at
    words: list[bytes] = []
    begin = head.end()
    for _ in range(int(head[1])):
        size = _SIZE.match(data, begin)
        if size is None or int(size[1]) > bulk_max_bytes:
            return [], at
        end = size.end() + int(size[1])
        if data[end : end + 2] != b"\r\n":
            return [], at
        words.append(bytes(data[size.end() : end]))
        begin = end + 2
    return words, begin
