"""Prevents RDB files that are read other than the server meant, or that no server loads."""

from __future__ import annotations

import io
import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore.api.store import Store
from logstore.engine.dump import export, restore
from logstore.errors import InvalidPayloadError, TooLargeError
from logstore.rdb import dump_payload
from logstore.rdb.codes import crc64
from logstore.rdb.file_reader import FileReader, verify
from logstore.rdb.rdb_reader import Fill
from logstore.rdb.rdb_writer import FileWriter, length
from tests.peers import servers
from tests.peers.servers import Peer
from tests.rdb.bodies import body
from tests.rdb.workload import fill, full_info


def source(data: bytes, most: int = 1 << 20) -> Fill:
    """The bytes in pieces of at most ``most``."""
    stream = io.BytesIO(data)
    return lambda size: stream.read(min(size, most))


def values(data: bytes, most: int = 1 << 20) -> dict[bytes, Any]:
    """The streams of a file."""
    return {key.name: key.value(1 << 20) for key in FileReader(source(data, most)).streams()}


def saved(peer: Peer) -> bytes:
    """The file that a server saves."""
    peer.command("SAVE")
    directory = peer.command("CONFIG", "GET", "dir")[1].decode()
    return Path(directory, "dump.rdb").read_bytes()


def written(store: Store[bytes], expires_ms: int | None = None) -> bytes:
    """All streams of a store as a file."""
    pieces: list[bytes] = []
    writer = FileWriter(pieces.append, [(b"logstore-ver", b"1")])
    engine = store._engine()
    for name in store.streams():
        with export.pinned(engine, name) as found:
            nodes = found.nodes(engine)
            writer.stream(name, found.node_count, nodes, found.info, expires_ms)
    writer.finish()
    return b"".join(pieces)


def other_keys(peer: Peer) -> None:
    """Keys of every type, in every form that a server has for it."""
    peer.command("SETEX", "expires", 1000, "v")
    for size in (3, 2000):
        words = [f"{'w' * 30}{at}" for at in range(size)]
        peer.command("SET", f"string {size}", "v" * size)
        peer.command("RPUSH", f"list {size}", *words)
        peer.command("SADD", f"set {size}", *words)
        peer.command("SADD", f"integers {size}", *range(size))
        peer.command("ZADD", f"sorted {size}", *(each for word in words for each in (0.5, word)))
        peer.command("HSET", f"hash {size}", *(each for word in words for each in (word, size)))
        peer.command("HSET", f"fields {size}", *(each for word in words for each in (word, size)))
        peer.command("HPEXPIRE", f"fields {size}", 10**9, "FIELDS", 1, words[0])
    peer.command("FUNCTION", "LOAD", "REPLACE", (
        "#!lua name=lib\nredis.register_function('f', function(keys, args) return 1 end)"
    ))  # fmt: skip
    peer.client.execute_command("SELECT", 3)
    peer.command("XADD", "elsewhere", "1-1", "a", "b")
    peer.command("PEXPIREAT", "elsewhere", 4_000_000_000_123)
    peer.client.execute_command("SELECT", 0)


@pytest.mark.peers
@pytest.mark.parametrize("compressed", ["no", "yes"])
def test_a_file_that_a_server_saved(peer: Peer, store: Store[bytes], compressed: str) -> None:
    for seed in range(6):
        fill(peer, f"s{seed}", seed)
    other_keys(peer)
    peer.command("CONFIG", "SET", "rdbcompression", compressed)
    data = saved(peer)
    peer.command("CONFIG", "SET", "rdbcompression", "no")
    for most in (1 << 20, 7):
        reader = FileReader(source(data, most))
        found: dict[bytes, tuple[int, int | None]] = {}
        for key in reader.streams():
            found[key.name] = (key.database, key.expires_ms)
            if key.database == 0:
                stream = restore.prepare(key.value(1 << 20))
                name = key.name
                store._opened.commit(
                    lambda state, name=name, stream=stream: restore.install(
                        state, name, stream, replace=True
                    ),
                    None,
                )
        assert found.pop(b"elsewhere") == (3, 4_000_000_000_123)
        assert set(found) == {f"s{seed}".encode() for seed in range(6)}
        assert sum(reader.skipped.values()) == 15
        assert reader.offset == len(data)
        for name in found:
            assert body(store.stream(name).dump()) == body(peer.command("DUMP", name))


@pytest.mark.peers
def test_a_file_of_ours_is_loaded_by_a_server(
    peer: Peer, store: Store[bytes], tmp_path: Path
) -> None:
    for seed in range(6):
        fill(peer, f"s{seed}", seed)
        store.restore(f"s{seed}", peer.command("DUMP", f"s{seed}"))
    data = written(store)
    assert verify(source(data)) == 6
    with servers.loaded(peer.name, tmp_path, data) as other:
        for seed in range(6):
            assert other.command("DUMP", f"s{seed}") == peer.command("DUMP", f"s{seed}")
            assert full_info(other, f"s{seed}") == full_info(peer, f"s{seed}")


@pytest.mark.peers
def test_a_server_keeps_the_expiry_that_a_file_says(
    redis_peer: Peer, store: Store[bytes], tmp_path: Path
) -> None:
    store.stream("s").add({"a": 1}, id="1-1")
    with servers.loaded("redis", tmp_path, written(store, 4_000_000_000_123)) as other:
        assert other.command("PEXPIRETIME", "s") == 4_000_000_000_123


@pytest.fixture
def data(store: Store[bytes]) -> bytes:
    """A file of two streams."""
    for name in "st":
        stream = store.stream(name)
        for at in range(1, 9):
            stream.add({"f": at}, id=(at, 0))
        stream.group("g", start="0").read("alice", count=3)
    return written(store)


@pytest.fixture(scope="module")
def small() -> bytes:
    """A file of one stream, made without a store."""
    pieces: list[bytes] = []
    writer = FileWriter(pieces.append, [(b"note", b"17")])
    lp = bytes.fromhex("1d0000000a00010100010101816102000102010001000181620204 01ff")
    body = bytes((21, 1, 16)) + bytes(7) + b"\x01" + bytes(7) + b"\x01" + bytes((len(lp),)) + lp
    body += bytes((1, 1, 1, 1, 1, 0, 0, 1, 0)) + (11).to_bytes(2, "little")
    value = dump_payload.decode(body + crc64(body).to_bytes(8, "little"))
    writer.stream(b"s", 1, value.nodes, value.info, 123)
    writer.finish()
    return b"".join(pieces)


def test_cut_off_at_every_byte(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(InvalidPayloadError):
            verify(source(data[:size]))
    assert verify(source(data)) == 2


def test_every_byte_flipped_is_refused(data: bytes) -> None:
    for at in range(len(data)):
        hostile = bytearray(data)
        hostile[at] ^= 0x10
        with pytest.raises(InvalidPayloadError):
            verify(source(bytes(hostile)))


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(hostile=st.data())
def test_forged_bytes_without_checksum(small: bytes, hostile: st.DataObject) -> None:
    forged = bytearray(small[:-8])
    for _ in range(hostile.draw(st.integers(1, 3))):
        at = hostile.draw(st.integers(9, len(forged) - 1))
        forged[at : at + 1] = hostile.draw(
            st.sampled_from([b"\x81" + b"\xff" * 8, b"\xc3"]) | st.binary(max_size=3)
        )
    try:
        found = values(bytes(forged) + bytes(8))
    except (InvalidPayloadError, TooLargeError):
        return
    assert len(found) <= len(forged)


def test_bytes_behind_the_end_are_refused(small: bytes) -> None:
    assert list(values(small)) == [b"s"]
    with pytest.raises(InvalidPayloadError, match="behind"):
        values(small + b"x")


@pytest.mark.parametrize("kind", [6, 8, 22, 23, 28, 200, 243, 246])
def test_a_value_of_unknown_layout_is_refused_by_name(small: bytes, kind: int) -> None:
    head = small[: small.index(b"\xfe")]
    with pytest.raises(InvalidPayloadError, match=str(kind)):
        values(head + bytes((kind,)) + b"\x01k" + bytes(100))


@pytest.mark.parametrize(
    "head", [b"", b"REDIS", b"REDIS0000", b"REDIS0080", b"VALKEY011", b"VALKEY079",
             b"RUBIS0011", b"REDIS 11 ", b"VALKEY\xb2\xb2\xb2"],
)  # fmt: skip
def test_other_files_are_refused(head: bytes) -> None:
    with pytest.raises(InvalidPayloadError):
        FileReader(source(head + b"\xff" + bytes(8)))


def test_unread_parts_of_a_stream_are_skipped(data: bytes) -> None:
    names = []
    for key in FileReader(source(data, 5)).streams():
        names.append(key.name)
        if key.name == b"s":
            next(key.nodes())
    assert names == [b"s", b"t"]
    with pytest.raises(TooLargeError):
        next(FileReader(source(data)).streams()).value(10)


def test_memory_holds_a_chunk_and_not_the_stream() -> None:
    head = b"REDIS0011\xfe\x00\x15\x01s" + length(10_000)
    pieces = itertools.chain(
        [head],
        (b"\x10" + at.to_bytes(16, "big") + length(4000) + bytes(4000) for at in range(1, 10_001)),
        [b"\x00" * 10 + b"\xff" + bytes(8)],
    )
    tracemalloc.start()
    try:
        key = next(FileReader(lambda _: next(pieces, b"")).streams())
        assert sum(len(lp) for _, lp in key.nodes()) == 40_000_000
        assert key.info().groups == []
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
