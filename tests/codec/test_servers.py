"""Prevents a codec that drifts from the servers: random workloads, compared node by node."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore.codec import Codec
from tests.codec.node_stream import ID, ZERO, NodeStream
from tests.codec.strategies import limits, next_id, operations
from tests.peers.dump import Metadata, build_dump, node_key, parse_dump
from tests.peers.servers import Peer

pytestmark = pytest.mark.peers

servers = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _apply(model: NodeStream, added: list[ID], operation: tuple[Any, ...]) -> tuple[Any, ...]:
    """Apply one drawn operation to the model; the command that does the same on a server."""
    match operation:
        case ("add", step, flat):
            id = next_id(model.last_id, step)
            model.add(id, flat)
            added.append(id)
            return ("XADD", "s", f"{id[0]}-{id[1]}", *flat)
        case ("delete", index):
            id = added[index % len(added)] if added else (7, 7)
            model.delete(id)
            return ("XDEL", "s", f"{id[0]}-{id[1]}")
        case (kind, target, approximate, limit):
            limit = limit if approximate else 0
            if kind == "maxlen":
                model.trim(maxlen=target, approximate=approximate, limit=limit)
                threshold: str | int = target
            else:
                minid = added[target % len(added)] if added else ZERO
                model.trim(minid=minid, approximate=approximate, limit=limit)
                threshold = f"{minid[0]}-{minid[1]}"
            how = ("~", threshold, "LIMIT", limit) if approximate else ("=", threshold)
            return ("XTRIM", "s", kind.upper(), *how)
    raise ValueError(operation)


def _run(peer: Peer, codec: Codec, sizes: tuple[int, int], drawn: list[tuple[Any, ...]]) -> Any:
    """Play the operations on model and server; (model, nodes, metadata), None without a stream."""
    model = NodeStream(codec, *sizes)
    added: list[ID] = []
    commands = [_apply(model, added, operation) for operation in drawn]
    peer.command("FLUSHALL")
    peer.command("CONFIG", "SET", "stream-node-max-bytes", sizes[0])
    peer.command("CONFIG", "SET", "stream-node-max-entries", sizes[1])
    for command, reply in zip(commands, peer.pipeline(commands), strict=True):
        assert not isinstance(reply, Exception), (command, reply)
    payload = peer.command("DUMP", "s")
    return (model, *parse_dump(payload)) if payload is not None else None


@servers
@given(sizes=limits, drawn=operations)
def test_a_workload_leaves_the_servers_nodes(
    peer: Peer, codec: Codec, sizes: tuple[int, int], drawn: list[tuple[Any, ...]]
) -> None:
    outcome = _run(peer, codec, sizes, drawn)
    if outcome is None:
        assert all(operation[0] != "add" for operation in drawn)
        return
    model, nodes, metadata = outcome
    assert [(node_key(*node.master), node.lp) for node in model.nodes] == nodes
    assert metadata[:5] == Metadata(
        model.length, model.last_id, model.first_id(), model.max_deleted, model.entries_added,
        b"", 0, 0,
    )[:5]  # fmt: skip
    for node in model.nodes:
        codec.validate(node.lp, *node.master)


def _restored(peer: Peer, nodes: list[tuple[ID, bytes]], length: int, last_id: ID) -> list[Any]:
    """RESTORE the nodes and read them back: (ID, flat) each."""
    keyed = [(node_key(*master), lp) for master, lp in nodes]
    payload = build_dump(keyed, length, last_id, ZERO, ZERO, length)
    assert peer.command("RESTORE", "r", 0, payload, "REPLACE") == b"OK"
    assert parse_dump(peer.command("DUMP", "r"))[0] == keyed
    return [
        (tuple(map(int, id.split(b"-"))), flat)
        for id, flat in peer.command("XRANGE", "r", "-", "+")
    ]


def _read(codec: Codec, nodes: list[tuple[ID, bytes]], vectors: list[bytes]) -> list[Any]:
    return [
        ((ms, seq), flat)
        for (master, lp), vector in zip(nodes, vectors, strict=True)
        for _, ms, seq, flat in codec.entries(lp, *master, vector)
    ]


@servers
@given(sizes=limits, drawn=operations, data=st.data())
def test_folded_and_rewritten_nodes_are_restored_and_read_alike(
    peer: Peer,
    codec: Codec,
    sizes: tuple[int, int],
    drawn: list[tuple[Any, ...]],
    data: st.DataObject,
) -> None:
    outcome = _run(peer, codec, sizes, drawn)
    if outcome is None:
        return
    model = outcome[0]
    nodes: list[tuple[ID, bytes]] = [(node.master, node.lp) for node in model.nodes]
    vectors = [
        data.draw(st.binary(max_size=(sum(codec.counts(lp)) + 7) // 8)).rstrip(b"\0")
        for _, lp in nodes
    ]
    sized = [
        (node, _clip(vector, sum(codec.counts(node[1]))))
        for node, vector in zip(nodes, vectors, strict=True)
    ]
    kept = [(node, vector) for node, vector in sized if codec.ids(node[1], *node[0], vector)]
    if not kept:
        return
    nodes = [node for node, _ in kept]
    vectors = [vector for _, vector in kept]
    expected = _read(codec, nodes, vectors)

    folded = [(master, codec.fold(lp, vector)) for (master, lp), vector in kept]
    assert _restored(peer, folded, len(expected), model.last_id) == expected

    parts = [(lp, *master, vector) for (master, lp), vector in kept]
    merged = [(nodes[0][0], codec.rewrite(parts, *nodes[0][0]))]
    codec.validate(merged[0][1], *merged[0][0])
    assert codec.counts(merged[0][1]) == (len(expected), 0)
    assert _restored(peer, merged, len(expected), model.last_id) == expected


def _clip(vector: bytes, entry_count: int) -> bytes:
    """The vector without bits that stand for no entry."""
    bits = int.from_bytes(vector, "little") & ((1 << entry_count) - 1)
    return bits.to_bytes((entry_count + 7) // 8, "little")


def test_a_wrong_node_is_refused_by_the_judges(peer: Peer, codec: Codec) -> None:
    lp = codec.new_node(1, 1, [b"f", b"v"])
    wrong = lp.replace(b"\x04\x01\xff", b"\x05\x01\xff")  # lp-count
    assert wrong != lp
    with pytest.raises(redis.ResponseError, match="Bad data format"):
        _restored(peer, [((1, 1), wrong)], 1, (1, 1))
