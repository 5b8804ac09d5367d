"""Prevents a judge that errs: the payload reader and writer, against both servers."""

from __future__ import annotations

import pytest
import redis

from tests.peers.dump import build_dump, compressed_dump, crc64, node_key, parse_dump
from tests.peers.servers import Peer

pytestmark = pytest.mark.peers


def _fill(peer: Peer) -> None:
    for i in range(1, 251):
        peer.command("XADD", "s", f"{i}-{i % 3}", "field", f"value {i}" * 4, "n", str(i * i))
    peer.command("XDEL", "s", "7-1", "250-1")


def test_crc64_is_the_servers() -> None:
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA


def test_a_payload_is_read_as_xinfo_tells_it(peer: Peer) -> None:
    _fill(peer)
    nodes, metadata = parse_dump(peer.command("DUMP", "s"))
    info = dict(zip(*[iter(peer.command("XINFO", "STREAM", "s"))] * 2, strict=True))
    assert len(nodes) == info[b"radix-tree-keys"]
    assert metadata.length == info[b"length"] == 248
    assert metadata.last_id == (250, 1)
    assert metadata.first_id == (1, 1)
    assert metadata.max_deleted == (250, 1)
    assert metadata.entries_added == 250
    assert nodes[0][0] == node_key(1, 1)


def test_a_compressed_payload_reads_as_the_plain_one(peer: Peer) -> None:
    _fill(peer)
    plain = peer.command("DUMP", "s")
    packed = compressed_dump(peer, "s")
    assert len(packed) < len(plain)
    assert parse_dump(packed) == parse_dump(plain)


def test_a_built_payload_restores_to_the_same_stream(peer: Peer) -> None:
    _fill(peer)
    peer.command("XGROUP", "CREATE", "s", "g", "0")
    peer.command("XREADGROUP", "GROUP", "g", "c", "COUNT", "3", "STREAMS", "s", ">")
    nodes, metadata = parse_dump(peer.command("DUMP", "s"))
    peer.command("RESTORE", "copy", 0, build_dump(nodes, *metadata[:6]))
    assert parse_dump(peer.command("DUMP", "copy"))[0] == nodes
    assert peer.command("XRANGE", "copy", "-", "+") == peer.command("XRANGE", "s", "-", "+")
    assert peer.command("XPENDING", "copy", "g") == peer.command("XPENDING", "s", "g")


def test_one_wrong_byte_is_refused_by_reader_and_server(peer: Peer) -> None:
    _fill(peer)
    nodes, metadata = parse_dump(peer.command("DUMP", "s"))
    payload = bytearray(build_dump(nodes, *metadata[:6]))
    payload[100] ^= 1
    with pytest.raises(ValueError, match="CRC"):
        parse_dump(bytes(payload))
    with pytest.raises(redis.ResponseError, match="checksum"):
        peer.command("RESTORE", "copy", 0, bytes(payload))
