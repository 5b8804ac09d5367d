"""Prevents bytes that are not the servers': vectors taken from them, made again and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from logstore.codec import Codec
from logstore.ids import parse_id
from tests.codec.node_stream import NodeStream
from tests.golden.codec.generate import (
    DISPUTED,
    from_recorded,
    replay,
    to_bytes,
    to_command,
    vectors,
)
from tests.peers.dump import node_id, node_key
from tests.peers.servers import Peer

PATH = Path(__file__).parent.parent / "golden" / "codec" / "vectors.json"
VECTORS: list[dict[str, Any]] = json.loads(PATH.read_text())

each_vector = pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])


def _nodes(recorded: list[Any]) -> list[tuple[bytes, bytes]]:
    return [(bytes.fromhex(key), from_recorded(lp)) for key, lp in recorded]


def _entries(vector: dict[str, Any]) -> list[tuple[str, list[bytes]]]:
    return [(id, [to_bytes(text) for text in flat]) for id, flat in vector["entries"]]


@each_vector
def test_the_operations_give_the_servers_bytes(codec: Codec, vector: dict[str, Any]) -> None:
    model = NodeStream(codec, vector["node_max_bytes"], vector["node_max_entries"])
    for operation in vector["operations"]:
        match operation:
            case ["add", id, flat]:
                model.add(tuple(parse_id(id)), [to_bytes(text) for text in flat])
            case ["delete", id]:
                model.delete(tuple(parse_id(id)))
            case ["maxlen", count]:
                model.trim(maxlen=count)
            case ["minid", id]:
                model.trim(minid=tuple(parse_id(id)))
    made = [(node_key(*node.master), node.lp) for node in model.nodes]
    assert made == _nodes(vector["nodes"])


def _check_reading(codec: Codec, vector: dict[str, Any], nodes: list[tuple[bytes, bytes]]) -> None:
    read: list[tuple[str, list[bytes]]] = []
    backwards: list[tuple[str, list[bytes]]] = []
    for key, lp in nodes:
        codec.validate(lp, *node_id(key))
        read += [(f"{ms}-{seq}", flat) for _, ms, seq, flat in codec.entries(lp, *node_id(key))]
    for key, lp in reversed(nodes):
        found = codec.entries(lp, *node_id(key), reverse=True)
        backwards += [(f"{ms}-{seq}", flat) for _, ms, seq, flat in found]
    assert read == backwards[::-1] == _entries(vector)


@each_vector
def test_the_servers_bytes_read_as_their_entries(codec: Codec, vector: dict[str, Any]) -> None:
    _check_reading(codec, vector, _nodes(vector["nodes"]))


def test_valkeys_own_back_lengths_are_read_too(codec: Codec) -> None:
    disputed = [vector for vector in VECTORS if "valkey_nodes" in vector]
    assert [vector["name"] for vector in disputed] == list(DISPUTED)
    for vector in disputed:
        _check_reading(codec, vector, _nodes(vector["valkey_nodes"]))


def test_the_committed_vectors_are_those_of_the_generator() -> None:
    made = [(name, vector["operations"]) for name, vector in vectors()]
    assert made == [(vector["name"], vector["operations"]) for vector in VECTORS]
    assert all(to_command(operation) for _, operations in made for operation in operations)


@pytest.mark.peers
def test_a_server_still_gives_the_committed_bytes(peer: Peer) -> None:
    mine = "valkey_nodes" if peer.version.startswith("Valkey") else "nodes"
    for vector in VECTORS:
        limits = {"bytes": vector["node_max_bytes"], "entries": vector["node_max_entries"]}
        nodes, _ = replay(peer, {**limits, "operations": vector["operations"]})
        assert nodes == _nodes(vector.get(mine, vector["nodes"])), vector["name"]
