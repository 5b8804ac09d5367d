"""Prevents a client in the same process that answers other than one over a network."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis
import valkey

import logstore
from logstore.engine.lane.lane_loading import native_or_none
from logstore.errors import OptionError
from logstore.redis import Redis
from logstore.redis.asyncio import Redis as AsyncRedis
from logstore.valkey import Valkey
from logstore.valkey.asyncio import Valkey as AsyncValkey
from tests.support.inside import lane_commits, let_lag
from tests.support.threads import run_all
from tests.wire.served import serving

SOON_S = 60.0


def session(client: Any) -> list[Any]:
    """What one client does, and is told."""
    told: list[Any] = [client.xadd("s", {"n": n}, id=f"{n}-0") for n in range(1, 6)]
    told.append(client.xgroup_create("s", "g", "0"))
    told.append(client.xreadgroup("g", "alice", {"s": ">"}, count=2))
    told.append(client.xack("s", "g", "1-0"))
    told.append(client.xpending("s", "g"))
    told.append(client.xautoclaim("s", "g", "bob", 0, justid=True))
    told += [client.xlen("s"), client.xrevrange("s", count=1), client.xdel("s", "2-0", "9-0")]
    told.append(client.xtrim("s", maxlen=2, approximate=False))
    told.append(client.xinfo_groups("s"))
    with client.pipeline(transaction=True) as pipe:
        pipe.watch("s")
        pipe.multi()
        pipe.xadd("s", {"a": 1}, id="7-0").xlen("s").xadd("t", {"b": 2}, id="1-0")
        told.append(pipe.execute())
    with client.pipeline(transaction=False) as pipe:
        for n in range(3):
            pipe.xadd("u", {"n": n}, id=f"{n + 1}-0")
        pipe.xadd("u", {"n": 0}, id="1-0")
        told.append([str(each) for each in pipe.execute(raise_on_error=False)])
    with pytest.raises((redis.ResponseError, valkey.ResponseError)) as refused:
        client.xadd("s", {"a": 1}, id="1-0")
    told.append(str(refused.value))
    told += [client.xread({"s": "0"}, count=1), client.xread({"s": "$"}, block=50)]
    told += [sorted(client.keys("*")), client.type("s"), client.exists("s", "none")]
    return told


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
def test_an_embedded_store_answers_as_over_a_network(
    tmp_path: Path, protocol: int, decode: bool
) -> None:
    options: dict[str, Any] = {"protocol": protocol, "decode_responses": decode}
    with serving(tmp_path / "served") as served, redis.Redis(port=served.port, **options) as far:
        wanted = session(far)
    with Redis(tmp_path / "store", **options) as near:
        assert session(near) == wanted
    with logstore.open(tmp_path / "store") as store:
        assert sorted(store.streams()) == [b"s", b"t", b"u"]


@pytest.mark.skipif(native_or_none is None, reason="the lane was not compiled")
@pytest.mark.parametrize("protocol", [2, 3])
def test_single_commands_of_an_embedded_client_use_the_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    """It went through the pipeline; the same answers without a lane are the judge."""

    def told(laned: bool) -> tuple[list[Any], list[int]]:
        let_lag(monkeypatch, 64, lane=laned)
        path, commits, answers = tmp_path / f"store {laned}", list[int](), list[Any]()
        options: dict[str, Any] = {"background": False}
        with (
            logstore.open(path, **options) as store,
            Redis(path, protocol=protocol, store=options) as client,
        ):
            client.xadd("s", {"n": 0}, id="1-0")
            for n in range(1, 8):
                client.xadd("s", {"n": n}, id=f"{n + 1}-0")
            client.xgroup_create("s", "g", "0")
            client.xreadgroup("g", "w", {"s": ">"}, count=1)  # the consumer is there now
            for call in (
                lambda: type(client.xadd("t", {"n": 1})),
                lambda: type(client.xadd("t", {"n": 2})),
                lambda: client.xreadgroup("g", "w", {"s": ">"}, count=2),
                lambda: client.xack("s", "g", "2-0"),
                lambda: client.xdel("s", "5-0"),
                lambda: client.xreadgroup("g", "w", {"s": ">"}),
                lambda: client.xack("s", "g", "2-0"),
                lambda: client.xreadgroup("g", "w", {"s": ">"}),
            ):
                lane_commits(store)
                answers.append(call())
                commits.append(lane_commits(store))
        return answers, commits

    answers, commits = told(laned=True)
    assert commits[:5] == [1] * 5
    assert told(laned=False) == (answers, [0] * 8)


def test_a_read_that_blocks_is_woken_by_another_client(tmp_path: Path) -> None:
    with Redis(tmp_path / "store") as one, Redis(tmp_path / "store") as two:
        found: list[Any] = []
        waiter = threading.Thread(target=lambda: found.append(one.xread({"s": "0"}, block=0)))
        waiter.start()
        while not any("xread" in each["cmd"] for each in two.client_list()):
            time.sleep(0.01)
        time.sleep(0.05)
        two.xadd("s", {"a": 1}, id="1-0")
        waiter.join(60)
        assert found == [[[b"s", [(b"1-0", {b"a": b"1"})]]]]


def test_the_clients_own_timeout_ends_a_read(tmp_path: Path) -> None:
    with Redis(tmp_path / "store", socket_timeout=0.2, retry=None) as client:
        started = time.monotonic()
        with pytest.raises(redis.TimeoutError):
            client.xread({"s": "$"}, block=0)
        assert time.monotonic() - started < 60
        assert client.ping()


def test_a_watched_key_that_changes_ends_the_transaction(tmp_path: Path) -> None:
    with Redis(tmp_path / "store") as client, client.pipeline() as pipe:
        pipe.watch("s")
        client.xadd("s", {"a": 1})
        pipe.multi()
        pipe.xadd("s", {"b": 1})
        with pytest.raises(redis.WatchError):
            pipe.execute()
        assert client.xlen("s") == 1


def test_the_store_is_closed_with_its_last_client(tmp_path: Path) -> None:
    one, two = Redis(tmp_path / "store"), Redis(tmp_path / "store")
    one.xadd("s", {"a": 1})
    one.close()
    assert two.xlen("s") == 1
    two.close()
    with logstore.open(tmp_path / "store", sync="always") as store:  # another option: nobody has it
        assert len(store.stream("s")) == 1


def test_threads_share_a_client(tmp_path: Path) -> None:
    with Redis(tmp_path / "store") as client:

        def add() -> None:
            for _ in range(100):
                client.xadd("s", {"a": 1})

        threads = [threading.Thread(target=add) for _ in range(4)]
        run_all(threads)
        assert client.xlen("s") == 400


@pytest.mark.parametrize(("kind", "library"), [(AsyncRedis, redis), (AsyncValkey, valkey)])
def test_asyncio(tmp_path: Path, kind: Any, library: Any) -> None:
    async def run() -> None:
        async with kind(tmp_path / "store", decode_responses=True) as client:
            ids = await asyncio.gather(*(client.xadd("s", {"n": n}) for n in range(50)))
            assert set(ids) == {id for id, _ in await client.xrange("s")}
            waiting = asyncio.ensure_future(client.xread({"s": "$"}, block=30_000))
            while not (await client.info("clients"))["blocked_clients"]:
                await asyncio.sleep(0.001)
            await client.xadd("s", {"late": 1}, id="9999999999999-0")
            assert await waiting == [["s", [("9999999999999-0", {"late": "1"})]]]
            async with client.pipeline(transaction=True) as pipe:
                pipe.xlen("s").xadd("t", {"a": 1}, id="1-0")
                assert await pipe.execute() == [51, "1-0"]
            assert await client.xread({"t": "$"}, block=30) in ([], {})
            with pytest.raises(library.ResponseError, match="equal or smaller"):
                await client.xadd("t", {"a": 1}, id="1-0")

    asyncio.run(run())


@pytest.mark.parametrize("kind", [Redis, AsyncRedis, Valkey, AsyncValkey])
def test_a_path_is_one_database(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(OptionError, match="database 0; give another path"):
        kind(tmp_path / "store", db=1)
    with Redis(tmp_path / "store", db=0, store={"sync": "os"}) as client:
        assert client.ping()
        with pytest.raises(redis.ResponseError, match="DB index is out of range"):
            client.select(1)


@pytest.mark.parametrize("protocol", [2, 3])
def test_valkey_py_is_answered_as_over_a_network(tmp_path: Path, protocol: int) -> None:
    options: dict[str, Any] = {"protocol": protocol}
    with (
        serving(tmp_path / "served", profile="valkey-9") as served,
        valkey.Valkey(port=served.port, **options) as far,
    ):
        wanted = session(far)
    with Valkey(tmp_path / "store", **options) as near:
        assert isinstance(near, valkey.Valkey)
        assert session(near) == wanted
        assert near.info("server")["server_name"] == "valkey"
    with logstore.open(tmp_path / "store", sync="always") as store:  # it was closed
        assert sorted(store.streams()) == [b"s", b"t", b"u"]


@pytest.mark.parametrize("at_once", [True, False])
def test_reads_that_block_are_answered_one_by_one_in_order(tmp_path: Path, at_once: bool) -> None:
    """Neither is a reply kept back for the read behind it, nor comes one before those before it."""

    async def run() -> None:
        async with AsyncRedis(tmp_path / "store", protocol=2) as client:
            link = await client.connection_pool.get_connection()
            reads = [("XREAD", "BLOCK", "0", "STREAMS", name, "0") for name in "abc"]
            if at_once:
                await link.send_packed_command(link.pack_commands([*reads, ("ECHO", "after")]))
            for words in [] if at_once else [*reads, ("ECHO", "after")]:
                await link.send_command(*words)

            async def reply() -> Any:
                return await asyncio.wait_for(link.read_response(), SOON_S)

            await client.xadd("b", {"n": 2}, id="2-0")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(link.read_response(disconnect_on_error=False), 0.2)
            await client.xadd("a", {"n": 1}, id="1-0")
            assert await reply() == [[b"a", [[b"1-0", [b"n", b"1"]]]]]
            assert await reply() == [[b"b", [[b"2-0", [b"n", b"2"]]]]]
            await client.xadd("c", {"n": 3}, id="3-0")
            assert await reply() == [[b"c", [[b"3-0", [b"n", b"3"]]]]]
            assert await reply() == b"after"
            await client.connection_pool.release(link)

    asyncio.run(run())
