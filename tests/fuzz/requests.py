"""Requests: the same words from both codecs, at once or in pieces, whatever the bytes are.

An input is one byte that says how (bit 0: of a stranger, before AUTH; the rest: how long the pieces
are), then what a client sends.
"""

from __future__ import annotations

from logstore.codec import Codec, native_or_none, pure
from logstore.wire.resp import requests
from logstore.wire.resp.requests import ProtocolError, RequestParser
from tests.wire.lines import request

BULK_MAX_BYTES = 1000
ADDS_MAX = 3
CODECS: list[Codec] = [each for each in (pure, native_or_none) if each is not None]
SEEDS = [
    bytes((how,)) + sent
    for how in (0, 1, 2, 14)
    for sent in (
        request([b"XADD", b"s", b"*", b"f", b"v"]) * 4
        + request([b"PING"])
        + request([b"xadd", b"t", b"*", b"f", b"12", b"g", b""])
        + request([b"XADD", b"t", b"*", b"f"]),
        b"PING\r\nXADD s * \"a b\" 'c\\n'\n\r\n*0\r\n*-1\r\n",
        b"*1\r\n$-1\r\n",
        b"*2\r\n$3\r\nGET\r\n:1\r\n",
        b"*1048577\r\n",
        b"*01\r\n$01\r\na\r\n*1\r\n$01\r\na\r\n",
        b"*1\r\n$1001\r\n",
        request([b"x" * 1000, b""]) + b"*3\r\n$1\r\na\r\n$2\r\nbc",
    )
]


def outcome(
    codec: Codec, data: bytes, piece: int, *, trusted: bool, adds: bool = True
) -> tuple[object, ...]:
    """The requests, and how it ended; with ``adds`` plain adds are read as rows."""
    chosen, requests.codec = requests.codec, lambda: codec
    try:
        parser = RequestParser(BULK_MAX_BYTES)
    finally:
        requests.codec = chosen
    parser.trusted = trusted
    found: list[list[bytes]] = []
    for at in range(0, len(data), piece or len(data) or 1):
        parser.feed(data[at : at + piece] if piece else data)
        try:
            while True:
                if adds and (rows := parser.adds(ADDS_MAX)) is not None:
                    key, batch, _ = rows
                    found += ([b"XADD", key, b"*", *batch.flat(at)] for at in range(len(batch)))
                elif (words := parser.next()) is not None:
                    name = [b"XADD" if word.upper() == b"XADD" else word for word in words[:1]]
                    if words:  # blank lines are none, however many
                        found.append([*name, *words[1:]])
                else:
                    break
        except ProtocolError as exc:
            return found, str(exc)
        assert parser.held_bytes <= len(data)
    return found, None


def one(data: bytes) -> None:
    """All ways to read it tell the same."""
    trusted, sent = not data[:1] or not data[0] & 1, data[1:]
    wanted = outcome(pure, sent, 0, trusted=trusted, adds=False)
    pieces = (1, 0, data[0] >> 1) if data else (0,)
    plain = [codec.resp_requests(bytearray(sent), 0, BULK_MAX_BYTES) for codec in CODECS]
    assert plain[0] == plain[-1]
    for codec in CODECS:
        for piece in pieces:
            found = outcome(codec, sent, piece, trusted=trusted)
            assert found == wanted, (codec, piece, found, wanted)
