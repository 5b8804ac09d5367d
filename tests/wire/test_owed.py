"""Prevents replies that fill memory, and runs of requests that hold up everybody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

import logstore
from logstore.wire import owed as owing
from logstore.wire.owed import Cut, OwedBytes
from logstore.wire.reply import NULL_ARRAY, Array, Failure, Made, encode
from logstore.wire.service import Service
from tests.wire.lines import request
from tests.wire.served import serving

MOST = 4 << 20


def alive() -> bool:
    """The client is there."""
    return True


@pytest.mark.parametrize("protocol", [2, 3])
def test_pieces_are_the_bytes_of_the_reply(protocol: int) -> None:
    """Prevents a reply that is another one when it is made in pieces."""
    large = b"x" * 200_000
    reply: Any = [
        {b"name": 1, b"more": [large, None, NULL_ARRAY, large]},
        [[b"%d" % at, 2.5] for at in range(9000)],
        Failure("ERR no"),
        True,
        b"",
    ]
    owed = OwedBytes(protocol, 1 << 30, alive)
    made = owed.made(reply)
    assert isinstance(made, Made)
    assert b"".join(made.pieces) == encode(reply, protocol)
    assert owed.size == len(encode(reply, protocol))
    assert len(made.pieces) > 4
    rows = owed.rows()
    rows.add([[b"1-1", [b"a", large]]])
    rows.add([[b"2-1", [b"a", b"b"]]] * 5000)
    array = rows.done()
    assert isinstance(array, Array)
    assert encode([array], protocol) == encode(
        [[[b"1-1", [b"a", large]], *[[b"2-1", [b"a", b"b"]]] * 5000]], protocol
    )


def filled(store: logstore.Store[bytes], entries: int) -> None:
    """A stream of so many KiB."""
    store.stream(b"s").add_many([{b"f": b"v" * 1000} for _ in range(entries)])


def test_a_run_ends_with_what_is_owed(tmp_path: Path) -> None:
    """Prevents a pipeline of reads, or of reads of groups, that is run to its end before anything
    of it was sent."""
    with logstore.open(tmp_path / "store") as store:
        filled(store, 500)
        service = Service(store)
        session = service.session()
        runner = session.database.runner
        every = session.step([b"XRANGE", b"s", b"-", b"+"])
        owed = OwedBytes(2, 1 << 30, alive)
        assert len(runner.run([every] * 100, owed)) == 3
        assert owing.RUN_BYTES <= owed.size < 2 * owing.RUN_BYTES
        history = [b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b"0"]
        runner.run([session.step([b"XGROUP", b"CREATE", b"s", b"g", b"0"])])
        runner.run([session.step([*history[:-1], b">"])])
        owed = OwedBytes(2, 1 << 30, alive)
        assert len(runner.run([session.step(history)] * 100, owed)) == 3
        # All of a transaction, or nothing of it.
        steps = [session.step([b"XADD", b"t", b"*", b"a", b"b"]), *[every] * 20]
        with pytest.raises(Cut, match="may owe"):
            runner.transaction(steps, None, OwedBytes(2, MOST, alive))
        assert runner.run([session.step([b"EXISTS", b"t"])]) == [0]
        with pytest.raises(Cut, match="may owe"):
            runner.run([every], OwedBytes(2, 300_000, alive))
        with pytest.raises(Cut, match="went"):
            runner.run([every], OwedBytes(2, 1 << 30, lambda: False))


def test_who_would_owe_too_much_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents memory for a reply that is larger than a client may owe."""
    monkeypatch.setattr("logstore.wire.server.OUTPUT_MAX_BYTES", MOST)
    with serving(tmp_path / "store") as served, redis.Redis(port=served.port) as other:
        for _ in range(5):
            other.xadd("s", {"f": b"v" * 1000_000})
        for words in (["XRANGE", "s", "-", "+"], ["XREAD", "STREAMS", "s", "0"]):
            with redis.Redis(port=served.port, retry=None) as client:
                with pytest.raises(redis.ConnectionError):
                    client.execute_command(*words)
                assert len(client.execute_command("XRANGE", "s", "-", "+", "COUNT", 3)) == 3
        with redis.Redis(port=served.port, retry=None) as client, client.pipeline() as pipe:
            pipe.xadd("t", {"a": "b"})
            pipe.xrange("s")
            with pytest.raises(redis.ConnectionError):
                pipe.execute()
        assert not other.exists("t")
        assert "cut off" in caplog.text
        # One after the other there may be more of them than that.
        with redis.Redis(port=served.port) as client, client.pipeline(transaction=False) as pipe:
            for _ in range(9):
                pipe.xrange("s", count=2)
            assert [len(each) for each in pipe.execute()] == [2] * 9


def test_what_is_queued_and_watched_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents transactions, and watched keys, that grow until memory ends."""
    monkeypatch.setattr("logstore.wire.server.QUERY_MAX_BYTES", MOST)
    with serving(tmp_path / "store") as served:
        for begin, pattern in ((b"MULTI", b"DEL " + b"k" * 100), (b"PING", b"WATCH %d")):
            with redis.Redis(port=served.port) as client:
                sock = client.connection_pool.get_connection()._sock
                assert sock is not None
                sock.sendall(request([begin]))
                assert sock.recv(100)
                taken, replies = 0, sock.makefile("rb")
                with pytest.raises(ConnectionError):  # noqa: PT012
                    while True:
                        lines = (pattern.replace(b"%d", b"%d" % (taken + at)) for at in range(100))
                        sock.sendall(b"".join(request(line.split()) for line in lines))
                        for _ in range(100):
                            if not replies.readline():
                                raise ConnectionError
                        taken += 100
                        assert taken < 20_000
                assert taken > 2_000
        with redis.Redis(port=served.port) as client:
            assert client.ping()
