"""Prevents replies that fill memory, and runs of requests that hold up everybody else."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import logstore
from logstore.wire.catalogue import service_of
from logstore.wire.resp import outgoing as owing
from logstore.wire.resp.outgoing import ConnectionCut, OutputBytes
from logstore.wire.resp.reply import NULL_ARRAY, Array, Failure, InPieces, encode
from logstore.wire.service import Service
from logstore.wire.session import Session
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
    output = OutputBytes(protocol, 1 << 30, alive)
    made = output.made(reply)
    assert isinstance(made, InPieces)
    assert b"".join(made.pieces) == encode(reply, protocol)
    assert output.size == len(encode(reply, protocol))
    assert len(made.pieces) > 4
    rows = output.rows()
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
        service = service_of(store)
        session = Session(service)
        runner = session.database.runner
        every = session.step([b"XRANGE", b"s", b"-", b"+"])
        output = OutputBytes(2, 1 << 30, alive)
        assert len(runner.run([every] * 100, output)) == 3
        assert owing.RUN_BYTES <= output.size < 2 * owing.RUN_BYTES
        history = [b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b"0"]
        runner.run([session.step([b"XGROUP", b"CREATE", b"s", b"g", b"0"])])
        runner.run([session.step([*history[:-1], b">"])])
        output = OutputBytes(2, 1 << 30, alive)
        assert len(runner.run([session.step(history)] * 100, output)) == 3
        # All of a transaction, or nothing of it.
        steps = [session.step([b"XADD", b"t", b"*", b"a", b"b"]), *[every] * 20]
        with pytest.raises(ConnectionCut, match="may owe"):
            runner.transaction(steps, None, OutputBytes(2, MOST, alive))
        assert runner.run([session.step([b"EXISTS", b"t"])]) == [0]
        with pytest.raises(ConnectionCut, match="may owe"):
            runner.run([every], OutputBytes(2, 300_000, alive))
        with pytest.raises(ConnectionCut, match="went"):
            runner.run([every], OutputBytes(2, 1 << 30, lambda: False))


LIMIT = 3 << 20
ENTRIES = 30_000
BESIDE = 4 << 20  # what is read before it is counted: a batch of nodes, a page of rows


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A stream of small entries, all pending in g and new in n; many groups, consumers, streams."""
    with logstore.open(tmp_path_factory.mktemp("crowded") / "store", background=False) as store:
        stream = store.stream(b"s")
        # IDs of one length: a reply of so many bytes has so many entries, whatever the clock says.
        ids = [(1_000_000 + at, 100_000) for at in range(ENTRIES)]
        stream.add_many([(id, {b"f": b"v"}) for id in ids])
        stream.group(b"n", start="0")
        large = store.stream(b"large")
        large.add_many([{b"f": b"v" * 4000} for _ in range(2500)])
        large.group(b"g", start="0")
        group = stream.group(b"g", start="0")
        while group.read(b"c", count=ENTRIES):
            pass
        service = service_of(store)
        session = Session(service)
        names = [b"%05d" % at + b"x" * 400 for at in range(ENTRIES // 5)]
        steps = [session.step([b"XADD", b"t", b"*", b"f", b"v"])]
        steps += [session.step([b"XGROUP", b"CREATE", b"t", name, b"0"]) for name in names]
        steps += [
            session.step([b"XGROUP", b"CREATECONSUMER", b"t", names[0], name]) for name in names
        ]
        steps += [session.step([b"XADD", name, b"*", b"f", b"v"]) for name in names]
        assert not [each for each in session.database.runner.run(steps) if type(each) is Failure]
        yield service


def owing_at_most(service: Service, line: str, most: int) -> tuple[Any, int]:
    """The reply, or the error that cut it off, and the peak of memory above what was there."""
    session = Session(service)
    session.output = output = OutputBytes(2, most, alive)
    step = session.step(line.encode().split())
    gc.collect()
    tracemalloc.start()
    try:
        reply = session.database.runner.run([step], output)[0]
    except ConnectionCut as cut:
        reply = cut
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return reply, peak


@pytest.mark.parametrize(
    "line",
    [
        "XRANGE s - +", "XREADGROUP GROUP g c STREAMS s 0", "XPENDING s g - + 100000",
        "XINFO STREAM s FULL COUNT 0", "XINFO STREAM t FULL COUNT 0", "XINFO GROUPS t",
        "XINFO CONSUMERS t 00000" + "x" * 400, "KEYS *", "XCLAIM large g d 0 {ids} FORCE",
    ],
)  # fmt: skip
def test_no_reply_takes_more_than_may_be_owed(crowded: Service, line: str) -> None:
    """Prevents values of a reply that fill memory before the first of them is counted."""
    if "{ids}" in line:
        rows = crowded.store.stream(b"large").range()
        line = line.replace("{ids}", " ".join(str(each.id) for each in rows))
    most = LIMIT // 6  # of wire; as values they are more
    reply, peak = owing_at_most(crowded, line, most)
    assert isinstance(reply, ConnectionCut)
    assert "may owe" in str(reply)
    assert peak < most * 1.1 + BESIDE
    assert not crowded.store.stream(b"large").group(b"g").info().pending  # nothing of it was done
    if line.startswith("XREADGROUP"):
        # What there was room for was delivered, part by part; the one that was too much was not.
        pending = list(crowded.store.stream(b"s").group(b"g").pending_entries(count=ENTRIES))
        assert (pending[0].delivery_count, pending[-1].delivery_count) == (2, 1)


def test_deliveries_end_at_the_limit_of_a_reply(crowded: Service) -> None:
    """Prevents a commit that hands out more than its reply may hold; the rest is for the next."""
    reply, peak = owing_at_most(crowded, "XREADGROUP GROUP n c STREAMS s >", LIMIT)
    group = crowded.store.stream(b"s").group(b"n")
    first = group.info().pending
    assert isinstance(reply, InPieces)
    assert 500 < first < ENTRIES // 2
    assert peak < LIMIT * 1.1 + BESIDE
    owing_at_most(crowded, "XREADGROUP GROUP n c STREAMS s >", LIMIT)
    assert abs(group.info().pending - 2 * first) < 100
    reply, peak = owing_at_most(crowded, "XAUTOCLAIM s n d 0 - COUNT 100000", LIMIT)
    assert peak < LIMIT * 1.1 + BESIDE
    assert b"".join(reply.pieces).startswith(b"*3\r\n$")
    pending = {each.name: each.pending for each in group.consumers()}
    assert 500 < pending[b"d"] < 2 * first


def test_a_client_with_a_too_large_reply_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents memory for a reply that is larger than a client may owe."""
    monkeypatch.setattr("logstore.wire.server.server.OUTPUT_MAX_BYTES", MOST)
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


def test_queued_commands_and_watched_keys_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents transactions, and watched keys, that grow until memory ends."""
    monkeypatch.setattr("logstore.wire.server.server.QUERY_MAX_BYTES", MOST)
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
