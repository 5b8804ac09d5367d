"""Prevents replies that skip the bytes from becoming other values than redis-py parses."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis._parsers import _RESP2Parser, _RESP3Parser
from redis._parsers.encoders import Encoder

from logstore.redis import EmbeddedConnection, Redis
from logstore.redis.connection import value_of
from logstore.wire.resp.reply import NULL_ARRAY, Failure, Simple, Verbatim, encode

BYTES = st.binary(max_size=6)
SIMPLE = st.sampled_from([b"OK", b"a b", b"line\r\nbreak"]).map(Simple)
ERRORS = st.sampled_from(
    ["ERR no", "WRONGPASS x", "EXECABORT y", "NOAUTH z", "odd\r\nbreak", "ERR \udcff",
     "ERR invalid password"]
).map(Failure)  # fmt: skip
ONE = st.one_of(
    BYTES, st.integers(-(1 << 63), (1 << 63) - 1), st.none(), SIMPLE, ERRORS, st.booleans(),
    st.floats(allow_nan=False), st.just(NULL_ARRAY), st.binary(max_size=6).map(Verbatim),
    st.frozensets(BYTES, max_size=3),
)  # fmt: skip
REPLIES = st.recursive(
    ONE,
    lambda part: st.one_of(
        st.lists(part, max_size=4), st.tuples(part, part), st.dictionaries(BYTES, part, max_size=3)
    ),
    max_leaves=12,
)


class Bytes:
    """A socket that has these bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def recv(self, size: int) -> bytes:
        found, self._data = self._data[:size], self._data[size:]
        return found

    def settimeout(self, _timeout: object) -> None:
        """As of a socket."""

    def gettimeout(self) -> None:
        """As of a socket."""


def parsed(reply: Any, protocol: int, encoder: Encoder, *, raw: bool) -> Any:
    """What redis-py's own parser makes of it."""
    parser: Any = (_RESP3Parser if protocol == 3 else _RESP2Parser)(65536)

    class Connection:
        _sock = Bytes(encode(reply, protocol))
        socket_timeout = None

    made: Any = Connection()
    made.encoder = encoder
    parser.on_connect(made)
    return parser.read_response(disable_decoding=raw)


def shown(make: Any) -> Any:
    """A value with its types, or the error that came in its place."""

    def told(value: Any) -> Any:
        if isinstance(value, list):
            return [told(each) for each in value]
        if isinstance(value, dict):
            return {name: told(each) for name, each in value.items()}
        return (type(value), str(value)) if isinstance(value, Exception) else (type(value), value)

    try:
        return told(make())
    except Exception as exc:  # noqa: BLE001  what it is is compared
        return type(exc), str(exc)


@given(REPLIES, st.sampled_from([2, 3]), st.booleans(), st.booleans())
def test_values_are_those_of_the_parsers(
    reply: Any, protocol: int, decode: bool, raw: bool
) -> None:
    encoder: Any = Encoder("utf-8", "replace", decode)
    decoding = encoder.decode if decode and not raw else None
    wanted = shown(lambda: parsed(reply, protocol, encoder, raw=raw))
    assert shown(lambda: value_of(reply, protocol, decoding)) == wanted


def test_arguments_of_every_kind_arrive(tmp_path: Path) -> None:
    with Redis(tmp_path / "store") as client:
        row = {"a": 1, b"b": 2.5, "c": bytearray(b"x"), "d": memoryview(b"y"), "e": "ü"}
        client.xadd("s", row, id="1-0")
        assert client.xrange("s") == [
            (b"1-0", {b"a": b"1", b"b": b"2.5", b"c": b"x", b"d": b"y", b"e": "ü".encode()})
        ]
        with pytest.raises(redis.DataError):
            client.xadd("s", {"a": True})
        assert client.execute_command(b"XINFO STREAM", "s")[b"length"] == 1
        assert client.execute_command("XLEN", "s") == 1


def test_errors_are_of_the_same_classes(tmp_path: Path) -> None:
    with Redis(tmp_path / "store", retry=None) as client:
        for words, kind in (
            (("NOSUCH",), redis.ResponseError), (("EXEC",), redis.ResponseError),
            (("AUTH", "x"), redis.AuthenticationError), (("XADD", "s"), redis.ResponseError),
        ):  # fmt: skip
            with pytest.raises(kind):
                client.execute_command(*words)
        assert client.ping()
        assert len(client.client_list()) == 1  # the connection went on


def test_packed_and_unpacked_commands_are_answered_in_order(tmp_path: Path) -> None:
    with Redis(tmp_path / "store", protocol=2) as client:
        connection = client.connection_pool.get_connection()
        assert isinstance(connection, EmbeddedConnection)
        connection.send_packed_command(connection.pack_command("ECHO", "1"))
        connection.send_command("ECHO", "2")
        connection.send_packed_command(connection.pack_commands([("ECHO", "3"), ("XLEN", "s")]))
        assert connection.can_read()
        assert [connection.read_response() for _ in range(4)] == [b"1", b"2", b"3", 0]
        assert not connection.can_read()
        connection.send_command("QUIT")
        assert connection.read_response() == b"OK"
        with pytest.raises(redis.ConnectionError):
            connection.read_response()
        client.connection_pool.release(connection)
        assert client.ping()


def test_adds_that_are_sent_as_bytes_are_answered_one_by_one(tmp_path: Path) -> None:
    with Redis(tmp_path / "store") as client:
        connection: Any = client.connection_pool.get_connection()
        add = b"".join(connection.pack_command("XADD", "s", "*", "a", "1"))
        connection.send_packed_command([add * 3])
        connection.send_command("XADD", "s", "*", "a", "2")
        ids = [connection.read_response() for _ in range(4)]
        client.connection_pool.release(connection)
        assert ids == [id for id, _ in client.xrange("s")]


@pytest.mark.parametrize("transaction", [False, True])
def test_when_the_ids_run_out_the_first_of_a_pipeline_are_added(
    tmp_path: Path, transaction: bool
) -> None:
    most = (1 << 64) - 1
    with Redis(tmp_path / "store") as client:
        client.xadd("s", {"a": 1}, id=f"{most}-{most - 2}")
        with client.pipeline(transaction=transaction) as pipe:
            for n in range(4):
                pipe.xadd("s", {"n": n})
            pipe.xadd("t", {"n": 4})
            found = pipe.execute(raise_on_error=False)
        assert found[:2] == [b"%d-%d" % (most, most - 1), b"%d-%d" % (most, most)]
        assert all("exhausted" in str(each) for each in found[2:4])
        assert isinstance(found[4], bytes)
        assert [fields[b"n"] for _, fields in client.xrange("s")[1:]] == [b"0", b"1"]


def test_a_read_that_blocks_inside_a_pipeline_holds_up_what_is_behind_it(tmp_path: Path) -> None:
    with Redis(tmp_path / "store") as one, Redis(tmp_path / "store") as two:
        found: list[Any] = []

        def run() -> None:
            with one.pipeline(transaction=False) as pipe:
                pipe.xadd("t", {"a": 1}, id="1-0").xread({"s": "0"}, block=0).xlen("s")
                found.append(pipe.execute())

        waiter = threading.Thread(target=run)
        waiter.start()
        while not two.exists("t"):
            time.sleep(0.01)
        time.sleep(0.05)
        assert not found
        two.xadd("s", {"b": 2}, id="5-0")
        waiter.join(60)
        assert found[0][0] == b"1-0"
        assert found[0][2] == 1
        assert b"5-0" in str(found[0][1]).encode()


@pytest.mark.parametrize("packed", [False, True])
def test_commands_behind_a_blocking_read_are_parsed_after_it(tmp_path: Path, packed: bool) -> None:
    commands = [
        ("XREAD", "BLOCK", "20000", "STREAMS", "s", "4-0"), ("WATCH", "k"),
        ("XADD", "k", "1-0", "a", "1"), ("MULTI",), ("XADD", "k", "2-0", "a", "2"), ("EXEC",),
        ("CLIENT", "REPLY", "SKIP"), ("XADD", "k", "*", "a", "3"), ("XADD", "k", "*", "a", "4"),
        ("QUIT",), ("XADD", "k", "*", "a", "5"),
    ]  # fmt: skip
    with Redis(tmp_path / "store") as one, Redis(tmp_path / "store") as two:
        connection: Any = one.connection_pool.get_connection()
        if packed:
            sent = b"".join(b"".join(connection.pack_command(*each)) for each in commands)
            connection.send_packed_command([sent[:100], sent[100:]])
        else:
            connection.send_packed_command(connection.pack_commands(commands))
        two.xadd("s", {"b": 2}, id="5-0")
        found = [connection.read_response() for _ in range(6)]
        assert found[1:5] == [b"OK", b"1-0", b"OK", b"QUEUED"]
        assert found[5] is None  # it was changed behind WATCH
        added = connection.read_response()
        assert connection.read_response() == b"OK"
        assert [id for id, _ in two.xrange("k")[2:]] == [added]
        one.connection_pool.release(connection)


def test_client_unblock_ends_an_embedded_read(tmp_path: Path) -> None:
    with Redis(tmp_path / "store") as one, Redis(tmp_path / "store") as two:
        number = one.client_id()
        found: list[Any] = []
        waiter = threading.Thread(target=lambda: found.append(one.xread({"s": "$"}, block=0)))
        waiter.start()
        while not two.client_unblock(number):
            time.sleep(0.01)
        waiter.join(60)
        assert not waiter.is_alive()
        assert found in ([[]], [{}], [None])


def test_a_refused_command_leaves_the_connection_in_the_pool(tmp_path: Path) -> None:
    with Redis(tmp_path / "store", max_connections=1) as client:
        client.xadd("s", {"a": 1}, id="5-0")
        for _ in range(3):
            with pytest.raises(redis.ResponseError, match="equal or smaller"):
                client.xadd("s", {"a": 1}, id="5-0")
        assert client.xlen("s") == 1
        assert len(client.client_list()) == 1


def test_a_read_that_timed_out_leaves_no_late_reply(tmp_path: Path) -> None:
    with Redis(tmp_path / "store", socket_timeout=0.1, retry=None, max_connections=1) as client:
        with pytest.raises(redis.TimeoutError):
            client.xread({"s": "$"}, block=0)
        client.xadd("s", {"a": 1}, id="1-0")
        assert client.execute_command("ECHO", "here") == b"here"
